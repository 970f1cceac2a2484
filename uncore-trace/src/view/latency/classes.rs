//! A two-dimensional histogram of windows: sums by the tenant's rate and the others' rate.
//!
//! A class covers an eighth of a doubling, about 9 %; a rate of 0 has its own. So a limit that is
//! known only at the end, such as a fraction of the average or the median, can still be applied
//! without keeping the windows, with an error of one class.

use std::collections::BTreeMap;

/// Classes per doubling of the rate.
const CLASSES_PER_DOUBLING: f64 = 8.0;

/// Class of a rate in bytes per second; the lowest is that of 0.
pub(super) fn rate_class(per_s: f64) -> i32 {
    // The comparison also excludes NaN.
    if per_s > 0.0 { (per_s.log2() * CLASSES_PER_DOUBLING).floor() as i32 } else { i32::MIN }
}

/// Sums over some windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct WindowSums {
    pub(super) windows: u64,
    /// Total length of the windows, ns.
    pub(super) ns: f64,
    /// Bytes of the tenant.
    pub(super) own_bytes: f64,
    /// Bytes of the others.
    pub(super) other_bytes: f64,
    /// Counts from which the latency is computed.
    pub(super) inputs: Vec<f64>,
}

impl WindowSums {
    pub(super) fn add(&mut self, addend: &Self) {
        self.windows += addend.windows;
        self.ns += addend.ns;
        self.own_bytes += addend.own_bytes;
        self.other_bytes += addend.other_bytes;
        self.inputs.resize(self.inputs.len().max(addend.inputs.len()), 0.0);
        for (sum, count) in self.inputs.iter_mut().zip(&addend.inputs) {
            *sum += count;
        }
    }

    /// Rate of the tenant; 0 without windows.
    pub(super) fn own_per_s(&self) -> f64 {
        self.own_bytes * 1e9 / self.ns.max(1.0)
    }

    /// Rate of the others.
    pub(super) fn others_per_s(&self) -> f64 {
        self.other_bytes * 1e9 / self.ns.max(1.0)
    }
}

/// The windows of one tenant on one link.
#[derive(Debug, Clone, Default)]
pub(super) struct RateClasses(BTreeMap<(i32, i32), WindowSums>);

impl RateClasses {
    /// Adds a window.
    pub(super) fn add(&mut self, window: &WindowSums) {
        let class_pair = (rate_class(window.own_per_s()), rate_class(window.others_per_s()));
        self.0.entry(class_pair).or_default().add(window);
    }

    /// Bytes of the tenant in all windows.
    pub(super) fn tenant_bytes(&self) -> f64 {
        self.0.values().map(|sums| sums.own_bytes).sum()
    }

    /// The windows in which the tenant's rate is in this class or above.
    pub(super) fn at_or_above(&self, class: i32) -> Self {
        let kept = self.0.iter().filter(|((own_class, _), _)| *own_class >= class);
        Self(kept.map(|(class_pair, sums)| (*class_pair, sums.clone())).collect())
    }

    /// Sums over all windows.
    pub(super) fn sum_all(&self) -> WindowSums {
        let mut sum = WindowSums::default();
        for sums in self.0.values() {
            sum.add(sums);
        }
        sum
    }

    /// Sums over windows with a low and with a high rate of the others, as near to halves as whole
    /// classes allow; `None` if there is only one class.
    pub(super) fn split_in_halves(&self) -> Option<[WindowSums; 2]> {
        let mut by_others: BTreeMap<i32, WindowSums> = BTreeMap::new();
        for ((_, others_class), sums) in &self.0 {
            by_others.entry(*others_class).or_default().add(sums);
        }
        let window_count = self.sum_all().windows;
        let mut below: u64 = 0;
        let mut best = None;
        for (class, sums) in &by_others {
            // Twice the distance from a half.
            let off = (2 * below).abs_diff(window_count);
            if below > 0 && best.is_none_or(|(smallest_off, _)| off < smallest_off) {
                best = Some((off, *class));
            }
            below += sums.windows;
        }
        let (_, first_busy_class) = best?;
        let mut halves = [WindowSums::default(), WindowSums::default()];
        for (class, sums) in &by_others {
            halves[usize::from(*class >= first_busy_class)].add(sums);
        }
        Some(halves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(own: f64, others: f64) -> WindowSums {
        WindowSums {
            windows: 1,
            ns: 1e9,
            own_bytes: own,
            other_bytes: others,
            inputs: vec![others, 1.0],
        }
    }

    #[test]
    fn classes_are_an_eighth_of_a_doubling() {
        assert_eq!((rate_class(1024.0), rate_class(2047.0), rate_class(2048.0)), (80, 87, 88));
        for nothing in [0.0, -1.0, f64::NAN] {
            assert_eq!(rate_class(nothing), i32::MIN);
        }
        assert!(rate_class(f64::MIN_POSITIVE) > i32::MIN && rate_class(f64::MAX) < i32::MAX);
    }

    #[test]
    fn halves_are_as_near_as_whole_classes_allow() {
        let mut classes = RateClasses::default();
        for others in [0.0, 0.0, 0.0, 10.0, 20.0, 40.0, 40.0] {
            classes.add(&window(1.0, others));
        }
        let [quiet, busy] = classes.split_in_halves().unwrap();
        assert_eq!((quiet.windows, busy.windows), (3, 4));
        assert!((busy.other_bytes - 110.0).abs() < 1e-9 && quiet.other_bytes == 0.0);
        let mut one_class = RateClasses::default();
        for _ in 0..9 {
            one_class.add(&window(1.0, 5.0));
        }
        assert_eq!(one_class.split_in_halves(), None);
        assert_eq!(RateClasses::default().split_in_halves(), None);
    }

    proptest! {
        #[test]
        fn parts_of_classes_sum_to_their_windows(
            windows in prop::collection::vec((0.0..1e12, prop_oneof![Just(0.0), 0.0..1e12]), 1..80),
            from in 0.0..1e12,
        ) {
            let mut classes = RateClasses::default();
            for (own, others) in &windows {
                classes.add(&window(*own, *others));
            }
            let kept = classes.at_or_above(rate_class(from));
            let expected = windows.iter().filter(|(own, _)| rate_class(*own) >= rate_class(from)).count();
            prop_assert_eq!(kept.sum_all().windows as usize, expected);
            if let Some([quiet, busy]) = classes.split_in_halves() {
                prop_assert_eq!(quiet.windows + busy.windows, windows.len() as u64);
                prop_assert!(quiet.windows > 0 && busy.windows > 0);
                prop_assert!(quiet.others_per_s() <= busy.others_per_s());
                let sum = quiet.inputs[0] + busy.inputs[0];
                let all: f64 = windows.iter().map(|(_, others)| others).sum();
                prop_assert!((sum - all).abs() <= 1e-9 * all);
            }
        }
    }
}
