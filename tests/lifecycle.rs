//! What happens to the command if the measurement ends before it: by a signal, at its time limit,
//! or by an error; `stat` is compared with `perf stat`.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::recorder::objects_of;
use crate::harness::subject::{
    Measurement, Subject, ending_signals, hangup_signal, signal_bit, signal_set,
};
use crate::harness::{assert_checked, need, root_or_skip, uncore_trace};
use crate::needs::SmallDisk;
use crate::wait::{wait_until, watch_for};

/// `record -p host -o OUTPUT OPTIONS -- COMMAND`.
fn record(output: &Path, options: &[&str], command: &[String]) -> Measurement {
    let mut recorder = uncore_trace();
    recorder.args(["record", "-p", "host", "-o"]).arg(output).args(options);
    Measurement::start(recorder.arg("--").args(command))
}

/// Checks that the exit code is that of the command, or 1 with a message that names it: a busy
/// machine may make the recording incomplete.
fn assert_passed_on(ended: &(Option<i32>, String), code: i32) {
    let incomplete = ended.0 == Some(1)
        && (code == 0 || ended.1.contains(&format!("the command ended with exit code {code}")));
    assert!(ended.0 == Some(code) || incomplete, "{ended:?}");
}

/// The recording has failed and the command runs: the recorder waits for it, and names its exit
/// code.
fn assert_waits_and_fails(mut recorder: Measurement, subject: &Subject) {
    assert!(subject.is_running() && recorder.is_running());
    subject.let_it_end();
    let (code, stderr) = recorder.wait();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("the command ended with exit code 7"), "{stderr}");
    assert_eq!(subject.heard_signals(), "", "{stderr}");
}

/// The command used to be killed by SIGTERM, without a message.
#[test]
fn a_full_disk_leaves_the_command_running() {
    let _machine = root_or_skip!();
    for name in ["run.parquet", "run/"] {
        let dir = tempfile::tempdir().unwrap();
        let (small, subject) = (dir.path().join("small"), Subject::new());
        let _disk = SmallDisk::mount(small.clone());
        let mut recorder = record(&small.join(name), &["--flush", "200ms"], &subject.command());
        subject.pid();
        let objects = objects_of(recorder.pid());
        assert!(!objects.programs.is_empty());
        let error = fs::write(small.join("fill"), vec![0; 2 << 20]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        let line = recorder.wait_for_line("no space left on the disk");
        let pid = format!("the command (pid {}) runs on", subject.pid());
        assert!(line.contains(&pid), "{line}");
        // The recorder waits for its end, and has already removed its kernel objects.
        objects.assert_gone();
        assert_waits_and_fails(recorder, &subject);
    }
}

#[test]
fn a_closed_pipe_leaves_the_command_running() {
    let _machine = root_or_skip!();
    let subject = Subject::new();
    let mut recorder = record(Path::new("-"), &["--flush", "200ms"], &subject.command());
    let mut stdout = recorder.stdout();
    stdout.read_exact(&mut [0; 100]).unwrap();
    // If there is no reader from the start, no command is run.
    subject.pid();
    drop(stdout);
    let line = recorder.wait_for_line("broken pipe");
    assert!(line.contains(&format!("(pid {}) runs on", subject.pid())), "{line}");
    assert_waits_and_fails(recorder, &subject);
}

/// The recorder waits for the command when the files are complete; the command's exit code used to
/// be lost.
#[test]
fn a_recording_whose_time_is_over_waits_for_the_command() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let (file, subject) = (dir.path().join("run.parquet"), Subject::new());
    let mut recorder = record(&file, &["--duration", "300ms"], &subject.command());
    let line = recorder.wait_for_line("waiting for the command");
    assert!(line.contains(&format!("(pid {})", subject.pid())), "{line}");
    assert_checked(&file);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // The first SIGINT is that of a terminal, which sends it to both: the command may need time to
    // end.
    recorder.signal(Signal::INT);
    watch_for(Duration::from_millis(300));
    assert!(subject.is_running() && recorder.is_running());
    subject.let_it_end();
    assert_passed_on(&recorder.wait(), 7);
    assert_eq!(subject.heard_signals(), "");
}

