//! Verifies CPU times: the time of each CPU on tasks, interrupts and idling sums to the elapsed
//! time.
//!
//! Tolerances. Over the recording: [`SHARE`] of it and at least [`EDGE_NS`], because a read that
//! takes this long cuts the first and the last slice. Per window and per tick: [`EDGE_NS`], the
//! duration of a read on a loaded machine. Time without an owner, because it was not seen or the
//! CPU was offline, must have a row `run_gap` or `cpu_offline`. A recorder may be killed when it
//! has synced only some tables: of a repaired recording, only ticks that are in both tables are
//! verified.

use std::collections::BTreeMap;

use anyhow::Result;

use super::facts::{MetadataFacts, RecordedCpuTime};
use super::{CheckOutcome, FaultTally};
use crate::clock::TimeSpan;
use crate::schema::columns::{i32_column, i64_column, nullable_value, word_column};
use crate::schema::loss::LossCause;
use crate::schema::owner::UNATTRIBUTED;
use crate::schema::{TableDef, irqs, loss, runtime};
use crate::tables::reader::{Recording, TableScan};

/// Tolerance at the edges of a window or tick, ns.
const EDGE_NS: i64 = 50_000;
/// Tolerance over a whole recording, relative.
const SHARE: f64 = 1e-6;
/// Distance behind the newest row at which a tick counts as complete, ns. CPUs flush independently.
const SLACK_NS: i64 = 2_000_000_000;

/// Verifies the totals of each CPU in the metadata.
pub(super) fn verify_cpu_time(facts: &MetadataFacts) -> CheckOutcome {
    let cpus = match &facts.cpu_time {
        Ok(cpus) => cpus,
        Err(reason) => return CheckOutcome::NotVerifiable(reason.clone()),
    };
    let mut tally = FaultTally::default();
    for cpu in cpus {
        tally.examine_item(|| cpu_time_fault(cpu));
    }
    tally.into_outcome("CPUs")
}

fn cpu_time_fault(time: &RecordedCpuTime) -> Option<String> {
    let times_ns = [
        time.task_ns,
        time.irq_ns,
        time.softirq_ns,
        time.idle_ns,
        time.unattributed_ns,
        time.offline_ns,
    ];
    let cpu = time.cpu;
    if times_ns.iter().any(|time_ns| *time_ns < 0) {
        return Some(format!("CPU {cpu}: a negative time"));
    }
    let sum: i64 = times_ns.iter().fold(0_i64, |a, b| a.saturating_add(*b));
    let span = time.end_ns.saturating_sub(time.begin_ns);
    if sum.abs_diff(span) > EDGE_NS.max((span as f64 * SHARE) as i64) as u64 {
        return Some(format!("CPU {cpu}: the parts sum to {sum} ns, {span} ns passed"));
    }
    let worst = time.worst_window_error_ns;
    (worst.unsigned_abs() > EDGE_NS as u64)
        .then(|| format!("CPU {cpu}: one window is {worst} ns off (allowed: {EDGE_NS})"))
}

/// End of a tick, and the CPU.
type TickAndCpu = (i64, i32);

/// Times in ns.
#[derive(Default)]
struct TickTimes {
    length: i64,
    owned: i64,
    /// Time that was not seen, or when the CPU was offline.
    unowned: i64,
}

/// Verifies each CPU and tick, from `runtime` and `irqs`.
pub(super) fn verify_ticks(recording: &Recording, facts: &MetadataFacts) -> CheckOutcome {
    if !recording.is_dataset() {
        return CheckOutcome::NotVerifiable("there are no runtime and irqs tables".to_owned());
    }
    FaultTally::scan_outcome(sum_ticks(recording, facts.repaired), "ticks in the runtime table")
}

/// Scans both tables in parallel and sums the rows of each tick and CPU.
fn sum_ticks(recording: &Recording, repaired: bool) -> Result<FaultTally> {
    let mut tally = FaultTally::default();
    let gaps = load_gaps(recording)?;
    let mut ticks: BTreeMap<TickAndCpu, TickTimes> = BTreeMap::new();
    let mut tables = [
        TickTable::open(recording, &runtime::TABLE, "run_ns")?,
        TickTable::open(recording, &irqs::TABLE, "ns")?,
    ];
    // Advances the table that is behind; a tick is complete when both are well past it.
    while let Some(table) = tables.iter_mut().filter(|s| !s.done).min_by_key(|s| s.newest) {
        table.read_batch(&mut ticks)?;
        let behind = tables.iter().filter(|s| !s.done).map(|s| s.newest).min();
        if let Some(limit) = behind.map(|newest| newest.saturating_sub(SLACK_NS)) {
            let limit = if repaired { limit.min(common_end_ns(&tables)) } else { limit };
            let open_ticks = ticks.split_off(&(limit, i32::MIN));
            examine_ticks(&std::mem::replace(&mut ticks, open_ticks), &gaps, &mut tally);
        }
    }
    if repaired {
        ticks.split_off(&(common_end_ns(&tables).saturating_add(1), i32::MIN));
    }
    examine_ticks(&ticks, &gaps, &mut tally);
    Ok(tally)
}

