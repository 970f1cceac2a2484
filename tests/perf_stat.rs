//! `uncore-trace stat` beside `perf stat`: both count the same events, and every field of both
//! outputs is compared. [`DIFFERENCES`] lists the intended differences.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};

use crate::command::Place;
use crate::harness::{need, root_or_skip};

/// Events that both programs count. `tsc` is an event of a PMU with its own unit in the catalog.
const EVENTS: &str = "page-faults,cpu-clock,task-clock,context-switches,msr/tsc/,duration_time";

/// The same without an `msr` PMU.
const EVENTS_WITHOUT_MSR: &str = "page-faults,cpu-clock,task-clock,context-switches,duration_time";

fn has_msr() -> bool {
    Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists()
}

/// The intended differences of the outputs: the field, the event or `*`, and the reason.
/// docs/limits.md has the same list for users. A difference that is not listed fails, and so does a
/// listed one that does not occur.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "metric-unit",
        "*",
        "a rate is per second of the measurement and has no prefix: perf's is per second of CPU \
         time, which counters of a fabric do not have, and its K, M or G changes from line to line",
    ),
    ("metric-value", "*", "in CSV six decimals and not three, because there is no prefix"),
    ("metric-value", "duration_time", "time per second says nothing"),
    ("metric-unit", "duration_time", "time per second says nothing"),
    ("counters", "*", "the JSON key is that of later versions, `aggregate-number` in perf 6.1"),
    ("aggregate-number", "*", "see `counters`"),
    ("summary", "*", "in JSON perf does not tell the rows of --summary from those of an interval"),
];

/// One row: the name and the text of each field, in the order of the output.
type Row = Vec<(String, String)>;

/// The names of the fields of a CSV row with these options.
fn names(options: &[&str]) -> Vec<&'static str> {
    let has = |option: &str| options.contains(&option);
    let mut names = Vec::new();
    if has("-I") {
        names.push("interval");
    }
    if has("-A") {
        names.push("cpu");
    }
    for (option, name) in [("--per-socket", "socket"), ("--per-die", "die"), ("--per-node", "node")]
    {
        if has(option) {
            names.extend([name, "counters"]);
        }
    }
    names.extend(["counter-value", "unit", "event"]);
    if has("-r") {
        names.push("variance");
    }
    names.extend(["event-runtime", "pcnt-running", "metric-value", "metric-unit"]);
    names
}

fn csv(text: &str, options: &[&str]) -> Vec<Row> {
    let names = names(options);
    let row = |line: &str| -> Row {
        let fields: Vec<_> = line.split(',').collect();
        assert_eq!(fields.len(), names.len(), "{options:?}: {names:?} {line}");
        let pairs = names.iter().zip(fields);
        // Before perf 7 the time is padded.
        pairs.map(|(name, field)| ((*name).to_owned(), without_pmu(field.trim()))).collect()
    };
    // A file begins with a comment and an empty line.
    assert!(text.starts_with("# started on "), "{text}");
    text.lines().skip(2).map(row).collect()
}

fn json(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &str| -> Row {
        let object: Map<String, Value> = serde_json::from_str(line).unwrap();
        let text = |value: &Value| match value {
            Value::String(text) => format!("{:?}", without_pmu(text)),
            other => other.to_string(),
        };
        object.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    };
    lines.map(row).collect()
}

/// A field without the PMU that perf 6.12 writes after the name of a software event with `-A`:
/// `page-faults [software]`.
fn without_pmu(field: &str) -> String {
    field.strip_suffix(" [software]").unwrap_or(field).to_owned()
}

/// The text with every number replaced by `0`, with as many decimals.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut fraction = false;
    for c in text.chars() {
        if !c.is_ascii_digit() {
            fraction = c == '.' && shape.ends_with('0');
            shape.push(c);
        } else if fraction || !shape.ends_with('0') {
            shape.push('0');
        }
    }
    shape
}

