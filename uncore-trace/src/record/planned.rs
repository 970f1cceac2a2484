//! What happened to the planned counters: rows of the table `counters`, and warnings.

use std::collections::{BTreeMap, BTreeSet};

use super::args::RecordOptions;
use crate::assemble::Sink;
use crate::discover::pci::join_addresses;
use crate::open::Session;
use crate::plan::Plan;
use crate::schema::link::{Link, LinkCounter, PeakRate};
use crate::schema::origin::RecordingOrigin;
use crate::schema::{counters, links};

/// Warns of counters that could not be opened; optional witnesses get one warning in total.
pub(super) fn warn_of_unopened(plan: &Plan, session: &Session, options: &RecordOptions) {
    let optional: BTreeSet<u32> = match options.witness_budget {
        Some(_) => plan.only_witnesses().map(|optional_witness| optional_witness.id).collect(),
        None => BTreeSet::new(),
    };
    let (witnesses, required): (Vec<_>, Vec<_>) = session
        .unopened()
        .iter()
        .partition(|unopened_counter| optional.contains(&unopened_counter.counter));
    for unopened in required {
        log::warn!("{} (the other counters are recorded)", unopened.reason);
    }
    if let Some(first_witness) = witnesses.first() {
        log::warn!("{} (counts are divided without this witness)", first_witness.reason);
    }
}

/// Writes a row of `counters` for each counter. `failed` holds those that are not read, with the
/// reason.
pub(super) fn plan_rows(plan: &Plan, failed: &BTreeMap<u32, &str>, sink: &mut Sink) {
    if !sink.wants_table(&counters::TABLE) {
        return;
    }
    let RecordingOrigin { host, boot_id, cluster } = &sink.origin;
    for counter in &plan.counters {
        let failed = failed.get(&counter.id).copied();
        let functions = join_addresses(&counter.functions);
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
            functions: functions.as_deref(),
            part_of: counter.part_of.map(|whole| whole as i32),
            role: counter.role.name(),
            state: if failed.is_some() { "failed" } else { "opened" },
            error: failed,
        });
    }
}

/// Writes a row of `links` for each counter of a link.
pub(super) fn link_rows(plan: &Plan, sink: &mut Sink) {
    if !sink.wants_table(&links::TABLE) {
        return;
    }
    let pairs = plan
        .links
        .iter()
        .flat_map(|link| link.counters.iter().map(move |link_counter| (link, link_counter)));
    for (link, counted) in pairs {
        let is_other = |peak: &&PeakRate| (peak.direction != counted.direction, peak.source);
        link_row(link, *counted, link.peaks_of(counted.direction).min_by_key(is_other), sink);
    }
}

fn link_row(link: &Link, counted: LinkCounter, peak: Option<&PeakRate>, sink: &mut Sink) {
    let RecordingOrigin { host, boot_id, cluster } = &sink.origin;
    sink.rows.links.append(&links::Row {
        host,
        boot_id,
        cluster: cluster.as_deref(),
        counter: counted.counter as i32,
        link: &link.name,
        kind: &link.kind,
        subsystem: &link.subsystem,
        socket: link.socket.map(i32::from),
        devices: link.devices.as_deref(),
        direction: counted.direction.direction_name(),
        peak: peak.map(|peak| peak.bytes_per_s),
        peak_direction: peak.map(|peak| peak.direction.direction_name()),
        peak_source: peak.map(|peak| peak.source.source_name()),
        peak_detail: peak.map(|peak| peak.detail.as_str()),
    });
}
