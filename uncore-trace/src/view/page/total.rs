//! What a plot counted in all, over time: its mean, and its highest and lowest window.

use std::collections::HashMap;
use std::mem;

use super::grid::Grid;

/// Begin and end of a window, `CLOCK_MONOTONIC` ns.
pub(super) type Window = (i64, i64);

/// What the windows that end at one moment say of a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Rate {
    /// No window ends.
    #[default]
    Absent,
    /// A part of it is not known.
    Unknown,
    /// Per second.
    Known(f64),
}

impl Rate {
    /// With a part more; none: the part is not known.
    fn plus(self, part: Option<f64>) -> Self {
        match (self, part) {
            (Self::Unknown, _) | (_, None) => Self::Unknown,
            (Self::Absent, Some(part)) => Self::Known(part),
            (Self::Known(rate), Some(part)) => Self::Known(rate + part),
        }
    }

    /// Of two directions together.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Absent, Self::Absent) => Self::Absent,
            (Self::Known(rate), Self::Known(other)) => Self::Known(rate + other),
            _ => Self::Unknown,
        }
    }
}

/// The highest and lowest rate of a window that ends in each bucket, per second; not a number where no
/// window does whose rate is known.
#[derive(Debug)]
pub(super) struct Rates {
    pub highest: Vec<f64>,
    pub lowest: Vec<f64>,
}

impl Rates {
    pub(super) fn new(grid: Grid) -> Self {
        Self { highest: vec![f64::NAN; grid.count], lowest: vec![f64::NAN; grid.count] }
    }

    /// Adds the windows that end at one moment.
    pub(super) fn add(&mut self, bucket: usize, rate: Rate) {
        let Rate::Known(rate) = rate else { return };
        // What is not a number loses against any.
        self.highest[bucket] = self.highest[bucket].max(rate);
        self.lowest[bucket] = self.lowest[bucket].min(rate);
    }
}

/// The sums of all owners.
#[derive(Debug)]
pub(super) struct Total {
    grid: Grid,
    /// What each bucket has.
    value: Vec<f64>,
    /// Time of its windows, of each counter, ns.
    rows_ns: Vec<f64>,
    /// Time of those with a value.
    known_ns: Vec<f64>,
    /// Time that any of its windows covers.
    covered_ns: Vec<f64>,
    /// Of single windows.
    pub rates: Rates,
    /// The last window of each counter.
    last: HashMap<i32, Window>,
    /// The counter and window of the row before.
    recent: Option<(i32, Window)>,
    /// What is covered so far ends here.
    until_ns: i64,
    /// The rate of the windows that end at one moment.
    rate: Rate,
    end_ns: i64,
}

impl Total {
    pub(super) fn new(grid: Grid) -> Self {
        let zeros = || vec![0.0; grid.count];
        Self {
            grid,
            value: zeros(),
            rows_ns: zeros(),
            known_ns: zeros(),
            covered_ns: zeros(),
            rates: Rates::new(grid),
            last: HashMap::new(),
            recent: None,
            until_ns: i64::MIN,
            rate: Rate::Absent,
            end_ns: i64::MIN,
        }
    }

    /// Adds a row of a counter; none: the window's value is not known.
    pub(super) fn add(&mut self, counter: i32, window: Window, value: Option<f64>) {
        let (begin_ns, end_ns) = window;
        let length = (end_ns - begin_ns) as f64;
        if self.recent != Some((counter, window)) {
            self.recent = Some((counter, window));
            if self.last.insert(counter, window) != Some(window) {
                self.cover(window, value.is_some());
            }
        }
        for (bucket, ns) in value.into_iter().flat_map(|_| self.grid.parts(begin_ns, end_ns)) {
            self.value[bucket] += value.unwrap_or_default() * ns as f64 / length;
        }
        self.end_ns = end_ns;
        self.rate = self.rate.plus(value.map(|value| value * 1e9 / length));
    }

