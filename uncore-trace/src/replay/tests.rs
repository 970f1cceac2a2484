//! Raw tables whose entries are not in the order of the log.

use std::collections::BTreeMap;

use super::*;
use crate::clock::Snapshot;
use crate::plan::Plan;
use crate::schema::{SCHEMA_VERSION, counters, readings, runtime};

mod held;
mod monitored;

const TICK_NS: i64 = 1_000_000;
const START: i64 = 100;

fn plan() -> Plan {
    let counter = serde_json::json!({
        "id": 0, "pmu": "software", "family": "software", "subsystem": "host",
        "event": "page-faults", "filter": "", "unit": "count", "scale": 1.0, "attr_type": 1,
        "config": [2, 0, 0, 0, 0], "cpu": 0, "socket": null, "sees": "0", "per_cpu": true,
        "at_switch": false, "leader": null
    });
    Plan {
        tick_ns: TICK_NS as u64,
        window_ns: TICK_NS as u64,
        counters: vec![serde_json::from_value(counter).unwrap()],
        ..Plan::default()
    }
}

/// A reading by the timer.
fn reading(tick: i64, counter: i32) -> readings::Row<'static> {
    readings::Row {
        mono_ns: tick * TICK_NS,
        tick,
        counter,
        value: Some(10 * tick as u64),
        width_ns: 1500,
        trigger: "timer",
        ..readings::Row::default()
    }
}

/// The metadata of a recording of a plan, whose windows are ticks.
fn pairs(plan: &Plan) -> BTreeMap<String, String> {
    let clock = Snapshot { mono_ns: 0, wall_ns: 0 };
    let pairs = [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::PLAN, serde_json::to_string(plan).unwrap()),
        (metadata::CLOCKS, serde_json::to_string(&[clock]).unwrap()),
        (metadata::TICK_NS, TICK_NS.to_string()),
        (metadata::INTERVAL_NS, TICK_NS.to_string()),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

/// The result of `attribute` on a recording with these readings: number of rows of `fabric`, or the
/// error.
fn attributed(rows: &[readings::Row<'_>]) -> Result<u64> {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan();
    let pairs = pairs(&plan);
    let path = dir.path().join("run");
    let target = RecordingTarget::Dataset(path.clone());
    let mut writer = Writer::create(target, CreateOptions::default(), &pairs).unwrap();
    let mut raw = readings::Builder::default();
    for row in rows {
        raw.append(row);
    }
    writer.write(&readings::TABLE, &raw.finish()).unwrap();
    let mut time = runtime::Builder::default();
    for tick in START + 1..START + 4 {
        time.append(&runtime::Row {
            mono_ns: tick * TICK_NS,
            tick_ns: TICK_NS,
            owner: "idle",
            comm: "swapper/0",
            cgroup_id: 1,
            run_ns: TICK_NS,
            slices: 1,
            ..runtime::Row::default()
        });
    }
    writer.write(&runtime::TABLE, &time.finish()).unwrap();
    writer.write(&counters::TABLE, &counters::Builder::default().finish()).unwrap();
    writer.finish(&pairs).unwrap();
    let recording = Recording::open(&path).unwrap();
    let target = RecordingTarget::File(dir.path().join("fabric.parquet"));
    let made = attribute(&recording, Overrides::default(), target, CreateOptions::default());
    // A failure leaves no file.
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, if made.is_ok() { 2 } else { 1 });
    Ok(made?.rows)
}

fn refused(rows: &[readings::Row<'_>]) -> String {
    let error = format!("{:#}", attributed(rows).unwrap_err());
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn a_log_that_breaks_its_order_is_one_error() {
    let sound = [100, 101, 102, 103].map(|tick| reading(tick, 0));
    assert_eq!(attributed(&sound).unwrap(), 3);
    let mut older = sound;
    older[3].tick = 101;
    let error = refused(&older);
    assert!(
        error.ends_with(
            "the raw tables are out of order: a reading of counter 0 in tick 101 is out of order"
        ),
        "{error}"
    );
    let mut unknown = sound;
    unknown[1].counter = 7;
    let error = refused(&unknown);
    assert!(error.ends_with("there is no counter 7 in the recording"), "{error}");
}
