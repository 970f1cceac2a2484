//! Marks: those that are set during a recording are in it, by every way to set them, and no others.
//!
//! Each test has its own network namespace, so that it finds only its own recordings.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(unsafe_code, reason = "rustix marks unshare(2) as unsafe for what files may do")]

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::MutexGuard;
use std::thread::spawn;

use rustix::process::Signal;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use uncore_trace::record::marks::send::{MarkAnswer, send_to_recorder};
use uncore_trace::record::marks::wire::{MarkAct, Message};
use uncore_trace::schema::{fabric, metadata};
use uncore_trace::tables::reader::OpenTable;

use crate::command::{Answer, NOBODY, Place};
use crate::harness::recorder::Recorder;
use crate::harness::{self, assert_checked, mono_ns, rows, run, run_ok};
use crate::skip::skip;
use crate::wait::wait_for;

/// Locks the machine, and makes a network namespace for this test's thread and its children; `None`
/// if the test is skipped.
fn hold_machine() -> Option<MutexGuard<'static, ()>> {
    let machine = harness::machine()?;
    // SAFETY: of what the threads share only sockets are concerned, and this one has none.
    match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
        Ok(()) => Some(machine),
        Err(error) => {
            skip(&format!("no network namespace can be made ({error})"));
            None
        }
    }
}

/// `uncore-trace mark ARGS`.
fn mark<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Answer {
    let mark = OsStr::new("mark").to_owned();
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    Answer::of(run([mark].into_iter().chain(args)))
}

/// A mark as `report --marks --json` prints it.
#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
struct Mark {
    text: String,
    kind: String,
    begin_ns: i64,
    end_ns: Option<i64>,
    source: String,
    pid: Option<i32>,
}

