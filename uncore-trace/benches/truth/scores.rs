//! What a method gave, held against what was moved.
//!
//! | figure | |
//! |---|---|
//! | median, p95 | relative errors of the values of tenants that moved at least [`LEAST`] of a window's bytes at a counter |
//! | misplaced | part of a window's bytes that somebody else got; the mean. Bytes of devices should be unattributed |
//! | bill | relative errors of the sums over the recording, by counter, of tenants with at least [`LEAST`]: the median |
//! | said, right, rms | rows of processes with at least [`LEAST`] of the window, given or true: mean confidence, part within 10 % of the truth, and the root mean square of their difference over tenths of confidence, by rows |
//! | few, many | intervals of `report` by cgroup, of tenants with at least [`LEAST`] of the event, that hold the truth, and all: tenants of up to [`FEW`] processes, and of more |
//! | sure | of the same lines with a confidence above 0.5, those within [`SURE`] of the truth, and all |
//! | windows | 90 % intervals of the values of tenants with at least [`LEAST`] of a window's bytes at a counter that hold the truth, and all: from the confidences of their rows, as `report` has them for one window |
//! | over_half, over_nine | of the values of tenants that are or should be above [`LEAST`] of a window's bytes, with a mean confidence of their rows, by bytes, of at least 0.5 and 0.9: all, those within 10 % of the truth, and those off by more than [`WRONG`] |

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;
use foldhash::fast::FixedState;
use serde::Serialize;
use uncore_trace::schema::columns::{self, nullable_value};
use uncore_trace::schema::confidence::RIGHT_WITHIN;
use uncore_trace::tables::reader::Recording;
use uncore_trace::view::grouping::GroupBy;
use uncore_trace::view::question::ReportQuestion;
use uncore_trace::view::report_sums::sum_report;

use super::TICK_NS;
use super::ticks::{ByteMover, FIRST_PID, MovedPart};

const LEAST: f64 = 0.01;
const FEW: usize = 4;
const SURE: f64 = 0.15;
const WRONG: f64 = 0.3;
/// Probability that the truth is in an interval.
const LEVEL: f64 = 0.9;
const BINS: usize = 10;

/// The result of a case.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CaseFigures {
    pub(crate) median: f64,
    pub(crate) p95: f64,
    pub(crate) misplaced: f64,
    pub(crate) bill: f64,
    pub(crate) said: f64,
    pub(crate) right: f64,
    pub(crate) rms: f64,
    pub(crate) few: [u32; 2],
    pub(crate) many: [u32; 2],
    pub(crate) sure: [u32; 2],
    pub(crate) windows: [u32; 2],
    pub(crate) over_half: [u32; 3],
    pub(crate) over_nine: [u32; 3],
}

/// A value of a method for a tick, or for the window that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenValue {
    pub(crate) counter: usize,
    pub(crate) mover: ByteMover,
    pub(crate) value: f64,
    /// What the counter counted in the window.
    pub(crate) total: f64,
    pub(crate) confidence: Option<f32>,
}

type Map<T> = HashMap<(usize, ByteMover), T, FixedState>;

/// What was moved in a window.
#[derive(Debug, Default)]
struct WindowTruth {
    moved: Map<f64>,
    device: Vec<f64>,
}

/// Bytes that were given and moved.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    attributed: f64,
    moved: f64,
}

impl Pair {
    fn difference(self) -> f64 {
        (self.attributed - self.moved).abs()
    }

    fn relative_error(self) -> f64 {
        self.difference() / self.moved
    }
}

/// What the rows of a tenant say together.
#[derive(Clone, Copy, Debug, Default)]
struct RowSums {
    value: f64,
    /// The half widths of its 90 % interval.
    below: f64,
    above: f64,
    /// Sum of confidences times values.
    weighted_confidence: f64,
    /// Largest total of its counter.
    total: f64,
}

