//! Verifies the rows of `fabric` by themselves: conservation, values, sequence, clock.
//!
//! Tolerances: conservation 1 part in 10^9 (rounding in a sum of a few thousand doubles is about 1
//! in 10^12); windows are contiguous to the nanosecond, because both ends are times of readings;
//! wall time may differ from the clock snapshots by [`CLOCK_NS`].

use anyhow::{Result, bail};
use arrow::array::{Array as _, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};

use super::facts::{Clock, Facts};
use super::window::{CheckedWindow, Windows};
use super::{First, Outcome};
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

/// Whether the method exists.
fn known(method: &str) -> bool {
    fabric::METHODS.contains(&method)
}

/// The outcomes of one pass over `fabric`.
pub(super) struct Rows {
    pub(super) conservation: Outcome,
    pub(super) values: Outcome,
    pub(super) sequence: Outcome,
    pub(super) readable: Outcome,
    pub(super) clock: Outcome,
}

#[derive(Default)]
struct Pass {
    conservation: First,
    values: First,
    sequence: First,
    clock: First,
    /// For each counter, the end of its last window.
    ends: Vec<Option<i64>>,
    gaps: u64,
    /// Whether the table is a roll-up: its tasks have no process, and it has three more columns.
    is_rollup: bool,
}

/// Scans `fabric` once, and checks that the other tables can be read.
pub(super) fn scan(recording: &Recording, facts: &Facts) -> Rows {
    let mut pass = Pass { is_rollup: recording.is_rollup(), ..Pass::default() };
    let read = pass.read(recording, facts).and_then(|()| read_others(recording));
    let sequence = match pass.sequence.outcome("windows") {
        Outcome::Ok(told) if pass.gaps > 0 => {
            Outcome::Ok(format!("{told}, {} gaps, which the loss table explains", pass.gaps))
        }
        other => other,
    };
    let clock = match &facts.clocks {
        _ if pass.is_rollup => Outcome::NotHere("a roll-up has no clock snapshots".to_owned()),
        Err(reason) => Outcome::NotHere(reason.clone()),
        Ok(clocks) if clocks.is_empty() => Outcome::NotHere("no clock snapshot".to_owned()),
        Ok(_) => pass.clock.outcome("rows"),
    };
    Rows {
        conservation: pass.conservation.outcome("windows with a value"),
        values: pass.values.outcome("rows"),
        sequence,
        readable: match read {
            Ok(tables) => Outcome::Ok(tables),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        },
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
            let mut order = Order::of(def);
            for batch in table.scan_columns(&all(def))? {
                order.look(&batch?)?;
            }
        }
    }
    Ok(format!("{rows} rows in {}", count_noun(tables.len(), "table")))
}

/// Verifies that a column that is declared as sorted never decreases.
struct Order {
    def: &'static TableDef,
    last: i64,
}

impl Order {
    const fn of(def: &'static TableDef) -> Self {
        Self { def, last: i64::MIN }
    }

    fn look(&mut self, batch: &RecordBatch) -> Result<()> {
        for column in self.def.order {
            for &value in columns::i64_column(batch, column)?.values() {
                if value < self.last {
                    bail!("{}: {column} {value} comes after {}", self.def.name, self.last);
                }
                self.last = value;
            }
        }
        Ok(())
    }
}

fn all(def: &TableDef) -> Vec<&'static str> {
    def.encodings.iter().map(|(name, _)| *name).collect()
}

impl Pass {
    fn read(&mut self, recording: &Recording, facts: &Facts) -> Result<()> {
        let table = recording.open_table(&fabric::TABLE)?;
        let schema = table.scan_schema();
        let columns: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
        let clocks = facts.clocks.as_deref().unwrap_or_default();
        let mut windows = Windows::default();
        let mut order = Order::of(&fabric::TABLE);
        let mut row = 0;
        for batch in table.scan_columns(&columns)?.decode_ahead()? {
            let batch = batch?;
            order.look(&batch)?;
            self.values(&batch, row, facts)?;
            self.clock(&batch, row, clocks)?;
            windows.add(&batch, |windows, window| self.window(windows, window, facts))?;
            row += batch.num_rows() as u64;
        }
        windows.finish(|windows, window| self.window(windows, window, facts));
        Ok(())
    }

