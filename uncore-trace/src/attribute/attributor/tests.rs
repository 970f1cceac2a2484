use std::collections::BTreeMap;

use super::*;
use crate::attribute::Choice;
use crate::drain::Comm;
use crate::entries::{Owner, ROWS_AT_ONCE, Trigger, Value};
use crate::schema::columns::words;

const COUNTERS: u32 = 50;
const OWNERS: u32 = 2000;

fn plan() -> Plan {
    let counter = |id: u32| {
        serde_json::json!({
            "id": id, "pmu": "fabric", "family": "fabric", "subsystem": "mem", "event": "read",
            "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 1,
            "config": [id, 0, 0, 0, 0], "cpu": 0, "socket": 0, "sees": "0", "far": "",
            "per_cpu": false, "at_switch": false, "leader": null,
        })
    };
    serde_json::from_value(serde_json::json!({
        "tick_ns": 1_000_000, "window_ns": 1_000_000, "metrics": [], "notes": [],
        "counters": (0..COUNTERS).map(counter).collect::<Vec<_>>(),
    }))
    .unwrap()
}

/// A window of all counters and owners, with the rows of the attributor.
fn window(attributor: &mut Attributor, rows: &mut fabric::Builder) {
    let mut take = |entry: Entry<'_>| attributor.take(entry, rows).unwrap();
    for counter in 0..COUNTERS {
        for (tick, value) in [(10, 0), (11, 1_000_000)] {
            take(Entry::Reading(Reading {
                tick,
                time: tick * 1_000_000,
                counter,
                cpu: 0,
                trigger: Trigger::Timer,
                value: Ok(Value { value, times: None }),
                owner: None,
            }));
        }
    }
    let owner = |pid| Owner::Task { pid, comm: Comm::default(), cgroup_id: 7 };
    let parts: Vec<_> = (1..=OWNERS).map(|pid| (owner(pid), 500)).collect();
    take(Entry::Usage { cpu: 0, parts: &parts });
    take(Entry::EndOfTick { tick: 11, is_last: false });
}

fn attributor(plan: &Plan) -> Attributor {
    Attributor::new(&RecordingFacts {
        plan,
        counters: &order(plan, |_| false),
        methods: Methods { choice: Choice::Residency, ..Methods::default() },
        start_tick: 10,
        clock: Snapshot { mono_ns: 0, wall_ns: 0 },
        origin: &Origin::of(&BTreeMap::new()),
        threads: 1,
    })
}

#[test]
fn rows_of_a_large_window_are_made_in_pieces() {
    let plan = plan();
    let mut attributor = attributor(&plan);
    let mut rows = fabric::Builder::default();
    window(&mut attributor, &mut rows);
    let mut made = Vec::new();
    loop {
        let is_over = attributor.more(&mut rows);
        made.push(rows.len());
        rows.finish();
        if is_over {
            break;
        }
    }
    assert!(made.iter().all(|rows| *rows < ROWS_AT_ONCE + 2000), "{made:?}");
    assert_eq!(made.iter().sum::<usize>(), (COUNTERS * OWNERS) as usize, "{made:?}");
}

/// A name that arrives later is not used for an earlier window.
#[test]
fn the_rest_of_a_window_is_made_before_the_next_entry() {
    let plan = plan();
    let mut attributor = attributor(&plan);
    let mut rows = fabric::Builder::default();
    window(&mut attributor, &mut rows);
    let names = Arc::new(crate::schema::cgroups::CgroupNames {
        path: "/later".into(),
        ..Default::default()
    });
    attributor.take(Entry::Cgroup { id: 7, names: &names }, &mut rows).unwrap();
    assert!(attributor.more(&mut rows));
    let batch = rows.finish();
    assert_eq!(batch.num_rows(), (COUNTERS * OWNERS) as usize);
    let cgroups = words(&batch, "cgroup").unwrap();
    assert!((0..batch.num_rows()).all(|row| cgroups.get(row).is_none()));
}