#[test]
fn the_command_is_ended_where_that_is_asked_for() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let options = ["--duration", "300ms", "--kill", "--force"];
    let subject = Subject::new();
    assert_passed_on(&record(&file, &options, &subject.command()).wait(), 5);
    assert_eq!(subject.heard_signals(), "TERM\n");
    assert!(!subject.is_running());
    // A command that dies by that signal has ended as requested.
    let sleep = ["sleep".to_owned(), "600".to_owned()];
    assert_passed_on(&record(&file, &options, &sleep).wait(), 0);
    // A command that does not die by it is waited for, and left alone at the second signal.
    let subject = Subject::new();
    let mut recorder = record(&file, &options, &subject.stubborn());
    recorder.wait_for_line("waiting for the command");
    wait_until("a SIGTERM", || subject.heard_signals() == "TERM\n");
    recorder.signal(Signal::TERM);
    let (code, stderr) = recorder.wait();
    assert!(code == Some(0) || code == Some(1), "{stderr}");
    assert!(subject.is_running(), "{stderr}");
}

#[test]
fn sigint_ends_the_recording_and_a_second_one_the_wait() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let (file, subject) = (dir.path().join("run.parquet"), Subject::new());
    let mut recorder = record(&file, &[], &subject.command());
    subject.pid();
    recorder.signal(Signal::INT);
    recorder.wait_for_line("waiting for the command");
    assert_checked(&file);
    assert!(subject.is_running() && recorder.is_running());
    recorder.signal(Signal::INT);
    let (code, stderr) = recorder.wait();
    assert!(code == Some(0) || code == Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("the command (pid {}) still runs", subject.pid())),
        "{stderr}"
    );
    assert!(subject.is_running());
    assert_eq!(subject.heard_signals(), "");
}

/// A supervisor that stops the recorder does not wait for the command. A terminal that is closed
/// sends SIGHUP, which used to kill the recorder.
#[test]
fn sigterm_and_sighup_end_the_recording_and_leave_the_command() {
    let _machine = root_or_skip!();
    for signal in ending_signals() {
        let dir = tempfile::tempdir().unwrap();
        let (file, subject) = (dir.path().join("run.parquet"), Subject::new());
        let mut recorder = record(&file, &[], &subject.command());
        subject.pid();
        recorder.signal(signal);
        let (code, stderr) = recorder.wait();
        assert!(code == Some(0) || code == Some(1), "{signal:?}: {code:?} {stderr}");
        assert!(
            stderr.contains(&format!("the command (pid {}) still runs", subject.pid())),
            "{stderr}"
        );
        assert!(subject.is_running());
        assert_eq!(subject.heard_signals(), "");
        assert_checked(&file);
    }
}

#[test]
fn a_sighup_that_is_ignored_at_the_start_stays_ignored() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    for program in [&["record", "-p", "host", "-o", file.to_str().unwrap()][..], &["stat"]] {
        let mut nohup = Command::new("sh");
        nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh", crate::PROGRAM]);
        let subject = Subject::new();
        let command = nohup.args(program).args(["-e", "page-faults", "--"]).args(subject.command());
        let mut child = Measurement::start(command);
        for pid in [child.pid(), subject.pid()] {
            let has = |key| signal_set(&pid.to_string(), key) & signal_bit(Signal::HUP) != 0;
            assert!(has("SigIgn") && !has("SigCgt"), "{program:?}");
        }
        child.signal(Signal::HUP);
        watch_for(Duration::from_millis(300));
        assert!(child.is_running(), "{program:?}");
        subject.let_it_end();
        assert_passed_on(&child.wait(), 7);
    }
}

#[test]
fn a_closed_terminal_leaves_a_file_that_is_finished() {
    let _machine = root_or_skip!();
    need("script");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    // The process that started this test may ignore SIGHUP.
    let typed = format!(
        "exec env --default-signal=HUP {} record -p host -o {}",
        crate::PROGRAM,
        file.display()
    );
    // `script` holds the other end of the terminal, and dies with it open.
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-c", &typed, "/dev/null"]).stdin(Stdio::piped());
    let terminal = Measurement::start(&mut terminal);
    let partial = dir.path().join("run.parquet.partial");
    // The lock and the first segment, which is empty, exist from the start.
    let has_sealed = || fs::read_dir(&partial).is_ok_and(|files| files.count() > 2);
    wait_until("sealed rows", has_sealed);
    drop(terminal);
    wait_until("the finished file", || file.exists() && !partial.exists());
    assert_checked(&file);
}

/// What happens to a command that does not end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The program ends and leaves it running.
    Left,
    /// The program waits for it; its exit code.
    WaitedFor(i32),
    /// The program sends it SIGTERM and waits for it; its exit code.
    Terminated(i32),
}

