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

use crate::clock::TimeSpan;
use std::collections::HashMap;

use foldhash::fast::RandomState;

/// The window of a row, `CLOCK_MONOTONIC` ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Begin of the window.
    pub begin_ns: i64,
    /// End of the window.
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

    /// The window of `length_ns` that ends at `end_ns`, which has a value or has none, as in
    /// `fabric`.
    #[inline]
    pub fn of_value(end_ns: i64, length_ns: i64, has_value: bool) -> Self {
        Self::new(end_ns, length_ns, if has_value { length_ns.max(1) } else { 0 })
    }

    /// Begin and end of the window.
    #[inline]
    pub fn span(&self) -> TimeSpan<i64> {
        TimeSpan::new(self.begin_ns, self.end_ns)
    }

    /// Length of the window, at least 1 ns.
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
pub trait TimeSteps {
    /// Number of steps.
    fn step_count(&self) -> usize;

    /// Passes each step that overlaps the span to `add_to_step`, with the fraction of the span in
    /// it. The fractions sum to 1; time before the first or after the last step is in that step.
    fn split_time(&self, span: TimeSpan<i64>, add_to_step: impl FnMut(usize, f64));
}

/// No steps: only the whole time.
impl TimeSteps for () {
    fn step_count(&self) -> usize {
        0
    }

    fn split_time(&self, _span: TimeSpan<i64>, _add_to_step: impl FnMut(usize, f64)) {}
}

/// Times of windows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowTimes {
    /// Time in at least one window, ns.
    pub covered_ns: f64,
    /// Length of all windows, summed over the counters, ns.
    pub all_ns: f64,
    /// Length of the windows with a value, summed over the counters, ns.
    with_value_ns: f64,
}

impl WindowTimes {
    /// Known time, ns.
    pub fn known_ns(&self) -> f64 {
        self.known_fraction().map_or(0.0, |fraction| self.covered_ns * fraction)
    }

    /// Covered time - known time, ns.
    pub fn unknown_ns(&self) -> f64 {
        self.covered_ns - self.known_ns()
    }

    /// Fraction of the time that is known, 0 to 1; `None` without windows.
    pub fn known_fraction(&self) -> Option<f64> {
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
struct LastWindow {
    span: TimeSpan<i64>,
    /// Whether any of its windows has a value.
    is_known: bool,
}

/// Times of one total: an event, or a direction of a link.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CountedTime {
    /// Times over all steps.
    pub whole: WindowTimes,
    steps: Vec<WindowTimes>,
    covered: CoveredTime,
    last_windows: HashMap<i32, LastWindow, RandomState>,
    known_windows: u64,
}

impl CountedTime {
    /// Adds the window of a row. A window has a row for each owner and is counted once. Returns
    /// whether it was new.
    pub fn add_window(&mut self, counter: i32, window: Window, steps: &impl TimeSteps) -> bool {
        let (span, is_known) = (window.span(), window.known_ns > 0);
        match self.last_windows.get_mut(&counter) {
            Some(last_window) if last_window.span == span => return false,
            Some(last_window) => {
                *last_window = LastWindow { span, is_known: is_known || last_window.is_known };
            }
            None => {
                self.last_windows.insert(counter, LastWindow { span, is_known });
            }
        }
        self.known_windows += u64::from(is_known);
        let length_ns = window.length_ns() as f64;
        let known_length_ns = (window.known_ns.max(0) as f64).min(length_ns);
        self.whole.all_ns += length_ns;
        self.whole.with_value_ns += known_length_ns;
        let Self { whole, steps: cells, covered, .. } = self;
        cells.resize(steps.step_count(), WindowTimes::default());
        steps.split_time(span, |step, fraction| {
            cells[step].all_ns += length_ns * fraction;
            cells[step].with_value_ns += known_length_ns * fraction;
        });
        let end_ns = span.begin_ns.saturating_add(window.length_ns());
        covered.add_span(TimeSpan { end_ns, ..span }, |new_span| {
            let new_ns = new_span.len_ns() as f64;
            whole.covered_ns += new_ns;
            steps.split_time(new_span, |step, fraction| {
                cells[step].covered_ns += new_ns * fraction;
            });
        });
        true
    }

    /// Times in one step; 0 if it has no windows.
    pub fn step_time(&self, step: usize) -> WindowTimes {
        self.steps.get(step).copied().unwrap_or_default()
    }

    /// Number of windows with a value: the mean over the counters.
    pub fn window_count(&self) -> u64 {
        self.known_windows / self.last_windows.len().max(1) as u64
    }

    /// Number of counters.
    pub fn counter_count(&self) -> usize {
        self.last_windows.len()
    }

    /// Whether each counter has a value in some window.
    pub fn has_all(&self) -> bool {
        self.last_windows.values().all(|last_window| last_window.is_known)
    }

