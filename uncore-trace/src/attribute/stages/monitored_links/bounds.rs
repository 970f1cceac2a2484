//! Bytes of cgroups that the hardware measured in the memory of all sockets together: what a cgroup
//! has of all counters of a window at most.
//!
//! A cgroup with more is cut to it, by the same factor on each counter, and the others of a counter
//! have the excess in their proportions, of whom some may then reach their bounds. Method and
//! confidence remain those of the counter's own method. A counter without bounds in a window is
//! left as it is: what cgroups have of it only makes the bounds of the others too large.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::innermost::CgroupIndexes;
use crate::attribute::method::Method;
use crate::attribute::owner_names::OwnerNames;
use crate::attribute::share::add_unattributed;
use crate::attribute::waiting::{WindowAdjustment, WindowState};
use crate::attribute::windows::DividedWindow;

/// Cgroups, and the bytes that each has at most.
pub(super) type CgroupBounds = Arc<[(Arc<str>, u64)]>;

/// The counters of a window that have bounds, by their indexes.
#[derive(Debug, Default)]
pub(super) struct BoundedCounters(BTreeMap<usize, CgroupBounds>);

impl BoundedCounters {
    /// Adds a counter.
    pub(super) fn add_counter(&mut self, counter_index: usize, bounds: &CgroupBounds) {
        self.0.insert(counter_index, Arc::clone(bounds));
    }

    /// The change of the window, if any counter has bounds.
    pub(super) fn into_adjustment(self) -> Option<Box<dyn WindowAdjustment>> {
        if self.0.is_empty() { None } else { Some(Box::new(self)) }
    }
}

impl WindowAdjustment for BoundedCounters {
    fn adjust_window(&self, states: &mut [WindowState], names: &OwnerNames) {
        let windows = states.iter_mut().enumerate().filter_map(|(index, state)| {
            let bounds = self.0.get(&index)?;
            let divided = state.as_divided_mut()?;
            let is_shared = divided.method.is_estimate() && divided.method != Method::None;
            is_shared.then_some((divided, bounds))
        });
        apply_bounds(windows, names);
    }
}

/// Cuts the shares of the counters of a window to their bounds. The shares of each sum to its total
/// before and after.
fn apply_bounds<'a>(
    windows: impl Iterator<Item = (&'a mut DividedWindow, &'a CgroupBounds)>,
    names: &OwnerNames,
) {
    // Windows that began at different times have bounds of different bytes.
    let mut by_begin: BTreeMap<u64, (&CgroupBounds, Vec<BoundedWindow<'a>>)> = BTreeMap::new();
    for (divided, bounds) in windows {
        let window = BoundedWindow::new(divided, bounds, names);
        by_begin.entry(window.divided.begin_tick).or_insert((bounds, Vec::new())).1.push(window);
    }
    for (bounds, windows) in by_begin.values_mut() {
        cut_together(bounds, windows);
    }
}

/// The window of a counter whose shares are cut.
struct BoundedWindow<'a> {
    divided: &'a mut DividedWindow,
    /// For each share, the index of the bound that holds for it.
    bound_indexes: Vec<Option<usize>>,
    /// The values of the shares as they were.
    original_values: Vec<f64>,
}

impl<'a> BoundedWindow<'a> {
    fn new(divided: &'a mut DividedWindow, bounds: &CgroupBounds, names: &OwnerNames) -> Self {
        let cgroups = CgroupIndexes::new(bounds.iter().map(|(cgroup, _)| &**cgroup));
        let shares = divided.shares.iter();
        let (bound_indexes, original_values) =
            shares.map(|share| (cgroups.find_innermost(&share.owner, names), share.value)).unzip();
        Self { divided, bound_indexes, original_values }
    }

    /// Sets the shares: those with a factor by it, the others by what the bounded ones leave.
    fn scale_shares(&mut self, factors: &[Option<f64>]) {
        let total = self.divided.total.unwrap_or_default();
        let factor = |bound_index: &Option<usize>| bound_index.and_then(|index| factors[index]);
        let values = || self.original_values.iter().zip(&self.bound_indexes);
        let bounded_value: f64 =
            values().filter_map(|(value, bound_index)| Some(value * factor(bound_index)?)).sum();
        let unbounded_value: f64 = values()
            .filter(|(_, bound_index)| factor(bound_index).is_none())
            .map(|(value, _)| value)
            .sum();
        let growth = if unbounded_value > 0.0 {
            (total - bounded_value).max(0.0) / unbounded_value
        } else {
            0.0
        };
        for (share, (value, bound_index)) in self.divided.shares.iter_mut().zip(values()) {
            share.value = value * factor(bound_index).unwrap_or(growth);
        }
    }
}

