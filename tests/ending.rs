//! What `record` says at its end, and the name of a recording that was given none.

use std::fs;
use std::process::{Command, Stdio};

use jiff::{ToSpan as _, Zoned};
use unicode_width::UnicodeWidthStr;

use crate::command::{Answer, Place};
use crate::harness::root_or_skip;
use crate::terminal::errors_on_terminal;

/// The heading of the answer.
const HEADING: &str = "uncore-trace: who had most, with its 90 % interval:";

/// The lines from the one that says how much was recorded, which are at most eight: it, a heading,
/// at least one line with who had most, and the next command as the last one.
fn ending(stderr: &str) -> Vec<&str> {
    let lines: Vec<&str> =
        stderr.lines().skip_while(|line| !line.contains(" counters, ")).collect();
    assert!((4..=8).contains(&lines.len()), "{stderr}");
    assert_eq!(lines[1], HEADING, "{stderr}");
    assert!(lines[2].contains(" %"), "{stderr}");
    let last = lines[lines.len() - 1];
    assert!(last.starts_with("uncore-trace: next: uncore-trace report "), "{stderr}");
    lines
}

#[test]
fn a_recording_without_a_name_is_a_new_file_named_by_its_time() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let now = Zoned::now();
    let taken_names: Vec<String> = (0..120)
        .map(|second| {
            let time = &now + second.seconds();
            format!("uncore-trace-{}.parquet", time.strftime("%Y%m%dT%H%M%S"))
        })
        .collect();
    for name in &taken_names {
        fs::write(place.path(name), "kept").unwrap();
    }
    let answer = place.typed("record --force -- true").recorded();
    assert!(taken_names.iter().all(|name| fs::read(place.path(name)).unwrap() == b"kept"));
    let files = fs::read_dir(place.path("")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let new: Vec<String> = names
        .filter(|name| name.starts_with("uncore-trace-") && !taken_names.contains(name))
        .collect();
    let [name] = new.as_slice() else { panic!("{new:?}") };
    assert!(name.ends_with("-2.parquet"), "{name}");
    let stderr = &answer.err;
    assert!(stderr.starts_with(&format!("uncore-trace: {name}: ")), "{stderr}");
    place.run(["check", name]).ok();
    place.typed("record --quiet --duration 100ms -- true").recorded();
}

#[test]
fn a_recording_ends_with_its_largest_owners_where_a_person_reads_it() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let answer = place.typed("record --summary -o x.parquet -- echo hello").recorded();
    assert_eq!(answer.out, "hello\n");
    let last = *ending(&answer.err).last().unwrap();
    assert!(last.contains(" report x.parquet, also with --html; or uncore-trace top"), "{last}");
    // A directory, one that exists, and a file that is replaced: the recorder may read them again.
    ending(&place.typed("record --summary -o run/ --duration 200ms").recorded().err);
    fs::create_dir(place.path("there")).unwrap();
    ending(&place.typed("record --summary -o there/ --duration 200ms").recorded().err);
    ending(&place.typed("record --summary --force -o x.parquet --duration 200ms").recorded().err);

    let silent = place.typed("record -o y.parquet --duration 200ms").recorded();
    assert!(!silent.err.contains(HEADING) && !silent.err.contains("next:"), "{silent:?}");
    let quiet = place.typed("record --quiet -o z.parquet --duration 200ms").recorded();
    assert_eq!(quiet.err, "");
    let mut command = place.tool(["record", "-o", "t.parquet", "--duration", "200ms"]);
    command.env("COLUMNS", "80");
    let (screen, _) = errors_on_terminal(&mut command, 80);
    let last_screen = screen.rsplit('\r').next().unwrap();
    let lines = ending(&last_screen[last_screen.find("uncore-trace: ").unwrap()..]).len();
    assert!(lines <= 8);
    let widest =
        last_screen.lines().filter(|line| line.contains(" %")).map(UnicodeWidthStr::width).max();
    assert!(widest.unwrap() <= 80, "{last_screen}");
}

#[test]
fn an_interrupted_recording_has_its_answer_and_a_stream_or_parts_have_none() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let tool = place.tool(["record", "--summary", "-o", "x.parquet"]);
    let mut command = Command::new("timeout");
    command.args(["--signal=INT", "3"]).arg(tool.get_program()).args(tool.get_args());
    let answer = Answer::of(command.current_dir(place.path("")).output().unwrap());
    ending(&answer.err);
    let mut stream = place.tool(["record", "--summary", "-o", "-", "--duration", "200ms"]);
    let stream = Answer::of(stream.stdout(Stdio::null()).output().unwrap()).recorded();
    assert!(!stream.err.contains(HEADING) && !stream.err.contains("next:"), "{stream:?}");
    let parts = place.typed("record --summary -o p/ --rotate 1s --duration 200ms").recorded();
    let last = parts.err.lines().last().unwrap();
    assert!(last.contains("next: uncore-trace report PART"), "{parts:?}");
}
