//! The time for which something was counted, and the part of it for which the count is known.
//!
//! ```text
//! known time = covered time x (time of the windows with a value) / (time of all windows)
//! rate       = sum of the values / known time
//! ```
//!
//! Covered time is the time that is in a window of any of the counters. The times of windows are
//! summed over the counters. So a window without a value is in no sum and no rate. A counter that
//! was off, such as that of an offline CPU, adds nothing to the sum and does not change the time.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// The window of a row, `CLOCK_MONOTONIC` ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its begin.
    pub begin_ns: i64,
    /// Its end.
    pub end_ns: i64,
    /// Known time in it: all or nothing of a window of `fabric`, any part in a roll-up.
    pub known_ns: i64,
}

impl Window {
    /// The window of `length_ns` that ends at `end_ns`, with `known_ns` of known time.
    #[inline]
    pub fn new(end_ns: i64, length_ns: i64, known_ns: i64) -> Self {
        Self { begin_ns: end_ns.saturating_sub(length_ns), end_ns, known_ns }
    }

    /// The window of `length_ns` that ends at `end_ns`, which has a value or has none, as in `fabric`.
    #[inline]
    pub fn of(end_ns: i64, length_ns: i64, has_value: bool) -> Self {
        Self::new(end_ns, length_ns, if has_value { length_ns.max(1) } else { 0 })
    }

    /// Its length, at least 1 ns.
    #[inline]
    pub fn length_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.begin_ns).max(1)
    }

    /// Factor from a value of the window to a rate per second.
    #[inline]
    pub fn per_second(&self) -> f64 {
        1e9 / self.known_ns.max(1) as f64
    }
}

/// Time spans that a view shows separately.
pub trait Steps {
    /// Number of steps.
    fn count(&self) -> usize;

    /// Passes each step that overlaps the time from `begin_ns` to `end_ns` to `take`, with the
    /// fraction of the time in it. The fractions sum to 1; time before the first or after the last
    /// step is in that step.
    fn split(&self, begin_ns: i64, end_ns: i64, take: impl FnMut(usize, f64));
}

/// No steps: only the whole time.
impl Steps for () {
    fn count(&self) -> usize {
        0
    }

    fn split(&self, _begin_ns: i64, _end_ns: i64, _take: impl FnMut(usize, f64)) {}
}

/// Times of windows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lengths {
    /// Time in at least one window, ns.
    pub covered_ns: f64,
    /// Length of all windows, summed over the counters, ns.
    pub all_ns: f64,
    /// Length of the windows with a value, summed over the counters, ns.
    with_value_ns: f64,
}

impl Lengths {
    /// Known time, ns.
    pub fn known_ns(&self) -> f64 {
        self.part().map_or(0.0, |part| self.covered_ns * part)
    }

    /// Covered time - known time, ns.
    pub fn unknown_ns(&self) -> f64 {
        self.covered_ns - self.known_ns()
    }

    /// Fraction of the time that is known, 0 to 1; `None` without windows.
    pub fn part(&self) -> Option<f64> {
        (self.all_ns > 0.0).then(|| self.with_value_ns / self.all_ns)
    }

    /// Factor from a sum to a rate per second; `None` if nothing is known.
    pub fn per_second(&self) -> Option<f64> {
        let known_ns = self.known_ns();
        (known_ns > 0.0).then(|| 1e9 / known_ns)
    }
}

/// The last window of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Last {
    begin_ns: i64,
    end_ns: i64,
    /// Whether any of its windows has a value.
    is_known: bool,
}

/// Times of one total: an event, or a direction of a link.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Time {
    whole: Lengths,
    steps: Vec<Lengths>,
    covered: Covered,
    counters: HashMap<i32, Last, RandomState>,
    windows: u64,
}

impl Time {
    /// Adds the window of a row. A window has a row for each owner and is counted once. Returns
    /// whether it was new.
    pub fn add(&mut self, counter: i32, window: Window, steps: &impl Steps) -> bool {
        let Window { begin_ns, end_ns, known_ns } = window;
        let is_known = known_ns > 0;
        if let Some(last) = self.counters.get_mut(&counter) {
            if (last.begin_ns, last.end_ns) == (begin_ns, end_ns) {
                return false;
            }
            *last = Last { begin_ns, end_ns, is_known: is_known || last.is_known };
        } else {
            self.counters.insert(counter, Last { begin_ns, end_ns, is_known });
        }
        self.windows += u64::from(is_known);
        let length = window.length_ns() as f64;
        let known = (known_ns.max(0) as f64).min(length);
        self.whole.all_ns += length;
        self.whole.with_value_ns += known;
        let Self { whole, steps: cells, covered, .. } = self;
        cells.resize(steps.count(), Lengths::default());
        steps.split(begin_ns, end_ns, |step, part| {
            cells[step].all_ns += length * part;
            cells[step].with_value_ns += known * part;
        });
        covered.add(begin_ns, begin_ns.saturating_add(window.length_ns()), |from, to| {
            let new = to.saturating_sub(from) as f64;
            whole.covered_ns += new;
            steps.split(from, to, |step, part| cells[step].covered_ns += new * part);
        });
        true
    }

