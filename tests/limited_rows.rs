//! A recording whose windows have rows of the largest owners only: `fabric` keeps the limit, and no
//! tenant's sum changes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use uncore_trace::schema::columns::{
    f64_column, i32_column, i64_column, nullable_value, word_column,
};
use uncore_trace::schema::{fabric, sums};
use uncore_trace::tables::reader::Recording;

use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::rows::metadata_value;
use crate::harness::{assert_checked, or_skip, root_or_skip, run_ok};
use crate::wait::run_for;

/// A counter and an owner: its kind, its process and its cgroup.
type OwnerKey = (i32, String, Option<i32>, Option<String>);

/// The sums of a table's values, and its number of rows.
fn sum_values(recording: &Path, is_sums: bool) -> (BTreeMap<OwnerKey, f64>, usize) {
    let def = if is_sums { &sums::TABLE } else { &fabric::TABLE };
    let table = Recording::open(recording).unwrap().open_table(def).unwrap();
    let names = ["counter", "owner", "pid", "cgroup", "value", "mono_ns"];
    let (mut values, mut rows) = (BTreeMap::new(), 0);
    for batch in table.scan_columns(&names).unwrap() {
        let batch = batch.unwrap();
        let counters = i32_column(&batch, "counter").unwrap();
        let (owners, cgroups) =
            (word_column(&batch, "owner").unwrap(), word_column(&batch, "cgroup").unwrap());
        let pids = i32_column(&batch, "pid").unwrap();
        let value = f64_column(&batch, "value").unwrap();
        for row in 0..batch.num_rows() {
            let key = (
                counters.value(row),
                owners.get(row).unwrap().to_owned(),
                nullable_value(pids, row),
                cgroups.get(row).map(str::to_owned),
            );
            *values.entry(key).or_insert(0.0) += nullable_value(value, row).unwrap_or_default();
        }
        rows += batch.num_rows();
    }
    values.retain(|_, value| *value != 0.0);
    (values, rows)
}

/// Value and interval of each line, by event, owner and name.
fn report_lines(recording: &Path, options: &[&str]) -> BTreeMap<[String; 3], [f64; 3]> {
    let recording = recording.to_str().unwrap();
    let text = run_ok([&["report", recording, "--json"], options].concat());
    let line = |text: &str| {
        let line: Value = serde_json::from_str(text).unwrap();
        let key = ["event", "owner", "key"].map(|name| line[name].as_str().unwrap().to_owned());
        let values = ["value", "low", "high"].map(|name| line[name].as_f64());
        let [Some(value), low, high] = values else { return None };
        Some((key, [value, low.unwrap_or(value), high.unwrap_or(value)]))
    };
    text.lines().filter_map(line).filter(|(_, [value, ..])| *value != 0.0).collect()
}

fn assert_near(limited: &BTreeMap<[String; 3], [f64; 3]>, all: &BTreeMap<[String; 3], [f64; 3]>) {
    assert!(limited.keys().eq(all.keys()), "{limited:?}\n{all:?}");
    for (key, values) in limited {
        for (limited_value, value) in values.iter().zip(all[key]) {
            let is_near = (limited_value - value).abs() <= 1e-9 * value.abs();
            assert!(is_near, "{key:?}: {limited_value}, {value}");
        }
    }
}

