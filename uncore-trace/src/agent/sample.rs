//! Rows of `fabric` and `sums` for the tests of the agent.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use crate::plan::Plan;
use crate::schema::{SCHEMA_VERSION, fabric, metadata, sums};

/// One counter and one owner in windows of 10 ms that end at these times.
pub(super) fn sample_fabric(ends: &[i64]) -> RecordBatch {
    let mut rows = fabric::Builder::default();
    for &mono_ns in ends {
        rows.append(&sample_row(mono_ns));
    }
    rows.finish()
}

/// The same as seconds with such a window each.
pub(super) fn sample_sums(ends: &[i64]) -> RecordBatch {
    let mut rows = sums::Builder::default();
    for &mono_ns in ends {
        let share = sample_row(mono_ns);
        rows.append(&sums::Row::from_share(share, share.window_ns));
    }
    rows.finish()
}

fn sample_row<'a>(mono_ns: i64) -> fabric::Row<'a> {
    fabric::Row {
        ts: mono_ns,
        mono_ns,
        window_ns: 10_000_000,
        host: "h",
        boot_id: "b",
        cluster: None,
        counter: 0,
        socket: Some(0),
        cpu: 0,
        subsystem: "mem",
        pmu: "p",
        event: "e",
        filter: "",
        unit: "bytes",
        owner: "task",
        pid: Some(1),
        number: None,
        comm: Some("x"),
        cgroup_id: Some(1),
        cgroup: Some("/a"),
        container: None,
        pod: None,
        value: Some(1.0),
        total: Some(1.0),
        running: 1.0,
        method: "exact",
        confidence: Some(1.0),
        cgroup_confidence: Some(1.0),
        processes: None,
        job: None,
    }
}

/// Metadata of a recording of these rows.
pub(super) fn sample_metadata() -> BTreeMap<String, String> {
    let plan = serde_json::to_string(&Plan::default()).unwrap();
    [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::HOST, "h".to_owned()),
        (metadata::BOOT_ID, "b".to_owned()),
        (metadata::PLAN, plan),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}