/// The part of a field that must be equal: names completely, numbers in their form. JSON numbers
/// have no fixed form, and numbers of intervals, faults or switches differ between runs.
fn comparable(name: &str, field: &str, is_json: bool) -> String {
    match name {
        "counter-value" | "interval" | "variance" | "event-runtime" | "metric-value" => {
            if is_json && !field.starts_with('"') { "a number".to_owned() } else { shape(field) }
        }
        _ => field.to_owned(),
    }
}

fn get<'a>(row: &'a Row, name: &str) -> Option<&'a str> {
    let (_, field) = row.iter().find(|(field_name, _)| field_name == name)?;
    Some(field.trim_matches(['"', ' ']))
}

fn number(row: &Row, name: &str) -> f64 {
    get(row, name).unwrap().parse().unwrap_or_else(|_| panic!("{name} is not a number: {row:?}"))
}

/// Values that do not depend on the length of a run: count / time running, and rate / count.
fn assert_same_scale(ours: &Row, theirs: &Row) {
    // With -r, perf's value is the mean of all runs and its runtime that of the last one
    // (`evsel__copy_res_stats`, tools/perf/util/stat.c, Linux 6.1 to 7.2).
    if get(theirs, "variance").is_some() {
        return;
    }
    // Tolerance for rounded digits, and for the time between two readings of a clock.
    let is_near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    let event = get(ours, "event").unwrap();
    let of_time = |row: &Row| number(row, "counter-value") / number(row, "event-runtime");
    if matches!(event, "cpu-clock" | "task-clock" | "msr/tsc/" | "duration_time") {
        assert!(is_near(of_time(ours), of_time(theirs)), "{ours:?} {theirs:?}");
    }
}

/// Compares two rows; returns the intended differences that occurred.
fn compare(ours: &Row, theirs: &Row, is_json: bool) -> BTreeSet<usize> {
    let event = get(ours, "event").unwrap();
    let mut used_differences = BTreeSet::new();
    let mut allow = |name: &str| {
        let allowed = |(field, of_event, _): &&(&str, &str, &str)| {
            *field == name && (*of_event == event || *of_event == "*")
        };
        // An entry for the event has priority over one for `*`.
        let difference =
            DIFFERENCES.iter().filter(allowed).max_by_key(|(_, of_event, _)| *of_event != "*");
        let difference =
            difference.unwrap_or_else(|| panic!("{name} differs:\n{ours:?}\n{theirs:?}"));
        used_differences
            .insert(DIFFERENCES.iter().position(|candidate| candidate == difference).unwrap());
    };
    for (name, field) in ours {
        let their_field = theirs.iter().find(|(field_name, _)| field_name == name);
        let is_same = their_field.is_some_and(|(_, other)| {
            comparable(name, field, is_json) == comparable(name, other, is_json)
        });
        if !is_same {
            allow(name);
        }
    }
    for (name, _) in theirs {
        if get(ours, name).is_none() {
            allow(name);
        }
    }
    let common = |row: &Row, other_row: &Row| -> Vec<String> {
        let names = row.iter().map(|(name, _)| name.clone());
        names.filter(|name| get(other_row, name).is_some()).collect()
    };
    assert_eq!(common(ours, theirs), common(theirs, ours), "in another order");
    used_differences
}

