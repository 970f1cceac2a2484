//! `io`: divides the traffic of PCIe devices by the bytes that each owner moved on the disks and
//! network interfaces below the counter's root ports.
//!
//! A device moves memory long after the task that requested it has left the CPU. So its requests
//! say whose traffic it is, and CPU time does not. An owner that moved `x` of the `X` bytes of all
//! owners gets `x` of the count `Y`, or `x Y / X` if less was counted than moved (traffic to
//! another socket's memory, which another counter counts; data that a device had in its own
//! memory). The count beyond `X` belongs to owner `device`: queues, descriptors, received packets
//! without a reader, and devices other than disks and interfaces, such as GPUs.
//!
//! # Confidence
//!
//! The probability that a share is within 10 % of the truth is the product of three factors:
//!
//! - The count of a window agrees with the bytes moved: the part of the last 50 windows in which
//!   `ln(Y / X)` was within `0.1 / (1 - x / X)` of its mean. A request's bytes may move in the
//!   window before or after that of its completion, so most windows agree and a few are far off;
//!   this is not a normal distribution, so the windows are counted. `1 - x / X` is the part that
//!   other owners moved, in this window or the previous one, whichever is larger: if one owner
//!   moved everything, the whole count is its own, whenever it was moved.
//! - At most a tenth of the owners' traffic was given to the devices: of `o = Y / X - 1`, any part
//!   may belong to the owners, with equal probability.
//! - The part of the window in which the counter ran.
//!
//! The same holds for the share of the devices, with the differences of all windows scaled by the
//! owners' part.

use std::collections::HashMap;

use super::agreement::{Agreement, within_rest};
use super::source::SourceMethod;
use super::{Attribution, CountedWindow, Method, Share};
use crate::catalog::source::Cause;
use crate::entries::Owner;

/// What the method has learnt about one counter.
#[derive(Debug, Default)]
pub(super) struct Io {
    /// How well the count agrees with the bytes.
    agreement: Agreement,
    /// Each owner's part `x / X` in the last window with bytes.
    before: HashMap<Owner, f64>,
}

impl Attribution for Io {
    fn divide(&mut self, window: &CountedWindow<'_>) -> (Method, Vec<Share>) {
        let Some(moved) = window.io else {
            return SourceMethod::of(Some(Cause::Device)).divide(window);
        };
        (Method::Io, self.shares(window.total, window.running, moved))
    }
}

impl Io {
    fn shares(&mut self, total: f64, running: f32, moved: &[(Owner, f64)]) -> Vec<Share> {
        let sum: f64 = moved.iter().map(|(_, bytes)| bytes).sum();
        let ratio = if sum > 0.0 { total / sum } else { 0.0 };
        let (part, rest) = (ratio.min(1.0), (ratio - 1.0).max(0.0));
        self.agreement.learn(ratio);
        let others =
            |who: Owner, part: f64| 1.0 - self.before.get(&who).map_or(0.0, |was| part.min(*was));
        let mut shares: Vec<Share> = moved
            .iter()
            .filter(|(who, bytes)| *who != Owner::Device && bytes * part > 0.0)
            .map(|&(who, bytes)| {
                let right = self.agreement.agree(others(who, bytes / sum)) * within_rest(rest);
                let known = if who == Owner::Unattributed { 0.0 } else { right };
                Share::new(who, bytes * part, known as f32 * running)
            })
            .collect();
        if sum > 0.0 {
            self.before = moved.iter().map(|&(who, bytes)| (who, bytes / sum)).collect();
        }
        let given: f64 = shares.iter().map(|share| share.value).sum();
        let own = total - given;
        if own > total * 1e-12 {
            let by = given / own;
            let right = self.agreement.agree(by) * within_rest(rest * by);
            shares.push(Share::new(Owner::Device, own, right as f32 * running));
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Owner = Owner::Irq(1);
    const B: Owner = Owner::Irq(2);

    fn value(shares: &[Share], who: Owner) -> f64 {
        shares.iter().filter(|share| share.who == who).map(|share| share.value).sum()
    }

    #[test]
    fn who_moved_it_has_it_and_the_rest_is_the_devices() {
        let shares = Io::default().shares(1000.0, 1.0, &[(A, 600.0), (B, 200.0)]);
        assert!((value(&shares, A) - 600.0).abs() < 1e-9);
        assert!((value(&shares, B) - 200.0).abs() < 1e-9);
        assert!((value(&shares, Owner::Device) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn what_went_elsewhere_is_taken_from_all_alike() {
        let shares = Io::default().shares(100.0, 1.0, &[(A, 300.0), (B, 100.0)]);
        assert!((value(&shares, A) - 75.0).abs() < 1e-9);
        assert!(value(&shares, Owner::Device).abs() < 1e-9);
    }

    #[test]
    fn nobody_asked_for_it() {
        let shares = Io::default().shares(100.0, 1.0, &[]);
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].who, Owner::Device);
    }

    #[test]
    fn what_agrees_is_trusted_and_what_does_not_is_not() {
        let mut steady = Io::default();
        let mut wild = Io::default();
        let mut last = (0.0, 0.0);
        for window in 0..200 {
            let factor = if window % 2 == 0 { 0.5 } else { 2.0 };
            let moved = [(A, 600.0), (B, 400.0)];
            last.0 = f64::from(steady.shares(1010.0, 1.0, &moved)[0].confidence);
            last.1 = f64::from(wild.shares(1000.0 * factor, 1.0, &moved)[0].confidence);
        }
        assert!(last.0 > 0.95 && last.1 < 0.2, "{last:?}");
    }

    #[test]
    fn one_owner_alone_has_all_there_is() {
        let mut alone = Io::default();
        let mut turns = Io::default();
        for window in 0..200 {
            let even = window % 2 == 0;
            let total = if even { 500.0 } else { 1000.0 };
            let one = alone.shares(total, 1.0, &[(A, 1000.0)])[0].confidence;
            let other =
                turns.shares(total, 1.0, &[(if even { A } else { B }, 1000.0)])[0].confidence;
            assert!(window == 0 || one > 0.99, "{one}");
            assert!(window == 0 || other < 0.4, "{other}");
        }
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_whole(
            windows in prop::collection::vec((1.0f64..1e15, prop::collection::vec(0.0f64..1e15, 0..9)), 1..40),
        ) {
            let mut io = Io::default();
            for (total, bytes) in windows {
                let moved: Vec<_> =
                    bytes.iter().enumerate().map(|(i, bytes)| (Owner::Irq(i as u32), *bytes)).collect();
                let shares = io.shares(total, 1.0, &moved);
                let sum: f64 = shares.iter().map(|share| share.value).sum();
                prop_assert!((sum - total).abs() <= total * 1e-9);
                for share in shares {
                    prop_assert!(share.value >= 0.0 && (0.0..=1.0).contains(&share.confidence));
                }
            }
        }
    }
}
