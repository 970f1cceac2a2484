//! Which cgroups are large: the bytes of memory that each was credited lately.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Share;
use crate::entries::Owner;

/// Forgetting factor per call of [`CgroupCredit::largest_cgroups`], once a second: about 10 s.
const FORGETTING_FACTOR: f64 = 0.9;

/// Bytes and CPU time of each cgroup, by its id, once they are asked for.
#[derive(Debug, Default)]
pub(super) struct CgroupCredit(Option<BTreeMap<u64, (f64, f64)>>);

impl CgroupCredit {
    /// Adds the CPU time of owners, ns.
    pub(super) fn add_time(&mut self, times: &[(Owner, u64)]) {
        let Some(sums) = &mut self.0 else { return };
        for (owner, ns) in times {
            if let Owner::Task { cgroup_id, .. } = owner {
                sums.entry(*cgroup_id).or_default().1 += *ns as f64;
            }
        }
    }

    /// Adds shares of bytes.
    pub(super) fn add_shares(&mut self, shares: &[Share]) {
        let Some(sums) = &mut self.0 else { return };
        for share in shares {
            if let Owner::Task { cgroup_id, .. } = share.owner {
                sums.entry(cgroup_id).or_default().0 += share.value;
            }
        }
    }

    /// Ids of cgroups, those with the most bytes first, then those without any by CPU time. What is
    /// older counts less.
    pub(super) fn largest_cgroups(&mut self) -> Vec<u64> {
        let sums = self.0.get_or_insert_default();
        let mut order: Vec<(Reverse<u64>, Reverse<u64>, u64)> = Vec::with_capacity(sums.len());
        for (id, (bytes, ns)) in sums.iter_mut() {
            order.push((Reverse(*bytes as u64), Reverse(*ns as u64), *id));
            (*bytes, *ns) = (*bytes * FORGETTING_FACTOR, *ns * FORGETTING_FACTOR);
        }
        // Less than a byte and a millisecond is nothing.
        sums.retain(|_, (bytes, ns)| *bytes >= 1.0 || *ns >= 1e6);
        order.sort_unstable();
        order.into_iter().map(|(_, _, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::Comm;

    fn task(cgroup_id: u64) -> Owner {
        Owner::Task { pid: 1, comm: Comm::default(), cgroup_id }
    }

    #[test]
    fn bytes_come_before_time_and_what_is_new_before_what_is_old() {
        let mut credit = CgroupCredit::default();
        credit.add_shares(&[Share::new(task(9), 1e9, 1.0)]);
        assert!(credit.largest_cgroups().is_empty());
        credit.add_time(&[(task(1), 10_000_000), (task(2), 20_000_000), (Owner::Idle, 1 << 40)]);
        assert_eq!(credit.largest_cgroups(), [2, 1]);
        let share = |id: u64, bytes: f64| Share::new(task(id), bytes, 1.0);
        credit.add_shares(&[share(1, 50.0), share(3, 100.0), share(1, 30.0)]);
        credit.add_shares(&[Share::new(Owner::Unattributed, 1e9, 0.0)]);
        assert_eq!(credit.largest_cgroups(), [3, 1, 2]);
        credit.add_shares(&[share(1, 15.0)]);
        assert_eq!(credit.largest_cgroups(), [3, 1, 2]);
        credit.add_shares(&[share(1, 30.0)]);
        assert_eq!(credit.largest_cgroups(), [1, 3, 2]);
        for _ in 0..100 {
            credit.largest_cgroups();
        }
        assert!(credit.largest_cgroups().is_empty());
    }
}
