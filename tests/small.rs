//! Recordings of one window, made without the kernel, for tests of readers.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::RecordBatch;
use uncore_trace::schema::{SCHEMA_VERSION, fabric, metadata};
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget, Writer};

/// A recording of one row, made without the kernel.
pub(crate) fn small_recording(path: &Path) {
    small_recording_into(RecordingTarget::File(path.to_owned()));
}

pub(crate) fn small_recording_into(target: RecordingTarget) {
    small_recording_with(target, &[]);
}

/// The same with more metadata.
pub(crate) fn small_recording_with(target: RecordingTarget, more: &[(&str, &str)]) {
    let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
    let more = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let pairs: BTreeMap<_, _> = [version].into_iter().chain(more).collect();
    let mut writer = Writer::create(target, CreateOptions::default(), &pairs).unwrap();
    writer.write(&fabric::TABLE, &one_row()).unwrap();
    writer.finish(&pairs).unwrap();
}

/// A row of `fabric` with hostile names.
pub(crate) fn one_row() -> RecordBatch {
    rows(&[3.0], Some(1.0))
}

/// Rows of one window with these values, each for a process with a hostile name.
pub(crate) fn rows(values: &[f64], confidence: Option<f32>) -> RecordBatch {
    let mut rows = fabric::Builder::default();
    for (pid, value) in (7..).zip(values) {
        append(&mut rows, pid, *value, values.iter().sum(), confidence);
    }
    rows.finish()
}

fn append(rows: &mut fabric::Builder, pid: i32, value: f64, total: f64, confidence: Option<f32>) {
    let (value, total) = (Some(value), Some(total));
    rows.append(&fabric::Row { pid: Some(pid), value, total, confidence, ..row() });
}

/// All of a counter's window for a process with a hostile name.
pub(crate) fn row<'a>() -> fabric::Row<'a> {
    fabric::Row {
        ts: 1_700_000_000_000_000_000,
        mono_ns: 10_000_000,
        window_ns: 10_000_000,
        host: "test",
        boot_id: "3f4e5d6c",
        subsystem: "host",
        pmu: "software",
        event: "page-faults",
        unit: "count",
        owner: "task",
        pid: Some(7),
        comm: Some("a\u{1b}[2Jb\nc"),
        cgroup_id: Some(1),
        cgroup: Some("/x\u{1b}]0;title\u{7}\u{202e}"),
        container: Some("c\u{9b}31m,\"\n\u{1b}[2J"),
        pod: Some("p\u{202e}\r\n=1+1"),
        job: Some("7\u{1b}[2J.batch"),
        value: Some(1.0),
        total: Some(1.0),
        running: 1.0,
        method: "exact",
        ..fabric::Row::default()
    }
}
