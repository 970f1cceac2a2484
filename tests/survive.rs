//! `kill -9` at any moment: the kernel is as before, and the recorded data can be read. And with
//! more records than can be processed: the recorder ends when told to, and reports its losses.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "a test prints what it measured")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use uncore_trace::schema::metadata;

use rustix::process::Signal;

use crate::faults::Random;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{
    assert_checked, best_of_three, need, python, readers, root_or_skip, rows, run_ok,
};
use crate::sums::conserved;
use crate::wait::{pass_until_moment, run_for};

/// The default of `--flush`, ns.
const FLUSH_NS: f64 = 2e9;

/// Lifetimes in ms of `count` recorders: different in every run.
fn moments(count: u64) -> Vec<u64> {
    let mut random = Random::new();
    (0..count).map(|index| 800 * index + random.below(800)).collect()
}

/// Records for this time, kills, repairs and checks; returns how much time is lost, ns.
fn killed_after(millis: u64, output: &Path, python: &Path) -> f64 {
    let mut recorder = Recorder::start(output, &["-p", "host"]);
    let objects = recorder.objects();
    assert!(!objects.programs.is_empty() && !objects.maps.is_empty(), "{objects:?}");
    pass_until_moment(Duration::from_millis(millis));
    let died = recorder.kill();
    // Its command still runs, and must hold none of its objects.
    objects.assert_gone();
    run_ok([OsStr::new("repair"), output.as_os_str()]);
    assert_checked(output);
    assert_eq!(rows::metadata_value(output, metadata::REPAIRED).as_deref(), Some("true"));
    assert_eq!(rows::metadata_value(output, metadata::COMPLETE).as_deref(), Some("false"));
    let newest = rows::read_shares(output).iter().map(|share| share.mono_ns).max();
    let lost = (died - newest.unwrap_or(recorder.started_ns)) as f64;
    println!("killed after {millis} ms: lost {:.3} s", lost / 1e9);
    let file = if output.is_dir() { output.join("fabric.parquet") } else { output.to_owned() };
    let answer = readers(python, &[OsStr::new("conservation"), file.as_os_str()]);
    assert!(answer[1].as_f64().is_none_or(|error| error <= 1e-9), "{answer}");
    for reader in ["duckdb", "pandas"] {
        readers(python, &["sums".as_ref(), reader.as_ref(), file.as_os_str()]);
    }
    lost
}

/// Kills at `count` moments. If the machine is stopped just then, a flush is late: the repaired
/// file must always be valid, and in one of three attempts long enough.
fn loses_at_most_a_flush_interval(count: u64, name: &str) {
    let _machine = root_or_skip!();
    let python = python();
    for millis in moments(count) {
        let lost = best_of_three(FLUSH_NS, || {
            let dir = tempfile::tempdir().unwrap();
            killed_after(millis, &dir.path().join(name), &python)
        });
        assert!(lost <= FLUSH_NS, "killed after {millis} ms: lost {lost} ns");
    }
}

#[test]
fn a_killed_file_loses_at_most_a_flush_interval() {
    loses_at_most_a_flush_interval(5, "run.parquet");
}

#[test]
fn a_killed_dataset_loses_at_most_a_flush_interval() {
    loses_at_most_a_flush_interval(3, "run/");
}

/// The first metadata have no losses, and a killed recorder writes no final ones.
#[test]
fn a_killed_file_has_the_losses_before_its_end() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run.parquet");
    let mut recorder = Recorder::start(&output, &["-p", "host", "--flush", "200ms"]);
    rows::wait_for_window_after(&output, recorder.started_ns);
    recorder.kill();
    run_ok([OsStr::new("repair"), output.as_os_str()]);
    for key in [metadata::LOSS, metadata::LOSS_FIRST] {
        let totals = rows::metadata_value(&output, key).unwrap();
        serde_json::from_str::<BTreeMap<String, i64>>(&totals).unwrap();
    }
    let report = run_ok([OsStr::new("report"), output.as_os_str()]);
    assert!(report.starts_with("incomplete: the recorder was killed, nothing after "), "{report}");
    assert!(!report.contains("is not known"), "{report}");
    assert_checked(&output);
}

/// Memory limit of a recorder that cannot keep up: its ring mapped twice, and the rows of a flush
/// interval.
const FLOODED_KIB: u64 = 256 << 10;

/// A recorder that drains its ring until it is empty would never finish.
#[test]
fn a_flooded_recorder_ends_at_a_signal() {
    let _machine = root_or_skip!();
    need("perf");
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let load = Load::hackbench();
    let exact = ["-p", "host", "--sample-on", "sched", "--min-gap", "0", "--buffer", "1"];
    let mut recorder = Recorder::start(&run, &exact);
    run_for(Duration::from_secs(3));
    let held = recorder.status_kib("RssAnon");
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    drop(load);
    println!("{held} KiB; {}", ended.stderr.trim());
    let losses = rows::read_losses(&run);
    let lost = losses.iter().any(|loss| loss.cause == "ring_full");
    assert_eq!(ended.code, Some(i32::from(lost)), "{}", ended.stderr);
    assert!(held < FLOODED_KIB, "{held} KiB");
    conserved(&run);
}