#[test]
fn every_field_is_perfs_or_a_known_difference() {
    let _machine = root_or_skip!();
    need("perf");
    let events = if has_msr() { EVENTS } else { EVENTS_WITHOUT_MSR };
    let place = Place::new();
    let mut used_differences = BTreeSet::new();
    for options in [
        &[][..],
        &["-A"],
        &["--per-socket"],
        &["--per-die"],
        &["-C", "0"],
        &["--per-node"],
        &["-r", "2"],
        &["-r", "2", "--per-socket"],
        &["-I", "100", "--interval-count", "1"],
        &["-I", "100", "--interval-count", "1", "-A"],
        &["-I", "100", "--interval-count", "1", "--summary"],
    ] {
        for format in ["-x,", "-j"] {
            let command: &[&str] = if options.contains(&"-I") { &[] } else { &["sleep", "0.1"] };
            let stat = ["stat", "-a", "-o", "counts", format, "-e", events];
            let args = [&stat[..], options, command].concat();
            let read = || {
                let text = fs::read_to_string(place.path("counts")).unwrap();
                if format == "-j" { json(&text) } else { csv(&text, options) }
            };
            assert_eq!(place.run(&args).code, 0, "{args:?}");
            let ours = read();
            let perf = Command::new("perf").args(&args).current_dir(place.path(".")).output();
            assert!(perf.unwrap().status.success(), "{args:?}");
            let theirs = read();
            let of = |rows: &[Row]| -> Vec<_> {
                let event = |row| get(row, "event").unwrap().to_owned();
                rows.iter().map(event).collect()
            };
            assert_eq!(of(&ours), of(&theirs), "{args:?}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                used_differences.extend(compare(ours, theirs, format == "-j"));
                assert_same_scale(ours, theirs);
            }
        }
    }
    let all: BTreeSet<_> = (0..DIFFERENCES.len()).collect();
    let gone: Vec<_> = all.difference(&used_differences).map(|index| DIFFERENCES[*index]).collect();
    assert!(gone.is_empty(), "these differences are not there: {gone:#?}");
}

#[test]
fn events_that_did_not_count_have_perfs_words_and_fields() {
    let _machine = root_or_skip!();
    need("perf");
    let place = Place::new();
    let events = "cpu-clock,page-faults,software/config=99/";
    let args = ["stat", "-a", "-x,", "-D", "-1", "-o", "counts", "-e", events, "true"];
    let read = || csv(&fs::read_to_string(place.path("counts")).unwrap(), &[]);
    assert_eq!(place.run(args).code, 0);
    let ours = read();
    let perf = Command::new("perf").args(args).current_dir(place.path(".")).output();
    assert!(perf.unwrap().status.success());
    let theirs = read();
    assert_eq!(ours[..2], theirs[..2]);
    // Terms are printed as they were opened, in hex.
    let without_name =
        |row: &Row| row.iter().filter(|(name, _)| name != "event").cloned().collect();
    let (ours, theirs): (Row, Row) = (without_name(&ours[2]), without_name(&theirs[2]));
    assert_eq!(ours, theirs);
    assert_eq!(get(&ours, "counter-value"), Some("<not supported>"));
}

#[test]
fn stat_counts_the_same_as_perf() {
    let _machine = root_or_skip!();
    need("perf");
    // perf runs inside: it counts only the command, while `stat` also counts its own start and end.
    // The command is long compared with possible delays of perf's start.
    let script = "dd if=/dev/zero of=/dev/null bs=64M count=4 2>/dev/null; sleep 3";
    let events = if has_msr() { EVENTS } else { EVENTS_WITHOUT_MSR };
    let place = Place::new();
    let args = ["stat", "-x,", "-o", "outer", "-e", events, "--", "perf", "stat", "-a", "-x,"];
    place.run([&args[..], &["-o", "inner", "-e", events, "--", "sh", "-c", script]].concat()).ok();
    let read = |name: &str| csv(&fs::read_to_string(place.path(name)).unwrap(), &[]);
    let (outer, inner) = (read("outer"), read("inner"));
    assert_eq!(outer.len(), inner.len(), "{outer:?} {inner:?}");
    for (ours, theirs) in outer.iter().zip(&inner) {
        let (ours_is, theirs_is) = (number(ours, "counter-value"), number(theirs, "counter-value"));
        // Starting perf, which takes some 10 to 100 ms, causes faults and switches.
        let counts = ["page-faults", "context-switches"].contains(&get(ours, "event").unwrap());
        let start = if counts { 20_000.0 } else { 0.0 };
        assert!(ours_is >= theirs_is, "{ours:?} {theirs:?}");
        assert!(ours_is < 1.5 * theirs_is + start, "{ours:?} {theirs:?}");
    }
}
