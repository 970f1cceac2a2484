//! Groups rows of `fabric` to windows of one counter, a batch at a time.
//!
//! Guarantee: memory holds one open window per counter, with its cgroups; a counter is an instance,
//! event, filter and reader CPU.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch};
use foldhash::fast::RandomState;

use crate::schema::columns::{self, BitsColumn, WordColumn, nullable_value};
use crate::schema::fabric;
use crate::tables::reader::{Ahead, Recording};

/// The columns that describe a window.
pub(super) const COLUMNS: [&str; 12] = [
    "mono_ns",
    "window_ns",
    "counter",
    "cpu",
    "pmu",
    "event",
    "filter",
    "value",
    "total",
    "running",
    "cgroup_id",
    "cgroup_confidence",
];

/// Id and reader CPU of a counter in `fabric`; a roll-up has no reader CPU.
pub(super) type CheckedCounter = (i32, Option<i32>);

/// One window of one counter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CheckedWindow {
    /// Index into [`WindowCollector::names`].
    pub(super) counter: usize,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) total: Option<f64>,
    pub(super) running: f32,
    /// Sum of the owners' values, and sum of their magnitudes, without rows that have no value.
    pub(super) sum: f64,
    pub(super) size: f64,
    /// Whether the rows disagree in a column that must be equal.
    pub(super) torn: bool,
    /// Whether rows of a cgroup have different confidences of its sum.
    pub(super) is_split: bool,
}

/// By cgroup, the bits of the confidence of its sum.
type CgroupConfidences = HashMap<u64, Option<u32>, RandomState>;

/// Collects rows to windows.
#[derive(Debug, Default)]
pub(super) struct WindowCollector {
    names: Vec<CheckedCounter>,
    /// Names of the counters for messages.
    display_names: Vec<String>,
    index: HashMap<CheckedCounter, usize, RandomState>,
    open: Vec<Option<CheckedWindow>>,
    /// For each counter, the cgroups of the open window.
    cgroups: Vec<CgroupConfidences>,
}

/// The windows of `fabric`, read on demand.
pub(super) struct WindowReader {
    scan: Ahead,
    collector: WindowCollector,
    /// Whether all windows were passed on.
    pub(super) is_over: bool,
}

impl WindowReader {
    pub(super) fn open(recording: &Recording) -> Result<Self> {
        let scan = recording.open_table(&fabric::TABLE)?.scan_columns(&COLUMNS)?.decode_ahead()?;
        Ok(Self { scan, collector: WindowCollector::default(), is_over: false })
    }

    /// Reads a batch; passes windows that are then complete to `done`.
    pub(super) fn read_batch(
        &mut self,
        done: impl FnMut(&WindowCollector, &CheckedWindow),
    ) -> Result<()> {
        if let Some(batch) = self.scan.next().transpose()? {
            return self.collector.add_batch(&batch, done);
        }
        self.collector.finish(done);
        self.is_over = true;
        Ok(())
    }
}

struct WindowColumns<'a> {
    mono_ns: &'a Int64Array,
    window_ns: &'a Int64Array,
    counter: &'a Int32Array,
    cpu: &'a Int32Array,
    pmu: WordColumn<'a>,
    event: WordColumn<'a>,
    filter: WordColumn<'a>,
    value: &'a Float64Array,
    total: &'a Float64Array,
    running: &'a Float32Array,
    cgroup_id: BitsColumn<'a>,
    lasting: &'a Float32Array,
}

impl WindowCollector {
    /// The name of a counter index.
    pub(super) fn counter_name(&self, counter: usize) -> CheckedCounter {
        self.names[counter]
    }

    /// Name of the counter and end of the window, for messages.
    pub(super) fn describe_window(&self, window: &CheckedWindow) -> String {
        format!(
            "{}, window ending at mono_ns {}",
            self.display_names[window.counter], window.end_ns
        )
    }

