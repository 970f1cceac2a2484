//! Readings that are missing, as losses: one for each time in which a group cannot be read.

use std::collections::HashMap;

use crate::assemble::{MonitorLoss, MonitorReading};

/// A loss that lasts is entered once in this time, ns.
const LONGEST_NS: u64 = 60_000_000_000;

/// Successive readings of a group that are missing.
#[derive(Debug)]
struct LossRun {
    group: String,
    why: String,
    /// When the group was read last, ns.
    since_ns: u64,
    count: u64,
}

/// The groups that cannot be read.
#[derive(Debug, Default)]
pub(super) struct LossRuns {
    /// By inode of the group.
    open_runs: HashMap<u64, LossRun>,
    ended_losses: Vec<MonitorLoss>,
}

impl LossRuns {
    /// A reading of a group at `now_ns` is missing. The one before it was at `previous_ns`.
    pub(super) fn note_missing(
        &mut self,
        inode: u64,
        group: &str,
        why: String,
        previous_ns: u64,
        now_ns: u64,
    ) {
        let new = || LossRun { group: group_label(group), why, since_ns: previous_ns, count: 0 };
        let run = self.open_runs.entry(inode).or_insert_with(new);
        run.count += 1;
        if now_ns >= run.since_ns + LONGEST_NS {
            self.end_run(inode, now_ns);
        }
    }

    /// A window of a group that is read again has no bytes, because it has no begin.
    pub(super) fn note_begin(&mut self, inode: u64) {
        if let Some(run) = self.open_runs.get_mut(&inode) {
            run.count += 1;
        }
    }

    /// A group has bytes at `now_ns`, or does not exist any more.
    pub(super) fn end_run(&mut self, inode: u64, now_ns: u64) {
        if let Some(LossRun { group, why, since_ns: since, count }) = self.open_runs.remove(&inode)
        {
            let detail = format!("{group}: {why}");
            self.ended_losses.push(MonitorLoss {
                time_ns: now_ns,
                span_ns: now_ns - since,
                count,
                detail,
            });
        }
    }

    /// Somebody removed a group that had all threads of a cgroup.
    pub(super) fn note_removed(&mut self, inode: u64, group: &str, previous_ns: u64, now_ns: u64) {
        self.end_run(inode, now_ns);
        self.note_missing(inode, group, "the group was removed".to_owned(), previous_ns, now_ns);
        self.end_run(inode, now_ns);
    }

    /// A reading of all groups did not reach the recorder.
    pub(super) fn note_dropped(&mut self, measured: MonitorReading) {
        let MonitorReading { time_ns: time, span_ns, bytes: _, lost } = measured;
        self.ended_losses.extend(lost);
        let detail = "all groups: the recorder was behind".to_owned();
        self.ended_losses.push(MonitorLoss { time_ns: time, span_ns, count: 1, detail });
    }

    /// The recording ends at `now_ns`.
    pub(super) fn end_all_runs(&mut self, now_ns: u64) {
        let mut open: Vec<u64> = self.open_runs.keys().copied().collect();
        open.sort_unstable();
        for inode in open {
            self.end_run(inode, now_ns);
        }
    }

    /// The losses since the last call.
    pub(super) fn take_losses(&mut self) -> Vec<MonitorLoss> {
        std::mem::take(&mut self.ended_losses)
    }
}

/// The default group has an empty name.
fn group_label(group: &str) -> String {
    if group.is_empty() { "the default group".to_owned() } else { format!("group {group}") }
}