/// The newest tick up to which both tables have rows.
fn common_end_ns(tables: &[TickTable; 2]) -> i64 {
    tables.iter().map(|table| table.newest).min().unwrap_or(i64::MIN)
}

/// Causes of losses that concern a CPU's time.
const GAP_CAUSES: [&str; 2] = [LossCause::RunGap.name(), LossCause::CpuOffline.name()];

/// Time spans of each CPU that the table `loss` covers, in order of time.
type LossGaps = BTreeMap<i32, Vec<TimeSpan<i64>>>;

fn load_gaps(recording: &Recording) -> Result<LossGaps> {
    let mut gaps = LossGaps::new();
    let wanted = ["mono_ns", "span_ns", "cause", "cpu"];
    for batch in recording.open_table(&loss::TABLE)?.scan_columns(&wanted)? {
        let batch = batch?;
        let (mono_ns, span_ns) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "span_ns")?);
        let (cause, cpu) = (word_column(&batch, "cause")?, i32_column(&batch, "cpu")?);
        for row in (0..batch.num_rows())
            .filter(|&row| GAP_CAUSES.contains(&cause.get(row).unwrap_or_default()))
        {
            let end_ns = mono_ns.value(row);
            let gap = TimeSpan::new(end_ns.saturating_sub(span_ns.value(row)), end_ns);
            gaps.entry(nullable_value(cpu, row).unwrap_or(-1)).or_default().push(gap);
        }
    }
    for gaps in gaps.values_mut() {
        gaps.sort_unstable();
    }
    Ok(gaps)
}

/// Time of a CPU that the spans cover between two times.
fn covered_ns(gaps: &LossGaps, cpu: i32, span: TimeSpan<i64>) -> i64 {
    let gaps = gaps.get(&cpu).map(Vec::as_slice).unwrap_or_default();
    let first_gap = gaps.partition_point(|gap| gap.end_ns <= span.begin_ns);
    let inside = gaps.iter().skip(first_gap).take_while(|gap| gap.begin_ns < span.end_ns);
    inside.map(|gap| gap.end_ns.min(span.end_ns) - gap.begin_ns.max(span.begin_ns)).sum()
}

fn examine_ticks(ticks: &BTreeMap<TickAndCpu, TickTimes>, gaps: &LossGaps, tally: &mut FaultTally) {
    for (&(mono_ns, cpu), tick) in ticks {
        tally.examine_item(|| {
            let span = TimeSpan::new(mono_ns.saturating_sub(tick.length), mono_ns);
            let covered = covered_ns(gaps, cpu, span);
            let missing_ns = tick.length.saturating_sub(tick.owned);
            if missing_ns < -EDGE_NS || missing_ns > covered.saturating_add(EDGE_NS) {
                return Some(format!(
                    "CPU {cpu}, tick ending at mono_ns {mono_ns}: {} ns of {} are accounted for",
                    tick.owned, tick.length
                ));
            }
            let accounted_ns = tick.owned.saturating_add(tick.unowned);
            (accounted_ns.abs_diff(tick.length) > EDGE_NS as u64).then(|| {
                format!(
                    "CPU {cpu}, tick ending at mono_ns {mono_ns}: the rows sum to {accounted_ns} \
                     ns of {}",
                    tick.length
                )
            })
        });
    }
}

struct TickTable {
    scan: TableScan,
    /// The column with the times.
    ns: &'static str,
    newest: i64,
    done: bool,
}

impl TickTable {
    fn open(recording: &Recording, table: &'static TableDef, ns: &'static str) -> Result<Self> {
        let columns = ["mono_ns", "tick_ns", "cpu", "owner", ns];
        let scan = recording.open_table(table)?.scan_columns(&columns)?;
        Ok(Self { scan, ns, newest: i64::MIN, done: false })
    }

    fn read_batch(&mut self, ticks: &mut BTreeMap<TickAndCpu, TickTimes>) -> Result<()> {
        let Some(batch) = self.scan.next().transpose()? else {
            self.done = true;
            return Ok(());
        };
        let (mono_ns, tick_ns) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "tick_ns")?);
        let (cpu, ns) = (i32_column(&batch, "cpu")?, i64_column(&batch, self.ns)?);
        let owner = word_column(&batch, "owner")?;
        for row in 0..batch.num_rows() {
            let tick = ticks.entry((mono_ns.value(row), cpu.value(row))).or_default();
            tick.length = tick_ns.value(row);
            let nobody = [UNATTRIBUTED, runtime::OFFLINE];
            let time_sum = match owner.get(row) {
                Some(owner) if nobody.contains(&owner) => &mut tick.unowned,
                _ => &mut tick.owned,
            };
            *time_sum = time_sum.saturating_add(ns.value(row));
            self.newest = self.newest.max(mono_ns.value(row));
        }
        Ok(())
    }
}
