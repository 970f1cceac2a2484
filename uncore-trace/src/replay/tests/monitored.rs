//! A recording with bytes of monitors is divided as it was live.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::*;
use crate::attribute::AttributionSettings;
use crate::attribute::tests::new_attributor;
use crate::drain::Comm;
use crate::entries::{CounterReading, CounterValue, Monitored, Owner, ReadingTrigger};
use crate::schema::cgroups::CgroupNames;
use crate::schema::columns::{f32_column, f64_column, i64_column, nullable_value, word_column};
use crate::schema::{cgroups, monitors};

const LAST: i64 = START + 5;

/// A counter of the bytes of a socket's memory.
fn plan() -> Plan {
    serde_json::from_value(serde_json::json!({
        "tick_ns": TICK_NS, "window_ns": TICK_NS, "metrics": [], "notes": [],
        "counters": [{
            "id": 0, "pmu": "imc", "family": "imc", "subsystem": "mem", "event": "reads",
            "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 9, "config": [0, 0, 0, 0, 0],
            "cpu": 0, "socket": 0, "sees": "0", "per_cpu": false, "at_switch": false, "leader": null
        }],
        "links": [{ "name": "memory 0", "kind": "memory", "subsystem": "mem", "socket": 0,
                    "counters": [{ "counter": 0, "direction": "both" }] }],
    }))
    .unwrap()
}

/// The bytes that /a moved in a tick, of 1000; nothing was read in one.
fn moved(tick: i64) -> Option<u64> {
    (tick != START + 3).then_some(600 + 10 * (tick - START) as u64)
}

/// End, cgroup, value, method and confidence of each row.
pub(super) type Rows = Vec<(i64, Option<String>, u64, String, Option<u32>)>;

