//! Small shares: those of processes below a part of the window's total become one share.
//!
//! A window of a large machine has hundreds of processes, most with less than a thousandth of a
//! count, which is no more than the step to which shares are rounded ([`super::grid`]). The small
//! processes of a cgroup become one share of the cgroup without a process, so its sum does not
//! change. A cgroup that is small itself becomes a part of [`Owner::OtherTasks`]. So a sum over
//! windows lacks less than this part of the counter's total for each cgroup, and `other_tasks` has
//! what they lack.
//!
//! What is small in every counter of a set of CPUs is small: so a process has rows of all of them
//! or of none, and their columns stay runs. The confidence of a sum is the mean of its parts',
//! weighed by value: errors that cancel out are not considered.

use foldhash::{HashMap, HashSet};

use super::cgroups::cgroup_of_owner;
use super::share::Share;
use crate::drain::Comm;
use crate::entries::Owner;

/// The default of the smallest share, as a part of the total.
pub const MIN_SHARE: f64 = 0.001;

/// A process, or the processes of a cgroup that have no rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TaskGroup {
    /// The cgroup with this id.
    Cgroup(u64),
    /// The process.
    Process(Owner),
}

/// The owners of a window that are large in one of the counters of a set of CPUs.
#[derive(Debug, Default)]
pub(super) struct LargeOwners {
    processes: HashSet<Owner>,
    cgroups: HashSet<u64>,
}

impl LargeOwners {
    /// Adds the owners of a counter. `min_fraction` is a fraction of the total, 0 to 1.
    pub(super) fn add_counter(&mut self, total: f64, min_fraction: f64, shares: &[Share]) {
        let limit = min_fraction * total;
        let mut sums: HashMap<u64, f64> = HashMap::default();
        for share in shares {
            let Some(id) = cgroup_of_owner(&share.owner) else { continue };
            *sums.entry(id).or_default() += share.value;
            if share.value >= limit {
                self.processes.insert(share.owner);
            }
        }
        self.cgroups.extend(sums.into_iter().filter(|(_, sum)| *sum >= limit).map(|(id, _)| id));
    }

    /// Whether a process or a cgroup is large.
    pub(super) fn has_group(&self, group: &TaskGroup) -> bool {
        match group {
            TaskGroup::Cgroup(id) => self.cgroups.contains(id),
            TaskGroup::Process(owner) => self.processes.contains(owner),
        }
    }

    /// Treats a process or a cgroup as small.
    pub(super) fn remove_group(&mut self, group: &TaskGroup) {
        match group {
            TaskGroup::Cgroup(id) => self.cgroups.remove(id),
            TaskGroup::Process(owner) => self.processes.remove(owner),
        };
    }

    /// Treats every cgroup as large.
    pub(super) fn add_all_cgroups(&mut self, shares: &[Share]) {
        self.cgroups.extend(shares.iter().filter_map(|share| cgroup_of_owner(&share.owner)));
    }

    /// Whether a share is not united with others. What is known by other means than the window's
    /// method stays as it is.
    fn keeps_share(&self, share: &Share) -> bool {
        share.method.is_some() || self.processes.contains(&share.owner)
    }
}

/// The small shares of a cgroup.
#[derive(Debug, Default)]
struct SmallShares {
    sum: Option<Share>,
    /// The only share, as it was.
    sole: Option<Share>,
}

impl SmallShares {
    fn add_share(&mut self, share: &Share, owner: Owner) {
        self.sole = self.sum.is_none().then_some(*share);
        add_to_sum(&mut self.sum, share, owner, Some(1));
    }
}

/// Makes one share of the small ones of each cgroup, and one of those of small cgroups.
pub(super) fn unite_small(large: &LargeOwners, shares: &mut Vec<Share>) {
    let mut cgroups: HashMap<u64, SmallShares> = HashMap::default();
    let mut other_tasks = SmallShares::default();
    shares.retain(|share| {
        if share.owner == Owner::OtherTasks {
            other_tasks.sole = None;
            add_to_sum(&mut other_tasks.sum, share, Owner::OtherTasks, None);
            return false;
        }
        let Some(id) = cgroup_of_owner(&share.owner).filter(|_| !large.keeps_share(share)) else {
            return true;
        };
        if large.cgroups.contains(&id) {
            let owner = Owner::Task { pid: 0, comm: Comm::default(), cgroup_id: id };
            cgroups.entry(id).or_default().add_share(share, owner);
        } else {
            other_tasks.add_share(share, Owner::OtherTasks);
        }
        false
    });
    let sums = cgroups.into_values().chain([other_tasks]);
    let mut sums: Vec<Share> = sums.filter_map(|small| small.sole.or(small.sum)).collect();
    sums.sort_unstable_by_key(|share| share.owner);
    shares.append(&mut sums);
}