    /// Adds the rows of a batch; passes windows that are then complete to `done`.
    pub(super) fn add_batch(
        &mut self,
        batch: &RecordBatch,
        mut done: impl FnMut(&Self, &CheckedWindow),
    ) -> Result<()> {
        let columns = WindowColumns {
            mono_ns: columns::i64_column(batch, "mono_ns")?,
            window_ns: columns::i64_column(batch, "window_ns")?,
            counter: columns::i32_column(batch, "counter")?,
            cpu: columns::i32_column(batch, "cpu")?,
            pmu: columns::word_column(batch, "pmu")?,
            event: columns::word_column(batch, "event")?,
            filter: columns::word_column(batch, "filter")?,
            value: columns::f64_column(batch, "value")?,
            total: columns::f64_column(batch, "total")?,
            running: columns::f32_column(batch, "running")?,
            cgroup_id: columns::bits_column(batch, "cgroup_id")?,
            lasting: columns::f32_column(batch, "cgroup_confidence")?,
        };
        for row in 0..batch.num_rows() {
            let counter = self.counter_index(&columns, row);
            let end_ns = columns.mono_ns.value(row);
            let cgroups = &mut self.cgroups[counter];
            match &mut self.open[counter] {
                Some(window) if window.end_ns == end_ns => window.add_row(&columns, row, cgroups),
                slot => {
                    let mut window = CheckedWindow::new(counter, &columns, row);
                    cgroups.clear();
                    window.add_row(&columns, row, cgroups);
                    if let Some(whole) = slot.replace(window) {
                        done(self, &whole);
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes the windows that are still open to `done`.
    pub(super) fn finish(&mut self, mut done: impl FnMut(&Self, &CheckedWindow)) {
        for window in std::mem::take(&mut self.open).into_iter().flatten() {
            done(self, &window);
        }
    }

    fn counter_index(&mut self, columns: &WindowColumns<'_>, row: usize) -> usize {
        let name = (columns.counter.value(row), nullable_value(columns.cpu, row));
        if let Some(counter) = self.index.get(&name) {
            return *counter;
        }
        let words = [columns.pmu, columns.event, columns.filter];
        let [pmu, event, filter] = words.map(|words| words.get(row).unwrap_or_default());
        let slash = if filter.is_empty() { "" } else { "/" };
        let cpu = name.1.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
        self.display_names.push(format!("{pmu}/{event}{slash}{filter}{cpu}"));
        self.index.insert(name, self.names.len());
        self.names.push(name);
        self.open.push(None);
        self.cgroups.push(CgroupConfidences::default());
        self.names.len() - 1
    }
}

impl CheckedWindow {
    fn new(counter: usize, columns: &WindowColumns<'_>, row: usize) -> CheckedWindow {
        let end_ns = columns.mono_ns.value(row);
        CheckedWindow {
            counter,
            begin_ns: end_ns.saturating_sub(columns.window_ns.value(row)),
            end_ns,
            total: nullable_value(columns.total, row),
            running: columns.running.value(row),
            ..CheckedWindow::default()
        }
    }

    fn add_row(
        &mut self,
        columns: &WindowColumns<'_>,
        row: usize,
        cgroups: &mut CgroupConfidences,
    ) {
        let value = nullable_value(columns.value, row).unwrap_or(0.0);
        self.sum += value;
        self.size += value.abs();
        let is_equal = self.end_ns.saturating_sub(columns.window_ns.value(row)) == self.begin_ns
            && nullable_value(columns.total, row).map(f64::to_bits) == self.total.map(f64::to_bits)
            && columns.running.value(row).to_bits() == self.running.to_bits();
        self.torn |= !is_equal;
        if let Some(cgroup) = columns.cgroup_id.get(row) {
            let lasting = nullable_value(columns.lasting, row).map(f32::to_bits);
            self.is_split |= *cgroups.entry(cgroup).or_insert(lasting) != lasting;
        }
    }
}
