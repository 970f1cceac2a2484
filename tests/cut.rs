//! Tests of `cut`: joined parts are one recording, and a time span is a recording.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::load::Load;
use crate::harness::{
    assert_checked, python, python_answers, root_or_skip, run, run_ok, text, uncore_trace,
};

/// A rotated recording of 3.5 s under load, with two instants and a span that is open between
/// parts.
fn rotated(dir: &Path, options: &[&str]) -> PathBuf {
    let output = dir.join("run/");
    let mut command = uncore_trace();
    // Their windows are divided one by one: a cut has the same shares when it is divided again.
    command.args(["record", "-e", "page-faults,cpu-clock,cpu-migrations", "-q"]);
    command.args(["--rotate", "1s", "--slices", "-o"]);
    command.arg(&output).args(options).args(["--", "sh", "-c"]);
    let tool = uncore_trace();
    let program = tool.get_program().to_str().unwrap();
    command.arg(format!(
        "'{program}' mark first; '{program}' mark work -- sleep 2.5; '{program}' mark last; sleep 1"
    ));
    let ended = command.output().unwrap();
    // Losses of a busy machine do not matter here.
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", text(&ended));
    output
}

fn cut(path: &Path, options: &[&str], output: &Path) -> String {
    let args = [OsStr::new("cut"), path.as_os_str(), "-o".as_ref(), output.as_os_str()];
    run_ok(args.into_iter().chain(options.iter().map(OsStr::new)))
}

fn compared(parts: &Path, cut_parts: &Path, begin: i64, end: i64) -> Value {
    let (begin, end) = (begin.to_string(), end.to_string());
    let args = [parts.as_os_str(), cut_parts.as_os_str(), begin.as_ref(), end.as_ref()];
    python_answers(&python(), include_str!("cut.py"), &args)
}

fn none_differ(all: &Value) {
    for (table, differ) in all["differ"].as_object().unwrap() {
        assert_eq!(*differ, json!([0, 0, 0]), "{table}: {all}");
    }
}

fn marks(recording: &Path) -> Vec<(String, bool)> {
    let args = [OsStr::new("report"), recording.as_os_str(), "--marks".as_ref(), "--json".as_ref()];
    let mark = |line: &str| {
        let mark: Value = serde_json::from_str(line).unwrap();
        (mark["text"].as_str().unwrap().to_owned(), mark["end_ns"].is_i64())
    };
    run_ok(args).lines().map(mark).collect()
}

fn exported(path: &Path) -> String {
    run_ok([OsStr::new("export"), path.as_os_str(), "--csv".as_ref(), "-".as_ref()])
}

fn assert_same_rows(left: &Path, right: &Path) {
    let (left_rows, right_rows) = (exported(left), exported(right));
    let different = left_rows
        .lines()
        .zip(right_rows.lines())
        .find(|(left_row, right_row)| left_row != right_row);
    assert_eq!(different, None, "the first rows that differ");
    assert_eq!(left_rows.lines().count(), right_rows.lines().count());
}

#[test]
fn parts_that_are_joined_are_one_recording() {
    let _machine = root_or_skip!();
    let _load = Load::with_pauses(0);
    let dir = tempfile::tempdir().unwrap();
    let output = rotated(dir.path(), &["--method", "residency"]);
    assert!(fs::read_dir(&output).unwrap().count() >= 3);
    let refused = run([OsStr::new("report"), output.as_os_str()]);
    assert!(text(&refused).contains("uncore-trace cut "), "{}", text(&refused));
    let joined = dir.path().join("one/");
    cut(&output, &[], &joined);
    assert_checked(&joined);
    none_differ(&compared(&output, &joined, 0, 0));
    // The span is one, although it was open where parts meet.
    let known = [("first", false), ("work", true), ("last", false)];
    assert_eq!(marks(&joined), known.map(|(text, has_end)| (text.to_owned(), has_end)));
    let attributed = dir.path().join("again.parquet");
    let args = ["attribute".as_ref(), joined.as_os_str(), "-o".as_ref(), attributed.as_os_str()];
    run_ok(args);
    assert_same_rows(&attributed, &joined.join("fabric.parquet"));
    let inside = run([
        OsStr::new("cut"),
        output.as_os_str(),
        "-o".as_ref(),
        output.join("one/").as_os_str(),
    ]);
    assert_eq!(inside.status.code(), Some(2));
    assert!(text(&inside).contains("is inside the recording"), "{}", text(&inside));
    // A missing part is an error.
    fs::remove_dir_all(output.join("00000002")).unwrap();
    let torn = dir.path().join("torn/");
    let args = [OsStr::new("cut"), output.as_os_str(), "-o".as_ref(), torn.as_os_str()];
    let refused = run(args);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("does not begin where"), "{}", text(&refused));
    assert!(!torn.exists());
}

#[test]
fn a_part_of_the_time_is_a_recording_of_its_own() {
    let _machine = root_or_skip!();
    let _load = Load::with_pauses(0);
    let dir = tempfile::tempdir().unwrap();
    let output = rotated(dir.path(), &["--method", "residency", "-I", "20ms"]);
    let cut_part = dir.path().join("some/");
    cut(&output, &["--from", "700ms", "--to", "2.205"], &cut_part);
    assert_checked(&cut_part);
    let cut_span = compared(&output, &cut_part, 0, 0)["span"].clone();
    let (begin, end) = (cut_span[0].as_i64().unwrap(), cut_span[1].as_i64().unwrap());
    assert_eq!((end - begin) % 20_000_000, 0);
    // A busy machine skips the end of a window, and the cut ends at a later one.
    assert!((1_505_000_000..=1_745_000_000).contains(&(end - begin)), "{cut_span}");
    none_differ(&compared(&output, &cut_part, begin, end));
    assert_eq!(marks(&cut_part), [("work".to_owned(), false)]);
    // Its rows are those from which the report of the same windows is made.
    let attributed = dir.path().join("again.parquet");
    let args = ["attribute".as_ref(), cut_part.as_os_str(), "-o".as_ref(), attributed.as_os_str()];
    run_ok(args);
    assert_same_rows(&attributed, &cut_part.join("fabric.parquet"));
    let named = dir.path().join("named/");
    cut(&output, &["--from", "mark:work", "--to", "mark:work"], &named);
    assert_checked(&named);
    let span = compared(&output, &named, 0, 0)["span"].clone();
    let length = span[1].as_i64().unwrap() - span[0].as_i64().unwrap();
    assert!((2_500_000_000..5_000_000_000).contains(&length), "{span}");
    for (options, says) in [
        (&["--from", "1h"][..], "nothing was recorded in that time"),
        (&["--from", "2s", "--to", "1s"], "--to is not after --from"),
        (&["--from", "mark:nothing"], "has no mark 'nothing'"),
    ] {
        let target = dir.path().join("not/");
        let args = [OsStr::new("cut"), output.as_os_str(), "-o".as_ref(), target.as_os_str()];
        let refused = run(args.into_iter().chain(options.iter().map(OsStr::new)));
        assert_eq!(refused.status.code(), Some(2), "{options:?}");
        assert!(text(&refused).contains(says), "{options:?}: {}", text(&refused));
        assert!(!target.exists());
    }
}
