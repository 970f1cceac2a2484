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

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result};
use arrow::array::{Array as _, RecordBatch};
use foldhash::fast::FixedState;
use serde::Serialize;
use uncore_trace::schema::columns::{self, nullable_value};
use uncore_trace::schema::fabric::RIGHT_WITHIN;
use uncore_trace::tables::reader::Recording;
use uncore_trace::view::usage::{GroupBy, UsageQuestion, usage};

use super::TICK_NS;
use super::ticks::{FIRST_PID, Part, Who};

const LEAST: f64 = 0.01;
const FEW: usize = 4;
const SURE: f64 = 0.15;
const BINS: usize = 10;

/// The result of a case.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
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
}

type Map<T> = HashMap<(usize, Who), T, FixedState>;

/// What was moved in a window.
#[derive(Debug, Default)]
struct Truth {
    moved: Map<f64>,
    device: Vec<f64>,
}

/// Bytes that were given and moved.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    given: f64,
    moved: f64,
}

impl Pair {
    fn off(self) -> f64 {
        (self.given - self.moved).abs()
    }

    fn error(self) -> f64 {
        self.off() / self.moved
    }
}

/// The values of a counter: tenants, of which the last is the kernel, interrupts, idle time, and
/// unattributed.
type Row = Vec<Pair>;

#[derive(Debug)]
pub(crate) struct Scores {
    /// By process.
    tenant_of: Vec<usize>,
    tenants: usize,
    counters: usize,
    /// Ticks of a window, and the tick at which the recording begins.
    window: usize,
    start: u64,
    truth: BTreeMap<usize, Truth>,
    /// The window whose values come.
    open: usize,
    given: Map<(f64, Option<f32>)>,
    errors: Vec<f64>,
    misplaced: Vec<f64>,
    /// Sums over the recording, by counter.
    bills: Vec<Row>,
    /// Rows, their confidence, and how many of them are right, by tenth of confidence.
    bins: [(f64, f64, f64); BINS],
}

impl Scores {
    pub(crate) fn new(tenant_of: Vec<usize>, counters: usize, window: usize, start: u64) -> Self {
        let tenants = tenant_of.iter().max().map_or(0, |most| most + 1);
        Self {
            tenant_of,
            tenants,
            counters,
            window,
            start,
            truth: BTreeMap::new(),
            open: 0,
            given: Map::default(),
            errors: Vec::new(),
            misplaced: Vec::new(),
            bills: vec![vec![Pair::default(); tenants + 3]; counters],
            bins: [(0.0, 0.0, 0.0); BINS],
        }
    }

    fn place(&self, who: Who) -> usize {
        match who {
            Who::Process(process) => self.tenant_of[process as usize],
            Who::Softirq => self.tenants,
            Who::Idle => self.tenants + 1,
            Who::Nobody => self.tenants + 2,
        }
    }

    /// Takes what was moved in a tick, before it is divided.
    pub(crate) fn moved(&mut self, tick: usize, parts: &[Part], device: &[f64]) {
        let truth = self.truth.entry(tick / self.window).or_default();
        truth.device.resize(device.len(), 0.0);
        truth.device.iter_mut().zip(device).for_each(|(sum, bytes)| *sum += bytes);
        for part in parts {
            *truth.moved.entry((part.counter, part.who)).or_default() += part.bytes;
        }
    }

    /// Takes a value for a tick or the window that it is in. Windows come in order.
    pub(crate) fn give(
        &mut self,
        tick: usize,
        counter: usize,
        who: Who,
        value: f64,
        confidence: Option<f32>,
    ) {
        let window = tick / self.window;
        if window != self.open {
            self.close();
            self.open = window;
        }
        let given = self.given.entry((counter, who)).or_default();
        *given = (given.0 + value, confidence);
    }

