//! OpenMetrics text with timestamps, for `promtool tsdb create-blocks-from openmetrics`.
//!
//! Totals and each tenant's part of them are counters that begin at 0; a sample is the count up to
//! its time. The format is that of the OpenMetrics specification 1.0: all samples of a series
//! follow each other in the order of time, and the text ends with `# EOF`.
//!
//! Guarantees: the time of a sample is the end of the last window in its step, in whole ms, the
//! resolution of Prometheus; a series has no sample for a step in which its count is not known, and
//! `uncore_trace_unknown_seconds` counts that time; the number of series is bounded by totals x
//! shown tenants. [`MOST_CELLS`] values are held at a time: if there are more, the table is read
//! again.

mod series;

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;

use self::series::{MetricSeries, SeriesKind};
use super::SelectedRows;
use super::parts::{ExportNames, Grain, TenantShare};
use super::survey::ExportSurvey;
use crate::view::span::SelectedTime;

/// Values in memory at a time: 16 MiB.
const MOST_CELLS: usize = 2 << 20;

/// Options of the export.
#[derive(Debug, Clone, Copy)]
pub struct SeriesOptions {
    /// Number of tenants with series of their own: those with the largest sums of each quantity.
    pub top: usize,
    /// Time between samples of a series, ms; more than 0.
    pub step_ms: i64,
}

/// Numbers for the summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenMetricsSummary {
    /// Number of series.
    pub series: u64,
    /// Number of samples.
    pub samples: u64,
}

/// Writes the rows of `fabric` in `span`.
///
/// # Errors
///
/// The table cannot be read, or `output` cannot be written.
pub fn write_openmetrics(
    fabric: &SelectedRows<'_>,
    span: &SelectedTime,
    options: SeriesOptions,
    output: impl Write,
) -> Result<OpenMetricsSummary> {
    write_in_chunks(fabric, span, options, MOST_CELLS, output)
}

/// As [`write_openmetrics`], with `most_cells` values in memory at a time.
fn write_in_chunks(
    fabric: &SelectedRows<'_>,
    span: &SelectedTime,
    options: SeriesOptions,
    most_cells: usize,
    mut output: impl Write,
) -> Result<OpenMetricsSummary> {
    let mut steps =
        SampleSteps { wall_ns: span.wall_ns, step_ms: options.step_ms, ends_ns: Vec::new() };
    let names = ExportNames::new(Grain::Event, fabric.table())?;
    let mut survey = ExportSurvey::read_fabric(fabric, names, options.top, |share| {
        steps.note_window_end(share.end_ns);
    })?;
    let all_series = series::list_series(&survey, fabric.table().metadata_pairs());
    let mut summary = OpenMetricsSummary { series: all_series.len() as u64, samples: 0 };
    let mut family_name = "";
    for chunk in all_series.chunks((most_cells / steps.ends_ns.len().max(1)).max(1)) {
        let values = StepValues::read_values(fabric, &mut survey, chunk, &steps)?;
        for (row, series) in chunk.iter().enumerate() {
            if series.family.name != family_name {
                family_name = &series.family.name;
                series.family.write_header(&mut output)?;
            }
            for (wall_ms, value) in values.series_samples(row, series, &steps) {
                series.write_sample(wall_ms, value, &mut output)?;
                summary.samples += 1;
            }
        }
    }
    writeln!(output, "# EOF")?;
    Ok(summary)
}

/// The steps: multiples of their length since 1970, so that those of several machines are aligned.
#[derive(Debug)]
struct SampleSteps {
    wall_ns: i64,
    step_ms: i64,
    /// End of the last window of each step, `CLOCK_MONOTONIC`, ns.
    ends_ns: Vec<i64>,
}

impl SampleSteps {
    /// Notes the end of a window; called in the order of time.
    fn note_window_end(&mut self, end_ns: i64) {
        let step_number = |steps: &Self, ns| steps.wall_ms(ns).div_euclid(steps.step_ms);
        match self.ends_ns.last() {
            Some(last_end_ns) if step_number(self, *last_end_ns) == step_number(self, end_ns) => {
                if let Some(newest_end_ns) = self.ends_ns.last_mut() {
                    *newest_end_ns = (*newest_end_ns).max(end_ns);
                }
            }
            _ => self.ends_ns.push(end_ns),
        }
    }

