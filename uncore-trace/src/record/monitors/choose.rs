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
pub(super) struct Held {
    pub(super) cgroup: Arc<str>,
    /// When the group was made, ns.
    pub(super) since: u64,
}

/// What to change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Indexes of the groups to remove.
    pub(super) remove: Vec<usize>,
    /// The tenants to make groups for.
    pub(super) make: Vec<Arc<str>>,
}

/// When each tenant had a group last, ns.
#[derive(Debug, Default)]
pub(super) struct Turns(HashMap<Arc<str>, u64>);

impl Turns {
    /// Chooses among `tenants`, the largest first, none of them below another one. There can be
    /// `most` groups.
    pub(super) fn choose(
        &mut self,
        held: &[Held],
        tenants: &[Arc<str>],
        most: usize,
        now: u64,
    ) -> Change {
        self.0.retain(|cgroup, _| tenants.contains(cgroup));
        for its in held {
            self.0.insert(Arc::clone(&its.cgroup), now);
        }
        let rotating = match most {
            0 | 1 => 0,
            _ if tenants.len() > most => most.div_ceil(ROTATES),
            _ => 0,
        };
        let (largest, rest) = tenants.split_at(tenants.len().min(most - rotating));
        let is_held = |cgroup: &Arc<str>| held.iter().any(|its| its.cgroup == *cgroup);
        let stays = |its: &Held| largest.contains(&its.cgroup) || now < its.since + STAYS_NS;
        let mut free = most.saturating_sub(held.iter().filter(|its| stays(its)).count());
        let mut change = Change::default();
        for cgroup in largest.iter().filter(|cgroup| !is_held(cgroup)).take(free) {
            change.make.push(Arc::clone(cgroup));
        }
        free -= change.make.len();
        // Those that have waited for longest, and of these the largest. The sort is stable.
        let mut others: Vec<&Arc<str>> = rest.iter().collect();
        others.retain(|cgroup| !held.iter().any(|its| its.cgroup == **cgroup && stays(its)));
        others.sort_by_key(|cgroup| self.0.get(*cgroup).copied().unwrap_or_default());
        others.truncate(free);
        let keeps = |its: &Held| stays(its) || others.contains(&&its.cgroup);
        change.remove = (0..held.len()).filter(|at| !keeps(&held[*at])).collect();
        change
            .make
            .extend(others.iter().filter(|cgroup| !is_held(cgroup)).map(|its| Arc::clone(its)));
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has a group at the end of each second.
    fn run(tenants: &str, most: usize, seconds: u64) -> Vec<String> {
        let tenants: Vec<Arc<str>> = tenants.chars().map(|its| its.to_string().into()).collect();
        let (mut turns, mut held) = (Turns::default(), Vec::<Held>::new());
        let second = |second: u64| {
            let now = second * 1_000_000_000;
            let change = turns.choose(&held, &tenants, most, now);
            for at in change.remove.iter().rev() {
                held.remove(*at);
            }
            held.extend(change.make.into_iter().map(|cgroup| Held { cgroup, since: now }));
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
        let held: Vec<Held> =
            of("ab").into_iter().map(|cgroup| Held { cgroup, since: 1 }).collect();
        let choose = |names: &str, now: u64| Turns::default().choose(&held, &of(names), 2, now);
        // One group of two rotates, so `c` has the other.
        let later = STAYS_NS + 1;
        assert_eq!(choose("cab", later), Change { remove: vec![1], make: of("c") });
        assert_eq!(choose("cab", later - 1), Change::default());
        assert_eq!(choose("b", later), Change { remove: vec![0], make: Vec::new() });
    }
}