impl RowSums {
    /// Adds a row. `view::interval` has the reasons for the half width.
    fn add_row(&mut self, given: &GivenValue) {
        let confidence = f64::from(given.confidence.unwrap_or(0.0)).clamp(0.0, 1.0);
        let width = RIGHT_WITHIN * LEVEL.atanh() / confidence.max(1e-9).atanh();
        self.value += given.value;
        self.below += width.min(1.0) * given.value;
        self.above += (width * given.value).min((given.total - given.value).max(0.0));
        self.weighted_confidence += given.value * confidence;
        self.total = self.total.max(given.total);
    }

    fn mean_confidence(&self) -> f64 {
        self.weighted_confidence / self.value.max(1e-9)
    }

    /// Whether the 90 % interval holds what was moved.
    fn holds(&self, moved: f64) -> bool {
        const ROUNDED: f64 = 1.000_000_1;
        let high = (self.value + self.above).min(self.total);
        moved >= self.value - self.below * ROUNDED && moved <= high * ROUNDED
    }
}

/// The values of a counter: tenants, of which the last is the kernel, interrupts, idle time, and
/// unattributed.
type PairRow = Vec<Pair>;

#[derive(Debug)]
pub(crate) struct Scores {
    /// By process.
    tenant_of: Vec<usize>,
    tenants: usize,
    counters: usize,
    /// Ticks of a window, and the tick at which the recording begins.
    window: usize,
    start: u64,
    truth: BTreeMap<usize, WindowTruth>,
    /// The window whose values come.
    open: usize,
    values: Map<GivenValue>,
    errors: Vec<f64>,
    misplaced: Vec<f64>,
    /// Sums over the recording, by counter.
    bills: Vec<PairRow>,
    /// Rows, their confidence, and how many of them are right, by tenth of confidence.
    bins: [(f64, f64, f64); BINS],
    /// The figures of intervals of windows, and of tenants' confidences.
    counts: CaseFigures,
}

impl Scores {
    pub(crate) fn new(tenant_of: Vec<usize>, counters: usize, window: usize, start: u64) -> Self {
        let tenants = tenant_of.iter().max().map_or(0, |largest| largest + 1);
        Self {
            tenant_of,
            tenants,
            counters,
            window,
            start,
            truth: BTreeMap::new(),
            open: 0,
            values: Map::default(),
            errors: Vec::new(),
            misplaced: Vec::new(),
            bills: vec![vec![Pair::default(); tenants + 3]; counters],
            bins: [(0.0, 0.0, 0.0); BINS],
            counts: CaseFigures::default(),
        }
    }

    fn row_index(&self, mover: ByteMover) -> usize {
        match mover {
            ByteMover::Process(process) => self.tenant_of[process as usize],
            ByteMover::Softirq => self.tenants,
            ByteMover::Idle => self.tenants + 1,
            ByteMover::Nobody => self.tenants + 2,
        }
    }

    /// Takes what was moved in a tick, before it is divided.
    pub(crate) fn add_tick(&mut self, tick: usize, moved_parts: &[MovedPart], device: &[f64]) {
        let truth = self.truth.entry(tick / self.window).or_default();
        truth.device.resize(device.len(), 0.0);
        truth.device.iter_mut().zip(device).for_each(|(sum, bytes)| *sum += bytes);
        for moved_part in moved_parts {
            *truth.moved.entry((moved_part.counter, moved_part.mover)).or_default() +=
                moved_part.bytes;
        }
    }

    /// Takes a value for a tick or the window that it is in. Windows come in order.
    pub(crate) fn add_value(&mut self, tick: usize, given: GivenValue) {
        let window = tick / self.window;
        if window != self.open {
            self.close_window();
            self.open = window;
        }
        let key = (given.counter, given.mover);
        let sum = self.values.entry(key).or_insert(GivenValue { value: 0.0, ..given });
        *sum = GivenValue { value: sum.value + given.value, ..given };
    }

