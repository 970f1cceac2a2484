//! How a recording ends: by a signal, by two, by its command, by none to be found.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use uncore_trace::tables::metadata;

use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, root_or_skip, rows, run, text};

#[test]
fn a_signal_ends_it_with_a_complete_file() {
    let _machine = root_or_skip!();
    for signal in [Signal::INT, Signal::TERM] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.parquet");
        let mut recorder = Recorder::start(&file, &["-p", "host"]);
        let objects = recorder.objects();
        sleep(Duration::from_millis(700));
        recorder.signal(signal);
        let ended = recorder.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(rows::pair(&file, metadata::COMPLETE).as_deref(), Some("true"));
        assert_checked(&file);
        let shares = rows::shares(&file);
        let begin = shares.iter().map(|share| share.mono_ns - share.window_ns).min().unwrap();
        let end = shares.iter().map(|share| share.mono_ns).max().unwrap();
        assert!(end - begin >= 690_000_000, "{} ns of 700 ms", end - begin);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "beside the file: {left:?}");
        objects.assert_gone();
    }
}

/// A command that does not stop when it is told to is waited for, 2 s; a second signal ends that
/// wait.
#[test]
fn a_second_signal_ends_it_at_once() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let (file, told) = (dir.path().join("run.parquet"), dir.path().join("told"));
    let traps = format!("trap '' INT; trap ': >{}' TERM", told.display());
    let stubborn = format!("{traps}; echo $$; while :; do sleep 0.1; done");
    let mut recorder = Recorder::with_command(&file, &["-p", "host"], &stubborn);
    sleep(Duration::from_millis(300));
    recorder.signal(Signal::INT);
    // Two signals before the first is taken are one: the command hears of the first.
    let first = Instant::now();
    while !told.exists() {
        assert!(first.elapsed() < Duration::from_secs(30), "the command was not told to stop");
        sleep(Duration::from_millis(5));
    }
    recorder.signal(Signal::INT);
    let ended = recorder.wait();
    // By what it says: a clock tells of the machine too.
    assert!(ended.stderr.contains("not waiting for the command any longer"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("the command does not stop"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_checked(&file);
}

#[test]
fn the_commands_exit_code_is_passed_on() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let out = file.to_str().unwrap();
    for code in [0, 7] {
        let script = format!("exit {code}");
        let output = run(["record", "-p", "host", "--force", "-o", out, "--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert_eq!(rows::pair(&file, metadata::COMPLETE).as_deref(), Some("true"));
        assert_checked(&file);
    }
}

#[test]
fn a_command_that_is_not_there_leaves_nothing() {
    let _machine = root_or_skip!();
    for name in ["run.parquet", "run/"] {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join(name);
        let out = output.to_str().unwrap();
        let ended = run(["record", "-p", "host", "-o", out, "--", "/no/such/command"]);
        let said = text(&ended);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("/no/such/command") && said.trim().lines().count() == 1, "{said}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
