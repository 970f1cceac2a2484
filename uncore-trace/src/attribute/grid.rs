//! Rounds shares to the digits that are significant.
//!
//! The relative error of a share is a few percent at best. In a double, most of its bits are noise
//! that no compression removes. So the shares of a window are rounded to multiples of a step, and
//! the largest share takes the remainder, so that the shares still sum to the total exactly, in any
//! order.
//! # The step
//!
//! A power of two between 1/2048 and 1/1024 of the total. A share changes by less than a step,
//! which is below the 0.1 % that readers see. Its double has few significant bits: only the first
//! 20 differ, the others are 0.
//!
//! # Rounding
//!
//! The running sum of the shares is rounded, in the order of their cgroups, and a share is the
//! difference of two rounded sums. So the sum of a cgroup's processes changes by less than a step,
//! however many there are. Rounding each share by itself, or by largest remainder, would round all
//! small shares of a cgroup in the same direction. All numbers are multiples of the last bit of the
//! total and at most as large, so all their sums are exact (IEEE 754).

use super::Share;
use super::cgroups::cgroup_of_owner;

/// Smallest number of steps in a total.
const STEPS: f64 = 1024.0;

/// Rounds the shares of a window with a positive total. Before rounding, they sum to it up to
/// floating-point errors.
pub(super) fn round_shares(total: f64, shares: &mut [Share]) {
    let step = grid_step(total);
    // A smaller total has too few bits for a grid, and a negative share cannot be rounded.
    if !step.is_normal()
        || shares.len() < 2
        || shares.iter().any(|share| !is_within_total(share, total))
    {
        return;
    }
    let by_value = |a: &(usize, &Share), b: &(usize, &Share)| a.1.value.total_cmp(&b.1.value);
    let Some((largest, _)) = shares.iter().enumerate().max_by(by_value) else { return };
    let mut order: Vec<usize> = (0..shares.len()).filter(|index| *index != largest).collect();
    order.sort_unstable_by_key(|position| (cgroup_of_owner(&shares[*position].owner), *position));
    // Sums are rounded to the nearest step, which must not make the largest share negative.
    let half = if shares[largest].value >= step { step / 2.0 } else { 0.0 };
    let (mut sum, mut previous_sum) = (0.0, 0.0);
    for index in order {
        sum += shares[index].value;
        let rounded = ((sum + half) / step).floor() * step;
        shares[index].value = rounded - previous_sum;
        previous_sum = rounded;
    }
    shares[largest].value = total - previous_sum;
}

/// The step for a total.
fn grid_step(total: f64) -> f64 {
    // A power of two, from the exponent of the total alone.
    f64::from_bits((total / STEPS).to_bits() & (0x7ff << 52))
}

fn is_within_total(share: &Share, total: f64) -> bool {
    (0.0..=total * (1.0 + 1e-9)).contains(&share.value)
}