    /// Takes rows of `fabric`.
    pub(crate) fn add_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let (end, pid) =
            (columns::i64_column(batch, "mono_ns")?, columns::i32_column(batch, "pid")?);
        let (counter, owner) =
            (columns::i32_column(batch, "counter")?, columns::word_column(batch, "owner")?);
        let (value, total) =
            (columns::f64_column(batch, "value")?, columns::f64_column(batch, "total")?);
        let confidence = columns::f32_column(batch, "confidence")?;
        for row in 0..batch.num_rows() {
            let mover = match owner.get(row) {
                Some("task") => ByteMover::Process(pid.value(row) as u32 - FIRST_PID),
                Some("irq" | "softirq") => ByteMover::Softirq,
                Some("idle") => ByteMover::Idle,
                _ => ByteMover::Nobody,
            };
            let tick = end.value(row) as u64 / TICK_NS - self.start - 1;
            let given = GivenValue {
                counter: counter.value(row) as usize,
                mover,
                value: nullable_value(value, row).unwrap_or(0.0),
                total: nullable_value(total, row).unwrap_or(0.0),
                confidence: nullable_value(confidence, row),
            };
            self.add_value(tick as usize, given);
        }
        Ok(())
    }

    /// Compares the window whose values have come.
    fn close_window(&mut self) {
        let values = std::mem::take(&mut self.values);
        let Some(WindowTruth { moved, device }) = self.truth.remove(&self.open) else { return };
        let mut rows: Vec<PairRow> = vec![vec![Pair::default(); self.tenants + 3]; self.counters];
        let mut said = vec![vec![RowSums::default(); self.tenants]; self.counters];
        for given in values.values() {
            rows[given.counter][self.row_index(given.mover)].attributed += given.value;
            if let ByteMover::Process(process) = given.mover {
                said[given.counter][self.tenant_of[process as usize]].add_row(given);
            }
        }
        for (&(counter, mover), &bytes) in &moved {
            rows[counter][self.row_index(mover)].moved += bytes;
        }
        let nobody = self.row_index(ByteMover::Nobody);
        let mut totals = vec![0.0; self.counters];
        for (counter, row) in rows.iter_mut().enumerate() {
            row[nobody].moved = device[counter];
            let total: f64 = row.iter().map(|pair| pair.moved).sum();
            totals[counter] = total;
            if total > 0.0 {
                let off: f64 = row.iter().map(|pair| pair.difference()).sum();
                self.misplaced.push(off / 2.0 / total);
            }
            self.errors.extend(
                large_tenants(row, self.tenants, total).map(|(_, pair)| pair.relative_error()),
            );
            for (sum, pair) in self.bills[counter].iter_mut().zip(&*row) {
                sum.attributed += pair.attributed;
                sum.moved += pair.moved;
            }
            // Without the kernel.
            let users = row.iter().zip(&said[counter]).take(self.tenants.saturating_sub(1));
            for (pair, row_sums) in users {
                self.counts.count_tenant(*pair, row_sums, LEAST * total);
            }
        }
        for ((counter, mover), given) in values {
            let says = matches!(mover, ByteMover::Process(_) | ByteMover::Softirq);
            let Some(confidence) = given.confidence.filter(|_| says) else { continue };
            let given_bytes = given.value;
            let moved = moved.get(&(counter, mover)).copied().unwrap_or_default();
            if given_bytes.max(moved) > LEAST * totals[counter] {
                let stated = f64::from(confidence);
                let bin = &mut self.bins[((stated * BINS as f64) as usize).min(BINS - 1)];
                let is_right =
                    Pair { attributed: given_bytes, moved }.difference() <= RIGHT_WITHIN * moved;
                *bin = (bin.0 + 1.0, bin.1 + stated, bin.2 + f64::from(u8::from(is_right)));
            }
        }
    }

    /// The figures of all windows; `fabric` is the file with the rows, for those of bills.
    pub(crate) fn into_figures(mut self, fabric: Option<&Path>) -> Result<CaseFigures> {
        self.close_window();
        let rows = || self.bills.iter();
        let of_row = |row: &PairRow| {
            large_tenants(row, self.tenants, moved_sum(row))
                .map(|tenant_pair| tenant_pair.1.relative_error())
                .collect()
        };
        let bills: Vec<f64> =
            rows().flat_map(|row: &PairRow| -> Vec<f64> { of_row(row) }).collect();
        let row_count: f64 = self.bins.iter().map(|bin| bin.0).sum::<f64>().max(1.0);
        let mean = |component: fn(&(f64, f64, f64)) -> f64| {
            self.bins.iter().map(component).sum::<f64>() / row_count
        };
        let mut figures = CaseFigures {
            median: quantile(self.errors.clone(), 0.5)?,
            p95: quantile(self.errors.clone(), 0.95)?,
            misplaced: self.misplaced.iter().sum::<f64>() / self.misplaced.len().max(1) as f64,
            bill: quantile(bills, 0.5)?,
            said: mean(|bin| bin.1),
            right: mean(|bin| bin.2),
            rms: mean(|(rows, stated, correct)| (stated - correct).powi(2) / rows.max(1.0)).sqrt(),
            ..self.counts.clone()
        };
        if let Some(path) = fabric {
            self.score_intervals(path, &mut figures)?;
        }
        Ok(figures)
    }

    /// The lines of `report` by cgroup.
    fn score_intervals(&self, path: &Path, figures: &mut CaseFigures) -> Result<()> {
        let mut whole: PairRow = vec![Pair::default(); self.tenants + 3];
        for row in &self.bills {
            whole.iter_mut().zip(row).for_each(|(sum, pair)| sum.moved += pair.moved);
        }
        let mut processes = vec![0; self.tenants];
        self.tenant_of.iter().for_each(|tenant| processes[*tenant] += 1);
        let report =
            sum_report(&Recording::open(path)?, &ReportQuestion::grouped_by(GroupBy::Cgroup))?;
        let event = report.events.first().context("the report has no event")?;
        for (tenant, Pair { moved, .. }) in large_tenants(&whole, self.tenants, moved_sum(&whole)) {
            let mut lines = event.lines.iter();
            let Some(line) = lines.find(|line| line.key == cgroup_path(tenant)) else { continue };
            let counts =
                if processes[tenant] <= FEW { &mut figures.few } else { &mut figures.many };
            if let Some(interval) = line.value_interval(event) {
                counts[1] += 1;
                counts[0] += u32::from((interval.low..=interval.high).contains(&moved));
            }
            if line.sum.confidence.mean_confidence().is_some_and(|mean| mean > 0.5) {
                figures.sure[1] += 1;
                let pair = Pair { attributed: line.sum.value, moved };
                figures.sure[0] += u32::from(pair.relative_error() <= SURE);
            }
        }
        Ok(())
    }
}