    /// Begin of the first and end of the last window, ns.
    pub fn time_bounds(&self) -> Option<TimeSpan<i64>> {
        self.covered.bounds_ns()
    }
}

/// Union of windows: spans that neither overlap nor touch, in the order of time. Memory grows with
/// the number of gaps between windows.
#[derive(Debug, Clone, Default, PartialEq)]
struct CoveredTime(Vec<TimeSpan<i64>>);

impl CoveredTime {
    /// Adds a window, and passes the spans that were not covered before to `on_new_span`.
    fn add_span(&mut self, added: TimeSpan<i64>, mut on_new_span: impl FnMut(TimeSpan<i64>)) {
        let TimeSpan { begin_ns, end_ns } = added;
        // Windows come in the order of their ends, so most of them continue the last span.
        if let Some(last_span) =
            self.0.last_mut().filter(|last| last.begin_ns <= begin_ns && begin_ns <= last.end_ns)
        {
            if last_span.end_ns < end_ns {
                on_new_span(TimeSpan::new(last_span.end_ns, end_ns));
                last_span.end_ns = end_ns;
            }
            return;
        }
        let first_joined = self.0.partition_point(|stretch| stretch.end_ns < begin_ns);
        let (mut uncovered_ns, mut next_span, mut joined) = (begin_ns, first_joined, added);
        while let Some(span) = self.0.get(next_span).filter(|span| span.begin_ns <= end_ns) {
            if uncovered_ns < span.begin_ns {
                on_new_span(TimeSpan::new(uncovered_ns, span.begin_ns));
            }
            uncovered_ns = uncovered_ns.max(span.end_ns);
            joined = joined.hull(*span);
            next_span += 1;
        }
        if uncovered_ns < end_ns {
            on_new_span(TimeSpan::new(uncovered_ns, end_ns));
        }
        self.0.splice(first_joined..next_span, [joined]);
    }

    fn bounds_ns(&self) -> Option<TimeSpan<i64>> {
        Some(TimeSpan::new(self.0.first()?.begin_ns, self.0.last()?.end_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times of windows: counter, begin, end, whether they have a value.
    fn time(windows: &[(i32, i64, i64, bool)]) -> CountedTime {
        let mut time = CountedTime::default();
        for &(counter, begin, end, is_known) in windows {
            let counted_ns = if is_known { end - begin } else { 0 };
            time.add_window(counter, Window::new(end, end - begin, counted_ns), &());
        }
        time
    }

    fn known_time_ns(windows: &[(i32, i64, i64, bool)]) -> f64 {
        time(windows).whole.known_ns()
    }

    #[test]
    fn time_without_a_value_is_in_no_rate() {
        // The middle third of two counters is not known.
        let mut windows = Vec::new();
        for window in 0..30 {
            for counter in [3, 7] {
                windows.push((counter, window * 10, window * 10 + 10, !(10..20).contains(&window)));
            }
        }
        assert!((known_time_ns(&windows) - 200.0).abs() < 1e-9);
        assert_eq!(time(&windows).window_count(), 20);
        assert!(time(&windows).has_all());
        // One of them is not known at all.
        let half: Vec<_> = windows.iter().map(|&(c, b, e, _)| (c, b, e, c == 3)).collect();
        assert!((known_time_ns(&half) - 150.0).abs() < 1e-9);
        assert!(!time(&half).has_all());
    }

    #[test]
    fn a_counter_that_was_off_leaves_the_time_as_it_is() {
        let windows = [(0, 0, 10, true), (1, 0, 10, true), (0, 10, 20, true), (0, 20, 30, true)];
        assert!((known_time_ns(&windows) - 30.0).abs() < 1e-9);
    }

    #[test]
    fn windows_of_any_length_cover_their_time_once() {
        // A late reading makes one window of two; another counter has a gap.
        let windows = [(0, 0, 10, true), (0, 20, 30, true), (1, 0, 30, true), (1, 50, 60, true)];
        assert_eq!(time(&windows).time_bounds(), Some(TimeSpan::new(0, 60)));
        assert!((time(&windows).whole.covered_ns - 40.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn covered_time_is_that_of_the_union(
            windows in prop::collection::vec((0_i64..60, 1_i64..20), 1..30),
        ) {
            let mut covered = CoveredTime::default();
            let mut new = 0;
            let mut union = [false; 100];
            for (begin, length) in &windows {
                let span = TimeSpan::new(*begin, begin + length);
                covered.add_span(span, |new_span| new += new_span.len_ns());
                (*begin..begin + length).for_each(|position| union[position as usize] = true);
            }
            prop_assert_eq!(new as usize, union.iter().filter(|is_covered| **is_covered).count());
            prop_assert!(covered.0.windows(2).all(|pair| pair[0].end_ns < pair[1].begin_ns), "{:?}", covered);
        }
    }
}
