//! Tests of `export`: other programs read the numbers of `report`, and a failed export leaves no
//! file.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::command::{Answer, Place};
use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{has_root, or_skip, python, python_answers, root_or_skip, rows};
use crate::needs::SmallDisk;
use crate::wait::run_for;

/// Runs `export.py`.
fn ask(args: &[&OsStr]) -> Value {
    python_answers(&python(), include_str!("export.py"), args)
}

/// Value and rows, by event and name of the line in `report`.
fn reported(place: &Place, by: &str) -> BTreeMap<(String, String), f64> {
    let text = place.typed(&format!("report run --json --by {by}")).ok();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| line[key].as_str().unwrap().to_owned();
        ((word("event"), word("key")), line["value"].as_f64().unwrap_or(0.0))
    };
    text.lines().map(line).collect()
}

fn assert_near(label: &str, value: f64, expected: f64) {
    assert!(
        (value - expected).abs() <= 1e-9 * value.abs().max(1.0),
        "{label}: {value}, {expected}"
    );
}

/// A recording of all cgroups, with two tenants; the name of one is hostile.
fn recorded(place: &Place) -> Result<[Cgroup; 2], String> {
    let tenants = [Cgroup::new("export")?, Cgroup::new("ex\u{1b}[2J\"\\<b>")?];
    let loads = [Load::spin(0), Load::forks()];
    for (cgroup, load) in tenants.iter().zip(&loads) {
        cgroup.add_process(load.pid());
    }
    let recorder = Recorder::start(&place.path("run/"), &["-p", "host", "--slices"]);
    run_for(Duration::from_millis(2500));
    recorder.stop();
    Ok(tenants)
}

#[test]
fn every_format_has_the_numbers_of_report() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let tenants = or_skip!(recorded(&place));
    let line =
        place.typed("export run --csv run.csv --arrow run.arrow --perfetto run.pf --top 1").ok();
    assert_eq!(line.lines().count(), 3, "{line}");
    let by_owner = reported(&place, "owner");
    assert_tables(&place, &by_owner);
    assert_perfetto(&place, &tenants);
}

fn assert_tables(place: &Place, by_owner: &BTreeMap<(String, String), f64>) {
    let arrow = ask(&["arrow".as_ref(), place.path("run.arrow").as_os_str()]);
    assert_eq!(arrow["tick_ns"], "1000000");
    assert!(arrow["pmu"].as_str().unwrap().starts_with("dictionary<values=string"), "{arrow}");
    let csv = ask(&["csv".as_ref(), place.path("run.csv").as_os_str()]);
    for (format, answer) in [("arrow", &arrow), ("csv", &csv)] {
        let sums = answer["sums"].as_object().unwrap();
        assert_eq!(sums.len(), by_owner.len(), "{format}");
        for ((event, owner), value) in by_owner {
            let their = sums[&format!("{event}/{owner}")][0].as_f64().unwrap();
            assert_near(&format!("{format}: {event} {owner}"), *value, their);
        }
    }
}

/// The cgroup with the most CPU time, by its printed name.
fn busiest(by_cgroup: &BTreeMap<(String, String), f64>) -> String {
    let of_tasks =
        by_cgroup.iter().filter(|((event, key), _)| event == "cpu-clock" && key.starts_with('/'));
    let (busiest, _) = of_tasks.max_by(|(_, first), (_, second)| first.total_cmp(second)).unwrap();
    uncore_trace::text::printable(&busiest.1).into_owned()
}

fn assert_perfetto(place: &Place, tenants: &[Cgroup; 2]) {
    let shares = rows::read_shares(&place.path("run"));
    let begin = shares.iter().map(|share| share.mono_ns - share.window_ns).min().unwrap();
    let end = shares.iter().map(|share| share.mono_ns).max().unwrap();
    let (file, run) = (place.path("run.pf"), place.path("run"));
    let (begin, end) = (begin.to_string(), end.to_string());
    let answer = ask(&[
        "perfetto".as_ref(),
        file.as_os_str(),
        run.as_os_str(),
        begin.as_ref(),
        end.as_ref(),
    ]);
    let by_cgroup = reported(place, "cgroup");
    let rates = answer["rates"].as_object().unwrap();
    for (path, rate) in rates {
        let event = path.split('/').next_back().unwrap();
        let lines = by_cgroup.iter().filter(|((line_event, _), _)| line_event == event);
        let value: f64 = lines.map(|(_, value)| value).sum();
        // The times of the trace are exact; sums of rates x lengths are not.
        let total = rate["total"].as_f64().unwrap();
        assert!((value - total).abs() <= 1e-6 * value.max(1.0), "{path}: {value}, {rate}");
        assert!(rate["worst"].as_f64().unwrap() <= 1e-9, "{path}: {rate}");
        assert!(rate["times"].as_u64().unwrap() > 10, "{path}: {rate}");
        assert_eq!(rate["unknown"], 0, "{path}");
        assert!(rate["unit"].as_str().unwrap().ends_with("/s"), "{path}: {rate}");
        assert!(rate["lines"]["(other tenants)"].is_number(), "{path}: {rate}");
    }
    let events: std::collections::BTreeSet<&String> =
        by_cgroup.keys().map(|(event, _)| event).collect();
    assert_eq!(rates.len(), events.len(), "{rates:?}");
    let clock = rates.iter().find(|(path, _)| path.ends_with("cpu-clock")).unwrap().1;
    assert_eq!(clock["unit"], "ns/s");
    assert!(clock["lines"][&busiest(&by_cgroup)].as_f64().unwrap() > 1e8, "{clock}");
    // Names in the trace are escaped, those in the recording are not.
    let stored = answer["stored"].as_object().unwrap();
    let times = answer["slices"].as_object().unwrap();
    assert_eq!(stored.len(), times.len(), "{stored:?} {times:?}");
    for (name, ns) in stored {
        assert_eq!(&times[&*uncore_trace::text::printable(name)], ns, "{name}");
    }
    let runtime_ns = |cgroup: &str| -> u64 {
        let begin = format!("{cgroup} ");
        let cgroup_times = times.iter().filter(|(name, _)| name.starts_with(&begin));
        cgroup_times.map(|(_, ns)| ns.as_u64().unwrap()).sum()
    };
    assert!(runtime_ns(&tenants[0].path) > 100_000_000, "{times:?}");
    let hostile = uncore_trace::text::printable(&tenants[1].path).into_owned();
    assert!(hostile.contains("\\u{1b}") && runtime_ns(&hostile) > 0, "{times:?}");
}

