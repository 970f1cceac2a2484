//! `residency`: divides by time on the CPUs whose traffic the counter sees. Idle time gets a share
//! too, so that traffic which no task explains is not given to the tasks that happened to run.
//!
//! # Confidence
//!
//! 1 if one owner had all the time of a counter that sees one CPU only. Otherwise time does not say
//! how much traffic an owner causes per unit of it. If the true part is equally likely anywhere
//! between nothing and the whole, the probability that it is within 10 % of the share `s` is the
//! width of that interval, `0.2 s`. It is multiplied by the part of the window in which the counter
//! ran.

use foldhash::HashMap;

use super::division_method::{DivisionInput, DivisionMethod};
use super::method::Method;
use super::share::Share;
use crate::entries::Owner;

/// The method. It learns nothing.
#[derive(Debug)]
pub(super) struct Residency;

impl DivisionMethod for Residency {
    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        (Method::Residency, residency_shares(window.total, window))
    }
}

/// The shares of a part of a window's count.
pub(super) fn residency_shares(value: f64, window: &DivisionInput<'_>) -> Vec<Share> {
    divide_by_time(value, window.time, window.sees_one_cpu, window.running)
}

/// Adds the shares of a part of a window's count to those of its other part.
pub(super) fn add_residency(shares: &mut Vec<Share>, value: f64, window: &DivisionInput<'_>) {
    let indexes: HashMap<Owner, usize> =
        shares.iter().enumerate().map(|(index, share)| (share.owner, index)).collect();
    for share in residency_shares(value, window) {
        match indexes.get(&share.owner).and_then(|index| shares.get_mut(*index)) {
            Some(known) => known.add_share(&share),
            None => shares.push(share),
        }
    }
}

/// Divides `total` by nanoseconds. `sees_one_cpu` says that the counter sees only the one CPU whose
/// time is given; `running` is the part of the window in which the counter ran.
fn divide_by_time(
    total: f64,
    time: &[(Owner, u64)],
    sees_one_cpu: bool,
    running: f32,
) -> Vec<Share> {
    let total_ns: u64 = time.iter().map(|(_, ns)| ns).sum();
    if total_ns == 0 {
        return vec![Share::new(Owner::Unattributed, total, 0.0)];
    }
    time.iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|&(owner, ns)| {
            let share = ns as f64 / total_ns as f64;
            let confidence = match owner {
                Owner::Unattributed => 0.0,
                _ if sees_one_cpu && ns == total_ns => running,
                _ => 0.2 * share as f32 * running,
            };
            Share::new(owner, total * share, confidence)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_follow_time() {
        let shares = divide_by_time(100.0, &[(Owner::Idle, 3), (Owner::Irq(1), 1)], true, 1.0);
        assert_eq!(shares[0].value.to_bits(), 75f64.to_bits());
        assert_eq!(shares[1].value.to_bits(), 25f64.to_bits());
    }

    #[test]
    fn a_sole_owner_is_certain_only_where_the_counter_sees_one_cpu() {
        assert!(divide_by_time(1.0, &[(Owner::Idle, 5)], true, 1.0)[0].confidence > 0.99);
        assert!(divide_by_time(1.0, &[(Owner::Idle, 5)], false, 1.0)[0].confidence < 0.21);
    }

    #[test]
    fn nobody_known_is_unattributed() {
        assert_eq!(divide_by_time(7.0, &[], true, 1.0)[0].owner, Owner::Unattributed);
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_whole(total in 0.0f64..1e18, times in prop::collection::vec(0u64..1 << 40, 0..50)) {
            let time: Vec<_> = times.iter().enumerate().map(|(i, ns)| (Owner::Irq(i as u32), *ns)).collect();
            let sum: f64 = divide_by_time(total, &time, false, 1.0).iter().map(|share| share.value).sum();
            prop_assert!((sum - total).abs() <= total * 1e-9);
        }
    }
}