/// Sends `signal` to the program when its command runs, and fails if the command has another fate.
fn assert_fate(
    mut program: Command,
    options: &[&str],
    signal: Option<Signal>,
    stubborn: bool,
    fate: Fate,
) {
    let subject = Subject::new();
    let command = if stubborn { subject.stubborn() } else { subject.command() };
    let options = [&["-a", "-e", "page-faults"], options].concat();
    let label = format!("{} {options:?} {signal:?}", program.get_program().display());
    let mut child = Measurement::start(program.arg("stat").args(options).arg("--").args(command));
    subject.pid();
    if let Some(signal) = signal {
        child.signal(signal);
    }
    let (heard, code) = match fate {
        Fate::Left => {
            wait_until(&label, || !child.is_running());
            assert!(subject.is_running(), "{label}");
            ("", None)
        }
        Fate::WaitedFor(code) => {
            // Time for the program to do something else, such as to end.
            watch_for(Duration::from_millis(800));
            assert!(child.is_running(), "{label}");
            ("", Some(code))
        }
        Fate::Terminated(code) => {
            wait_until(&label, || subject.heard_signals() == "TERM\n");
            ("TERM\n", Some(code))
        }
    };
    subject.let_it_end();
    let (ended, stderr) = child.wait();
    assert_eq!(subject.heard_signals(), heard, "{label}: {stderr}");
    // With --for-each-cgroup the exit code is 1 if the machine was too busy for a complete
    // recording.
    let incomplete = ended == Some(1) && stderr.contains("incomplete");
    assert!(code.is_none() || ended == code || incomplete, "{label}: {ended:?} {stderr}");
}

/// Fates of a command of `stat`: options, signal to the program, whether the command ignores
/// SIGTERM, and its fate.
const FATES: [(&[&str], Option<Signal>, bool, Fate); 8] = [
    (&[], Some(Signal::INT), false, Fate::WaitedFor(7)),
    (&[], Some(Signal::TERM), false, Fate::Left),
    (&["-I", "100"], Some(Signal::INT), false, Fate::Left),
    (&["-I", "100"], Some(Signal::TERM), false, Fate::Left),
    (&["--timeout", "60000"], Some(Signal::INT), false, Fate::Left),
    (&["--timeout", "300"], None, false, Fate::Terminated(5)),
    (&["--timeout", "300"], None, true, Fate::Terminated(7)),
    (&["-I", "100", "--interval-count", "2"], None, false, Fate::WaitedFor(7)),
];

/// `stat` used to kill its command at a signal, and to lose its exit code at a timeout.
#[test]
fn stat_treats_its_command_as_perf_stat_does() {
    let _machine = root_or_skip!();
    need("perf");
    let hangup = hangup_signal().ok().map(|signal| (&[][..], Some(signal), false, Fate::Left));
    for (options, signal, stubborn, fate) in FATES.into_iter().chain(hangup) {
        assert_fate(uncore_trace(), options, signal, stubborn, fate);
        assert_fate(Command::new("perf"), options, signal, stubborn, fate);
    }
}

/// With --for-each-cgroup the recorder counts.
#[test]
fn stat_by_cgroup_does_the_same_to_its_command() {
    let _machine = root_or_skip!();
    for (options, signal, stubborn, fate) in FATES {
        let options = [&["--for-each-cgroup", "/"], options].concat();
        assert_fate(uncore_trace(), &options, signal, stubborn, fate);
    }
}

/// The command used to be killed.
#[test]
fn counts_that_cannot_be_written_leave_the_command_running() {
    let _machine = root_or_skip!();
    for by in [&[][..], &["--for-each-cgroup", "/"]] {
        let subject = Subject::new();
        let mut stat = uncore_trace();
        stat.args(["stat", "-e", "page-faults", "-I", "100", "-o", "/dev/full"]).args(by).arg("--");
        let mut stat = Measurement::start(stat.args(subject.command()));
        let line = stat.wait_for_line("/dev/full");
        assert!(line.contains(&format!("(pid {}) runs on", subject.pid())), "{line}");
        assert!(subject.is_running() && stat.is_running());
        subject.let_it_end();
        let (code, stderr) = stat.wait();
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains("the command ended with exit code 7"), "{stderr}");
        assert_eq!(subject.heard_signals(), "");
    }
}

/// perf stat dies by SIGPIPE when `head` has read enough.
#[test]
fn a_reader_that_has_gone_ends_the_intervals_and_not_the_command() {
    let _machine = root_or_skip!();
    for options in [&[][..], &["--for-each-cgroup", "/"]] {
        let subject = Subject::new();
        let mut stat = uncore_trace();
        stat.args(["stat", "-e", "page-faults", "-I", "100", "-o", "-"]).args(options).arg("--");
        let mut stat = Measurement::start(stat.args(subject.command()));
        let mut stdout = stat.stdout();
        stdout.read_exact(&mut [0; 10]).unwrap();
        drop(stdout);
        let (code, stderr) = stat.wait();
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert!(subject.is_running());
        assert_eq!(subject.heard_signals(), "");
    }
}
