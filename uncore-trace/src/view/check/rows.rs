//! Verifies the rows of `fabric` by themselves: conservation, values, sequence, clock.
//!
//! Tolerances: conservation 1 part in 10^9 (rounding in a sum of a few thousand doubles is about 1
//! in 10^12); windows are contiguous to the nanosecond, because both ends are times of readings;
//! wall time may differ from the clock snapshots by [`CLOCK_NS`].

use anyhow::{Result, bail};
use arrow::array::{Array as _, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};

use super::facts::MetadataFacts;
use super::window::{CheckedWindow, WindowCollector};
use super::{CheckOutcome, FaultTally, find_fault};
use crate::clock::Snapshot;
use crate::schema::columns::{self, nullable_value};
use crate::schema::owner::{IDLE, IRQ, KINDS, OTHER_TASKS, SOFTIRQ, TASK, UNATTRIBUTED};
use crate::schema::{TableDef, fabric};
use crate::tables::reader::Recording;
use crate::text::count_noun;

/// Relative error of the sum of a window.
const CONSERVATION: f64 = 1e-9;
/// Largest difference of `ts` from what the clock snapshots allow, ns: NTP slews by at most 500 ppm
/// (`MAXFREQ`, include/linux/timex.h in Linux 6.18), that is 0.5 ms in a second.
const CLOCK_NS: i64 = 1_000_000;

/// The outcomes of one pass over `fabric`.
pub(super) struct FabricOutcomes {
    pub(super) conservation: CheckOutcome,
    pub(super) values: CheckOutcome,
    pub(super) sequence: CheckOutcome,
    pub(super) readable: CheckOutcome,
    pub(super) clock: CheckOutcome,
}

#[derive(Default)]
struct Pass {
    conservation: FaultTally,
    values: FaultTally,
    sequence: FaultTally,
    clock: FaultTally,
    /// For each counter, the end of its last window.
    ends: Vec<Option<i64>>,
    gaps: u64,
    /// Whether the table is a roll-up: its tasks have no process, and it has three more columns.
    is_rollup: bool,
}

/// Scans `fabric` once, and checks that the other tables can be read.
pub(super) fn verify_fabric_rows(recording: &Recording, facts: &MetadataFacts) -> FabricOutcomes {
    let mut pass = Pass { is_rollup: recording.is_rollup(), ..Pass::default() };
    let read = pass.read_batches(recording, facts).and_then(|()| read_others(recording));
    let sequence = match pass.sequence.into_outcome("windows") {
        CheckOutcome::Ok(counted_windows) if pass.gaps > 0 => CheckOutcome::Ok(format!(
            "{counted_windows}, {} gaps, which the loss table explains",
            pass.gaps
        )),
        outcome => outcome,
    };
    let clock = match &facts.clocks {
        _ if pass.is_rollup => {
            CheckOutcome::NotVerifiable("a roll-up has no clock snapshots".to_owned())
        }
        Err(reason) => CheckOutcome::NotVerifiable(reason.clone()),
        Ok(clocks) if clocks.is_empty() => {
            CheckOutcome::NotVerifiable("no clock snapshot".to_owned())
        }
        Ok(_) => pass.clock.into_outcome("rows"),
    };
    FabricOutcomes {
        conservation: pass.conservation.into_outcome("windows with a value"),
        values: pass.values.into_outcome("rows"),
        sequence,
        readable: CheckOutcome::from_result(read.map(CheckOutcome::Ok)),
        clock,
    }
}

/// Decodes every column of the tables that no other invariant reads.
fn read_others(recording: &Recording) -> Result<String> {
    let mut rows = 0;
    let tables = recording.list_tables();
    for def in &tables {
        let table = recording.open_table(def)?;
        rows += table.row_count();
        if def.name != fabric::TABLE.name {
            let mut order = ColumnOrder::of_table(def);
            for batch in table.scan_columns(&def.column_names())? {
                order.examine_batch(&batch?)?;
            }
        }
    }
    Ok(format!("{rows} rows in {}", count_noun(tables.len(), "table")))
}

