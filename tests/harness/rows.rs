//! The tables of a recording as plain rows, read with the library's own reader.

#![expect(clippy::unwrap_used, reason = "a table that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use arrow::array::{RecordBatch, TimestampMicrosecondArray};
use uncore_trace::schema::columns::{
    bits_column, f64_column, i32_column, i64_column, nullable_value, text_column, word_column,
};
use uncore_trace::schema::{
    TableDef, cgroups, fabric, holders, io, irqs, loss, metadata, readings, runtime, tasks,
};
use uncore_trace::tables::reader::Recording;
use uncore_trace::tables::rollup::RollupSelection;

use crate::wait::wait_until;

/// A row of `fabric`.
#[derive(Clone, Debug)]
pub(crate) struct ShareRow {
    pub mono_ns: i64,
    pub window_ns: i64,
    pub cpu: i32,
    pub pmu: String,
    pub event: String,
    pub owner: String,
    pub pid: Option<i32>,
    pub comm: Option<String>,
    pub cgroup: Option<String>,
    pub container: Option<String>,
    pub pod: Option<String>,
    pub job: Option<String>,
    pub value: Option<f64>,
    pub total: Option<f64>,
    pub method: String,
}

/// A row of `readings`.
#[derive(Clone, Debug)]
pub(crate) struct ReadingRow {
    pub mono_ns: i64,
    pub tick: i64,
    pub counter: i32,
    pub cpu: i32,
    pub trigger: String,
}

/// A row of `runtime` or `irqs`: time of an owner in a tick.
#[derive(Clone, Debug)]
pub(crate) struct TimeRow {
    pub mono_ns: i64,
    pub tick_ns: i64,
    pub cpu: i32,
    pub name: String,
    pub ns: i64,
}

/// A row of `io`, with the path of its cgroup.
#[derive(Clone, Debug)]
pub(crate) struct MovedRow {
    pub mono_ns: i64,
    pub device: String,
    pub bdf: Option<String>,
    pub direction: String,
    pub owner: String,
    pub pid: Option<i32>,
    pub comm: String,
    pub cgroup: Option<String>,
    pub bytes: u64,
}

/// A row of `tasks`.
#[derive(Clone, Debug)]
pub(crate) struct TaskRow {
    pub pid: i32,
    pub comm: String,
    pub what: String,
}

/// A row of `loss`.
#[derive(Clone, Debug)]
pub(crate) struct LossRow {
    pub mono_ns: i64,
    pub cause: String,
    pub cpu: Option<i32>,
    pub count: i64,
    pub detail: Option<String>,
}

/// A row of `holders`.
#[derive(Clone, Debug)]
pub(crate) struct HolderRow {
    pub pid: i32,
    pub device: String,
    pub kind: String,
    pub bdf: Option<String>,
    pub begin_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub learnt: String,
}

/// A CPU's entry in the metadata `cpu_time`.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct CpuTime {
    pub cpu: i32,
    pub begin_ns: i64,
    pub end_ns: i64,
    pub unattributed_ns: i64,
    pub offline_ns: i64,
}

/// The metadata `own`.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct OwnUse {
    pub max_rss_bytes: u64,
    pub timer: String,
}

/// Opens a recording, or what is on the disk of one that goes on: nothing may be yet.
fn open_recording(path: &Path) -> anyhow::Result<Recording> {
    Recording::open_selection(path, &RollupSelection::default())
}

/// Waits until a table of a recording that goes on has a row on the disk.
#[track_caller]
pub(crate) fn wait_for_row<T>(
    recording: &Path,
    event: &str,
    read: impl Fn(&Path) -> Vec<T>,
    is_awaited: impl Fn(&T) -> bool,
) {
    wait_for_rows(recording, event, read, |rows| rows.iter().any(&is_awaited));
}

/// Waits until the rows of a table of a recording that goes on are as awaited.
#[track_caller]
pub(crate) fn wait_for_rows<T>(
    recording: &Path,
    event: &str,
    read: impl Fn(&Path) -> Vec<T>,
    are_awaited: impl Fn(&[T]) -> bool,
) {
    wait_until(event, || open_recording(recording).is_ok() && are_awaited(&read(recording)));
}

/// Waits until a window that begins after a time (`CLOCK_MONOTONIC`, ns) is on the disk.
#[track_caller]
pub(crate) fn wait_for_window_after(recording: &Path, time_ns: i64) {
    let columns = ["mono_ns", "window_ns"];
    let read_begins = |path: &Path| {
        read_rows(path, &fabric::TABLE, &columns, |batch, row| {
            int_value(batch, "mono_ns", row) - int_value(batch, "window_ns", row)
        })
    };
    let event = format!("a window that begins after {time_ns} ns");
    wait_for_row(recording, &event, read_begins, |begin_ns| *begin_ns > time_ns);
}

