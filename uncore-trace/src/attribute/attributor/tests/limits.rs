//! Rows of the largest owners only, and the sums of all of them.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::*;
use crate::schema::columns::{bits_column, f64_column, i32_column, i64_column, nullable_value};
use crate::schema::row_limit::RowLimit;

/// Counters, owners and windows of a run. Owner 1 has most of the time, and each cgroup has ten.
const COUNTED: u32 = 4;
const TASKS: u32 = 100;
const WINDOWS: u64 = 250;
const WINDOW_NS: u64 = 10_000_000;

/// The rows of `fabric` and `sums` of a run in windows of 10 ms, which begins within a second.
fn run(row_limit: RowLimit, min_share: f64) -> (RecordBatch, RecordBatch, u64) {
    let mut plan = plan();
    (plan.tick_ns, plan.window_ns) = (WINDOW_NS, WINDOW_NS);
    plan.counters.truncate(COUNTED as usize);
    let settings = AttributionSettings {
        choice: MethodChoice::Residency,
        row_limit,
        min_share,
        ..AttributionSettings::default()
    };
    let mut attributor = Attributor::new(&RecordingFacts {
        plan: &plan,
        counters: &order_counters(&plan, |_| false),
        settings,
        start_tick: 130,
        clock: Snapshot { mono_ns: 0, wall_ns: 0 },
        origin: &RecordingOrigin::from_metadata(&BTreeMap::new()),
        siblings: &CoreSiblings::default(),
        threads: 2,
        sums: true,
    });
    let mut tables = Builders::default();
    let owner =
        |pid| Owner::Task { pid, comm: Comm::default(), cgroup_id: u64::from((pid - 1) / 10) };
    let times: Vec<_> = (1..=TASKS)
        .map(|pid| (owner(pid), if pid == 1 { 5_000_000 } else { 100 * u64::from(pid) }))
        .collect();
    for tick in 130..=130 + WINDOWS {
        let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
        for counter in 0..COUNTED {
            let value = (tick - 130) * 1_000_003 * u64::from(counter + 1);
            take(LogEntry::Reading(CounterReading {
                tick,
                time: tick * WINDOW_NS,
                counter,
                cpu: 0,
                trigger: ReadingTrigger::Timer,
                value: Ok(CounterValue { value, times: None }),
                owner: None,
            }));
        }
        if tick > 130 {
            take(LogEntry::Usage { cpu: 0, usage: &times });
            take(LogEntry::EndOfTick { tick, is_last: tick == 130 + WINDOWS });
        }
    }
    attributor.finish_windows(&mut tables);
    (tables.fabric.finish(), tables.sums.finish(), attributor.limited_windows())
}

/// Sums of the values by the end of their second, counter and owner.
fn sum_by_second(
    batch: &RecordBatch,
    owner: impl Fn(usize) -> u64,
) -> BTreeMap<(i64, i32, u64), f64> {
    let ends = i64_column(batch, "mono_ns").unwrap();
    let (counters, values) =
        (i32_column(batch, "counter").unwrap(), f64_column(batch, "value").unwrap());
    let mut sums = BTreeMap::new();
    for row in 0..batch.num_rows() {
        let second = (ends.value(row) - 1) / 1_000_000_000;
        *sums.entry((second, counters.value(row), owner(row))).or_insert(0.0) += values.value(row);
    }
    sums
}

fn cgroup_sums(batch: &RecordBatch) -> BTreeMap<(i64, i32, u64), f64> {
    let ids = bits_column(batch, "cgroup_id").unwrap();
    sum_by_second(batch, |row| ids.get(row).unwrap_or(u64::MAX))
}

#[test]
fn a_window_has_no_more_rows_than_the_limit() {
    let (all, sums, limited_windows) = run(RowLimit::All, 0.0);
    assert_eq!((all.num_rows() as u64, limited_windows), (WINDOWS * u64::from(COUNTED * TASKS), 0));
    // Three seconds, of which the first and the last are not whole.
    assert_eq!(sums.num_rows() as u32, 3 * COUNTED * TASKS);
    for rows_in_window in [399, 100, 40, 4] {
        let limit = RowLimit::PerSecond(100 * rows_in_window);
        let (fabric, limited_sums, limited_windows) = run(limit, 0.0);
        assert_eq!(limited_windows, WINDOWS, "{rows_in_window}");
        let rows = fabric.num_rows() as u64 / WINDOWS;
        assert!(rows <= rows_in_window && 2 * rows > rows_in_window, "{rows} of {rows_in_window}");
        assert_eq!(limited_sums, sums, "{rows_in_window}");
        // The largest keeps its rows, if there is room for any besides those of the rest.
        let pids = i32_column(&fabric, "pid").unwrap();
        let has_largest = (0..fabric.num_rows()).any(|row| nullable_value(pids, row) == Some(1));
        assert_eq!(has_largest, rows_in_window >= 40, "{rows_in_window}");
        let totals = |batch: &RecordBatch| sum_by_second(batch, |_| 0);
        for (key, total) in totals(&fabric) {
            assert!((total - totals(&sums)[&key]).abs() <= 1e-9 * total, "{key:?}");
        }
    }
}

#[test]
fn seconds_have_the_sums_of_all_rows_and_small_processes_of_a_cgroup_together() {
    let (all, sums, _) = run(RowLimit::All, 0.0);
    let pids = |batch: &RecordBatch| {
        let pids = i32_column(batch, "pid").unwrap().clone();
        sum_by_second(batch, move |row| nullable_value(&pids, row).map_or(0, |pid| pid as u64))
    };
    // Shares are rounded to steps of a thousandth of the total.
    let step = |key: &(i64, i32, u64)| 2e-3 * sum_by_second(&sums, |_| 0)[&(key.0, key.1, 0)];
    for (key, value) in pids(&all) {
        assert!((value - pids(&sums)[&key]).abs() <= step(&key), "{key:?}");
    }
    let (_, united, _) = run(RowLimit::PerSecond(100), 0.001);
    // Processes 1 and 56 to 100 have a thousandth.
    assert_eq!(united.num_rows() as u32, 3 * COUNTED * (1 + 45 + 6));
    let cgroups = cgroup_sums(&united);
    assert_eq!(cgroups.len() as u32, 3 * COUNTED * 10);
    for (key, value) in cgroup_sums(&sums) {
        assert!((value - cgroups[&key]).abs() <= step(&key), "{key:?}");
    }
}