/// Verifies that a column that is declared as sorted never decreases.
struct ColumnOrder {
    def: &'static TableDef,
    last_value: i64,
}

impl ColumnOrder {
    const fn of_table(def: &'static TableDef) -> Self {
        Self { def, last_value: i64::MIN }
    }

    fn examine_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        for column in self.def.order {
            for &value in columns::i64_column(batch, column)?.values() {
                if value < self.last_value {
                    bail!("{}: {column} {value} comes after {}", self.def.name, self.last_value);
                }
                self.last_value = value;
            }
        }
        Ok(())
    }
}

impl Pass {
    fn read_batches(&mut self, recording: &Recording, facts: &MetadataFacts) -> Result<()> {
        let table = recording.open_table(&fabric::TABLE)?;
        let schema = table.scan_schema();
        let columns: Vec<&str> =
            schema.fields().iter().map(|field| field.name().as_str()).collect();
        let clocks = facts.clocks.as_deref().unwrap_or_default();
        let mut windows = WindowCollector::default();
        let mut order = ColumnOrder::of_table(&fabric::TABLE);
        let mut row = 0;
        for batch in table.scan_columns(&columns)?.decode_ahead()? {
            let batch = batch?;
            order.examine_batch(&batch)?;
            self.examine_values(&batch, row, facts)?;
            self.examine_clock(&batch, row, clocks)?;
            windows
                .add_batch(&batch, |windows, window| self.examine_window(windows, window, facts))?;
            row += batch.num_rows() as u64;
        }
        windows.finish(|windows, window| self.examine_window(windows, window, facts));
        Ok(())
    }

    /// Conservation and sequence of one complete window.
    fn examine_window(
        &mut self,
        windows: &WindowCollector,
        window: &CheckedWindow,
        facts: &MetadataFacts,
    ) {
        let torn = || {
            let text = "rows disagree on window_ns, total or running";
            window.torn.then(|| format!("{}: {text}", windows.describe_window(window)))
        };
        self.values.note_fault(|| {
            let text = "the rows of a cgroup disagree on cgroup_confidence";
            window.is_split.then(|| format!("{}: {text}", windows.describe_window(window)))
        });
        if window.torn || window.total.is_some() {
            self.conservation.examine_item(|| {
                torn().or_else(|| conservation_fault(windows, window, window.total?))
            });
        }
        if self.ends.len() <= window.counter {
            self.ends.resize(window.counter + 1, None);
        }
        let previous_end_ns = self.ends[window.counter].replace(window.end_ns);
        let gap = previous_end_ns.is_some_and(|end| window.begin_ns > end);
        self.gaps += u64::from(gap);
        self.sequence.examine_item(|| {
            let fault = match previous_end_ns {
                _ if window.begin_ns >= window.end_ns => "is not longer than 0 ns",
                Some(end) if window.begin_ns < end => "begins before the previous one ends",
                Some(_) if gap && !facts.may_have_gaps() => {
                    "does not begin where the previous one ends, and no loss is recorded"
                }
                _ => return None,
            };
            Some(format!("{} {fault}", windows.describe_window(window)))
        });
    }