    /// Conservation and sequence of one complete window.
    fn window(&mut self, windows: &Windows, window: &CheckedWindow, facts: &Facts) {
        let torn = || {
            window.torn.then(|| {
                format!(
                    "{}: rows disagree on window_ns, total or running",
                    windows.describe(window)
                )
            })
        };
        self.values.also(|| {
            let text = "the rows of a cgroup disagree on cgroup_confidence";
            window.is_split.then(|| format!("{}: {text}", windows.describe(window)))
        });
        match window.total {
            Some(total) => {
                self.conservation.look(|| torn().or_else(|| conserved(windows, window, total)));
            }
            None => {
                if let Some(text) = torn() {
                    self.conservation.look(|| Some(text));
                }
            }
        }
        if self.ends.len() <= window.counter {
            self.ends.resize(window.counter + 1, None);
        }
        let before = self.ends[window.counter].replace(window.end_ns);
        let gap = before.is_some_and(|end| window.begin_ns > end);
        self.gaps += u64::from(gap);
        self.sequence.look(|| {
            let what = match before {
                _ if window.begin_ns >= window.end_ns => "is not longer than 0 ns",
                Some(end) if window.begin_ns < end => "begins before the previous one ends",
                Some(_) if gap && !facts.may_have_gaps() => {
                    "does not begin where the previous one ends, and no loss is recorded"
                }
                _ => return None,
            };
            Some(format!("{} {what}", windows.describe(window)))
        });
    }

    /// Values of each row: known words, ranges, and nulls exactly where they are allowed.
    fn values(&mut self, batch: &RecordBatch, first: u64, facts: &Facts) -> Result<()> {
        let value = columns::f64_column(batch, "value")?;
        let total = columns::f64_column(batch, "total")?;
        let running = columns::f32_column(batch, "running")?;
        let confidence = columns::f32_column(batch, "confidence")?;
        let lasting = columns::f32_column(batch, "cgroup_confidence")?;
        let owner = columns::words(batch, "owner")?;
        let method = columns::words(batch, "method")?;
        let pid = columns::i32_column(batch, "pid")?;
        let comm = columns::words(batch, "comm")?;
        let cgroup_id = columns::bits_column(batch, "cgroup_id")?;
        let cgroup = columns::words(batch, "cgroup")?;
        let intervals = self.is_rollup.then(|| Intervals::of(batch)).transpose()?;
        let number = columns::i32_column(batch, "number")?;
        let is_known: Vec<bool> =
            method.dictionary_values().iter().map(|its| its.is_some_and(known)).collect();
        let is_known = |row| {
            usize::try_from(method.dictionary_key(row)).is_ok_and(|key| is_known.get(key) == Some(&true))
        };
        let excused = facts.may_have_gaps();
        for row in 0..batch.num_rows() {
            self.values.look(|| {
                let owner = owner.get(row).unwrap_or("(null)");
                let who = Who {
                    owner,
                    process: if intervals.is_some() { None } else { Some(pid.is_valid(row)) },
                    comm: comm.get(row),
                    number: number.is_valid(row),
                    cgroup: cgroup_id.get(row).is_some() || cgroup.get(row).is_some(),
                };
                let count = Count {
                    value: nullable_value(value, row),
                    total: nullable_value(total, row),
                    running: running.value(row),
                    confidence: nullable_value(confidence, row),
                    lasting: nullable_value(lasting, row),
                };
                let unknown = (!is_known(row))
                    .then(|| format!("method {:?}", method.get(row).unwrap_or("(null)")));
                let interval = || intervals.as_ref()?.wrong(row, &count).map(str::to_owned);
                let wrong =
                    who.wrong().or(unknown).or_else(|| count.wrong(excused)).or_else(interval)?;
                Some(format!("row {}: {wrong}", first + row as u64))
            });
        }
        Ok(())
    }

