//! What became of the planned counters: rows of the table `counters`, and warnings.

use std::collections::BTreeSet;

use super::args::Options;
use crate::assemble::Sink;
use crate::open::Session;
use crate::plan::Plan;
use crate::schema::counters;
use crate::schema::origin::Origin;

/// Warns of counters that could not be opened: of witnesses that may be missing once for all.
pub(super) fn warn_of_unopened(plan: &Plan, session: &Session, options: &Options) {
    let optional: BTreeSet<u32> = match options.witness_budget {
        Some(_) => plan.witnesses().map(|its| its.id).collect(),
        None => BTreeSet::new(),
    };
    let (witnesses, others): (Vec<_>, Vec<_>) =
        session.unopened().iter().partition(|its| optional.contains(&its.counter));
    for unopened in others {
        log::warn!("{} (the other counters are recorded)", unopened.reason);
    }
    if let Some(first) = witnesses.first() {
        log::warn!("{} (counts are divided without this witness)", first.reason);
    }
}

/// A row of `counters` for each.
pub(super) fn plan_rows(plan: &Plan, session: &Session, sink: &mut Sink) {
    if !sink.wants(&counters::TABLE) {
        return;
    }
    let Origin { host, boot_id, cluster } = &sink.origin;
    for counter in &plan.counters {
        let failed = session.unopened().iter().find(|unopened| unopened.counter == counter.id);
        let [config, config1, config2, config3, config4] = counter.config;
        sink.rows.counters.append(&counters::Row {
            host,
            boot_id,
            cluster: cluster.as_deref(),
            counter: counter.id as i32,
            pmu: &counter.pmu,
            family: &counter.family,
            attr_type: counter.attr_type as i32,
            subsystem: &counter.subsystem,
            event: &counter.event,
            filter: &counter.filter,
            unit: &counter.unit,
            scale: counter.scale,
            config,
            config1,
            config2,
            config3,
            config4,
            cpu: counter.cpu as i32,
            socket: counter.socket.map(i32::from),
            sees: &counter.sees.to_string(),
            leader: counter.leader.map(|leader| leader as i32),
            role: counter.role.name(),
            state: if failed.is_some() { "failed" } else { "opened" },
            error: failed.map(|failed| failed.reason.as_str()),
        });
    }
}