#[test]
fn a_part_of_the_time_is_exported() {
    let _machine = root_or_skip!();
    let place = Place::new();
    place.typed("record -p host -o run/ --slices --duration 1200ms").recorded();
    let lines = |options: &str| {
        let text = place.typed(&format!("export run --csv - {options}")).ok();
        text.lines().count() - 1
    };
    let (all_lines, first, second) = (lines(""), lines("--to 600ms"), lines("--from 600ms"));
    assert!(first > 0 && second > 0);
    assert_eq!(first + second, all_lines);
    let lines = |options: &str| lines(&format!("--table readings {options}"));
    assert_eq!(lines("--to 600ms") + lines("--from 600ms"), lines(""));
    for format in ["--csv", "--arrow", "--perfetto"] {
        let line = place.refuses(["export", "run", format, "x", "--from", "1h"]);
        assert!(line.contains("nothing was recorded in that time"), "{line}");
    }
}

#[test]
fn an_export_that_fails_leaves_no_file() {
    let _machine = root_or_skip!();
    let place = Place::new();
    place.typed("record -p host -o run/ --duration 300ms").recorded();
    fs::copy(place.path("run/fabric.parquet"), place.path("one.parquet")).unwrap();
    fs::write(place.path("there"), "kept").unwrap();
    for (typed, says) in [
        ("export run --csv there", "there exists; use --force to replace it"),
        ("export run --csv new --arrow there", "there exists; use --force to replace it"),
        ("export run --csv x --arrow x", "x is given for two formats"),
        ("export run --csv - --arrow -", "- is given for two formats"),
        ("export run --csv run/loss.parquet --force", "inside the recording run"),
        ("export run --csv run/fabric.parquet --force", "inside the recording run"),
        ("export run --perfetto run/trace", "inside the recording run"),
        ("export one.parquet --csv one.parquet --force", "it is the recording itself"),
        ("export one.parquet --csv x --table loss", "one.parquet has no table loss"),
        ("export there --csv x", "there is not a readable Parquet file"),
        ("export nothing --csv x", "cannot open nothing"),
        ("export run", "--perfetto <FILE>"),
        ("export run --perfetto x --table loss", "--csv <FILE>"),
        ("export run --csv x --table tables", "possible values: readings"),
        ("export run --csv nowhere/x", "there is no directory nowhere"),
        ("export run --csv /dev/full", "it is a character device"),
        ("export run --csv run", "run is a directory"),
    ] {
        let line = place.refuses(typed.split(' '));
        assert!(line.contains(says), "{typed}: {line}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = place.tool(["export", "run", "--csv", "-", "--arrow", "x"]);
    let answer = Answer::of(command.stdout(full).stderr(Stdio::piped()).output().unwrap());
    let line = answer.refused();
    assert!(line.contains("cannot write to standard output: no space left"), "{line}");
    assert!(!place.path("x").exists());
    place.typed("export run --csv there --force --mode 0644").ok();
    assert!(fs::read_to_string(place.path("there")).unwrap().starts_with("ts,mono_ns,"));
}

#[test]
fn a_full_disk_is_left_as_it_was() {
    let _machine = root_or_skip!();
    if !has_root("a full disk: it takes a tmpfs") {
        return;
    }
    let place = Place::new();
    place.typed("record -p host -o run/ --duration 300ms").recorded();
    let disk = SmallDisk::mount(place.path("small"));
    disk.fill(1 << 20);
    for format in ["--csv", "--arrow", "--perfetto", "--pprof"] {
        let args = ["export", "run", format, "small/x"];
        let line = place.refuses(args);
        assert!(line.contains("cannot write small/x: no space left on the disk"), "{line}");
    }
}

#[test]
fn a_reader_that_leaves_does_not_cost_the_files() {
    let _machine = root_or_skip!();
    let place = Place::new();
    place.typed("record -p host -o run.parquet --duration 300ms").recorded();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = place.tool(["export", "run.parquet", "--csv", "-", "--perfetto", "run.pf"]);
    let answer = Answer::of(command.stdout(writer).stderr(Stdio::piped()).output().unwrap());
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(Path::exists(&place.path("run.pf")));
    // A single file has no slices.
    let lines: Vec<&str> = answer.err.lines().collect();
    assert!(lines[0].contains("record them with `record -o DIR/ --slices`"), "{answer:?}");
    assert!(lines[1].starts_with("uncore-trace: run.pf: "), "{answer:?}");
}
