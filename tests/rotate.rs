//! `record --rotate`: each part is a recording, and together they have no gap.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{
    assert_all_checked, python, python_answers, root_or_skip, rows, run, run_ok, text,
};
use crate::wait::wait_until;

/// The parts in a directory, in the order of their names.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    parts
}

fn record(output: &Path, options: &[&str]) {
    let mut args: Vec<&OsStr> = ["record", "-p", "host", "-q", "-o"].map(OsStr::new).to_vec();
    args.push(output.as_os_str());
    args.extend(options.iter().map(OsStr::new));
    let output = run(args);
    // Losses of a busy machine do not matter here.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
}

/// The sums over all parts of a directory.
fn together(dir: &Path) -> Value {
    python_answers(&python(), include_str!("rotate.py"), &[dir.as_os_str()])
}

/// Under load, with windows longer than ticks. A machine that is stopped between parts may make
/// both readings there late, so one of three recordings must be complete.
#[test]
fn no_count_is_lost_or_doubled_between_parts() {
    let _machine = root_or_skip!();
    let _load = Load::with_pauses(0);
    let mut torn = Value::Null;
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("run/");
        record(&output, &["--rotate", "1s", "-I", "20ms", "--duration", "3.5s", "--slices"]);
        let all = together(&output);
        let parts = parts(&output);
        assert!(parts.len() >= 3, "{parts:?}");
        assert_all_checked(&parts);
        for what in ["gaps", "doubled", "missing"] {
            assert_eq!(all[what], json!([]), "{what}");
        }
        torn = all["torn"].clone();
        if torn == json!([]) {
            return;
        }
    }
    panic!("counts are between two parts: {torn}");
}

#[test]
fn the_timeline_of_a_part_can_be_made_again() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    record(&output, &["--rotate", "1s", "--duration", "2.5s"]);
    for part in parts(&output) {
        let again = dir.path().join("again.parquet");
        let args = ["attribute".as_ref(), part.as_os_str(), "--force".as_ref(), "-o".as_ref()];
        run_ok(args.into_iter().chain([again.as_os_str()]));
        let report = |path: &Path| {
            run_ok([OsStr::new("export"), path.as_os_str(), "--csv".as_ref(), "-".as_ref()])
        };
        assert_eq!(report(&again), report(&part.join("fabric.parquet")), "{}", part.display());
    }
}

#[test]
fn files_are_numbered_and_the_oldest_are_removed() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run.parquet");
    record(&output, &["--rotate", "1s", "--keep", "2", "--duration", "4.5s"]);
    record(&output, &["--rotate", "1s", "--keep", "2", "--duration", "500ms"]);
    let kept_parts = parts(dir.path());
    assert_eq!(kept_parts.len(), 2, "{kept_parts:?}");
    let number = |path: &PathBuf| -> u32 {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.strip_prefix("run-").unwrap().strip_suffix(".parquet").unwrap().parse().unwrap()
    };
    assert!(number(&kept_parts[0]) >= 4, "{kept_parts:?}");
    assert_eq!(number(&kept_parts[1]), number(&kept_parts[0]) + 1);
    assert_all_checked(&kept_parts);
}

/// All but the last part are finished when the recorder is killed.
#[test]
fn a_killed_recorder_leaves_one_part_to_repair() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    kill_within_third_part(&output);
    let parts = parts(&output);
    assert!(parts.len() >= 3, "{parts:?}");
    run_ok([OsStr::new("repair"), output.as_os_str()]);
    assert_all_checked(&parts);
    let whole = run([OsStr::new("report"), output.as_os_str()]);
    assert_eq!(whole.status.code(), Some(2));
    assert!(text(&whole).contains("name one of its parts"), "{}", text(&whole));
    let all = together(&output);
    assert_eq!((&all["gaps"], &all["doubled"]), (&json!([]), &json!([])));
}

/// Records in parts, and kills the recorder when the parts before the last are finished.
fn kill_within_third_part(output: &Path) {
    let mut recorder =
        Recorder::start(output, &["-p", "host", "--rotate", "1s", "--flush", "200ms"]);
    // The third part is recorded, and those before it are finished.
    let is_finished = |part: &PathBuf| part.join("fabric.parquet").exists();
    wait_until("two finished parts", || {
        parts(output).iter().filter(|part| is_finished(part)).count() >= 2
    });
    wait_until("a third part", || parts(output).len() >= 3);
    rows::wait_for_window_after(&parts(output)[2], recorder.started_ns);
    let second = run([
        "record".as_ref(),
        "-phost".as_ref(),
        "--rotate=1s".as_ref(),
        "-o".as_ref(),
        output.as_os_str(),
    ]);
    assert_eq!(second.status.code(), Some(2), "{}", text(&second));
    assert!(text(&second).contains("is being recorded now"), "{}", text(&second));
    // Not between two parts, where the last rows of one may be lost and the first of the next kept.
    let is_within_part = || {
        let parts = parts(output);
        let (last, earlier) = parts.split_last().unwrap();
        let segments = fs::read_dir(last.join("fabric.parquet.partial"));
        // The lock, and a first segment, which is empty.
        earlier.iter().all(is_finished) && segments.is_ok_and(|segments| segments.count() > 2)
    };
    wait_until("a moment within a part", || {
        recorder.signal(Signal::STOP);
        let is_right = is_within_part();
        if !is_right {
            recorder.signal(Signal::CONT);
        }
        is_right
    });
    recorder.kill();
}

#[test]
fn impossible_rotations_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    let output = output.to_str().unwrap();
    for (args, says) in [
        (vec!["-o", "-", "--rotate", "1h"], "a stream has no parts"),
        (vec!["-o", output, "--rotate", "256M"], "256MiB"),
        (vec!["-o", output, "--rotate", "0.5s"], "at least 1s"),
        (vec!["-o", output, "--rotate", "1h", "--keep", "0"], "at least one part"),
        (vec!["-o", output, "--keep", "3"], "--rotate"),
        (vec!["-o", output, "--rotate", "1GiB", "--keep", "1GiB"], "--keep is smaller"),
    ] {
        let output = run(["record", "-p", "host"].iter().chain(&args));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output).contains(says), "{args:?}: {}", text(&output));
    }
    assert!(!Path::new(output).exists());
}