/// A confidence in hundredths, which is as precise as it is known (docs/accuracy.md).
pub(super) fn round_to_hundredths(confidence: f32) -> f32 {
    (confidence * 100.0).round() / 100.0
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "sums are exact, and that is what is tested")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entries::Owner;

    fn shares(values: &[f64]) -> Vec<Share> {
        let share = |value: &f64| Share::new(Owner::Idle, *value, 0.5);
        values.iter().map(share).collect()
    }

    #[test]
    fn shares_have_few_bits_and_the_largest_has_the_rest() {
        let mut shares = shares(&[1000.0 / 3.0, 2000.0 / 3.0 + 0.125]);
        round_shares(1000.125, &mut shares);
        assert_eq!([shares[0].value, shares[1].value], [333.5, 666.625]);
    }

    /// The step of 2048 is 2. In steps, the shares are 1.25, 500.75 and 522, and the sums are 1.25
    /// and 502.
    #[test]
    fn sums_are_rounded_to_the_nearest_step() {
        let mut shares = shares(&[2.5, 1001.5, 1044.0]);
        round_shares(2048.0, &mut shares);
        assert_eq!(
            shares.iter().map(|share| share.value).collect::<Vec<_>>(),
            [2.0, 1002.0, 1044.0]
        );
    }

    /// In steps of 2: 64 processes have 0.3 each, and 64 have 0.6.
    #[test]
    fn many_small_shares_of_a_cgroup_keep_their_sum() {
        let task = |pid, cgroup_id, value| {
            let who = Owner::Task { pid, comm: crate::drain::Comm::default(), cgroup_id };
            Share::new(who, value, 0.5)
        };
        let mut shares: Vec<Share> =
            (0..64).flat_map(|pid| [task(pid, 1, 0.6), task(pid + 64, 2, 1.2)]).collect();
        shares.push(task(999, 3, 2048.0 - 64.0 * 1.8));
        round_shares(2048.0, &mut shares);
        let of = |id| shares.iter().filter(move |share| cgroup_of_owner(&share.owner) == Some(id));
        let sum = |id| of(id).map(|share| share.value).sum::<f64>();
        assert_eq!([sum(1), sum(2), sum(3)], [38.0, 78.0, 1932.0]);
        assert!((sum(1) - 38.4).abs() < 2.0 && (sum(2) - 76.8).abs() < 2.0);
    }

    /// 3000 shares of a third of a step each: no share may become negative.
    #[test]
    fn the_largest_of_many_small_shares_stays_positive() {
        let mut shares = shares(&vec![1.0; 3000]);
        round_shares(3000.0, &mut shares);
        assert!(shares.iter().all(|share| share.value >= 0.0));
        assert_eq!(shares.iter().map(|share| share.value).sum::<f64>(), 3000.0);
    }

    #[test]
    fn what_has_no_grid_stays_as_it_is() {
        for (values, total) in [
            ([2e-311, 1e-310], 1.2e-310),
            ([-0.3, 10.3], 10.0),
            ([0.1, 10.5], 10.0),
            ([0.1, 11.1], 10.0),
        ] {
            let mut shares = shares(&values);
            round_shares(total, &mut shares);
            assert_eq!([shares[0].value, shares[1].value], values);
        }
    }

    #[test]
    fn a_share_may_be_all_of_the_total() {
        let mut shares = shares(&[1e-4, 10.0]);
        round_shares(10.0, &mut shares);
        assert_eq!([shares[0].value, shares[1].value], [0.0, 10.0]);
    }

    #[test]
    fn a_share_alone_is_the_total() {
        let mut shares = shares(&[0.1]);
        round_shares(0.1, &mut shares);
        assert_eq!(shares[0].value, 0.1);
    }

    #[test]
    fn confidences_are_in_hundredths() {
        assert_eq!(
            [0.0, 0.004, 0.126, 0.994, 1.0].map(round_to_hundredths),
            [0.0, 0.0, 0.13, 0.99, 1.0]
        );
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_total_in_any_order(
            parts in prop::collection::vec(0.0..1.0_f64, 1..200),
            total in 1e-3..1e15_f64,
            turn in 0_usize..200,
        ) {
            let sum: f64 = parts.iter().sum();
            prop_assume!(sum > 0.0);
            let values: Vec<f64> = parts.iter().map(|part| part / sum * total).collect();
            let mut rounded = shares(&values);
            round_shares(total, &mut rounded);
            if rounded.len() > 1 {
                rounded.rotate_left(turn % parts.len());
                prop_assert_eq!(rounded.iter().map(|share| share.value).sum::<f64>(), total);
                rounded.rotate_right(turn % parts.len());
            }
            for (share, value) in rounded.iter().zip(values) {
                prop_assert!((share.value - value).abs() < total * 0.001, "{} {}", share.value, value);
                prop_assert!(share.value >= 0.0);
            }
        }
    }
}
