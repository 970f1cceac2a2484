//! Cgroups that own something and have no path in the log yet.
//!
//! Most paths are known before the first owner. Others are looked up with pauses that double each
//! time: the record of a new cgroup may have been lost, and a lookup walks the whole hierarchy.

use std::collections::HashMap;

/// The first pause between two lookups of a path, ns.
const SHORTEST_NS: u64 = 1_000_000;

/// A path that was not found after a pause of this length is given up, ns. It is looked up again
/// when its cgroup owns something later.
const LONGEST_NS: u64 = 60_000_000_000;

/// Cgroups that are looked up at the same time. Others stay without a path until there is room.
const MOST: usize = 1 << 16;

/// The time of the next lookup, and the pause after it.
#[derive(Clone, Copy, Debug)]
struct NextLookup {
    time_ns: u64,
    pause_ns: u64,
}

/// The cgroups whose paths are looked up.
#[derive(Debug, Default)]
pub(super) struct UnnamedCgroups(HashMap<u64, NextLookup>);

impl UnnamedCgroups {
    /// Adds a cgroup that needs a path. The kernel assigns no cgroup the id 0, which stands for an
    /// unknown one.
    pub(super) fn add_cgroup(&mut self, id: u64) {
        if id != 0 && (self.0.len() < MOST || self.0.contains_key(&id)) {
            self.0.entry(id).or_insert(NextLookup { time_ns: 0, pause_ns: SHORTEST_NS });
        }
    }

    /// Calls `find` for those that are due at `now_ns`, or for all if `is_last`. If it returns
    /// `true`, the search ends.
    pub(super) fn look_up_due(
        &mut self,
        now_ns: u64,
        is_last: bool,
        mut find: impl FnMut(u64) -> bool,
    ) {
        self.0.retain(|&id, lookup| {
            if !is_last && now_ns < lookup.time_ns {
                return true;
            }
            if find(id) || lookup.pause_ns > LONGEST_NS {
                return false;
            }
            *lookup =
                NextLookup { time_ns: now_ns + lookup.pause_ns, pause_ns: lookup.pause_ns * 2 };
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_never_found_costs_few_looks() {
        let mut unnamed = UnnamedCgroups::default();
        unnamed.add_cgroup(0);
        let mut looks = 0;
        for tick in 0..300_000 {
            unnamed.add_cgroup(7);
            unnamed.look_up_due(tick * 1_000_000, false, |id| {
                looks += 1;
                assert_eq!(id, 7);
                false
            });
        }
        assert!((10..100).contains(&looks), "{looks} looks in 5 minutes");
    }

    #[test]
    fn a_path_is_found_at_once_or_at_the_end() {
        let mut unnamed = UnnamedCgroups::default();
        unnamed.add_cgroup(7);
        unnamed.look_up_due(1, false, |_| true);
        unnamed.look_up_due(2, true, |_| panic!("it was found"));
        unnamed.add_cgroup(8);
        unnamed.look_up_due(3, false, |_| false);
        unnamed.look_up_due(4, false, |_| panic!("it is not its turn"));
        let mut last = Vec::new();
        unnamed.look_up_due(5, true, |id| {
            last.push(id);
            true
        });
        assert_eq!(last, [8]);
    }
}