/// Cuts the shares of windows of the same time to their common bounds.
fn cut_together(bounds: &CgroupBounds, windows: &mut [BoundedWindow<'_>]) {
    let sum_by_bound = |windows: &[BoundedWindow<'_>]| {
        let mut sums = vec![0.0; bounds.len()];
        for BoundedWindow { divided, bound_indexes, .. } in windows {
            for (share, bound_index) in divided.shares.iter().zip(bound_indexes) {
                if let Some(index) = *bound_index {
                    sums[index] += share.value;
                }
            }
        }
        sums
    };
    let original_sums = sum_by_bound(windows);
    let mut factors: Vec<Option<f64>> = vec![None; bounds.len()];
    loop {
        let mut is_new = false;
        for (index, sum) in sum_by_bound(windows).into_iter().enumerate() {
            let max_bytes = bounds[index].1 as f64;
            // Rounding is no excess.
            if factors[index].is_none() && sum > max_bytes * (1.0 + 1e-9) {
                factors[index] = Some(max_bytes / original_sums[index]);
                is_new = true;
            }
        }
        if !is_new {
            break;
        }
        for window in windows.iter_mut() {
            window.scale_shares(&factors);
        }
    }
    for window in windows {
        add_unattributed(&mut window.divided.shares, window.divided.total.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::share::Share;
    use crate::drain::Comm;
    use crate::entries::Owner;
    use crate::schema::cgroups::CgroupNames;

    fn task(cgroup_id: u64) -> Owner {
        Owner::Task { pid: 1, comm: Comm::default(), cgroup_id }
    }

    /// The values of /a, /ab and the idle time on each counter, cut to these bounds.
    fn cut_values(counters: &[[f64; 3]], bounds: &[(&str, u64)]) -> Vec<Vec<f64>> {
        let mut names = OwnerNames::default();
        for (id, path) in [(1, "/a"), (3, "/ab")] {
            let cgroup = CgroupNames { path: path.into(), ..CgroupNames::default() };
            names.set_cgroup(id, &Arc::new(cgroup));
        }
        let bounds: CgroupBounds =
            bounds.iter().map(|(cgroup, bytes)| (Arc::from(*cgroup), *bytes)).collect();
        let divide = |values: &[f64; 3]| {
            let owners = [task(1), task(3), Owner::Idle];
            let share = |(owner, value): (Owner, &f64)| Share::new(owner, *value, 0.5);
            DividedWindow {
                begin_tick: 0,
                end_tick: 1,
                total: Some(values.iter().sum()),
                running: 1.0,
                method: Method::Residency,
                shares: owners.into_iter().zip(values).map(share).collect(),
            }
        };
        let mut windows: Vec<DividedWindow> = counters.iter().map(divide).collect();
        apply_bounds(windows.iter_mut().map(|window| (window, &bounds)), &names);
        let share_values = |window: &DividedWindow| {
            assert!(window.shares.iter().all(|share| share.method.is_none()));
            window.shares.iter().map(|share| share.value).collect()
        };
        windows.iter().map(share_values).collect()
    }

    #[test]
    fn bytes_of_all_sockets_cut_what_is_more_and_nothing_else() {
        let cut_counter = |bounds| cut_values(&[[60.0, 30.0, 10.0]], bounds).remove(0);
        assert_eq!(cut_counter(&[("/a", 70), ("/ab", 30)]), [60.0, 30.0, 10.0]);
        assert_eq!(cut_counter(&[("/a", 30)]), [30.0, 52.5, 17.5]);
        // What /ab gets of the excess of /a is more than it can have.
        assert_eq!(cut_counter(&[("/a", 30), ("/ab", 40)]), [30.0, 40.0, 30.0]);
        // Nobody can have the excess.
        assert_eq!(cut_values(&[[60.0, 0.0, 0.0]], &[("/a", 30)]), [[30.0, 0.0, 0.0, 30.0]]);
    }

    #[test]
    fn the_counters_of_all_sockets_together_have_no_more_than_the_bytes() {
        let counters = [[60.0, 30.0, 10.0], [20.0, 40.0, 40.0]];
        // On each counter alone it has less than its bound.
        let values = cut_values(&counters, &[("/a", 60)]);
        assert_eq!(values, [[45.0, 41.25, 13.75], [15.0, 42.5, 42.5]]);
    }
}
