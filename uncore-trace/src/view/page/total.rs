//! The total of a plot over time: its mean, and its highest and lowest window.

use std::mem;

use super::super::sums::{CountedTime, MomentRate, TimeSteps as _, Window, WindowTimes};
use super::grid::PageGrid;

/// The highest and lowest rate of windows that end in each bucket, per second; NaN if there is none
/// with a known rate.
#[derive(Debug)]
pub(super) struct ExtremeRates {
    pub highest: Vec<f64>,
    pub lowest: Vec<f64>,
}

impl ExtremeRates {
    pub(super) fn new(grid: PageGrid) -> Self {
        Self { highest: vec![f64::NAN; grid.count], lowest: vec![f64::NAN; grid.count] }
    }

    /// Adds the rate of the windows that end at one time.
    pub(super) fn add_rate(&mut self, bucket: usize, rate: MomentRate) {
        let MomentRate::Known(rate) = rate else { return };
        // `max` and `min` ignore NaN.
        self.highest[bucket] = self.highest[bucket].max(rate);
        self.lowest[bucket] = self.lowest[bucket].min(rate);
    }
}

/// The sums of all owners.
#[derive(Debug)]
pub(super) struct PlotTotal {
    grid: PageGrid,
    /// Value in each bucket.
    value: Vec<f64>,
    time: CountedTime,
    /// Rates of single windows.
    pub rates: ExtremeRates,
    /// The rate of the windows that end at the current time.
    rate: MomentRate,
    end_ns: i64,
}

impl PlotTotal {
    pub(super) fn new(grid: PageGrid) -> Self {
        Self {
            grid,
            value: vec![0.0; grid.count],
            time: CountedTime::default(),
            rates: ExtremeRates::new(grid),
            rate: MomentRate::Absent,
            end_ns: i64::MIN,
        }
    }

    /// Adds a row of a counter; `None`: the value of the window is not known.
    pub(super) fn add_row(&mut self, counter: i32, window: Window, value: Option<f64>) {
        self.time.add_window(counter, window, &self.grid);
        if let Some(value) = value {
            let add_value = |bucket: usize, fraction| self.value[bucket] += value * fraction;
            self.grid.split_time(window.span(), add_value);
        }
        self.end_ns = window.end_ns;
        self.rate.add_window(value.map(|value| value * window.per_second()));
    }

    /// Returns the rate of the windows that end at one time, when all their rows have come.
    pub(super) fn end_windows(&mut self) -> MomentRate {
        let rate = mem::take(&mut self.rate);
        self.rates.add_rate(self.grid.ends_in(self.end_ns), rate);
        rate
    }

    /// A sum in a bucket as a rate per second; `None` if nothing is known.
    pub(super) fn bucket_rate(&self, bucket: usize, value: f64) -> Option<f64> {
        self.time.step_time(bucket).per_second().map(|per_second| value * per_second)
    }

    /// The mean rate in a bucket, per second.
    pub(super) fn bucket_mean(&self, bucket: usize) -> Option<f64> {
        self.bucket_rate(bucket, self.value[bucket])
    }

    /// Fraction of a bucket's windows with known values, 0 to 1; `None` without windows.
    pub(super) fn bucket_known_fraction(&self, bucket: usize) -> Option<f64> {
        WindowTimes::known_fraction(&self.time.step_time(bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: PageGrid =
        PageGrid { begin_ns: 0, end_ns: 400, bucket_ns: 100, count: 4, window_ns: 50 };

    fn means(total: &PlotTotal) -> Vec<Option<f64>> {
        (0..4).map(|bucket| total.bucket_mean(bucket).map(|mean| mean * 1e-9)).collect()
    }

    /// Windows of 50 ns with two owners, each with half of the value.
    fn total(values: &[Option<f64>]) -> PlotTotal {
        let mut total = PlotTotal::new(GRID);
        for (window, value) in (0..).zip(values) {
            let known = if value.is_some() { 50 } else { 0 };
            let window = Window::new(window * 50 + 50, 50, known);
            for half in [value.map(|value| value / 2.0); 2] {
                total.add_row(7, window, half);
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
    fn an_unknown_bucket_is_not_0() {
        let total = total(&[Some(50.0), None, None, None, Some(50.0), Some(50.0)]);
        assert_eq!(means(&total), [Some(1.0), None, Some(1.0), None]);
        let known: Vec<_> = (0..4).map(|bucket| total.bucket_known_fraction(bucket)).collect();
        assert_eq!(known, [Some(0.5), Some(0.0), Some(1.0), None]);
        assert!(total.rates.highest[1].is_nan());
    }

    #[test]
    fn counters_add_up_also_where_one_is_late() {
        let mut total = PlotTotal::new(GRID);
        // One counter has no reading at 100, and one window of 200 instead of two.
        for (counter, window, value) in
            [(0, (0, 100), 100.0), (0, (100, 200), 100.0), (1, (0, 200), 400.0)]
        {
            let (begin, end) = window;
            total.add_row(counter, Window::new(end, end - begin, end - begin), Some(value));
        }
        assert_eq!(means(&total), [Some(3.0), Some(3.0), None, None]);
    }
}