pub(super) fn rows(batch: &RecordBatch) -> Rows {
    let (end, cgroup) =
        (i64_column(batch, "mono_ns").unwrap(), word_column(batch, "cgroup").unwrap());
    let (value, method) =
        (f64_column(batch, "value").unwrap(), word_column(batch, "method").unwrap());
    let sure = f32_column(batch, "confidence").unwrap();
    let row = |row| {
        (
            end.value(row),
            cgroup.get(row).map(str::to_owned),
            nullable_value(value, row).unwrap().to_bits(),
            method.get(row).unwrap().to_owned(),
            nullable_value(sure, row).map(f32::to_bits),
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

fn live() -> Rows {
    let plan = plan();
    let mut attributor = new_attributor(
        &plan,
        AttributionSettings { choice: MethodChoice::Residency, ..AttributionSettings::default() },
        START as u64,
    );
    let mut tables = Builders::default();
    let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
    let task = |cgroup_id| Owner::Task { pid: cgroup_id as u32, comm: Comm::default(), cgroup_id };
    for tick in START..=LAST {
        let value = Ok(CounterValue { value: 1000 * (tick - START) as u64, times: None });
        let (time, trigger, tick) = ((tick * TICK_NS) as u64, ReadingTrigger::Timer, tick as u64);
        let (counter, cpu, owner) = (0, 0, None);
        take(LogEntry::Reading(CounterReading { tick, time, counter, cpu, trigger, value, owner }));
        if tick == START as u64 {
            continue;
        }
        let half = TICK_NS as u64 / 2;
        take(LogEntry::Usage { cpu: 0, usage: &[(task(1), half), (task(2), half)] });
        if let Some(bytes) = moved(tick as i64) {
            for (cgroup, bytes) in [(None, 1000), (Some("/a".into()), bytes)] {
                take(LogEntry::Monitored(&Monitored { cgroup, socket: 0, bytes }));
            }
        }
        if tick == START as u64 + 1 {
            for (id, path) in [(1, "/a"), (2, "/b")] {
                let names = CgroupNames { path: path.into(), ..CgroupNames::default() };
                take(LogEntry::Cgroup { id, names: &Arc::new(names) });
            }
        }
        take(LogEntry::EndOfTick { tick, is_last: false });
    }
    attributor.finish_windows(&mut tables);
    while !attributor.make_rows(&mut tables) {}
    rows(&tables.fabric.finish())
}

fn replayed() -> Rows {
    let dir = tempfile::tempdir().unwrap();
    let metadata = pairs(&plan());
    let path = dir.path().join("run");
    let mut writer =
        Writer::create(RecordingTarget::Dataset(path.clone()), CreateOptions::default(), &metadata)
            .unwrap();
    let (mut read, mut time) = (readings::Builder::default(), runtime::Builder::default());
    let (mut paths, mut bytes) = (cgroups::Builder::default(), monitors::Builder::default());
    for tick in START..=LAST {
        let value = Some(1000 * (tick - START) as u64);
        read.append(&readings::Row { value, ..reading(tick, 0) });
        if tick == START {
            continue;
        }
        let mono_ns = tick * TICK_NS;
        for id in 1..=2 {
            time.append(&runtime::Row {
                mono_ns,
                tick_ns: TICK_NS,
                owner: "task",
                tid: id,
                pid: id,
                cgroup_id: id as u64,
                run_ns: TICK_NS / 2,
                slices: 1,
                process: Some(""),
                owner_cgroup_id: Some(id as u64),
                ..runtime::Row::default()
            });
        }
        if let Some(moved) = moved(tick) {
            for (cgroup, moved) in [(None, 1000), (Some("/a"), moved)] {
                let (read_ns, span_ns) = (mono_ns, TICK_NS);
                let row =
                    monitors::Row { mono_ns, read_ns, span_ns, cgroup, socket: 0, bytes: moved };
                bytes.append(&row);
            }
        }
    }
    for (id, path) in [(1, "/a"), (2, "/b")] {
        let mono_ns = (START + 1) * TICK_NS;
        paths.append(&cgroups::Row { id, path, mono_ns, ..cgroups::Row::default() });
    }
    writer.write(&readings::TABLE, &read.finish()).unwrap();
    writer.write(&runtime::TABLE, &time.finish()).unwrap();
    writer.write(&cgroups::TABLE, &paths.finish()).unwrap();
    writer.write(&monitors::TABLE, &bytes.finish()).unwrap();
    writer.write(&counters::TABLE, &counters::Builder::default().finish()).unwrap();
    writer.finish(&metadata).unwrap();
    made_again(&path)
}

/// The rows of a recording that is divided again.
pub(super) fn made_again(recording: &Path) -> Rows {
    let file = recording.with_extension("parquet");
    let recording = Recording::open(recording).unwrap();
    let target = RecordingTarget::File(file.clone());
    attribute(&recording, Overrides::default(), target, CreateOptions::default()).unwrap();
    let made = Recording::open(&file).unwrap();
    let wanted = ["mono_ns", "cgroup", "value", "method", "confidence"];
    let scan = made.open_table(&fabric::TABLE).unwrap().scan_columns(&wanted).unwrap();
    scan.flat_map(|batch| rows(&batch.unwrap())).collect()
}

#[test]
fn monitored_bytes_are_divided_in_a_replay_as_live() {
    let live = live();
    assert_eq!(live.len(), 10);
    for (end, cgroup, value, method, _) in &live {
        let tick = end / TICK_NS;
        let of_a = moved(tick).map_or(500.0, |bytes| bytes as f64);
        let (is_a, value) = (cgroup.as_deref() == Some("/a"), f64::from_bits(*value));
        // Rounded to a 1024th.
        let right = if is_a { of_a } else { 1000.0 - of_a };
        assert!((value - right).abs() < 1.0, "{tick} {cgroup:?} {value}");
        let is_measured = is_a && moved(tick).is_some();
        assert_eq!(method == "monitor", is_measured, "{tick} {cgroup:?} {method}");
    }
    assert_eq!(replayed(), live);
}
