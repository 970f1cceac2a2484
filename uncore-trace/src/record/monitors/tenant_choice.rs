//! Which tenants have a monitoring group, if there are fewer groups than tenants.

use std::collections::HashMap;
use std::sync::Arc;

/// A group stays for this time at least, ns: some windows of a new one are not measured.
const STAYS_NS: u64 = 5_000_000_000;

/// One of this number of groups goes from tenant to tenant, so that one whose traffic is
/// underestimated is found; the others stay with the largest tenants.
const ROTATES: usize = 4;

/// A tenant that has a group.
#[derive(Clone, Debug)]
pub(super) struct GroupedTenant {
    pub(super) cgroup: Arc<str>,
    /// When the group was made, ns.
    pub(super) made_ns: u64,
}

/// The groups to remove and to make.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GroupChange {
    /// Indexes of the groups to remove.
    pub(super) remove: Vec<usize>,
    /// The tenants to make groups for.
    pub(super) add: Vec<Arc<str>>,
}

/// When each tenant had a group last, ns.
#[derive(Debug, Default)]
pub(super) struct GroupTurns(HashMap<Arc<str>, u64>);

impl GroupTurns {
    /// Chooses among `tenants`, the largest first, none of them below another one. There can be
    /// `max_groups` groups.
    pub(super) fn choose_groups(
        &mut self,
        grouped: &[GroupedTenant],
        tenants: &[Arc<str>],
        max_groups: usize,
        now_ns: u64,
    ) -> GroupChange {
        self.0.retain(|cgroup, _| tenants.contains(cgroup));
        for tenant in grouped {
            self.0.insert(Arc::clone(&tenant.cgroup), now_ns);
        }
        let rotating = match max_groups {
            0 | 1 => 0,
            _ if tenants.len() > max_groups => max_groups.div_ceil(ROTATES),
            _ => 0,
        };
        let (largest, smaller) = tenants.split_at(tenants.len().min(max_groups - rotating));
        let is_held = |cgroup: &Arc<str>| grouped.iter().any(|tenant| tenant.cgroup == *cgroup);
        let stays = |tenant: &GroupedTenant| {
            largest.contains(&tenant.cgroup) || now_ns < tenant.made_ns + STAYS_NS
        };
        let mut free =
            max_groups.saturating_sub(grouped.iter().filter(|tenant| stays(tenant)).count());
        let mut change = GroupChange::default();
        for cgroup in largest.iter().filter(|cgroup| !is_held(cgroup)).take(free) {
            change.add.push(Arc::clone(cgroup));
        }
        free -= change.add.len();
        // Those that have waited for longest, and of these the largest. The sort is stable.
        let mut longest_waiting: Vec<&Arc<str>> = smaller.iter().collect();
        longest_waiting.retain(|cgroup| {
            !grouped.iter().any(|tenant| tenant.cgroup == **cgroup && stays(tenant))
        });
        longest_waiting.sort_by_key(|cgroup| self.0.get(*cgroup).copied().unwrap_or_default());
        longest_waiting.truncate(free);
        let keeps =
            |tenant: &GroupedTenant| stays(tenant) || longest_waiting.contains(&&tenant.cgroup);
        change.remove = (0..grouped.len()).filter(|index| !keeps(&grouped[*index])).collect();
        change.add.extend(
            longest_waiting
                .iter()
                .filter(|cgroup| !is_held(cgroup))
                .map(|waiting_tenant| Arc::clone(waiting_tenant)),
        );
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has a group at the end of each second.
    fn run(tenants: &str, most: usize, seconds: u64) -> Vec<String> {
        let tenants: Vec<Arc<str>> = tenants.chars().map(|its| its.to_string().into()).collect();
        let (mut turns, mut held) = (GroupTurns::default(), Vec::<GroupedTenant>::new());
        let second = |second: u64| {
            let now = second * 1_000_000_000;
            let change = turns.choose_groups(&held, &tenants, most, now);
            for at in change.remove.iter().rev() {
                held.remove(*at);
            }
            held.extend(
                change.add.into_iter().map(|cgroup| GroupedTenant { cgroup, made_ns: now }),
            );
            let mut names: Vec<&str> = held.iter().map(|its| &*its.cgroup).collect();
            names.sort_unstable();
            names.concat()
        };
        (1..=seconds).map(second).collect()
    }

    #[test]
    fn the_largest_stay_and_the_others_have_turns() {
        assert_eq!(run("abc", 4, 9), vec!["abc"; 9]);
        assert_eq!(run("abc", 1, 9), vec!["a"; 9]);
        assert_eq!(run("abc", 0, 2), vec![""; 2]);
        let turns: Vec<_> = ["abcd", "abce", "abcf", "abcd"].into_iter().collect();
        let right: Vec<_> = turns.iter().flat_map(|its| [*its; 5]).collect();
        assert_eq!(run("abcdef", 4, 20), right);
    }

    #[test]
    fn a_tenant_that_grows_has_a_group_and_one_that_is_gone_none() {
        let of = |names: &str| -> Vec<Arc<str>> {
            names.chars().map(|its| its.to_string().into()).collect()
        };
        let held: Vec<GroupedTenant> =
            of("ab").into_iter().map(|cgroup| GroupedTenant { cgroup, made_ns: 1 }).collect();
        let choose =
            |names: &str, now: u64| GroupTurns::default().choose_groups(&held, &of(names), 2, now);
        // One group of two rotates, so `c` has the other.
        let later = STAYS_NS + 1;
        assert_eq!(choose("cab", later), GroupChange { remove: vec![1], add: of("c") });
        assert_eq!(choose("cab", later - 1), GroupChange::default());
        assert_eq!(choose("b", later), GroupChange { remove: vec![0], add: Vec::new() });
    }
}