    /// Values of each row: known words, ranges, and nulls exactly where they are allowed.
    fn examine_values(
        &mut self,
        batch: &RecordBatch,
        first_row: u64,
        facts: &MetadataFacts,
    ) -> Result<()> {
        let value = columns::f64_column(batch, "value")?;
        let total = columns::f64_column(batch, "total")?;
        let running = columns::f32_column(batch, "running")?;
        let confidence = columns::f32_column(batch, "confidence")?;
        let lasting = columns::f32_column(batch, "cgroup_confidence")?;
        let owner = columns::word_column(batch, "owner")?;
        let method = columns::word_column(batch, "method")?;
        let pid = columns::i32_column(batch, "pid")?;
        let comm = columns::word_column(batch, "comm")?;
        let cgroup_id = columns::bits_column(batch, "cgroup_id")?;
        let cgroup = columns::word_column(batch, "cgroup")?;
        let intervals = self.is_rollup.then(|| Intervals::from_batch(batch)).transpose()?;
        let number = columns::i32_column(batch, "number")?;
        let is_known: Vec<bool> = method
            .dictionary_values()
            .iter()
            .map(|name| name.is_some_and(|name| fabric::METHODS.contains(&name)))
            .collect();
        let is_known = |row| {
            usize::try_from(method.dictionary_key(row))
                .is_ok_and(|key| is_known.get(key) == Some(&true))
        };
        let excused = facts.may_have_gaps();
        for row in 0..batch.num_rows() {
            self.values.examine_item(|| {
                let row_owner = RowOwner {
                    owner: owner.get(row).unwrap_or("(null)"),
                    process: if intervals.is_some() { None } else { Some(pid.is_valid(row)) },
                    comm: comm.get(row),
                    number: number.is_valid(row),
                    cgroup: cgroup_id.get(row).is_some() || cgroup.get(row).is_some(),
                };
                let count = RowCount {
                    value: nullable_value(value, row),
                    total: nullable_value(total, row),
                    running: running.value(row),
                    confidence: nullable_value(confidence, row),
                    lasting: nullable_value(lasting, row),
                };
                let unknown = (!is_known(row))
                    .then(|| format!("method {:?}", method.get(row).unwrap_or("(null)")));
                let interval =
                    || intervals.as_ref()?.interval_fault(row, &count).map(str::to_owned);
                let wrong = row_owner
                    .owner_fault()
                    .or(unknown)
                    .or_else(|| count.count_fault(excused))
                    .or_else(interval)?;
                Some(format!("row {}: {wrong}", first_row + row as u64))
            });
        }
        Ok(())
    }

    /// `ts` is `mono_ns` plus an offset between those of the clock snapshots.
    fn examine_clock(
        &mut self,
        batch: &RecordBatch,
        first_row: u64,
        clocks: &[Snapshot],
    ) -> Result<()> {
        let offsets = clocks.iter().map(|clock| clock.wall_ns.saturating_sub(clock.mono_ns));
        let (Some(low), Some(high)) = (offsets.clone().min(), offsets.max()) else { return Ok(()) };
        let ts: &TimestampMicrosecondArray = columns::typed_column(batch, "ts")?;
        let mono_ns = columns::i64_column(batch, "mono_ns")?;
        for row in 0..batch.num_rows() {
            self.clock.examine_item(|| {
                let offset = ts.value(row).saturating_mul(1000).saturating_sub(mono_ns.value(row));
                let off = low.saturating_sub(offset).max(offset.saturating_sub(high));
                let row = first_row + row as u64;
                (off > CLOCK_NS)
                    .then(|| format!("row {row}: ts is {off} ns off the clock snapshots"))
            });
        }
        Ok(())
    }
}

pub(super) fn conservation_fault(
    windows: &WindowCollector,
    window: &CheckedWindow,
    total: f64,
) -> Option<String> {
    let near = (window.sum - total).abs() <= CONSERVATION * total.abs().max(window.size);
    // Written so that NaN fails.
    (!near).then(|| {
        let name = windows.describe_window(window);
        format!("{name}: owners sum to {}, total is {total}", window.sum)
    })
}

/// The columns that only a roll-up has.
struct Intervals<'a> {
    window_ns: &'a Int64Array,
    known_ns: &'a Int64Array,
    low: &'a Float64Array,
    high: &'a Float64Array,
}

