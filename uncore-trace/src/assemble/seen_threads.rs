//! Threads that were seen, so that each has one row with the time of its first appearance.
//!
//! The record of an exit arrives before the record of the last slice, which ends at the switch
//! after the exit. So an exit is remembered until that slice has arrived.

use std::collections::{HashMap, HashSet, VecDeque};

/// How long after an exit its last slice may arrive, ns: longer than a recorder lags behind.
const KEEP_NS: u64 = 30_000_000_000;

/// The live threads, and those that have exited recently.
#[derive(Debug, Default)]
pub(super) struct SeenThreads {
    live: HashSet<u32>,
    exited: HashMap<u32, u64>,
    /// Time and thread of each exit, oldest first.
    order: VecDeque<(u64, u32)>,
}

impl SeenThreads {
    /// Whether this is the first record of a thread; the record begins at `begin_ns`.
    pub(super) fn is_first(&mut self, tid: u32, begin_ns: u64) -> bool {
        // A record that begins after the exit belongs to another thread with the same number.
        let is_over = self.exited.get(&tid).is_some_and(|exit| begin_ns <= *exit);
        !is_over && self.live.insert(tid)
    }

    /// Notes that a thread has exited.
    pub(super) fn note_exit(&mut self, tid: u32, time_ns: u64) {
        self.live.remove(&tid);
        self.exited.insert(tid, time_ns);
        self.order.push_back((time_ns, tid));
        while let Some((old, tid)) =
            self.order.pop_front_if(|(exit, _)| exit.saturating_add(KEEP_NS) < time_ns)
        {
            if self.exited.get(&tid) == Some(&old) {
                self.exited.remove(&tid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_seen_once_and_not_after_its_exit() {
        let mut seen = SeenThreads::default();
        assert!(seen.is_first(7, 100));
        assert!(!seen.is_first(7, 200));
        seen.note_exit(7, 300);
        assert!(!seen.is_first(7, 250), "its last slice");
        assert!(seen.is_first(7, 400), "another thread with this number");
        assert!(!seen.is_first(7, 500));
    }

    #[test]
    fn memory_is_that_of_threads_that_live_or_have_just_exited() {
        let mut seen = SeenThreads::default();
        for number in 0..100_000_u64 {
            let (tid, time) = (number as u32, number * 1_000_000_000);
            assert!(seen.is_first(tid, time));
            seen.note_exit(tid, time + 10);
            assert!(!seen.is_first(tid, time));
        }
        assert!(seen.live.is_empty());
        assert!(seen.exited.len() < 40 && seen.order.len() < 40, "{}", seen.exited.len());
    }
}