    /// Times over all steps.
    pub fn whole(&self) -> Lengths {
        self.whole
    }

    /// Times in one step; 0 if it has no windows.
    pub fn step(&self, step: usize) -> Lengths {
        self.steps.get(step).copied().unwrap_or_default()
    }

    /// Number of windows with a value: the mean over the counters.
    pub fn windows(&self) -> u64 {
        self.windows / self.counters.len().max(1) as u64
    }

    /// Number of counters.
    pub fn counters(&self) -> usize {
        self.counters.len()
    }

    /// Whether each counter has a value in some window.
    pub fn has_all(&self) -> bool {
        self.counters.values().all(|last| last.is_known)
    }

    /// Begin of the first and end of the last window, ns.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        self.covered.bounds()
    }
}

/// Union of windows: spans that neither overlap nor touch, in the order of time. Memory grows with
/// the number of gaps between windows.
#[derive(Debug, Clone, Default, PartialEq)]
struct Covered(Vec<(i64, i64)>);

impl Covered {
    /// Adds a window, and passes the spans that were not covered before to `new`.
    fn add(&mut self, begin: i64, end: i64, mut new: impl FnMut(i64, i64)) {
        // Windows come in the order of their ends, so most of them continue the last span.
        if let Some(last) = self.0.last_mut().filter(|last| last.0 <= begin && begin <= last.1) {
            if last.1 < end {
                new(last.1, end);
                last.1 = end;
            }
            return;
        }
        let first = self.0.partition_point(|stretch| stretch.1 < begin);
        let (mut from, mut next, mut joined) = (begin, first, (begin, end));
        while let Some((its_begin, its_end)) = self.0.get(next).filter(|its| its.0 <= end) {
            if from < *its_begin {
                new(from, *its_begin);
            }
            from = from.max(*its_end);
            joined = (joined.0.min(*its_begin), joined.1.max(*its_end));
            next += 1;
        }
        if from < end {
            new(from, end);
        }
        self.0.splice(first..next, [joined]);
    }

    fn bounds(&self) -> Option<(i64, i64)> {
        Some((self.0.first()?.0, self.0.last()?.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times of windows: counter, begin, end, whether they have a value.
    fn time(windows: &[(i32, i64, i64, bool)]) -> Time {
        let mut time = Time::default();
        for &(counter, begin, end, is_known) in windows {
            let known = if is_known { end - begin } else { 0 };
            time.add(counter, Window::new(end, end - begin, known), &());
        }
        time
    }

    fn known(windows: &[(i32, i64, i64, bool)]) -> f64 {
        time(windows).whole().known_ns()
    }

    #[test]
    fn time_without_a_value_is_in_no_rate() {
        // The middle third of two counters is not known.
        let mut windows = Vec::new();
        for at in 0..30 {
            for counter in [3, 7] {
                windows.push((counter, at * 10, at * 10 + 10, !(10..20).contains(&at)));
            }
        }
        assert!((known(&windows) - 200.0).abs() < 1e-9);
        assert_eq!(time(&windows).windows(), 20);
        assert!(time(&windows).has_all());
        // One of them is not known at all.
        let half: Vec<_> = windows.iter().map(|&(c, b, e, _)| (c, b, e, c == 3)).collect();
        assert!((known(&half) - 150.0).abs() < 1e-9);
        assert!(!time(&half).has_all());
    }

    #[test]
    fn a_counter_that_was_off_leaves_the_time_as_it_is() {
        let windows = [(0, 0, 10, true), (1, 0, 10, true), (0, 10, 20, true), (0, 20, 30, true)];
        assert!((known(&windows) - 30.0).abs() < 1e-9);
    }

    #[test]
    fn windows_of_any_length_cover_their_time_once() {
        // A late reading makes one window of two; another counter has a gap.
        let windows = [(0, 0, 10, true), (0, 20, 30, true), (1, 0, 30, true), (1, 50, 60, true)];
        assert_eq!(time(&windows).bounds(), Some((0, 60)));
        assert!((time(&windows).whole().covered_ns - 40.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn covered_time_is_that_of_the_union(
            windows in prop::collection::vec((0_i64..60, 1_i64..20), 1..30),
        ) {
            let mut covered = Covered::default();
            let mut new = 0;
            let mut union = [false; 100];
            for (begin, length) in &windows {
                covered.add(*begin, begin + length, |from, to| new += to - from);
                (*begin..begin + length).for_each(|at| union[at as usize] = true);
            }
            prop_assert_eq!(new as usize, union.iter().filter(|it| **it).count());
            prop_assert!(covered.0.windows(2).all(|two| two[0].1 < two[1].0), "{:?}", covered);
        }
    }
}