pub(crate) fn read_rows<T>(
    recording: &Path,
    def: &'static TableDef,
    columns: &[&str],
    row: impl Fn(&RecordBatch, usize) -> T,
) -> Vec<T> {
    let table = open_recording(recording).unwrap().open_table(def).unwrap();
    let mut found_rows = Vec::new();
    for batch in table.scan_columns(columns).unwrap() {
        let batch = batch.unwrap();
        found_rows.extend((0..batch.num_rows()).map(|index| row(&batch, index)));
    }
    found_rows
}

fn word_value(batch: &RecordBatch, column: &str, row: usize) -> Option<String> {
    word_column(batch, column).unwrap().get(row).map(str::to_owned)
}

fn int_value(batch: &RecordBatch, column: &str, row: usize) -> i64 {
    i64_column(batch, column).unwrap().value(row)
}

fn short_value(batch: &RecordBatch, column: &str, row: usize) -> Option<i32> {
    nullable_value(i32_column(batch, column).unwrap(), row)
}

/// All of `fabric`.
pub(crate) fn read_shares(recording: &Path) -> Vec<ShareRow> {
    let columns = [
        "mono_ns",
        "window_ns",
        "cpu",
        "pmu",
        "event",
        "owner",
        "pid",
        "comm",
        "cgroup",
        "container",
        "pod",
        "job",
        "value",
        "total",
        "method",
    ];
    read_rows(recording, &fabric::TABLE, &columns, |batch, row| ShareRow {
        mono_ns: int_value(batch, "mono_ns", row),
        window_ns: int_value(batch, "window_ns", row),
        cpu: short_value(batch, "cpu", row).unwrap(),
        pmu: word_value(batch, "pmu", row).unwrap(),
        event: word_value(batch, "event", row).unwrap(),
        owner: word_value(batch, "owner", row).unwrap(),
        pid: short_value(batch, "pid", row),
        comm: word_value(batch, "comm", row),
        cgroup: word_value(batch, "cgroup", row),
        container: word_value(batch, "container", row),
        pod: word_value(batch, "pod", row),
        job: word_value(batch, "job", row),
        value: nullable_value(f64_column(batch, "value").unwrap(), row),
        total: nullable_value(f64_column(batch, "total").unwrap(), row),
        method: word_value(batch, "method", row).unwrap(),
    })
}

/// All of `readings`.
pub(crate) fn read_readings(recording: &Path) -> Vec<ReadingRow> {
    let columns = ["mono_ns", "tick", "counter", "cpu", "trigger"];
    read_rows(recording, &readings::TABLE, &columns, |batch, row| ReadingRow {
        mono_ns: int_value(batch, "mono_ns", row),
        tick: int_value(batch, "tick", row),
        counter: short_value(batch, "counter", row).unwrap(),
        cpu: short_value(batch, "cpu", row).unwrap(),
        trigger: word_value(batch, "trigger", row).unwrap(),
    })
}

fn read_times(recording: &Path, def: &'static TableDef, name: &str, ns: &str) -> Vec<TimeRow> {
    read_rows(recording, def, &["mono_ns", "tick_ns", "cpu", name, ns], |batch, row| TimeRow {
        mono_ns: int_value(batch, "mono_ns", row),
        tick_ns: int_value(batch, "tick_ns", row),
        cpu: short_value(batch, "cpu", row).unwrap(),
        name: word_value(batch, name, row).unwrap_or_default(),
        ns: int_value(batch, ns, row),
    })
}

/// The time of tasks and of idle, from `runtime`; the name is the thread's.
pub(crate) fn read_runtime(recording: &Path) -> Vec<TimeRow> {
    let mut times = read_times(recording, &runtime::TABLE, "comm", "run_ns");
    // Time that was not seen, or in which the CPU was offline, has no thread.
    times.retain(|time| !time.name.is_empty());
    times
}

/// All of `irqs`; the name is the handler's.
pub(crate) fn read_irqs(recording: &Path) -> Vec<TimeRow> {
    read_times(recording, &irqs::TABLE, "name", "ns")
}

/// Container and pod of each path in `cgroups`.
pub(crate) fn read_cgroups(recording: &Path) -> BTreeMap<String, (Option<String>, Option<String>)> {
    read_rows(recording, &cgroups::TABLE, &["path", "container", "pod"], |batch, row| {
        let path = text_column(batch, "path").unwrap().value(row).to_owned();
        (path, (word_value(batch, "container", row), word_value(batch, "pod", row)))
    })
    .into_iter()
    .collect()
}