    /// Counts the time of a window that is new.
    fn cover(&mut self, (begin_ns, end_ns): Window, known: bool) {
        for (bucket, ns) in self.grid.parts(begin_ns, end_ns) {
            self.rows_ns[bucket] += ns as f64;
            self.known_ns[bucket] += if known { ns as f64 } else { 0.0 };
        }
        let new_ns = begin_ns.max(self.until_ns);
        if new_ns < end_ns {
            for (bucket, ns) in self.grid.parts(new_ns, end_ns) {
                self.covered_ns[bucket] += ns as f64;
            }
            self.until_ns = end_ns;
        }
    }

    /// All rows of the windows that end at one moment have come: returns their rate.
    pub(super) fn end_windows(&mut self) -> Rate {
        let rate = mem::take(&mut self.rate);
        self.rates.add(self.grid.ends_in(self.end_ns), rate);
        rate
    }

    /// What a value of a bucket is to be multiplied with to be a mean per second; none where nothing is
    /// known.
    pub(super) fn per_second(&self, bucket: usize) -> Option<f64> {
        let (rows, known) = (self.rows_ns[bucket], self.known_ns[bucket]);
        (known > 0.0).then(|| rows / known * 1e9 / self.covered_ns[bucket])
    }

    /// The mean of a bucket, per second.
    pub(super) fn mean(&self, bucket: usize) -> Option<f64> {
        self.per_second(bucket).map(|factor| self.value[bucket] * factor)
    }

    /// The part of a bucket's windows whose values are known, 0 to 1; none where there are no windows.
    pub(super) fn known(&self, bucket: usize) -> Option<f64> {
        let rows = self.rows_ns[bucket];
        (rows > 0.0).then(|| self.known_ns[bucket] / rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { begin_ns: 0, end_ns: 400, bucket_ns: 100, count: 4, window_ns: 50 };

    fn means(total: &Total) -> Vec<Option<f64>> {
        (0..4).map(|bucket| total.mean(bucket).map(|mean| mean * 1e-9)).collect()
    }

    /// Windows of 50 ns, each of two owners who have half of it.
    fn total(values: &[Option<f64>]) -> Total {
        let mut total = Total::new(GRID);
        for (window, value) in (0..).zip(values) {
            let window = (window * 50, window * 50 + 50);
            for half in [value.map(|value| value / 2.0); 2] {
                total.add(7, window, half);
            }
            total.end_windows();
        }
        total
    }

    #[test]
    fn a_bucket_has_the_mean_and_the_extremes_of_its_windows() {
        let total = total(&[Some(50.0), Some(100.0), Some(0.0), Some(0.0), Some(9.0)]);
        assert_eq!(means(&total)[..2], [Some(1.5), Some(0.0)]);
        // Half of the bucket has windows.
        assert!((means(&total)[2].unwrap() - 9.0 / 50.0).abs() < 1e-12);
        assert_eq!(means(&total)[3], None);
        let near = |value: f64, expected: f64| (value * 1e-9 - expected).abs() < 1e-12;
        assert!(near(total.rates.highest[0], 2.0) && near(total.rates.lowest[0], 1.0), "{total:?}");
        assert!(total.rates.highest[3].is_nan());
    }

    #[test]
    fn what_is_not_known_is_not_0() {
        let total = total(&[Some(50.0), None, None, None, Some(50.0), Some(50.0)]);
        assert_eq!(means(&total), [Some(1.0), None, Some(1.0), None]);
        let known: Vec<_> = (0..4).map(|bucket| total.known(bucket)).collect();
        assert_eq!(known, [Some(0.5), Some(0.0), Some(1.0), None]);
        assert!(total.rates.highest[1].is_nan());
    }

    #[test]
    fn counters_add_up_also_where_one_is_late() {
        let mut total = Total::new(GRID);
        // One counter has no reading at 100, and one window of 200 in place of two.
        for (counter, window, value) in
            [(0, (0, 100), 100.0), (0, (100, 200), 100.0), (1, (0, 200), 400.0)]
        {
            total.add(counter, window, Some(value));
        }
        assert_eq!(means(&total), [Some(3.0), Some(3.0), None, None]);
    }
}
