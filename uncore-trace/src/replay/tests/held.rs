//! A recording with held devices is divided as it was live.

use std::sync::Arc;

use super::monitored::{Rows, made_again, rows};
use super::*;
use crate::attribute::AttributionSettings;
use crate::attribute::tests::new_attributor;
use crate::drain::Comm;
use crate::entries::{CounterReading, CounterValue, DeviceHold, Owner, ReadingTrigger};
use crate::schema::cgroups::CgroupNames;
use crate::schema::{cgroups, held};

const LAST: i64 = START + 5;
const GPU: &str = "0009:01:00.0";

/// A counter of the traffic of a GPU, with windows of three ticks.
fn plan() -> Plan {
    serde_json::from_value(serde_json::json!({
        "tick_ns": TICK_NS, "window_ns": 3 * TICK_NS, "metrics": [], "notes": [],
        "counters": [{
            "id": 0, "pmu": "c2c", "family": "c2c", "subsystem": "c2c", "event": "reads",
            "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 9, "config": [0, 0, 0, 0, 0],
            "cpu": 0, "socket": 0, "sees": "", "per_cpu": false, "at_switch": false, "leader": null,
            "cause": "device", "behind": [{ "function": GPU }],
        }],
    }))
    .unwrap()
}

/// The changes in a tick: cgroup, and how long it holds the GPU.
fn changes(tick: i64) -> &'static [(u64, u64)] {
    match tick - START {
        1 => &[(1, 700_000)],
        2 => &[(1, 1_000_000)],
        4 => &[(1, 250_000), (2, 750_000)],
        5 => &[(1, 0), (2, 1_000_000)],
        _ => &[],
    }
}

const fn count(tick: i64) -> u64 {
    let ticks = (tick - START) as u64;
    1000 * ticks * ticks
}

fn live() -> Rows {
    let plan = plan();
    let mut attributor = new_attributor(&plan, AttributionSettings::default(), START as u64);
    let mut tables = Builders::default();
    let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
    for tick in START..=LAST {
        let value = Ok(CounterValue { value: count(tick), times: None });
        let (time, trigger) = ((tick * TICK_NS) as u64, ReadingTrigger::Timer);
        let (counter, cpu, owner) = (0, 0, None);
        let reading =
            CounterReading { tick: tick as u64, time, counter, cpu, trigger, value, owner };
        take(LogEntry::Reading(reading));
        if tick == START {
            continue;
        }
        for &(cgroup_id, ns) in changes(tick) {
            let owner = Owner::Task { pid: cgroup_id as u32, comm: Comm::default(), cgroup_id };
            take(LogEntry::Held(&DeviceHold { function: GPU.parse().unwrap(), owner, ns }));
        }
        if tick == START + 1 {
            for (id, path) in [(1, "/a"), (2, "/b")] {
                let names = CgroupNames { path: path.into(), ..CgroupNames::default() };
                take(LogEntry::Cgroup { id, names: &Arc::new(names) });
            }
        }
        take(LogEntry::EndOfTick { tick: tick as u64, is_last: tick == LAST });
    }
    while !attributor.make_rows(&mut tables) {}
    rows(&tables.fabric.finish())
}

fn replayed() -> Rows {
    let dir = tempfile::tempdir().unwrap();
    let mut metadata = pairs(&plan());
    metadata.insert(metadata::INTERVAL_NS.to_owned(), (3 * TICK_NS).to_string());
    let path = dir.path().join("run");
    let mut writer =
        Writer::create(RecordingTarget::Dataset(path.clone()), CreateOptions::default(), &metadata)
            .unwrap();
    let (mut read, mut time) = (readings::Builder::default(), runtime::Builder::default());
    let (mut paths, mut held) = (cgroups::Builder::default(), held::Builder::default());
    for tick in START..=LAST {
        read.append(&readings::Row { value: Some(count(tick)), ..reading(tick, 0) });
        if tick == START {
            continue;
        }
        let mono_ns = tick * TICK_NS;
        time.append(&runtime::Row {
            mono_ns,
            tick_ns: TICK_NS,
            owner: "idle",
            run_ns: TICK_NS,
            ..runtime::Row::default()
        });
        for &(cgroup, ns) in changes(tick) {
            held.append(&held::Row {
                mono_ns,
                bdf: GPU,
                owner: "task",
                pid: Some(cgroup as i32),
                comm: Some(""),
                cgroup_id: Some(cgroup),
                ns,
            });
        }
    }
    for (id, path) in [(1, "/a"), (2, "/b")] {
        let mono_ns = (START + 1) * TICK_NS;
        paths.append(&cgroups::Row { id, path, mono_ns, ..cgroups::Row::default() });
    }
    writer.write(&readings::TABLE, &read.finish()).unwrap();
    writer.write(&runtime::TABLE, &time.finish()).unwrap();
    writer.write(&cgroups::TABLE, &paths.finish()).unwrap();
    writer.write(&held::TABLE, &held.finish()).unwrap();
    writer.write(&counters::TABLE, &counters::Builder::default().finish()).unwrap();
    writer.finish(&metadata).unwrap();
    made_again(&path)
}

#[test]
fn the_holder_of_a_device_has_its_bytes_replayed_as_live() {
    let live = live();
    let lines: Vec<_> = live
        .iter()
        .map(|(end, cgroup, value, method, _)| {
            let tick = end / TICK_NS - START;
            (
                tick,
                cgroup.as_deref().unwrap_or("-"),
                f64::from_bits(*value).round(),
                method.as_str(),
            )
        })
        .collect();
    // Counts of the ticks are 1, 3, 5, 7 and 9 thousand; windows end after the second and the
    // fifth.
    let (held, source) = ("held", "source");
    let expected = [
        (2, "/a", 3700.0, held),
        (2, "-", 300.0, source),
        (5, "/a", 6750.0, held),
        (5, "/b", 14250.0, held),
    ];
    assert_eq!(lines, expected);
    assert_eq!(replayed(), live);
}
