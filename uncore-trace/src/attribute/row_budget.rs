//! Which owners have rows of their own in a window.
//!
//! Without a limit, these are the owners whose share is at least `--min-share`
//! ([`super::small_shares`]). A machine with many CPUs, counters and tenants has then millions of
//! rows a second. With a limit, the owners with the largest shares keep their rows, in all counters
//! of a set of CPUs. The others are a row of their cgroup, if that is among the largest too, or of
//! [`Owner::OtherTasks`](crate::entries::Owner::OtherTasks). `sums` has all of them
//! ([`super::second_sums`]).
//!
//! A count has a row for each owner that is no task, and for each share that is known by other means
//! than the window's method. These are not left out, so a window of more counters than rows has
//! more rows than its limit.

use std::collections::BTreeMap;

use foldhash::HashMap;

use super::cgroups::cgroup_of_owner;
use super::small_shares::{LargeOwners, TaskGroup};
use super::waiting::EndedWindow;
use super::windows::DividedWindow;
use crate::schema::row_limit::RowLimit;

/// The limits of the rows of `fabric`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowLimits {
    /// The smallest share of a process, as a fraction of a window's total, 0 to 1.
    pub min_share: f64,
    /// Rows at most.
    pub row_limit: RowLimit,
}

/// The counters that are divided alike: those of one set of CPUs, with estimated or exact shares.
type CounterGroup = (usize, bool);

/// A process or a cgroup of a group of counters.
#[derive(Clone, Copy, Debug, Default)]
struct RankedRows {
    /// Its largest fraction of a count.
    fraction: f64,
    /// Its rows.
    rows: usize,
}

/// Unites the shares of a window that have no rows of their own, and rounds the others. `sets` has
/// the set of CPUs of each counter. Whether the limit left out owners.
pub(super) fn unite_rows(window: &mut EndedWindow, sets: &[usize], limits: &RowLimits) -> bool {
    let max_rows = limits.row_limit.window_rows(window.length_ns);
    let max_rows = max_rows.filter(|max_rows| count_shares(window, sets) > *max_rows);
    let mut large = find_large_owners(window, sets, limits.min_share, max_rows.is_some());
    let is_limited =
        max_rows.is_some_and(|max_rows| limit_rows(&mut large, window, sets, max_rows));
    if !is_limited {
        large.retain(|(_, is_estimate), _| *is_estimate && limits.min_share > 0.0);
    }
    finish_all_shares(window, sets, &large);
    is_limited
}

/// Unites the shares of processes that are small in a second, and rounds the others. Every cgroup
/// keeps its sum.
pub(super) fn unite_sums(second: &mut EndedWindow, sets: &[usize], min_share: f64) {
    let mut large = find_large_owners(second, sets, min_share, false);
    for (set, divided) in divided_windows(second, sets) {
        if let Some(owners) = large.get_mut(&(set, divided.is_estimate())) {
            owners.add_all_cgroups(&divided.shares);
        }
    }
    finish_all_shares(second, sets, &large);
}

/// Unites the shares of owners that are not large, in the groups of counters that have large ones,
/// and rounds.
fn finish_all_shares(
    window: &mut EndedWindow,
    sets: &[usize],
    large: &BTreeMap<CounterGroup, LargeOwners>,
) {
    for (set, state) in sets.iter().zip(&mut window.states) {
        if let Some(divided) = state.as_divided_mut() {
            divided.finish_shares(large.get(&(*set, divided.is_estimate())));
        }
    }
}

/// The number of shares, and of windows without any: those have a row too.
fn count_shares(window: &EndedWindow, sets: &[usize]) -> usize {
    divided_windows(window, sets).map(|(_, divided)| divided.shares.len().max(1)).sum()
}

/// The owners that are large enough for rows, in the groups whose small shares are united. With a
/// limit, that is each group: exact shares are large, whatever they are.
fn find_large_owners(
    window: &EndedWindow,
    sets: &[usize],
    min_share: f64,
    has_limit: bool,
) -> BTreeMap<CounterGroup, LargeOwners> {
    let mut large: BTreeMap<CounterGroup, LargeOwners> = BTreeMap::new();
    for (set, divided) in divided_windows(window, sets) {
        let is_estimate = divided.is_estimate();
        let min_fraction = if is_estimate { min_share } else { 0.0 };
        if min_fraction <= 0.0 && !has_limit {
            continue;
        }
        let total = divided.total.unwrap_or_default();
        large.entry((set, is_estimate)).or_default().add_counter(
            total,
            min_fraction,
            &divided.shares,
        );
    }
    large
}

/// The divided windows, with their sets of CPUs.
fn divided_windows<'a>(
    window: &'a EndedWindow,
    sets: &'a [usize],
) -> impl Iterator<Item = (usize, &'a DividedWindow)> {
    let states = sets.iter().zip(&window.states);
    states.filter_map(|(set, state)| Some((*set, state.as_divided()?)))
}

/// Leaves out of `large` the owners with the smallest shares until the window has at most
/// `max_rows` rows. `false` if it has no more already.
fn limit_rows(
    large: &mut BTreeMap<CounterGroup, LargeOwners>,
    window: &EndedWindow,
    sets: &[usize],
    max_rows: usize,
) -> bool {
    let mut fixed_rows = 0;
    let mut ranked: HashMap<(CounterGroup, TaskGroup), RankedRows> = HashMap::default();
    for (set, divided) in divided_windows(window, sets) {
        let group = (set, divided.is_estimate());
        let Some(owners) = large.get(&group) else { continue };
        let total = divided.total.unwrap_or_default();
        let mut cgroups: HashMap<u64, f64> = HashMap::default();
        fixed_rows += usize::from(divided.shares.is_empty());
        let mut has_others = false;
        for share in &divided.shares {
            let Some(id) = cgroup_of_owner(&share.owner).filter(|_| share.method.is_none()) else {
                fixed_rows += 1;
                continue;
            };
            has_others = true;
            *cgroups.entry(id).or_default() += share.value;
            let process = TaskGroup::Process(share.owner);
            if owners.has_group(&process) {
                ranked.entry((group, process)).or_default().add_row(share.value / total);
            }
        }
        fixed_rows += usize::from(has_others);
        for (id, value) in cgroups {
            let cgroup = TaskGroup::Cgroup(id);
            if owners.has_group(&cgroup) {
                ranked.entry((group, cgroup)).or_default().add_row(value / total);
            }
        }
    }
    let mut ranked: Vec<_> = ranked.into_iter().collect();
    let ranked_rows: usize = ranked.iter().map(|(_, rank)| rank.rows).sum();
    if fixed_rows + ranked_rows <= max_rows {
        return false;
    }
    // The order must not depend on that of a hash map: owners with equal fractions are in order.
    ranked.sort_unstable_by(|(a_key, a), (b_key, b)| {
        b.fraction.total_cmp(&a.fraction).then_with(|| a_key.cmp(b_key))
    });
    let mut row_count = fixed_rows;
    let is_left_out = |(_, rank): &((CounterGroup, TaskGroup), RankedRows)| {
        row_count += rank.rows;
        row_count > max_rows
    };
    let first_left_out = ranked.iter().position(is_left_out).unwrap_or(ranked.len());
    for ((group, task_group), _) in &ranked[first_left_out..] {
        if let Some(owners) = large.get_mut(group) {
            owners.remove_group(task_group);
        }
    }
    true
}

impl RankedRows {
    fn add_row(&mut self, fraction: f64) {
        // Also not a number, where the total is 0.
        self.fraction = self.fraction.max(fraction);
        self.rows += 1;
    }
}
