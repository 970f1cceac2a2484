//! What counters of one event learn at several sockets.

use super::*;
use crate::schema::columns::{f64_column, i32_column, nullable_value};

const TICKS: u64 = 1000;

/// Counters of the memory of two sockets with a CPU each. `events` has the event of each.
fn plan_of(events: [&str; 2]) -> Plan {
    let counter = |socket: usize| {
        serde_json::json!({
            "id": socket, "pmu": format!("imc_{socket}"), "family": "imc", "subsystem": "mem",
            "event": events[socket], "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 1,
            "config": [0, 0, 0, 0, 0], "cpu": socket, "socket": socket, "sees": "0-1",
            "far": format!("{}", 1 - socket), "per_cpu": false, "at_switch": false, "leader": null,
        })
    };
    serde_json::from_value(serde_json::json!({
        "tick_ns": 1_000_000, "window_ns": 100_000_000, "metrics": [], "notes": [],
        "counters": [counter(0), counter(1)],
    }))
    .unwrap()
}

/// The part of what the first memory counts that a cgroup is given which runs on the other socket
/// and moves so many bytes of its own memory in a tick. What the first memory counts is much noise.
fn far_part(events: [&str; 2], near_bytes: u64) -> f64 {
    let plan = plan_of(events);
    let settings =
        AttributionSettings { choice: MethodChoice::Regression, ..AttributionSettings::default() };
    let mut attributor = attributor_of(&plan, settings);
    let mut tables = Builders::default();
    let owner = |cgroup_id| Owner::Task { pid: 1, comm: Comm::default(), cgroup_id };
    let mut random = fastrand::Rng::with_seed(7);
    let mut bytes = [0; 2];
    for tick in 10..=10 + TICKS {
        let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
        if tick > 10 {
            let used = [0; 2].map(|_: u64| random.u64(0..1_000_000));
            bytes[0] += used[0] / 1000 * random.u64(0..3);
            bytes[1] += used[1] / 1000 * near_bytes / 1000 + 1;
            for (cpu, ns) in (0..).zip(used) {
                take(LogEntry::Usage { cpu, usage: &[(owner(u64::from(cpu) + 1), ns)] });
            }
        }
        for (counter, value) in (0..).zip(bytes) {
            take(LogEntry::Reading(CounterReading {
                tick,
                time: tick * 1_000_000,
                counter,
                cpu: counter,
                trigger: ReadingTrigger::Timer,
                value: Ok(CounterValue { value, times: None }),
                owner: None,
            }));
        }
        if tick > 10 {
            take(LogEntry::EndOfTick { tick, is_last: tick == 10 + TICKS });
        }
    }
    attributor.finish_windows(&mut tables);
    let batch = tables.fabric.finish();
    let counters = i32_column(&batch, "counter").unwrap();
    let values = f64_column(&batch, "value").unwrap();
    let cgroups = batch.column_by_name("cgroup_id").unwrap().as_primitive::<Int64Type>();
    let of_far = (0..batch.num_rows())
        .filter(|row| counters.value(*row) == 0 && cgroups.value(*row) == 2)
        .map(|row| nullable_value(values, row).unwrap_or_default());
    of_far.sum::<f64>() / bytes[0] as f64
}

#[test]
fn a_cgroup_that_moves_more_of_its_own_memory_is_expected_to_move_more_of_another() {
    let of_peers = |near_bytes| far_part(["read", "read"], near_bytes);
    let (little, much) = (of_peers(50), of_peers(50_000));
    assert!(much > 1.1 * little, "{much} {little}");
    // Counters of other events tell nothing of each other.
    let of_others = |near_bytes| far_part(["read", "write"], near_bytes);
    assert_eq!(of_others(50).to_bits(), of_others(50_000).to_bits());
}