impl CaseFigures {
    /// Counts the value of a tenant in a window at a counter.
    fn count_tenant(&mut self, pair: Pair, row_sums: &RowSums, least: f64) {
        if pair.moved > least {
            self.windows[0] += u32::from(row_sums.holds(pair.moved));
            self.windows[1] += 1;
        }
        if row_sums.value.max(pair.moved) <= least {
            return;
        }
        let error = pair.difference() / pair.moved.max(1e-9);
        for (limit, counts) in [(0.5, &mut self.over_half), (0.9, &mut self.over_nine)] {
            if row_sums.mean_confidence() >= limit {
                counts[0] += 1;
                counts[1] += u32::from(error <= RIGHT_WITHIN);
                counts[2] += u32::from(error > WRONG);
            }
        }
    }
}

/// The path of a tenant's cgroup.
pub(crate) fn cgroup_path(tenant: usize) -> String {
    format!("/tenant{tenant}")
}

fn moved_sum(row: &PairRow) -> f64 {
    row.iter().map(|pair| pair.moved).sum()
}

/// The tenants with at least [`LEAST`] of the total; without the kernel.
fn large_tenants(
    row: &PairRow,
    tenants: usize,
    total: f64,
) -> impl Iterator<Item = (usize, Pair)> + '_ {
    let user_pairs = row.iter().copied().take(tenants.saturating_sub(1)).enumerate();
    user_pairs.filter(move |(_, pair)| pair.moved > LEAST * total)
}

/// A quantile, between the values next to it.
fn quantile(mut values: Vec<f64>, fraction: f64) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    let position = fraction * values.len().saturating_sub(1) as f64;
    let low = values.get(position as usize).context("no tenant moves enough to be compared")?;
    let high = values.get(position as usize + 1).unwrap_or(low);
    Ok(low + (high - low) * position.fract())
}