fn marks(recording: &Path) -> Vec<Mark> {
    let args = [OsStr::new("report"), recording.as_os_str(), "--marks".as_ref(), "--json".as_ref()];
    run_ok(args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Their names, kind, whether they have an end, and source.
fn brief(marks: &[Mark]) -> Vec<(&str, &str, bool, &str)> {
    marks
        .iter()
        .map(|Mark { text, kind, end_ns, source, .. }| {
            (text.as_str(), kind.as_str(), end_ns.is_some(), source.as_str())
        })
        .collect()
}

/// Ends it; on a busy machine the recording may be incomplete.
fn stop(mut recorder: Recorder) -> String {
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert!(matches!(ended.code, Some(0 | 1)), "{}", ended.stderr);
    ended.stderr
}

#[test]
fn instants_and_spans_are_in_files_and_datasets() {
    let Some(_machine) = hold_machine() else { return };
    for name in ["run.parquet", "run/"] {
        let place = Place::new();
        let output = place.path(name);
        let recorder = Recorder::start(&output, &["-p", "host"]);
        let begin = mono_ns();
        mark(["instant"]).ok();
        mark(["a span", "--begin"]).ok();
        let ended = mark(["a command", "--", "sh", "-c", "sleep 0.1; exit 7"]);
        assert_eq!((ended.code, ended.err.as_str()), (7, ""));
        mark(["a span", "--end"]).ok();
        mark(["open", "--begin"]).ok();
        let end = mono_ns();
        stop(recorder);
        let marks = marks(&output);
        let mut brief_marks = brief(&marks);
        brief_marks.sort_unstable();
        assert_eq!(
            brief_marks,
            [
                ("a command", "span", true, "command"),
                ("a span", "span", true, "command"),
                ("instant", "instant", false, "command"),
                ("open", "span", false, "command"),
            ]
        );
        let mark_named = |name| marks.iter().find(|mark| mark.text == name).unwrap();
        for mark in &marks {
            assert!(
                begin <= mark.begin_ns && mark.end_ns.unwrap_or(mark.begin_ns) <= end,
                "{mark:?}"
            );
            assert!(mark.pid.is_some(), "{mark:?}");
        }
        let (span, command) = (mark_named("a span"), mark_named("a command"));
        assert!(command.end_ns.unwrap() - command.begin_ns >= 100_000_000, "{command:?}");
        assert!(span.begin_ns < command.begin_ns && command.end_ns < span.end_ns, "{marks:?}");
        assert_checked(&output);
        spans_are_times(&output, command);
    }
}

/// `--from mark:NAME --to mark:NAME` is the span; the report shows it.
fn spans_are_times(output: &Path, span: &Mark) {
    let time = format!("mark:{}", span.text);
    let output = output.to_str().unwrap();
    let report_text = run_ok(["report", output]);
    assert!(
        report_text.contains(" s  a command\n") && report_text.contains("not ended  open\n"),
        "{report_text}"
    );
    let lines = run_ok(["report", output, "--json", "--from", &time, "--to", &time]);
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty());
    for line in lines {
        // A window of 10 ms belongs to the span that it ends in.
        let (begin, end) = (line["begin_ns"].as_i64().unwrap(), line["end_ns"].as_i64().unwrap());
        assert!((-10_000_000..=10_000_000).contains(&(begin - span.begin_ns)), "{line} {span:?}");
        assert!((-10_000_000..=0).contains(&(end - span.end_ns.unwrap())), "{line} {span:?}");
    }
    let line = Answer::of(run(["report", output, "--from", "mark:no such"])).refused();
    assert!(line.contains("has no mark 'no such': it has ") && line.contains("'a span'"), "{line}");
}

#[test]
fn a_text_is_kept_as_it_is_and_a_long_one_refused() {
    let Some(_machine) = hold_machine() else { return };
    let place = Place::new();
    let output = place.path("run.parquet");
    let recorder = Recorder::start(&output, &["-p", "host"]);
    let hostile = "a\u{1b}[2Jb\r\n\u{202e}<script>,\"";
    let longest = "é".repeat(512);
    for text in [hostile, &longest, "begin:no span"] {
        mark([text]).ok();
    }
    for (long, bytes) in [(format!("{longest}x"), "1025"), ("x".repeat(64 << 10), "65536")] {
        for args in [vec![&*long], vec![&*long, "--", "touch", "run"], vec![&*long, "--end"]] {
            let line = mark(args).refused();
            assert!(line.contains(&format!("has {bytes} bytes: write at most 1024")), "{line}");
        }
    }
    assert!(mark([""]).refused().contains("needs a text"));
    assert!(mark(["x", "--end"]).refused().contains("no span of that name is open"));
    let line = mark(["not run", "--", "/nonexistent/command"]).refused();
    assert!(line.contains("cannot run /nonexistent/command"), "{line}");
    stop(recorder);
    let marks = marks(&output);
    let texts: Vec<&str> = marks.iter().map(|mark| mark.text.as_str()).collect();
    assert_eq!(texts, [hostile, &longest, "begin:no span", "not run"]);
    let path = output.to_str().unwrap();
    for report_args in [vec!["report", path], vec!["report", path, "--marks", "--csv"]] {
        let printed = run_ok(report_args);
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(
            !printed.contains(steers) && printed.contains("a\\u{1b}[2Jb\\r\\n\\u{202e}<"),
            "{printed}"
        );
    }
}

#[test]
fn all_recordings_are_marked_or_the_one_that_is_named() {
    let Some(_machine) = hold_machine() else { return };
    let place = Place::new();
    let command = ["x", "--", "touch", "ran"];
    for args in [&["x"][..], &["x", "--end"], &["x", "--pid", "1"], &command] {
        let mut tool = place.tool([&["mark"], args].concat());
        let line = Answer::of(tool.output().unwrap()).refused();
        assert!(line.contains("start one with `uncore-trace record -o run.parquet`"), "{line}");
    }
    assert!(!place.path("ran").exists());
    let outputs = ["a.parquet", "b.parquet"].map(|name| place.path(name));
    let recorders = outputs.each_ref().map(|output| Recorder::start(output, &["-p", "host"]));
    let pids = recorders.each_ref().map(Recorder::pid);
    let mark_both = mark(["both"]);
    assert!(mark_both.code == 0 && mark_both.err.contains("marked 2 recordings"), "{mark_both:?}");
    assert!(pids.iter().all(|pid| mark_both.err.contains(&pid.to_string())), "{mark_both:?}");
    let mark_one = mark(["one", "--pid", &pids[1].to_string()]);
    assert_eq!((mark_one.code, mark_one.err.as_str()), (0, ""));
    // A span that is open in one recording is not open in the other.
    mark(["span", "--begin", "--pid", &pids[0].to_string()]).ok();
    let end = mark(["span", "--end"]);
    assert!(end.code == 0 && end.err.contains("warning: the mark was not accepted by"), "{end:?}");
    let [first, second] = recorders;
    stop(first);
    stop(second);
    let marks_of_outputs = outputs.each_ref().map(|output| marks(output));
    let texts = marks_of_outputs
        .each_ref()
        .map(|marks| marks.iter().map(|mark| mark.text.as_str()).collect::<Vec<_>>());
    assert_eq!(texts, [["both", "span"], ["both", "one"]]);
    assert_eq!(marks_of_outputs[0][0].begin_ns, marks_of_outputs[1][0].begin_ns);
}

#[test]
fn marks_of_other_users_are_refused() {
    let Some(_machine) = hold_machine() else { return };
    let place = Place::new();
    let output = place.path("run.parquet");
    let recorder = Recorder::start(&output, &["-p", "host"]);
    let mut other = Command::new(place.tool_for_all());
    other.args(["mark", "not mine"]).uid(NOBODY).gid(NOBODY);
    let line = Answer::of(other.output().unwrap()).refused();
    assert!(line.contains("only root may mark it"), "{line}");
    mark(["mine"]).ok();
    stop(recorder);
    assert_eq!(brief(&marks(&output)), [("mine", "instant", false, "command")]);
}

#[test]
fn a_killed_recorder_leaves_the_marks_of_its_last_flush_and_no_socket() {
    let Some(_machine) = hold_machine() else { return };
    for name in ["run.parquet", "run/"] {
        let place = Place::new();
        let output = place.path(name);
        let mut recorder = Recorder::start(&output, &["-p", "host", "--flush", "200ms"]);
        mark(["instant"]).ok();
        mark(["ended", "--begin"]).ok();
        mark(["ended", "--end"]).ok();
        mark(["open", "--begin"]).ok();
        let partial = if output.is_dir() { output.join("fabric") } else { place.path("run") };
        let partial = partial.with_extension("parquet.partial");
        // Segments are replaced while they are merged.
        let has_all = |segment: PathBuf| {
            let table = OpenTable::open(&fabric::TABLE, &segment).ok()?;
            table.metadata_pairs().get(metadata::MARKS)?.contains("\"open\"").then_some(())
        };
        wait_for("a flush", || {
            let segments = partial.read_dir().unwrap().map(|entry| entry.unwrap().path());
            segments.filter(|path| path.extension() == Some("parquet".as_ref())).find_map(has_all)
        });
        recorder.kill();
        assert!(mark(["late"]).refused().contains("nothing is recorded"), "the socket is there");
        run_ok([OsStr::new("repair"), output.as_os_str()]);
        let marks = marks(&output);
        let expected = [
            ("instant", "instant", false, "command"),
            ("ended", "span", true, "command"),
            ("open", "span", false, "command"),
        ];
        assert_eq!(brief(&marks), expected, "{name}");
        assert_checked(&output);
    }
}

#[test]
fn marks_stay_where_a_recording_is_attributed_again() {
    let Some(_machine) = hold_machine() else { return };
    let place = Place::new();
    let output = place.path("run");
    let recorder = Recorder::start(&place.path("run/"), &["-p", "host"]);
    mark(["it", "--", "sleep", "0.2"]).ok();
    stop(recorder);
    let recorded_marks = marks(&output);
    assert_eq!(brief(&recorded_marks), [("it", "span", true, "command")]);
    place.typed("attribute run/ --method residency -I 20ms -o again.parquet").ok();
    assert_eq!(marks(&place.path("again.parquet")), recorded_marks);
    place.typed("attribute run/ -o run/fabric.parquet --force").ok();
    assert_eq!(marks(&output), recorded_marks);
    assert_checked(&output);
}

/// The metadata of a stream are written before there are marks; setting one is an error that says
/// so.
#[test]
fn a_stream_has_no_place_for_marks() {
    let Some(_machine) = hold_machine() else { return };
    let place = Place::new();
    let mut stream = place.tool(["record", "-p", "host", "-o", "-", "--", "sleep", "600"]);
    let mut stream = harness::subject::Measurement::start(&mut stream);
    let mut stdout = stream.stdout();
    spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let line = wait_for("a recorder that answers", || {
        let line = mark(["x"]).refused();
        (!line.contains("nothing is recorded")).then_some(line)
    });
    assert!(line.contains("a stream, which cannot have marks"), "{line}");
    stream.signal(Signal::TERM);
    let (code, stderr) = stream.wait();
    assert!(matches!(code, Some(0 | 1)), "{stderr}");
}

/// A program may send marks faster than a recording takes them.
#[test]
fn a_flood_of_marks_is_counted_and_the_recording_is_whole() {
    let Some(_machine) = hold_machine() else { return };
    let place = Place::new();
    let output = place.path("run/");
    let recorder = Recorder::start(&output, &["-p", "host"]);
    let message = |text: &str| {
        let (act, text) = (MarkAct::Instant, text.to_owned());
        Message { act, mono_ns: mono_ns(), text, id: None }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..5000 {
        match runtime.block_on(send_to_recorder(recorder.pid(), &message("flood"))).unwrap() {
            MarkAnswer::Taken => taken += 1,
            MarkAnswer::Refused(reason) => {
                assert!(reason.contains("at most 1000 marks in a second"), "{reason}");
                refused += 1;
            }
            MarkAnswer::Gone => panic!("the recorder has ended"),
        }
    }
    let stderr = stop(recorder);
    let lost: i64 = rows::read_losses(&output)
        .iter()
        .filter(|loss| loss.cause == "mark_lost")
        .map(|loss| loss.count)
        .sum();
    assert_eq!((marks(&output).len(), lost), (taken, refused), "{stderr}");
    assert_checked(&output);
}