#[test]
fn each_tenant_has_its_sum_whatever_the_limit_of_rows() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/");
    let small = or_skip!(Cgroup::new("small-tenant"));
    let loads = [Load::spin(0), Load::with_pauses(1), Load::hackbench()];
    let small_load = Load::with_pauses(0);
    small.add_process(small_load.pid());
    let options = ["-p", "host", "-I", "10ms", "--rows", "500"];
    let recorder = Recorder::start(&path, &options);
    recorder.wait_for_first_window();
    run_for(Duration::from_millis(2500));
    recorder.stop();
    drop((loads, small_load));
    assert_checked(&path);

    // Each counter has a row for each kind of owner in any case.
    let (limited, limited_rows) = sum_values(&path, false);
    let (by_second, _) = sum_values(&path, true);
    let all = dir.path().join("all.parquet");
    let args = ["attribute", path.to_str().unwrap(), "-o", all.to_str().unwrap()];
    run_ok([&args[..], &["--rows", "all", "--min-share", "0"]].concat());
    let (complete, complete_rows) = sum_values(&all, false);
    assert!(3 * limited_rows < 2 * complete_rows, "{limited_rows} of {complete_rows} rows");
    assert!(limited.len() < complete.len(), "{limited:?}");
    let total = |values: &BTreeMap<OwnerKey, f64>| values.values().sum::<f64>();
    assert!((total(&limited) - total(&complete)).abs() <= 1e-9 * total(&complete));

    // The counters of the kernel are exact, so the sums are those of all rows.
    assert!(by_second.keys().eq(complete.keys()), "{by_second:?}\n{complete:?}");
    for (key, value) in &by_second {
        let complete_value = complete[key];
        assert!((value - complete_value).abs() <= 1e-9 * complete_value, "{key:?}");
    }
    for options in [&["--by", "cgroup"][..], &["--by", "pid"]] {
        let reported = report_lines(&path, options);
        assert_near(&reported, &report_lines(&all, options));
        assert!(!reported.keys().any(|[_, owner, _]| owner == "other_tasks"), "{reported:?}");
    }
    let windows: u64 =
        metadata_value(&path, "uncore_trace.limited_windows").unwrap().parse().unwrap();
    assert!(windows > 100, "{windows}");

    // A roll-up has them too.
    let rollups = dir.path().join("rollups");
    for (from, to) in [(&path, rollups.join("limited")), (&all, rollups.join("all"))] {
        run_ok(["rollup", from.to_str().unwrap(), "-o", to.to_str().unwrap(), "-w", "1s"]);
    }
    assert_near(
        &report_lines(&rollups.join("limited"), &["--by", "cgroup"]),
        &report_lines(&rollups.join("all"), &["--by", "cgroup"]),
    );

    // A part of the time: whole seconds are known, of the others only the total.
    let part = dir.path().join("part/");
    let times = ["--from", "0.3s", "--to", "2.2s"];
    let args = ["cut", path.to_str().unwrap(), "-o", part.to_str().unwrap()];
    run_ok([&args[..], &times].concat());
    assert_checked(&part);
    let counted = |recording: &Path, options: &[&str]| -> f64 {
        report_lines(recording, options).values().map(|[value, ..]| value).sum()
    };
    let part_total = total(&sum_values(&part, false).0);
    assert!((counted(&part, &[]) - part_total).abs() <= 1e-9 * part_total);
    let within_seconds = counted(&path, &times);
    assert!((within_seconds - counted(&all, &times)).abs() <= 1e-9 * within_seconds);
}

#[test]
fn windows_are_longer_where_rows_are_few() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/");
    let options = ["-p", "host", "--rows", "1000", "--duration", "1s", "--kill"];
    let mut recorder = Recorder::start(&path, &options);
    let end = recorder.wait();
    assert!(
        end.stderr.contains("windows are 50ms long, so that 8 counters have at most 1000 rows"),
        "{}",
        end.stderr
    );
    assert_checked(&path);
    let table = Recording::open(&path).unwrap().open_table(&fabric::TABLE).unwrap();
    let mut other_ends: BTreeSet<i64> = BTreeSet::new();
    for batch in table.scan_columns(&["mono_ns"]).unwrap() {
        let batch = batch.unwrap();
        let ends = i64_column(&batch, "mono_ns").unwrap().values();
        other_ends.extend(ends.iter().filter(|end_ns| *end_ns % 50_000_000 != 0));
    }
    // The last window ends with the recording.
    assert!(other_ends.len() <= 1, "{other_ends:?}");
}
