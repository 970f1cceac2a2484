//! `attribute` with the method and windows of the recording makes the recorded `fabric` again, row
//! by row; with another method other shares; in other windows the same totals.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray as _};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use uncore_trace::schema::fabric;
use uncore_trace::tables::reader::Recording;

use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::rows::{ShareRow, read_losses, read_shares};
use crate::harness::{assert_checked, or_skip, root_or_skip, run, run_ok, text};
use crate::wait::run_for;

/// Every row of `fabric` with all its columns, as text; different doubles have different texts.
fn rows(recording: &Path) -> Vec<String> {
    let schema = (fabric::TABLE.schema)();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let table = Recording::open(recording).unwrap().open_table(&fabric::TABLE).unwrap();
    let options = FormatOptions::default().with_null("null");
    let mut rows = Vec::new();
    for batch in table.scan_columns(&names).unwrap() {
        let batch = batch.unwrap();
        // Wall clock times as integers.
        let ts = batch.column(0).as_primitive::<TimestampMicrosecondType>().clone();
        let ts: ArrayRef = Arc::new(ts.reinterpret_cast::<Int64Type>());
        let other_columns = batch.columns().iter().skip(1);
        let columns: Vec<_> = std::iter::once(&ts)
            .chain(other_columns)
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            rows.push(cells.join(" "));
        }
    }
    rows
}

/// The rows of `fabric` that `attribute` makes.
fn attribute_again(recording: &Path, attributed: &Path, options: &[&str]) -> Vec<String> {
    let mut args = vec![OsStr::new("attribute"), recording.as_os_str(), OsStr::new("-o")];
    args.push(attributed.as_os_str());
    args.extend(options.iter().map(OsStr::new));
    run_ok(args);
    assert_checked(attributed);
    rows(attributed)
}

fn assert_same(recorded: &[String], attributed: &[String], options: &[&str]) {
    for (recorded, attributed_row) in recorded.iter().zip(attributed) {
        assert_eq!(recorded, attributed_row, "{options:?}");
    }
    assert_eq!(recorded.len(), attributed.len(), "{options:?}");
}

/// `attribute` with the recording's own options makes its own rows. What a late recorder divided
/// less exactly, `attribute` divides as usual: then the totals are the same.
pub(crate) fn again_the_same(recording: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("attributed.parquet");
    let attributed_rows = attribute_again(recording, &to, &[]);
    if read_losses(recording).iter().any(|loss| loss.cause == "overload") {
        assert_equal_sums(totals(read_shares(recording)), &totals(read_shares(&to)));
    } else {
        assert_same(&rows(recording), &attributed_rows, &[]);
    }
}

/// The total of each counter: PMU, event and CPU.
type Totals = BTreeMap<(String, String, i32), f64>;

fn totals(shares: Vec<ShareRow>) -> Totals {
    let mut totals = Totals::new();
    for share in shares {
        let sum = totals.entry((share.pmu, share.event, share.cpu)).or_default();
        *sum += share.value.unwrap_or_default();
    }
    totals
}

fn assert_same_totals(recording: &Path, attributed: &Path, interval_ns: i64) {
    let (recorded, attributed_shares) = (read_shares(recording), read_shares(attributed));
    // The recording begins and ends within windows, and after a missing reading a window is longer.
    let last = attributed_shares.iter().map(|share| share.mono_ns).max();
    for share in &attributed_shares {
        let ends_window = share.mono_ns % interval_ns == 0 || Some(share.mono_ns) == last;
        assert!(ends_window, "no end of a window of {interval_ns} ns: {share:?}");
    }
    assert!(
        attributed_shares.iter().any(|share| share.window_ns == interval_ns),
        "none of {interval_ns} ns"
    );
    assert_equal_sums(totals(recorded), &totals(attributed_shares));
}

fn assert_equal_sums(recorded: Totals, attributed: &Totals) {
    assert!(recorded.keys().eq(attributed.keys()), "{recorded:?} became {attributed:?}");
    for (counter, sum) in recorded {
        let attributed_sum = attributed.get(&counter).copied().unwrap_or_default();
        assert!(
            (attributed_sum - sum).abs() <= 1e-9 * sum,
            "{counter:?}: {sum} became {attributed_sum}"
        );
    }
}

#[test]
fn a_recording_is_attributed_again_row_for_row() {
    let _machine = root_or_skip!();
    let (a, b) = (or_skip!(Cgroup::new("a")), or_skip!(Cgroup::new("b")));
    let loads = [Load::spin(0), Load::forks()];
    a.add_process(loads[0].pid());
    b.add_process(loads[1].pid());
    let dir = tempfile::tempdir().unwrap();
    let of_a = ["-p", "host", "--cgroup", &a.path];
    let all: [&[&str]; 5] = [
        &["-p", "host"],
        // Estimated, unlike those of the group host.
        &["-p", "host", "-e", "cgroup-switches", "--method", "regression"],
        &["-p", "host", "--sample-on", "sched", "--min-gap", "0"],
        &["-e", "cgroup-switches", "--method", "regression", "-I", "400ms", "--tick", "2ms"],
        &of_a,
    ];
    for (place, options) in all.into_iter().enumerate() {
        let run = dir.path().join(format!("run-{place}/"));
        let recorder = Recorder::start(&run, options);
        run_for(Duration::from_millis(1500));
        // Recorded with the selected method, and ended in the middle of a window.
        recorder.stop();
        assert_checked(&run);
        let live = rows(&run);
        assert!(live.len() > 50, "{options:?}: {} rows", live.len());
        again_the_same(&run);
        if read_losses(&run).iter().any(|loss| loss.cause == "overload") {
            eprintln!("{options:?}: the recorder was late, so only totals are compared");
            continue;
        }
        let method = options.contains(&"regression");
        let learnt = live.iter().any(|row| row.contains(" regression "));
        // With four windows, rates may be used in none of them.
        let few = options.contains(&"400ms");
        assert!(learnt == method || few, "{options:?}: learnt: {learnt}");
        let other_method = if method { "residency" } else { "regression" };
        let changed = attribute_again(
            &run,
            &dir.path().join("other.parquet"),
            &["--force", "--method", other_method],
        );
        let exact = !options.contains(&"cgroup-switches") || !learnt;
        assert_eq!(changed == live, exact, "{options:?} by {other_method}");
        let windows = dir.path().join("windows.parquet");
        attribute_again(&run, &windows, &["--force", "--interval", "200ms"]);
        assert_same_totals(&run, &windows, 200_000_000);
    }
}

#[test]
fn an_interval_that_is_no_number_of_ticks_is_refused() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let (run_dir, made_file) = (dir.path().join("run/"), dir.path().join("attributed.parquet"));
    let (to, made_path) = (run_dir.to_str().unwrap(), made_file.to_str().unwrap());
    run_ok(["record", "-p", "host", "-q", "--duration", "200ms", "-o", to]);
    let output = run(["attribute", to, "--interval", "1.5ms", "-o", made_path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("whole number of ticks of 1ms"), "{}", text(&output));
}

#[test]
fn a_recording_without_raw_tables_is_not_attributed() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    run_ok(["record", "-p", "host", "-q", "--duration", "200ms", "-o", file.to_str().unwrap()]);
    let made_file = dir.path().join("attributed.parquet");
    let output =
        run([OsStr::new("attribute"), file.as_os_str(), OsStr::new("-o"), made_file.as_os_str()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("record into a directory"), "{}", text(&output));
    assert!(!made_file.exists());
}
