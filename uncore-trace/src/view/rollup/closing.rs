//! Closes windows of a roll-up and makes their rows.

use super::window::{Counted, OwnerSum};
use super::{Label, OPEN, Rows, Summer};
use crate::schema::origin::Origin;
use crate::schema::rollup;

/// Time for which a window that is over waits for counters that have not come to its end, ns.
pub(super) const PATIENCE_NS: i64 = 5_000_000_000;

impl Summer {
    /// The rows of the oldest window, if it is complete.
    pub fn closed(&mut self, label: Label) -> Option<Rows> {
        let is_full = self.open.len() > OPEN;
        let mut oldest = self.open.first_entry()?;
        let end_ns = *oldest.key();
        let is_over = end_ns.saturating_add(self.form.slack_ns) <= self.newest_ns;
        if is_over && !is_full {
            let due_ns = oldest.get_mut().over_since(self.newest_ns).saturating_add(PATIENCE_NS);
            let late = self.counters.values_mut().filter(|its| its.reached_ns < end_ns);
            let mut late = late.filter(|its| !its.is_gone);
            if self.newest_ns < due_ns {
                if late.next().is_some() {
                    return None;
                }
            } else {
                late.for_each(|its| its.is_gone = true);
            }
        }
        if is_over || is_full { self.close(label) } else { None }
    }

    /// The rows of the oldest window, complete or not.
    pub fn close(&mut self, label: Label) -> Option<Rows> {
        let (end_ns, window) = self.open.pop_first()?;
        let ts_us = match label {
            Label::Recorded => window.ts_us(end_ns),
            Label::Clock(now) => now.wall(end_ns) / 1000,
        };
        self.lines = self.lines.saturating_sub(window.lines());
        let times = (end_ns, end_ns.saturating_sub(window.begin_ns()), ts_us);
        let mut rows = rollup::Builder::default();
        let (lines, counted) = window.into_lines(self.form.owners, self.canary.as_deref());
        for thing in counted.keys() {
            if let Some(written_ns) = self.written.get_mut(*thing) {
                *written_ns = end_ns.max(*written_ns);
            }
        }
        for line in lines {
            if let Some(counted) = counted.get(&line.thing) {
                self.append(&mut rows, times, &line, counted);
            }
        }
        Some(Rows { end: (ts_us, end_ns), batch: rows.finish() })
    }

    fn append(
        &self,
        rows: &mut rollup::Builder,
        (end_ns, window_ns, ts_us): (i64, i64, i64),
        line: &OwnerSum,
        sum: &Counted,
    ) {
        let Some(counter) = self.things.get(line.thing) else { return };
        let Origin { host, boot_id, cluster } = &self.origin;
        let shown = line.shown(sum);
        rows.append(&rollup::Row {
            ts: ts_us.saturating_mul(1000),
            mono_ns: end_ns,
            window_ns,
            known_ns: sum.known_ns(),
            host,
            boot_id,
            cluster: cluster.as_deref(),
            socket: counter.socket,
            subsystem: &counter.subsystem,
            link: counter.link.as_deref(),
            direction: counter.direction,
            peak: counter.peak.map(|(peak, _)| peak),
            peak_direction: counter.peak.map(|(_, direction)| direction.name()),
            pmu: &counter.pmu,
            event: &counter.event,
            filter: &counter.filter,
            unit: &counter.unit,
            owner: &line.owner.kind,
            number: line.owner.number,
            comm: line.owner.comm.as_deref(),
            cgroup: line.owner.cgroup.as_deref(),
            container: line.owner.container.as_deref(),
            pod: line.owner.pod.as_deref(),
            job: line.owner.job.as_deref(),
            value: shown.map(|it| it.value),
            low: shown.map(|it| it.low),
            high: shown.map(|it| it.high),
            total: shown.map(|_| sum.total),
            running: sum.running(),
            method: &line.method,
            confidence: shown.and_then(|it| it.confidence),
        });
    }
}
