mod devices;
mod limits;
mod long;
mod peers;

use std::collections::BTreeMap;

use arrow::array::AsArray as _;
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};

use super::*;
use crate::attribute::attribution_settings::AttributionSettings;
use crate::attribute::core_siblings::CoreSiblings;
use crate::attribute::facts::order_counters;
use crate::attribute::tests::new_attributor;
use crate::choice::MethodChoice;
use crate::clock::Snapshot;
use crate::drain::Comm;
use crate::entries::{CounterValue, Owner, ROWS_AT_ONCE, ReadingTrigger};
use crate::plan::Plan;
use crate::schema::columns::word_column;
use crate::schema::origin::RecordingOrigin;

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
fn window(attributor: &mut Attributor, rows: &mut Builders) {
    let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, rows).unwrap();
    for counter in 0..COUNTERS {
        for (tick, value) in [(10, 0), (11, 1_000_000)] {
            take(LogEntry::Reading(CounterReading {
                tick,
                time: tick * 1_000_000,
                counter,
                cpu: 0,
                trigger: ReadingTrigger::Timer,
                value: Ok(CounterValue { value, times: None }),
                owner: None,
            }));
        }
    }
    let owner = |pid| Owner::Task { pid, comm: Comm::default(), cgroup_id: 7 };
    let parts: Vec<_> = (1..=OWNERS).map(|pid| (owner(pid), 500)).collect();
    take(LogEntry::Usage { cpu: 0, usage: &parts });
    take(LogEntry::EndOfTick { tick: 11, is_last: false });
}

fn attributor(plan: &Plan, choice: MethodChoice) -> Attributor {
    attributor_of(plan, AttributionSettings { choice, ..AttributionSettings::default() })
}

fn attributor_of(plan: &Plan, settings: AttributionSettings) -> Attributor {
    new_attributor(plan, settings, 10)
}

#[test]
fn rows_of_a_large_window_are_made_in_pieces() {
    let plan = plan();
    let mut attributor = attributor(&plan, MethodChoice::Residency);
    let mut tables = Builders::default();
    window(&mut attributor, &mut tables);
    let mut made = Vec::new();
    loop {
        let is_over = attributor.make_rows(&mut tables);
        made.push(tables.fabric.len());
        tables.fabric.finish();
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
    let mut attributor = attributor(&plan, MethodChoice::Residency);
    let mut tables = Builders::default();
    window(&mut attributor, &mut tables);
    let names = Arc::new(crate::schema::cgroups::CgroupNames {
        path: "/later".into(),
        ..Default::default()
    });
    attributor.take_entry(LogEntry::Cgroup { id: 7, names: &names }, &mut tables).unwrap();
    assert!(attributor.make_rows(&mut tables));
    let batch = tables.fabric.finish();
    assert_eq!(batch.num_rows(), (COUNTERS * OWNERS) as usize);
    let cgroups = word_column(&batch, "cgroup").unwrap();
    assert!((0..batch.num_rows()).all(|row| cgroups.get(row).is_none()));
}

/// Length, method and end of the windows of a recorder that is late from tick 1500 to 2000, in ms.
/// The counts of all windows sum to what was counted.
fn windows(relief: Relief) -> Vec<(i64, String, i64)> {
    let mut plan = plan();
    plan.window_ns = 10_000_000;
    plan.counters.truncate(1);
    let mut attributor = attributor(&plan, MethodChoice::Regression);
    let mut tables = Builders::default();
    let owner = |pid| Owner::Task { pid, comm: Comm::default(), cgroup_id: u64::from(pid) };
    let mut random = fastrand::Rng::with_seed(3);
    let mut value = 0;
    for tick in 10..=3010 {
        let late = if (1500..=2000).contains(&tick) { relief } else { Relief::None };
        attributor.set_relief(late);
        let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
        let times = [random.u64(0..800_000), random.u64(0..200_000)];
        if tick > 10 {
            value += times[0] + 5 * times[1];
            let parts: Vec<_> = (1..).zip(times).map(|(pid, ns)| (owner(pid), ns)).collect();
            take(LogEntry::Usage { cpu: 0, usage: &parts });
        }
        take(LogEntry::Reading(CounterReading {
            tick,
            time: tick * 1_000_000,
            counter: 0,
            cpu: 0,
            trigger: ReadingTrigger::Timer,
            value: Ok(CounterValue { value, times: None }),
            owner: None,
        }));
        if tick > 10 {
            take(LogEntry::EndOfTick { tick, is_last: tick == 3010 });
        }
    }
    attributor.finish_windows(&mut tables);
    let batch = tables.fabric.finish();
    let numbers = |name: &str| {
        batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec()
    };
    let values = batch.column_by_name("value").unwrap().as_primitive::<Float64Type>();
    let sum: f64 = values.iter().flatten().sum();
    assert!((sum - value as f64).abs() < 1e-6 * sum, "{relief:?}: {sum} is not {value}");
    let methods = word_column(&batch, "method").unwrap();
    let mut windows: Vec<(i64, String, i64)> = numbers("window_ns")
        .into_iter()
        .zip(numbers("mono_ns"))
        .enumerate()
        .map(|(row, (length, end))| {
            let method = methods.get(row).unwrap().to_owned();
            (length / 1_000_000, method, end / 1_000_000)
        })
        .collect();
    windows.dedup();
    windows
}

#[test]
fn a_recorder_that_is_late_leaves_out_what_it_says_and_no_count() {
    for relief in Relief::ALL {
        let windows = windows(relief);
        let of = |from: i64, to: i64| {
            windows.iter().filter(move |(length, _, end)| end - length >= from && *end <= to)
        };
        // From the third window on, because the change is seen at the end of one.
        let late: Vec<_> = of(1600, 2000).map(|(length, method, _)| (*length, &**method)).collect();
        let length = if relief == Relief::LongWindows { 100 } else { 10 };
        assert!(late.iter().all(|its| its.0 == length), "{relief:?}: {late:?}");
        let learnt = late.iter().filter(|its| its.1 == "regression").count();
        match relief {
            Relief::None | Relief::Seldom => assert_eq!(learnt, late.len(), "{relief:?}"),
            // Rates that are not corrected are less sure, often less than residency.
            Relief::LastRates => assert!(learnt > 0, "{late:?}"),
            Relief::Residency | Relief::LongWindows => assert_eq!(learnt, 0, "{relief:?}"),
        }
        assert_eq!(late.len(), 400 / length as usize, "{relief:?}");
        let after: Vec<_> =
            of(2100, 3010).map(|(length, method, _)| (*length, &**method)).collect();
        assert!(after.iter().all(|its| *its == (10, "regression")), "{relief:?}: {after:?}");
        assert_eq!(after.len(), 91, "{relief:?}");
    }
}
