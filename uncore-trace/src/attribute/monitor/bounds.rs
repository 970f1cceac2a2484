//! Bytes of cgroups that the hardware measured in the memory of all sockets together: what a cgroup
//! has of all counters of a window at most.
//!
//! A cgroup with more is cut to it, by the same factor on each counter, and the others of a counter
//! have the excess in their proportions, of whom some may then reach their bounds. Method and
//! confidence remain those of the counter's own method. A counter without bounds in a window is left
//! as it is: what cgroups have of it only makes the bounds of the others too large.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::innermost;
use crate::attribute::counter::Divided;
use crate::attribute::leave_rest;
use crate::attribute::names::Names;

/// Cgroups, and the bytes that each has at most.
pub(in crate::attribute) type Bounds = Arc<[(Arc<str>, u64)]>;

/// Cuts the shares of the counters of a window to their bounds. The shares of each sum to its total
/// before and after.
pub(in crate::attribute) fn limit<'a>(
    counters: impl Iterator<Item = &'a mut Divided>,
    names: &Names,
) {
    // Windows that began at different times have bounds of different bytes.
    let mut together: BTreeMap<u64, (Bounds, Vec<Cut<'a>>)> = BTreeMap::new();
    for divided in counters {
        let Some(bounds) = divided.bounds.take() else { continue };
        let cut = Cut::new(divided, &bounds, names);
        together.entry(cut.divided.from).or_insert((bounds, Vec::new())).1.push(cut);
    }
    for (bounds, cuts) in together.values_mut() {
        limit_together(bounds, cuts);
    }
}

/// A counter whose shares are cut.
struct Cut<'a> {
    divided: &'a mut Divided,
    /// For each share, the bound that holds for it.
    places: Vec<Option<usize>>,
    /// The values of the shares as they were.
    before: Vec<f64>,
}

impl<'a> Cut<'a> {
    fn new(divided: &'a mut Divided, bounds: &Bounds, names: &Names) -> Self {
        let cgroups = || bounds.iter().map(|(cgroup, _)| cgroup);
        let shares = divided.shares.iter();
        let (places, before) =
            shares.map(|share| (innermost(&share.who, cgroups(), names), share.value)).unzip();
        Self { divided, places, before }
    }

    /// Sets the shares: those with a factor by it, the others by what is left for them.
    fn set(&mut self, factors: &[Option<f64>]) {
        let total = self.divided.total.unwrap_or_default();
        let factor = |place: &Option<usize>| place.and_then(|number| factors[number]);
        let values = || self.before.iter().zip(&self.places);
        let given: f64 = values().filter_map(|(value, place)| Some(value * factor(place)?)).sum();
        let others: f64 =
            values().filter(|(_, place)| factor(place).is_none()).map(|(value, _)| value).sum();
        let grown = if others > 0.0 { (total - given).max(0.0) / others } else { 0.0 };
        for (share, (value, place)) in self.divided.shares.iter_mut().zip(values()) {
            share.value = value * factor(place).unwrap_or(grown);
        }
    }
}

fn limit_together(bounds: &Bounds, cuts: &mut [Cut<'_>]) {
    let sums = |cuts: &[Cut<'_>]| {
        let mut sums = vec![0.0; bounds.len()];
        for Cut { divided, places, .. } in cuts {
            for (share, place) in divided.shares.iter().zip(places) {
                if let Some(number) = *place {
                    sums[number] += share.value;
                }
            }
        }
        sums
    };
    let original = sums(cuts);
    let mut factors: Vec<Option<f64>> = vec![None; bounds.len()];
    loop {
        let mut is_new = false;
        for (number, sum) in sums(cuts).into_iter().enumerate() {
            let most = bounds[number].1 as f64;
            // Rounding is no excess.
            if factors[number].is_none() && sum > most * (1.0 + 1e-9) {
                factors[number] = Some(most / original[number]);
                is_new = true;
            }
        }
        if !is_new {
            break;
        }
        for cut in cuts.iter_mut() {
            cut.set(&factors);
        }
    }
    for cut in cuts {
        let total = cut.divided.total.unwrap_or_default();
        leave_rest(&mut cut.divided.shares, total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::{Method, Share};
    use crate::drain::Comm;
    use crate::entries::Owner;
    use crate::schema::cgroups::CgroupNames;

    fn task(cgroup_id: u64) -> Owner {
        Owner::Task { pid: 1, comm: Comm::default(), cgroup_id }
    }

    /// The values of /a, /ab and the idle time on each counter, with these bounds.
    fn limited(counters: &[[f64; 3]], bounds: &[(&str, u64)]) -> Vec<Vec<f64>> {
        let mut names = Names::default();
        for (id, path) in [(1, "/a"), (3, "/ab")] {
            let cgroup = CgroupNames { path: path.into(), ..CgroupNames::default() };
            names.cgroup(id, &Arc::new(cgroup));
        }
        let bounds: Bounds =
            bounds.iter().map(|(cgroup, bytes)| (Arc::from(*cgroup), *bytes)).collect();
        let divided = |values: &[f64; 3]| {
            let owners = [task(1), task(3), Owner::Idle];
            let share = |(owner, value): (Owner, &f64)| Share::new(owner, *value, 0.5);
            Divided {
                from: 0,
                to: 1,
                total: Some(values.iter().sum()),
                running: 1.0,
                method: Method::Residency,
                shares: owners.into_iter().zip(values).map(share).collect(),
                bounds: Some(Arc::clone(&bounds)),
            }
        };
        let mut divided: Vec<Divided> = counters.iter().map(divided).collect();
        limit(divided.iter_mut(), &names);
        let values = |divided: &Divided| {
            assert!(divided.shares.iter().all(|share| share.by.is_none()));
            divided.shares.iter().map(|share| share.value).collect()
        };
        divided.iter().map(values).collect()
    }

    #[test]
    fn bytes_of_all_sockets_cut_what_is_more_and_nothing_else() {
        let of_one = |bounds| limited(&[[60.0, 30.0, 10.0]], bounds).remove(0);
        assert_eq!(of_one(&[("/a", 70), ("/ab", 30)]), [60.0, 30.0, 10.0]);
        assert_eq!(of_one(&[("/a", 30)]), [30.0, 52.5, 17.5]);
        // What /ab gets of the excess of /a is more than it can have.
        assert_eq!(of_one(&[("/a", 30), ("/ab", 40)]), [30.0, 40.0, 30.0]);
        // Nobody can have the excess.
        assert_eq!(limited(&[[60.0, 0.0, 0.0]], &[("/a", 30)]), [[30.0, 0.0, 0.0, 30.0]]);
    }

    #[test]
    fn the_counters_of_all_sockets_together_have_no_more_than_the_bytes() {
        let counters = [[60.0, 30.0, 10.0], [20.0, 40.0, 40.0]];
        // On each counter alone it has less than its bound.
        let limited = limited(&counters, &[("/a", 60)]);
        assert_eq!(limited, [[45.0, 41.25, 13.75], [15.0, 42.5, 42.5]]);
    }
}
