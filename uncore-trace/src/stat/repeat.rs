//! The mean of each row over several runs, and its standard error.
//!
//! As in perf (`tools/perf/util/stat.c`, Linux 7.2), `+-` is the standard error of the mean: the
//! standard deviation of the runs divided by the square root of their number. It is the uncertainty
//! of the mean, not the spread of the runs.

use super::row::{RowValue, StatRow};
use crate::workload::CommandCpuTime;

/// Running mean and variance (Welford, Technometrics 4, 1962).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    count: u32,
    /// The mean; 0 without numbers.
    pub mean: f64,
    squares: f64,
}

impl Stats {
    /// Adds a number.
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / f64::from(self.count);
        self.squares += off * (value - self.mean);
    }

    /// Standard error of the mean; 0 with fewer than two numbers.
    pub fn standard_error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let count = f64::from(self.count);
        (self.squares / (count - 1.0) / count).sqrt()
    }

    /// The standard error in % of the mean; 0 if the mean is 0.
    pub fn percent_error(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.standard_error() / self.mean.abs() }
    }
}

/// Rows of several runs, line by line.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    rows: Vec<(StatRow, RowStats)>,
    /// Length of a run, seconds.
    pub seconds: Stats,
    /// Time in which the counters were enabled, seconds.
    pub counted: Stats,
    /// Number of runs.
    pub runs: u32,
    /// Length of each run for the table of them, seconds; empty for none.
    pub run_seconds: Vec<f64>,
    /// Time of the command of the last run on CPUs, if it has ended.
    pub used: Option<CommandCpuTime>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RowStats {
    value: Stats,
    running: Stats,
    running_ns: Stats,
    /// Rate x seconds.
    rated: Stats,
}

impl Repeats {
    /// Adds the rows of a run, with the same lines in the same order as before.
    pub fn push(&mut self, rows: Vec<StatRow>, seconds: f64, counted: f64) {
        self.runs += 1;
        self.seconds.push(seconds);
        self.counted.push(counted);
        if self.rows.is_empty() {
            self.rows = rows.iter().map(|row| (row.clone(), RowStats::default())).collect();
        }
        for ((kept, line), row) in self.rows.iter_mut().zip(rows) {
            if let Some(number) = row.value.as_number() {
                line.value.push(number);
            }
            if let Some(rate) = &row.rate {
                line.rated.push(rate.value * counted);
            }
            if let Some(counted) = &row.counted {
                line.running.push(counted.running);
                line.running_ns.push(counted.running_ns as f64);
            }
            // A row without a number says why; it is replaced by the first row with a number, which
            // has the rate.
            if kept.value.as_number().is_none() {
                *kept = row;
            }
        }
    }

    /// The mean of each line, with its noise after more than one run. Runs in which a line has no
    /// number are left out.
    pub fn mean_rows(&self) -> Vec<StatRow> {
        let mean = |(row, line): &(StatRow, RowStats)| {
            let mut row = row.clone();
            if row.value.as_number().is_some() {
                row.value = RowValue::Number(line.value.mean);
            }
            if let Some(counted) = &mut row.counted {
                counted.running = line.running.mean;
                counted.running_ns = line.running_ns.mean.round() as u64;
            }
            if let Some(rate) = &mut row.rate {
                // The rate over all runs, which is not the mean of their rates.
                rate.value = line.rated.mean / self.counted.mean;
            }
            row.noise = (self.runs > 1).then(|| line.value.percent_error());
            row
        };
        self.rows.iter().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::row::{CounterFields, Location};

    #[test]
    fn the_error_is_that_of_the_mean() {
        let mut stats = Stats::default();
        assert_eq!((stats.mean, stats.standard_error(), stats.percent_error()), (0.0, 0.0, 0.0));
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            stats.push(value);
        }
        // Mean 5, sum of squares 32: sqrt(32 / 7 / 8).
        assert!((stats.mean - 5.0).abs() < 1e-12);
        assert!((stats.standard_error() - (32.0_f64 / 56.0).sqrt()).abs() < 1e-12);
        assert!((stats.percent_error() - 20.0 * (32.0_f64 / 56.0).sqrt()).abs() < 1e-12);
    }

    fn row(value: RowValue, running: f64) -> StatRow {
        StatRow {
            location: Location::Machine,
            members: 1,
            label: "event".to_owned(),
            cgroup_share: None,
            value,
            unit: "count".to_owned(),
            counted: Some(CounterFields { running_ns: 100, running, integral: true }),
            rate: None,
            noise: None,
        }
    }

    #[test]
    fn a_run_without_a_count_is_no_zero() {
        let mut repeats = Repeats::default();
        repeats.push(vec![row(RowValue::NotCounted, 0.0)], 1.0, 1.0);
        assert_eq!(repeats.mean_rows()[0].value, RowValue::NotCounted);
        repeats.push(vec![row(RowValue::Number(10.0), 1.0)], 1.0, 1.0);
        repeats.push(vec![row(RowValue::Number(20.0), 0.5)], 4.0, 1.0);
        let rows = repeats.mean_rows();
        assert_eq!(rows[0].value, RowValue::Number(15.0));
        assert!((rows[0].counted.as_ref().unwrap().running - 0.5).abs() < 1e-12);
        // The deviation of 10 and 20 is the square root of 50, the standard error of their mean is
        // 5, a third of it.
        assert!((rows[0].noise.unwrap() - 100.0 / 3.0).abs() < 1e-9);
        assert!((repeats.seconds.mean - 2.0).abs() < 1e-12);
    }
}
