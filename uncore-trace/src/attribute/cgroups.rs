//! The lasting confidence of a cgroup: one value for the shares of all its processes.
//!
//! A row says how well the sum of its cgroup is known, so that readers need no other row for it.

use foldhash::HashMap;

use super::share::Share;
use crate::entries::Owner;

/// The group of a share: its cgroup, or none.
pub(super) const fn cgroup_of_owner(owner: &Owner) -> Option<u64> {
    match owner {
        Owner::Task { cgroup_id, .. } => Some(*cgroup_id),
        _ => None,
    }
}

/// Sums over the shares of a cgroup.
#[derive(Debug, Default)]
struct LastingSum {
    shares: f64,
    value: f64,
    lasting: f64,
    /// Sum of value x lasting confidence.
    by_value: f64,
}

impl LastingSum {
    fn mean_confidence(&self) -> f32 {
        let (sum, divisor) = match self.value {
            0.0 => (self.lasting, self.shares),
            value => (self.by_value, value),
        };
        (sum / divisor) as f32
    }
}

/// Gives all shares of a cgroup the mean of their lasting confidences, weighted by value; the plain
/// mean, if all are 0. Other owners have one share each.
pub(super) fn unite_lasting(shares: &mut [Share]) {
    let mut sums: HashMap<u64, LastingSum> = HashMap::default();
    for share in &*shares {
        let Some(cgroup) = cgroup_of_owner(&share.owner) else { continue };
        let (sum, lasting) = (sums.entry(cgroup).or_default(), f64::from(share.lasting));
        sum.shares += 1.0;
        sum.value += share.value;
        sum.lasting += lasting;
        sum.by_value += share.value * lasting;
    }
    for share in shares {
        if let Some(sum) = cgroup_of_owner(&share.owner).and_then(|cgroup| sums.get(&cgroup)) {
            share.lasting = sum.mean_confidence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(pid: u32, cgroup_id: u64, value: f64, lasting: f32) -> Share {
        let who = Owner::Task { pid, comm: crate::drain::Comm::default(), cgroup_id };
        Share { lasting, ..Share::new(who, value, 0.1) }
    }

    #[test]
    fn a_cgroup_has_one_confidence_and_its_processes_keep_theirs() {
        let mut shares = [
            share(1, 7, 30.0, 0.9),
            share(2, 7, 10.0, 0.5),
            share(3, 8, 0.0, 0.2),
            share(4, 8, 0.0, 0.4),
            share(5, 9, 1.0, 0.7),
            Share { lasting: 0.3, ..Share::new(Owner::Idle, 1.0, 0.1) },
        ];
        unite_lasting(&mut shares);
        let found = shares.map(|share| (share.lasting * 1000.0).round() as u32);
        assert_eq!(found, [800, 800, 300, 300, 700, 300]);
        assert!(shares.iter().all(|share| share.confidence.to_bits() == 0.1_f32.to_bits()));
    }

    #[test]
    fn equal_confidences_are_not_changed_by_rounding() {
        let third = 1.0_f32 / 3.0;
        let mut shares: Vec<Share> =
            (1..2000).map(|pid| share(pid, 7, 1.0 / f64::from(pid), third)).collect();
        unite_lasting(&mut shares);
        assert!(shares.iter().all(|share| share.lasting.to_bits() == third.to_bits()));
    }
}