impl<'a> Intervals<'a> {
    fn from_batch(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            window_ns: columns::i64_column(batch, "window_ns")?,
            known_ns: columns::i64_column(batch, "known_ns")?,
            low: columns::f64_column(batch, "low")?,
            high: columns::f64_column(batch, "high")?,
        })
    }

    fn interval_fault(&self, row: usize, count: &RowCount) -> Option<&'static str> {
        let known_ns = self.known_ns.value(row);
        if !(0..=self.window_ns.value(row)).contains(&known_ns) {
            return Some("known_ns is not within window_ns");
        }
        match (
            nullable_value(self.low, row),
            count.value,
            nullable_value(self.high, row),
            count.total,
        ) {
            (None, None, None, None) => (known_ns > 0).then_some("no value, but known_ns is not 0"),
            (Some(low), Some(value), Some(high), Some(total)) => {
                let upper_bound = total + CONSERVATION * total.abs();
                let is_right = low <= value && value <= high && high <= upper_bound.max(value);
                (!is_right).then_some("low, value, high and total are not in this order")
            }
            _ => Some("one of value, low and high is null"),
        }
    }
}

/// The columns of a row that identify the owner.
struct RowOwner<'a> {
    owner: &'a str,
    /// Whether the row has a process; `None` in tables without processes.
    process: Option<bool>,
    comm: Option<&'a str>,
    number: bool,
    cgroup: bool,
}

impl RowOwner<'_> {
    fn owner_fault(&self) -> Option<String> {
        let RowOwner { owner, process, comm, number, cgroup } = *self;
        let named = |prefix: &str| comm.is_some_and(|comm| comm.starts_with(prefix));
        let wrong = match owner {
            // For bytes that are sent in interrupts only the cgroup of the socket is known.
            TASK if process == Some(false) && !(cgroup && comm.is_none()) => "a task without pid",
            TASK if number => "a number, but the owner is not an interrupt",
            TASK => return None,
            _ if !KINDS.contains(&owner) => return Some(format!("owner {owner:?}")),
            IRQ if !named("irq:") => "an irq whose comm is not irq:NAME",
            SOFTIRQ if !named("softirq:") => "a softirq whose comm is not softirq:VEC",
            IRQ | SOFTIRQ if !number => "an interrupt without its number",
            IDLE | OTHER_TASKS | UNATTRIBUTED if comm.is_some() => {
                "a comm, but the owner has no name"
            }
            _ if process == Some(true) => "a pid, but the owner is not a task",
            _ if cgroup => "a cgroup, but the owner is not a task",
            IRQ | SOFTIRQ => return None,
            _ if number => "a number, but the owner is not an interrupt",
            _ => return None,
        };
        Some(wrong.to_owned())
    }
}

/// The columns of a row that hold the count.
struct RowCount {
    value: Option<f64>,
    total: Option<f64>,
    running: f32,
    confidence: Option<f32>,
    lasting: Option<f32>,
}

impl RowCount {
    /// The fault of the row, if any. `excused`: there are losses, so a counter that ran may have no
    /// value.
    fn count_fault(&self, excused: bool) -> Option<String> {
        let RowCount { value, total, running, confidence, lasting } = *self;
        let finite = |number: Option<f64>| number.is_none_or(f64::is_finite);
        let unit = |number: f32| (0.0..=1.0).contains(&number);
        let wrong = if !unit(running) {
            format!("running is {running}")
        } else if confidence.is_some_and(|confidence| !unit(confidence)) {
            format!("confidence is {confidence:?}")
        } else if lasting.is_some_and(|lasting| !unit(lasting)) {
            format!("cgroup_confidence is {lasting:?}")
        } else {
            let fault = find_fault([
                (
                    lasting.is_some() && confidence.is_none(),
                    "a cgroup_confidence, but no confidence",
                ),
                (!finite(value) || !finite(total), "value or total is not finite"),
                (value.is_some() != total.is_some(), "one of value and total is null"),
                (value.is_some() && running == 0.0, "a value, but the counter never ran"),
                (
                    value.is_none() && running > 0.0 && !excused,
                    "no value, but the counter ran and nothing was lost",
                ),
            ]);
            return fault.map(str::to_owned);
        };
        Some(wrong)
    }
}
