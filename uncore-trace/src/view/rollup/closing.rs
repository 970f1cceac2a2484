//! Closes windows of a roll-up and makes their rows.

use super::window::{CounterTotals, OwnerSum};
use super::{MAX_OPEN_WINDOWS, RollupRows, RollupSummer, WallTimeSource};
use crate::clock::{RollupTime, TimeSpan};
use crate::schema::origin::RecordingOrigin;
use crate::schema::rollup;

/// Time for which a window that is over waits for counters that have not come to its end, ns.
pub(super) const PATIENCE_NS: i64 = 5_000_000_000;

impl RollupSummer {
    /// Closes the oldest window if it is complete, and returns its rows.
    pub fn close_complete_window(&mut self, wall_source: WallTimeSource) -> Option<RollupRows> {
        let is_full = self.open_windows.len() > MAX_OPEN_WINDOWS;
        let mut oldest = self.open_windows.first_entry()?;
        let end_ns = *oldest.key();
        let is_over = end_ns.saturating_add(self.form.slack_ns) <= self.newest_ns;
        if is_over && !is_full {
            let due_ns = oldest.get_mut().note_over(self.newest_ns).saturating_add(PATIENCE_NS);
            let late = self.counters.values_mut().filter(|counter| counter.reached_ns < end_ns);
            let mut late = late.filter(|late_counter| !late_counter.is_gone);
            if self.newest_ns < due_ns {
                if late.next().is_some() {
                    return None;
                }
            } else {
                late.for_each(|absent| absent.is_gone = true);
            }
        }
        if is_over || is_full { self.close_oldest_window(wall_source) } else { None }
    }

    /// Closes the oldest window, complete or not, and returns its rows.
    pub fn close_oldest_window(&mut self, wall_source: WallTimeSource) -> Option<RollupRows> {
        let (end_ns, window) = self.open_windows.pop_first()?;
        let ts_us = match wall_source {
            WallTimeSource::Recorded => window.ts_us(end_ns),
            WallTimeSource::Clock(snapshot) => snapshot.wall_at(end_ns) / 1000,
        };
        self.open_lines = self.open_lines.saturating_sub(window.lines.len());
        let span = TimeSpan::new(window.begin_ns, end_ns);
        let mut rows = rollup::Builder::default();
        let (lines, totals) = window.into_lines(self.form.owners, self.canary.as_deref());
        for counter_index in totals.keys() {
            if let Some(written_ns) = self.written_until_ns.get_mut(*counter_index) {
                *written_ns = end_ns.max(*written_ns);
            }
        }
        for line in lines {
            if let Some(counter_totals) = totals.get(&line.counter_index) {
                self.append_row(&mut rows, span, ts_us, &line, counter_totals);
            }
        }
        Some(RollupRows { end: RollupTime { ts_us, mono_ns: end_ns }, batch: rows.finish() })
    }

    fn append_row(
        &self,
        rows: &mut rollup::Builder,
        window: TimeSpan<i64>,
        ts_us: i64,
        line: &OwnerSum,
        totals: &CounterTotals,
    ) {
        let Some(counter) = self.rollup_counters.get(line.counter_index) else { return };
        let RecordingOrigin { host, boot_id, cluster } = &self.origin;
        let row_values = line.row_values(totals);
        rows.append(&rollup::Row {
            ts: ts_us.saturating_mul(1000),
            mono_ns: window.end_ns,
            window_ns: window.len_ns(),
            known_ns: totals.known_ns(),
            host,
            boot_id,
            cluster: cluster.as_deref(),
            socket: counter.socket,
            subsystem: &counter.subsystem,
            link: counter.link.as_deref(),
            direction: counter.direction,
            peak: counter.peak.map(|(peak, _)| peak),
            peak_direction: counter.peak.map(|(_, direction)| direction.direction_name()),
            pmu: &counter.pmu,
            event: &counter.event,
            filter: &counter.filter,
            unit: &counter.unit,
            owner: &line.owner.owner_kind,
            number: line.owner.number,
            comm: line.owner.comm.as_deref(),
            cgroup: line.owner.cgroup.as_deref(),
            container: line.owner.container.as_deref(),
            pod: line.owner.pod.as_deref(),
            job: line.owner.job.as_deref(),
            value: row_values.map(|values| values.value),
            low: row_values.map(|values| values.low),
            high: row_values.map(|values| values.high),
            total: row_values.map(|_| totals.total),
            running: totals.mean_running(),
            method: &line.method,
            confidence: row_values.and_then(|values| values.confidence),
        });
    }
}
