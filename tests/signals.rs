//! How a recording ends: by a signal, by the end of its command, or because the command does not
//! exist. `lifecycle` tests what happens to the command.

use std::fs;

use uncore_trace::schema::metadata;

use crate::harness::recorder::Recorder;
use crate::harness::subject::ending_signals;
use crate::harness::{assert_checked, mono_ns, root_or_skip, rows, run, text};

/// The longest window of these recordings, ns: the default on a machine that is not late.
const WINDOW_NS: i64 = 10_000_000;

#[test]
fn a_signal_ends_a_recording_with_a_complete_file() {
    let _machine = root_or_skip!();
    for signal in ending_signals() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.parquet");
        let mut recorder = Recorder::start(&file, &["-p", "host", "--flush", "200ms"]);
        let objects = recorder.objects();
        rows::wait_for_window_after(&file, recorder.started_ns);
        let signalled_ns = mono_ns();
        recorder.signal(signal);
        let ended = recorder.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(rows::metadata_value(&file, metadata::COMPLETE).as_deref(), Some("true"));
        assert_checked(&file);
        let shares = rows::read_shares(&file);
        let begin = shares.iter().map(|share| share.mono_ns - share.window_ns).min().unwrap();
        let end = shares.iter().map(|share| share.mono_ns).max().unwrap();
        assert!(begin <= recorder.started_ns + WINDOW_NS, "{begin}: {recorder:?}");
        // Nothing before the signal is left out.
        assert!(end >= signalled_ns - WINDOW_NS, "{end}: signalled at {signalled_ns}");
        let entries: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(entries.len(), 1, "beside the file: {entries:?}");
        objects.assert_gone();
    }
}

#[test]
fn the_commands_exit_code_is_passed_on() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let path = file.to_str().unwrap();
    for code in [0, 7] {
        let script = format!("exit {code}");
        let output =
            run(["record", "-p", "host", "--force", "-o", path, "--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert_eq!(rows::metadata_value(&file, metadata::COMPLETE).as_deref(), Some("true"));
        assert_checked(&file);
    }
}

#[test]
fn a_missing_command_leaves_no_file() {
    let _machine = root_or_skip!();
    for name in ["run.parquet", "run/"] {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join(name);
        let path = output.to_str().unwrap();
        let ended = run(["record", "-p", "host", "-o", path, "--", "/no/such/command"]);
        let stderr = text(&ended);
        assert_eq!(ended.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("/no/such/command") && stderr.trim().lines().count() == 1,
            "{stderr}"
        );
        let entries: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert!(entries.is_empty(), "{entries:?}");
    }
}
