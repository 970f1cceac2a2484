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

use self::series::{Of, Series};
use super::Selection;
use super::parts::{Grain, Names, TenantShare};
use super::survey::Survey;
use crate::view::span::Span;

/// Values in memory at a time: 16 MiB.
const MOST_CELLS: usize = 2 << 20;

/// Options of the export.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Number of tenants with series of their own: those with the largest sums of each quantity.
    pub top: usize,
    /// Time between samples of a series, ms; more than 0.
    pub step_ms: i64,
}

/// Numbers for the summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of series.
    pub series: u64,
    /// Number of samples.
    pub samples: u64,
}

/// Writes the rows of `fabric` in `span`.
///
/// # Errors
///
/// The table cannot be read, or `out` cannot be written.
pub fn write(
    fabric: &Selection<'_>,
    span: &Span,
    question: Question,
    out: impl Write,
) -> Result<Written> {
    write_by(fabric, span, question, MOST_CELLS, out)
}

/// As [`write()`], with `cells` values in memory at a time.
fn write_by(
    fabric: &Selection<'_>,
    span: &Span,
    question: Question,
    cells: usize,
    mut out: impl Write,
) -> Result<Written> {
    let mut steps = Steps { wall_ns: span.wall_ns, step_ms: question.step_ms, ends: Vec::new() };
    let names = Names::new(Grain::Event, fabric.table())?;
    let mut survey = Survey::of(fabric, names, question.top, |part| steps.reach(part.end_ns))?;
    let all = series::all(&survey, fabric.table().metadata());
    let mut written = Written { series: all.len() as u64, samples: 0 };
    let mut family = "";
    for chunk in all.chunks((cells / steps.ends.len().max(1)).max(1)) {
        let values = Values::read(fabric, &mut survey, chunk, &steps)?;
        for (row, series) in chunk.iter().enumerate() {
            if series.family.name != family {
                family = &series.family.name;
                series.family.write(&mut out)?;
            }
            for (ms, value) in values.samples(row, series, &steps) {
                series.write(ms, value, &mut out)?;
                written.samples += 1;
            }
        }
    }
    writeln!(out, "# EOF")?;
    Ok(written)
}

/// The steps: multiples of their length since 1970, so that those of several machines are aligned.
#[derive(Debug)]
struct Steps {
    wall_ns: i64,
    step_ms: i64,
    /// End of the last window of each step, `CLOCK_MONOTONIC`, ns.
    ends: Vec<i64>,
}

impl Steps {
    /// Notes the end of a window; called in the order of time.
    fn reach(&mut self, end_ns: i64) {
        let step = |steps: &Self, ns| steps.ms(ns).div_euclid(steps.step_ms);
        match self.ends.last() {
            Some(last) if step(self, *last) == step(self, end_ns) => {
                if let Some(last) = self.ends.last_mut() {
                    *last = (*last).max(end_ns);
                }
            }
            _ => self.ends.push(end_ns),
        }
    }

    /// Wall time in ms since 1970, rounded down.
    fn ms(&self, ns: i64) -> i64 {
        ns.saturating_add(self.wall_ns).div_euclid(1_000_000)
    }
}

/// Values of some series in every step.
struct Values {
    steps: usize,
    /// Counts, by series and then step.
    cells: Vec<f64>,
    /// Steps in which the count is not known, by index in `Names::counted`.
    unknown: HashMap<usize, Vec<bool>>,
}

impl Values {
    fn read(
        fabric: &Selection<'_>,
        survey: &mut Survey,
        chunk: &[Series],
        steps: &Steps,
    ) -> Result<Self> {
        let count = steps.ends.len();
        let rows: HashMap<(usize, Of), usize> =
            chunk.iter().enumerate().map(|(row, its)| ((its.counted, its.of), row)).collect();
        let unknown = chunk.iter().map(|series| (series.counted, vec![false; count]));
        let mut values = Self {
            steps: count,
            cells: vec![0.0; count * chunk.len()],
            unknown: unknown.collect(),
        };
        let mut step = 0;
        // Each row of a counter's window has its total, which is added once.
        let mut ends: HashMap<i32, i64> = HashMap::new();
        survey.each_share(fabric, |part: &TenantShare, line| {
            while step + 1 < count && steps.ends[step] < part.end_ns {
                step += 1;
            }
            let mut add = |of: Of, value: f64| {
                if let Some(row) = rows.get(&(part.counted, of)) {
                    values.cells[row * count + step] += value;
                }
            };
            if let (Some(value), Some(total), Some(line)) = (part.value, part.total, line) {
                if ends.insert(part.counter, part.end_ns) != Some(part.end_ns) {
                    add(Of::Whole, total);
                }
                add(Of::Line(line), value);
            } else {
                add(Of::Unknown, part.length_ns as f64);
                if let Some(unknown) = values.unknown.get_mut(&part.counted) {
                    // A window may be longer than a step: its row comes in the step in which it
                    // ends.
                    let begin_ns = part.begin_ns();
                    let covered =
                        (0..=step).rev().take_while(|at| *at == step || steps.ends[*at] > begin_ns);
                    covered.for_each(|at| unknown[at] = true);
                }
            }
            Ok(())
        })?;
        Ok(values)
    }

    /// Times (ms since 1970) and values of consecutive series, each beginning with 0.
    fn samples(
        &self,
        row: usize,
        series: &Series,
        steps: &Steps,
    ) -> impl Iterator<Item = (i64, f64)> {
        let is_gap = |step: usize| {
            let unknown = self.unknown.get(&series.counted);
            series.of != Of::Unknown && unknown.is_some_and(|steps| steps[step])
        };
        let begin = steps.ms(series.begin_ns);
        let mut sum = 0.0;
        let mut samples = vec![(begin, 0.0)];
        let mut before_ns = i64::MIN;
        for (step, end_ns) in steps.ends.iter().enumerate() {
            sum += self.cells[row * self.steps + step];
            let is_within = series.begin_ns < *end_ns && before_ns < series.end_ns;
            before_ns = *end_ns;
            if is_within && !is_gap(step) && steps.ms(*end_ns) > begin {
                samples.push((steps.ms(*end_ns), sum * series.scale));
            }
        }
        samples.into_iter()
    }
}

#[cfg(test)]
mod tests;
