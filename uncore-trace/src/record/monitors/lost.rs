//! Readings that are missing, as losses: one for each time in which a group cannot be read.

use std::collections::HashMap;

use crate::assemble::{Measured, MonitorLost};

/// A loss that lasts is entered once in this time, ns.
const LONGEST_NS: u64 = 60_000_000_000;

/// Readings of a group that are missing.
#[derive(Debug)]
struct Run {
    group: String,
    why: String,
    /// When the group was read last, ns.
    since: u64,
    count: u64,
}

/// The groups that cannot be read.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// By inode of the group.
    open: HashMap<u64, Run>,
    ended: Vec<MonitorLost>,
}

impl Runs {
    /// A reading of a group at `now` is missing. The one before it was at `before`.
    pub(super) fn missing(&mut self, inode: u64, group: &str, why: String, before: u64, now: u64) {
        let new = || Run { group: shown(group), why, since: before, count: 0 };
        let run = self.open.entry(inode).or_insert_with(new);
        run.count += 1;
        if now >= run.since + LONGEST_NS {
            self.end(inode, now);
        }
    }

    /// A window of a group that is read again has no bytes, because it has no begin.
    pub(super) fn begins(&mut self, inode: u64) {
        if let Some(run) = self.open.get_mut(&inode) {
            run.count += 1;
        }
    }

    /// A group has bytes at `now`, or does not exist any more.
    pub(super) fn end(&mut self, inode: u64, now: u64) {
        if let Some(Run { group, why, since, count }) = self.open.remove(&inode) {
            let detail = format!("{group}: {why}");
            self.ended.push(MonitorLost { time: now, span_ns: now - since, count, detail });
        }
    }

    /// Somebody removed a group that had all threads of a cgroup.
    pub(super) fn removed(&mut self, inode: u64, group: &str, before: u64, now: u64) {
        self.end(inode, now);
        self.missing(inode, group, "the group was removed".to_owned(), before, now);
        self.end(inode, now);
    }

    /// A reading of all groups did not reach the recorder.
    pub(super) fn dropped(&mut self, measured: Measured) {
        let Measured { time, span_ns, bytes: _, lost } = measured;
        self.ended.extend(lost);
        let detail = "all groups: the recorder was behind".to_owned();
        self.ended.push(MonitorLost { time, span_ns, count: 1, detail });
    }

    /// The recording ends at `now`.
    pub(super) fn end_all(&mut self, now: u64) {
        let mut open: Vec<u64> = self.open.keys().copied().collect();
        open.sort_unstable();
        for inode in open {
            self.end(inode, now);
        }
    }

    /// The losses since the last call.
    pub(super) fn take(&mut self) -> Vec<MonitorLost> {
        std::mem::take(&mut self.ended)
    }
}

/// The default group has an empty name.
fn shown(group: &str) -> String {
    if group.is_empty() { "the default group".to_owned() } else { format!("group {group}") }
}