    /// `ts` is `mono_ns` plus an offset between those of the clock snapshots.
    fn clock(&mut self, batch: &RecordBatch, first: u64, clocks: &[Clock]) -> Result<()> {
        let offsets = clocks.iter().map(|clock| clock.wall_ns.saturating_sub(clock.mono_ns));
        let (Some(low), Some(high)) = (offsets.clone().min(), offsets.max()) else { return Ok(()) };
        let ts: &TimestampMicrosecondArray = columns::typed_column(batch, "ts")?;
        let mono_ns = columns::i64_column(batch, "mono_ns")?;
        for row in 0..batch.num_rows() {
            self.clock.look(|| {
                let offset = ts.value(row).saturating_mul(1000).saturating_sub(mono_ns.value(row));
                let off = low.saturating_sub(offset).max(offset.saturating_sub(high));
                (off > CLOCK_NS).then(|| {
                    format!("row {}: ts is {off} ns off the clock snapshots", first + row as u64)
                })
            });
        }
        Ok(())
    }
}

fn conserved(windows: &Windows, window: &CheckedWindow, total: f64) -> Option<String> {
    let off = (window.sum - total).abs();
    let near = off <= CONSERVATION * total.abs().max(window.size);
    // Written so that NaN fails.
    (!near).then(|| {
        format!("{}: owners sum to {}, total is {total}", windows.describe(window), window.sum)
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
    fn of(batch: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            window_ns: columns::i64_column(batch, "window_ns")?,
            known_ns: columns::i64_column(batch, "known_ns")?,
            low: columns::f64_column(batch, "low")?,
            high: columns::f64_column(batch, "high")?,
        })
    }

    fn wrong(&self, row: usize, count: &Count) -> Option<&'static str> {
        let known_ns = self.known_ns.value(row);
        if !(0..=self.window_ns.value(row)).contains(&known_ns) {
            return Some("known_ns is not within window_ns");
        }
        match (nullable_value(self.low, row), count.value, nullable_value(self.high, row), count.total) {
            (None, None, None, None) => (known_ns > 0).then_some("no value, but known_ns is not 0"),
            (Some(low), Some(value), Some(high), Some(total)) => {
                let most = total + CONSERVATION * total.abs();
                let is_right = low <= value && value <= high && high <= most.max(value);
                (!is_right).then_some("low, value, high and total are not in this order")
            }
            _ => Some("one of value, low and high is null"),
        }
    }
}

/// The columns of a row that identify the owner.
struct Who<'a> {
    owner: &'a str,
    /// Whether the row has a process; `None` in tables without processes.
    process: Option<bool>,
    comm: Option<&'a str>,
    number: bool,
    cgroup: bool,
}

impl Who<'_> {
    fn wrong(&self) -> Option<String> {
        let Who { owner, process, comm, number, cgroup } = *self;
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
struct Count {
    value: Option<f64>,
    total: Option<f64>,
    running: f32,
    confidence: Option<f32>,
    lasting: Option<f32>,
}

impl Count {
    /// The fault of the row, if any. `excused`: there are losses, so a counter that ran may have no
    /// value.
    fn wrong(&self, excused: bool) -> Option<String> {
        let Count { value, total, running, confidence, lasting } = *self;
        let finite = |number: Option<f64>| number.is_none_or(f64::is_finite);
        let unit = |number: f32| (0.0..=1.0).contains(&number);
        let wrong = if !unit(running) {
            format!("running is {running}")
        } else if confidence.is_some_and(|confidence| !unit(confidence)) {
            format!("confidence is {confidence:?}")
        } else if lasting.is_some_and(|lasting| !unit(lasting)) {
            format!("cgroup_confidence is {lasting:?}")
        } else if lasting.is_some() && confidence.is_none() {
            "a cgroup_confidence, but no confidence".to_owned()
        } else if !finite(value) || !finite(total) {
            "value or total is not finite".to_owned()
        } else if value.is_some() != total.is_some() {
            "one of value and total is null".to_owned()
        } else if value.is_some() && running == 0.0 {
            "a value, but the counter never ran".to_owned()
        } else if value.is_none() && running > 0.0 && !excused {
            "no value, but the counter ran and nothing was lost".to_owned()
        } else {
            return None;
        };
        Some(wrong)
    }
}
