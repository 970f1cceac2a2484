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

use foldhash::HashMap;

use super::agreement::{ByteAgreement, probability_within};
use super::division_method::{DivisionInput, DivisionMethod};
use super::method::Method;
use super::share::Share;
use super::source::SourceMethod;
use crate::catalog::source::TrafficCause;
use crate::entries::Owner;

/// What the method has learnt about one counter.
#[derive(Debug, Default)]
pub(super) struct IoMethod {
    /// How well the count agrees with the bytes.
    agreement: ByteAgreement,
    /// Each owner's fraction `x / X` in the last window with bytes.
    previous_fractions: HashMap<Owner, f64>,
}

impl DivisionMethod for IoMethod {
    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        let Some(moved) = window.io else {
            return SourceMethod::from_cause(Some(TrafficCause::Device)).divide_window(window);
        };
        (Method::Io, self.divide_by_bytes(window.total, window.running, moved))
    }
}

impl IoMethod {
    fn divide_by_bytes(&mut self, total: f64, running: f32, moved: &[(Owner, f64)]) -> Vec<Share> {
        let sum: f64 = moved.iter().map(|(_, bytes)| bytes).sum();
        let ratio = if sum > 0.0 { total / sum } else { 0.0 };
        let (owner_fraction, excess_ratio) = (ratio.min(1.0), (ratio - 1.0).max(0.0));
        self.agreement.add_ratio(ratio);
        let fraction_of_others = |owner: Owner, fraction: f64| {
            1.0 - self
                .previous_fractions
                .get(&owner)
                .map_or(0.0, |previous| fraction.min(*previous))
        };
        let mut shares: Vec<Share> = moved
            .iter()
            .filter(|(owner, bytes)| *owner != Owner::Device && bytes * owner_fraction > 0.0)
            .map(|&(owner, bytes)| {
                let probability =
                    self.agreement.probability(fraction_of_others(owner, bytes / sum))
                        * probability_within(excess_ratio);
                let probability_for_owner =
                    if owner == Owner::Unattributed { 0.0 } else { probability };
                Share::new(owner, bytes * owner_fraction, probability_for_owner as f32 * running)
            })
            .collect();
        if sum > 0.0 {
            self.previous_fractions =
                moved.iter().map(|&(owner, bytes)| (owner, bytes / sum)).collect();
        }
        let owners_value: f64 = shares.iter().map(|share| share.value).sum();
        let device_value = total - owners_value;
        if device_value > total * 1e-12 {
            let owners_per_device = owners_value / device_value;
            let device_probability = self.agreement.probability(owners_per_device)
                * probability_within(excess_ratio * owners_per_device);
            shares.push(Share::new(
                Owner::Device,
                device_value,
                device_probability as f32 * running,
            ));
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
        shares.iter().filter(|share| share.owner == who).map(|share| share.value).sum()
    }

    #[test]
    fn who_moved_it_has_it_and_the_rest_is_the_devices() {
        let shares = IoMethod::default().divide_by_bytes(1000.0, 1.0, &[(A, 600.0), (B, 200.0)]);
        assert!((value(&shares, A) - 600.0).abs() < 1e-9);
        assert!((value(&shares, B) - 200.0).abs() < 1e-9);
        assert!((value(&shares, Owner::Device) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn what_went_elsewhere_is_taken_from_all_alike() {
        let shares = IoMethod::default().divide_by_bytes(100.0, 1.0, &[(A, 300.0), (B, 100.0)]);
        assert!((value(&shares, A) - 75.0).abs() < 1e-9);
        assert!(value(&shares, Owner::Device).abs() < 1e-9);
    }

    #[test]
    fn nobody_asked_for_it() {
        let shares = IoMethod::default().divide_by_bytes(100.0, 1.0, &[]);
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].owner, Owner::Device);
    }

    #[test]
    fn what_agrees_is_trusted_and_what_does_not_is_not() {
        let mut steady = IoMethod::default();
        let mut wild = IoMethod::default();
        let mut last = (0.0, 0.0);
        for window in 0..200 {
            let factor = if window % 2 == 0 { 0.5 } else { 2.0 };
            let moved = [(A, 600.0), (B, 400.0)];
            last.0 = f64::from(steady.divide_by_bytes(1010.0, 1.0, &moved)[0].confidence);
            last.1 = f64::from(wild.divide_by_bytes(1000.0 * factor, 1.0, &moved)[0].confidence);
        }
        assert!(last.0 > 0.95 && last.1 < 0.2, "{last:?}");
    }

    #[test]
    fn one_owner_alone_has_all_there_is() {
        let mut alone = IoMethod::default();
        let mut turns = IoMethod::default();
        for window in 0..200 {
            let even = window % 2 == 0;
            let total = if even { 500.0 } else { 1000.0 };
            let one = alone.divide_by_bytes(total, 1.0, &[(A, 1000.0)])[0].confidence;
            let other = turns.divide_by_bytes(total, 1.0, &[(if even { A } else { B }, 1000.0)])[0]
                .confidence;
            assert!(window == 0 || one > 0.99, "{one}");
            assert!(window == 0 || other < 0.4, "{other}");
        }
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_whole(
            windows in prop::collection::vec((1.0f64..1e15, prop::collection::vec(0.0f64..1e15, 0..9)), 1..40),
        ) {
            let mut io = IoMethod::default();
            for (total, bytes) in windows {
                let moved: Vec<_> =
                    bytes.iter().enumerate().map(|(i, bytes)| (Owner::Irq(i as u32), *bytes)).collect();
                let shares = io.divide_by_bytes(total, 1.0, &moved);
                let sum: f64 = shares.iter().map(|share| share.value).sum();
                prop_assert!((sum - total).abs() <= total * 1e-9);
                for share in shares {
                    prop_assert!(share.value >= 0.0 && (0.0..=1.0).contains(&share.confidence));
                }
            }
        }
    }
}