    /// Takes rows of `fabric`.
    pub(crate) fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let (end, pid) =
            (columns::i64_column(batch, "mono_ns")?, columns::i32_column(batch, "pid")?);
        let (counter, owner) =
            (columns::i32_column(batch, "counter")?, columns::word_column(batch, "owner")?);
        let (value, confidence) =
            (columns::f64_column(batch, "value")?, columns::f32_column(batch, "confidence")?);
        for row in 0..batch.num_rows() {
            let who = match owner.get(row) {
                Some("task") => Who::Process(pid.value(row) as u32 - FIRST_PID),
                Some("irq" | "softirq") => Who::Softirq,
                Some("idle") => Who::Idle,
                _ => Who::Nobody,
            };
            let tick = end.value(row) as u64 / TICK_NS - self.start - 1;
            let value = if value.is_null(row) { 0.0 } else { value.value(row) };
            let counter = counter.value(row) as usize;
            self.give(tick as usize, counter, who, value, nullable_value(confidence, row));
        }
        Ok(())
    }

    /// Compares the window whose values have come.
    fn close(&mut self) {
        let given = std::mem::take(&mut self.given);
        let Some(Truth { moved, device }) = self.truth.remove(&self.open) else { return };
        let mut rows: Vec<Row> = vec![vec![Pair::default(); self.tenants + 3]; self.counters];
        for (&(counter, who), &(value, _)) in &given {
            rows[counter][self.place(who)].given += value;
        }
        for (&(counter, who), &bytes) in &moved {
            rows[counter][self.place(who)].moved += bytes;
        }
        let nobody = self.place(Who::Nobody);
        let mut totals = vec![0.0; self.counters];
        for (counter, row) in rows.iter_mut().enumerate() {
            row[nobody].moved = device[counter];
            let total: f64 = row.iter().map(|pair| pair.moved).sum();
            totals[counter] = total;
            if total > 0.0 {
                let off: f64 = row.iter().map(|pair| pair.off()).sum();
                self.misplaced.push(off / 2.0 / total);
            }
            self.errors.extend(large(row, self.tenants, total).map(|(_, pair)| pair.error()));
            for (sum, pair) in self.bills[counter].iter_mut().zip(row) {
                sum.given += pair.given;
                sum.moved += pair.moved;
            }
        }
        for ((counter, who), (given, confidence)) in given {
            let says = matches!(who, Who::Process(_) | Who::Softirq);
            let Some(confidence) = confidence.filter(|_| says) else { continue };
            let moved = moved.get(&(counter, who)).copied().unwrap_or_default();
            if given.max(moved) > LEAST * totals[counter] {
                let said = f64::from(confidence);
                let bin = &mut self.bins[((said * BINS as f64) as usize).min(BINS - 1)];
                let is_right = Pair { given, moved }.off() <= RIGHT_WITHIN * moved;
                *bin = (bin.0 + 1.0, bin.1 + said, bin.2 + f64::from(u8::from(is_right)));
            }
        }
    }

    /// The figures of all windows; `fabric` is the file with the rows, for those of bills.
    pub(crate) fn finish(mut self, fabric: Option<&Path>) -> Result<Figures> {
        self.close();
        let rows = || self.bills.iter();
        let of_row =
            |row: &Row| large(row, self.tenants, sum(row)).map(|its| its.1.error()).collect();
        let bills: Vec<f64> = rows().flat_map(|row: &Row| -> Vec<f64> { of_row(row) }).collect();
        let all: f64 = self.bins.iter().map(|bin| bin.0).sum::<f64>().max(1.0);
        let mean =
            |part: fn(&(f64, f64, f64)) -> f64| self.bins.iter().map(part).sum::<f64>() / all;
        let mut figures = Figures {
            median: quantile(self.errors.clone(), 0.5)?,
            p95: quantile(self.errors.clone(), 0.95)?,
            misplaced: self.misplaced.iter().sum::<f64>() / self.misplaced.len().max(1) as f64,
            bill: quantile(bills, 0.5)?,
            said: mean(|bin| bin.1),
            right: mean(|bin| bin.2),
            rms: mean(|(rows, said, right)| (said - right).powi(2) / rows.max(1.0)).sqrt(),
            ..Figures::default()
        };
        if let Some(path) = fabric {
            self.intervals(path, &mut figures)?;
        }
        Ok(figures)
    }

    /// The lines of `report` by cgroup.
    fn intervals(&self, path: &Path, figures: &mut Figures) -> Result<()> {
        let mut whole: Row = vec![Pair::default(); self.tenants + 3];
        for row in &self.bills {
            whole.iter_mut().zip(row).for_each(|(sum, pair)| sum.moved += pair.moved);
        }
        let mut processes = vec![0; self.tenants];
        self.tenant_of.iter().for_each(|tenant| processes[*tenant] += 1);
        let report = usage(&Recording::open(path)?, &UsageQuestion::grouped_by(GroupBy::Cgroup))?;
        let event = report.events.first().context("the report has no event")?;
        for (tenant, Pair { moved, .. }) in large(&whole, self.tenants, sum(&whole)) {
            let mut lines = event.lines.iter();
            let Some(line) = lines.find(|line| line.key == cgroup(tenant)) else { continue };
            let of = if processes[tenant] <= FEW { &mut figures.few } else { &mut figures.many };
            if let Some(interval) = line.value_interval(event) {
                of[1] += 1;
                of[0] += u32::from((interval.low..=interval.high).contains(&moved));
            }
            if line.sum.confidence.mean_confidence().is_some_and(|mean| mean > 0.5) {
                figures.sure[1] += 1;
                let pair = Pair { given: line.sum.value, moved };
                figures.sure[0] += u32::from(pair.error() <= SURE);
            }
        }
        Ok(())
    }
}

/// The path of a tenant's cgroup.
pub(crate) fn cgroup(tenant: usize) -> String {
    format!("/tenant{tenant}")
}

fn sum(row: &Row) -> f64 {
    row.iter().map(|pair| pair.moved).sum()
}

/// The tenants with at least [`LEAST`] of the total; without the kernel.
fn large(row: &Row, tenants: usize, total: f64) -> impl Iterator<Item = (usize, Pair)> + '_ {
    let own = row.iter().copied().take(tenants.saturating_sub(1)).enumerate();
    own.filter(move |(_, pair)| pair.moved > LEAST * total)
}

/// A quantile, between the values next to it.
fn quantile(mut values: Vec<f64>, part: f64) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    let at = part * values.len().saturating_sub(1) as f64;
    let low = values.get(at as usize).context("no tenant moves enough to be compared")?;
    let high = values.get(at as usize + 1).unwrap_or(low);
    Ok(low + (high - low) * at.fract())
}