/// Adds a share to the sum of an owner. The number of processes is unknown if that of a part is.
fn add_to_sum(sum: &mut Option<Share>, share: &Share, owner: Owner, processes: Option<u32>) {
    match sum {
        None => *sum = Some(Share { owner, processes, ..*share }),
        Some(sum) => {
            sum.add_share(share);
            sum.processes = sum.processes.zip(processes).map(|(sum, count)| sum + count);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(pid: u32, cgroup_id: u64) -> Owner {
        Owner::Task { pid, comm: Comm::default(), cgroup_id }
    }

    #[test]
    fn small_processes_are_a_share_of_their_cgroup_and_small_cgroups_of_the_others() {
        let mut shares: Vec<Share> = [
            (task(1, 10), 90.0, 0.5),
            (task(2, 10), 0.5, 0.2),
            (task(3, 10), 0.5, 0.6),
            (task(4, 20), 0.4, 0.1),
            (task(5, 20), 0.4, 0.3),
            (task(6, 30), 0.1, 0.0),
            (task(7, 40), 2.0, 0.0),
            (task(8, 40), 0.1, 0.0),
            (task(9, 40), 0.1, 0.0),
            (Owner::Irq(7), 0.2, 0.4),
            (Owner::Unattributed, 5.7, 0.0),
        ]
        .map(|(who, value, confidence)| Share::new(who, value, confidence))
        .to_vec();
        let mut large = LargeOwners::default();
        large.add_counter(100.0, 0.01, &shares);
        // The last process of cgroup 40 is large in another counter.
        large.add_counter(1.0, 0.01, &[Share::new(task(9, 40), 0.02, 0.0)]);
        unite_small(&large, &mut shares);
        let found: Vec<_> = shares
            .iter()
            .map(|its| (its.owner, (its.value * 1e3).round(), its.processes))
            .collect();
        assert_eq!(
            found,
            [
                (task(1, 10), 90_000.0, None),
                (task(7, 40), 2000.0, None),
                (task(9, 40), 100.0, None),
                (Owner::Irq(7), 200.0, None),
                (Owner::Unattributed, 5700.0, None),
                (task(0, 10), 1000.0, Some(2)),
                // One alone keeps its name.
                (task(8, 40), 100.0, None),
                (Owner::OtherTasks, 900.0, Some(3)),
            ]
        );
        assert!((shares[5].confidence - 0.4).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn the_sum_of_all_and_of_each_large_cgroup_stays(
            parts in prop::collection::vec((0.0..1.0_f64, 0_u64..8), 1..200),
            least in 0.0..0.2_f64,
        ) {
            let all = parts.iter().zip(1..);
            let mut shares: Vec<Share> =
                all.map(|((value, id), pid)| Share::new(task(pid, *id), value.powi(8), 0.5)).collect();
            let total: f64 = shares.iter().map(|share| share.value).sum();
            let by_cgroup = |shares: &[Share], id: u64| -> f64 {
                let its = shares.iter().filter(|share| cgroup_of_owner(&share.owner) == Some(id));
                its.map(|share| share.value).sum()
            };
            let before: Vec<f64> = (0..8).map(|id| by_cgroup(&shares, id)).collect();
            let mut large = LargeOwners::default();
            large.add_counter(total, least, &shares);
            unite_small(&large, &mut shares);
            let sum: f64 = shares.iter().map(|share| share.value).sum();
            prop_assert!((sum - total).abs() < 1e-9 * total.max(1e-9));
            for (id, before) in (0..8).zip(before) {
                let now = by_cgroup(&shares, id);
                let lacks = before - now;
                prop_assert!(lacks.abs() < 1e-12 || now == 0.0 && before < least * total);
            }
        }
    }
}