/// All of `io`.
pub(crate) fn read_io(recording: &Path) -> Vec<MovedRow> {
    let paths: BTreeMap<u64, String> =
        read_rows(recording, &cgroups::TABLE, &["id", "path"], |batch, row| {
            let id = bits_column(batch, "id").unwrap().value_or_zero(row);
            (id, text_column(batch, "path").unwrap().value(row).to_owned())
        })
        .into_iter()
        .collect();
    let columns =
        ["mono_ns", "device", "bdf", "direction", "owner", "pid", "comm", "cgroup_id", "bytes"];
    read_rows(recording, &io::TABLE, &columns, |batch, row| MovedRow {
        mono_ns: int_value(batch, "mono_ns", row),
        device: word_value(batch, "device", row).unwrap(),
        bdf: word_value(batch, "bdf", row),
        direction: word_value(batch, "direction", row).unwrap(),
        owner: word_value(batch, "owner", row).unwrap(),
        pid: short_value(batch, "pid", row),
        comm: word_value(batch, "comm", row).unwrap_or_default(),
        cgroup: bits_column(batch, "cgroup_id")
            .unwrap()
            .get(row)
            .and_then(|id| paths.get(&id).cloned()),
        bytes: bits_column(batch, "bytes").unwrap().value_or_zero(row),
    })
}

/// All of `tasks`.
pub(crate) fn read_tasks(recording: &Path) -> Vec<TaskRow> {
    read_rows(recording, &tasks::TABLE, &["pid", "comm", "what"], |batch, row| TaskRow {
        pid: short_value(batch, "pid", row).unwrap(),
        comm: word_value(batch, "comm", row).unwrap(),
        what: word_value(batch, "what", row).unwrap(),
    })
}

/// All of `holders`.
pub(crate) fn read_holders(recording: &Path) -> Vec<HolderRow> {
    let columns = ["pid", "device", "kind", "bdf", "begin_ns", "end_ns", "learnt"];
    read_rows(recording, &holders::TABLE, &columns, |batch, row| HolderRow {
        pid: i32_column(batch, "pid").unwrap().value(row),
        device: word_value(batch, "device", row).unwrap(),
        kind: word_value(batch, "kind", row).unwrap(),
        bdf: word_value(batch, "bdf", row),
        begin_ns: nullable_value(i64_column(batch, "begin_ns").unwrap(), row),
        end_ns: nullable_value(i64_column(batch, "end_ns").unwrap(), row),
        learnt: word_value(batch, "learnt", row).unwrap(),
    })
}

/// All of `loss`.
pub(crate) fn read_losses(recording: &Path) -> Vec<LossRow> {
    let opened = open_recording(recording).unwrap();
    if !opened.list_tables().iter().any(|table| table.name == loss::TABLE.name) {
        return Vec::new();
    }
    let columns = ["mono_ns", "cause", "cpu", "count", "detail"];
    read_rows(recording, &loss::TABLE, &columns, |batch, row| LossRow {
        mono_ns: int_value(batch, "mono_ns", row),
        cause: word_value(batch, "cause", row).unwrap(),
        cpu: short_value(batch, "cpu", row),
        count: int_value(batch, "count", row),
        detail: text_column(batch, "detail").unwrap().iter().nth(row).flatten().map(str::to_owned),
    })
}

/// The pids in `runtime`.
pub(crate) fn pids_that_ran(recording: &Path) -> BTreeSet<i32> {
    let pid = |batch: &RecordBatch, row| short_value(batch, "pid", row).unwrap();
    read_rows(recording, &runtime::TABLE, &["pid"], pid).into_iter().collect()
}

/// Wall time - monotonic time, ns, of each row of `fabric`.
pub(crate) fn wall_offsets(recording: &Path) -> BTreeSet<i64> {
    read_rows(recording, &fabric::TABLE, &["ts", "mono_ns"], |batch, row| {
        let ts = batch.column_by_name("ts").unwrap().as_any();
        let ts = ts.downcast_ref::<TimestampMicrosecondArray>().unwrap().value(row);
        ts * 1000 - int_value(batch, "mono_ns", row)
    })
    .into_iter()
    .collect()
}

/// An entry of the metadata.
pub(crate) fn metadata_value(recording: &Path, key: &str) -> Option<String> {
    let table = open_recording(recording).unwrap().open_table(&fabric::TABLE).unwrap();
    table.metadata_pairs().get(key).cloned()
}

/// Time of each CPU by kind of owner.
pub(crate) fn read_cpu_time(recording: &Path) -> Vec<CpuTime> {
    serde_json::from_str(&metadata_value(recording, metadata::CPU_TIME).unwrap()).unwrap()
}

/// CPU time and memory of the recorder.
pub(crate) fn recorder_use(recording: &Path) -> OwnUse {
    serde_json::from_str(&metadata_value(recording, metadata::OWN).unwrap()).unwrap()
}