    /// Wall time in ms since 1970, rounded down.
    fn wall_ms(&self, ns: i64) -> i64 {
        ns.saturating_add(self.wall_ns).div_euclid(1_000_000)
    }
}

/// Values of some series in every step.
struct StepValues {
    steps: usize,
    /// Counts, by series and then step.
    cells: Vec<f64>,
    /// Steps in which the count is not known, by index in `ExportNames::counts`.
    unknown: HashMap<usize, Vec<bool>>,
}

impl StepValues {
    fn read_values(
        fabric: &SelectedRows<'_>,
        survey: &mut ExportSurvey,
        chunk: &[MetricSeries],
        steps: &SampleSteps,
    ) -> Result<Self> {
        let step_count = steps.ends_ns.len();
        let rows: HashMap<(usize, SeriesKind), usize> = chunk
            .iter()
            .enumerate()
            .map(|(row, chunk_series)| ((chunk_series.count_index, chunk_series.kind), row))
            .collect();
        let unknown = chunk.iter().map(|series| (series.count_index, vec![false; step_count]));
        let mut values = Self {
            steps: step_count,
            cells: vec![0.0; step_count * chunk.len()],
            unknown: unknown.collect(),
        };
        let mut step = 0;
        // Each row of a counter's window has its total, which is added once.
        let mut counted_ends: HashMap<i32, i64> = HashMap::new();
        survey.each_share(fabric, |share: &TenantShare, line| {
            while step + 1 < step_count && steps.ends_ns[step] < share.end_ns {
                step += 1;
            }
            let mut add_value = |series_kind: SeriesKind, value: f64| {
                if let Some(row) = rows.get(&(share.count_index, series_kind)) {
                    values.cells[row * step_count + step] += value;
                }
            };
            if let (Some(value), Some(total), Some(line)) = (share.value, share.total, line) {
                if counted_ends.insert(share.counter, share.end_ns) != Some(share.end_ns) {
                    add_value(SeriesKind::Total, total);
                }
                add_value(SeriesKind::TenantLine(line), value);
            } else {
                add_value(SeriesKind::Unknown, share.length_ns as f64);
                if let Some(unknown_steps) = values.unknown.get_mut(&share.count_index) {
                    // A window may be longer than a step: its row comes in the step in which it
                    // ends.
                    let begin_ns = share.begin_ns();
                    let covered = (0..=step).rev().take_while(|earlier| {
                        *earlier == step || steps.ends_ns[*earlier] > begin_ns
                    });
                    covered.for_each(|covered_step| unknown_steps[covered_step] = true);
                }
            }
            Ok(())
        })?;
        Ok(values)
    }

    /// Times (ms since 1970) and values of consecutive series, each beginning with 0.
    fn series_samples(
        &self,
        row: usize,
        series: &MetricSeries,
        steps: &SampleSteps,
    ) -> impl Iterator<Item = (i64, f64)> {
        let is_gap = |step: usize| {
            let unknown = self.unknown.get(&series.count_index);
            series.kind != SeriesKind::Unknown
                && unknown.is_some_and(|unknown_steps| unknown_steps[step])
        };
        let begin_ms = steps.wall_ms(series.begin_ns);
        let mut sum = 0.0;
        let mut samples = vec![(begin_ms, 0.0)];
        let mut previous_end_ns = i64::MIN;
        for (step, end_ns) in steps.ends_ns.iter().enumerate() {
            sum += self.cells[row * self.steps + step];
            let is_within = series.begin_ns < *end_ns && previous_end_ns < series.end_ns;
            previous_end_ns = *end_ns;
            if is_within && !is_gap(step) && steps.wall_ms(*end_ns) > begin_ms {
                samples.push((steps.wall_ms(*end_ns), sum * series.scale));
            }
        }
        samples.into_iter()
    }
}

#[cfg(test)]
mod tests;
