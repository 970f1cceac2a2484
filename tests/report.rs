//! `report` with the real binary: missing data come first, each value has its interval, and names
//! from the machine are escaped.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use uncore_trace::schema::{SCHEMA_VERSION, fabric, metadata};
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget, Writer};

use crate::command::Place;
use crate::harness::{run, run_ok, text};
use crate::small::{rows, small_recording, small_recording_with};

/// A table with missing numbers looks like any other.
#[test]
fn a_report_begins_with_its_losses() {
    let place = Place::new();
    let pairs = [
        (metadata::COMPLETE, "false"),
        (metadata::LOSS, r#"{"late_tick":12,"lost_sample":5286}"#),
        (metadata::LOSS_FIRST, r#"{"late_tick":1000000,"lost_sample":4000000}"#),
    ];
    small_recording_with(RecordingTarget::File(place.path("lost.parquet")), &pairs);
    let complete_pairs = [(metadata::COMPLETE, "true"), (metadata::LOSS, r#"{"late_tick":12}"#)];
    small_recording_with(RecordingTarget::File(place.path("whole.parquet")), &complete_pairs);
    let line = "incomplete: 5286 readings were dropped (first at 0.004 s); see `uncore-trace check lost.parquet`";
    let report = |options: &str| place.typed(&format!("report {options}"));

    let answer = report("lost.parquet");
    assert_eq!(answer.out.lines().next(), Some(line), "{answer:?}");
    assert_eq!(answer.err, "");
    for (options, words) in [("--json", r#""complete":false,"incomplete":{"#), ("--csv", ",false")]
    {
        let answer = report(&format!("lost.parquet {options}"));
        assert_eq!(answer.err, format!("uncore-trace: warning: {line}\n"));
        assert!(answer.out.contains(words) && !answer.out.contains(line), "{answer:?}");
    }
    for (options, words) in [
        ("", "page-faults  3 in"),
        ("--json", r#""complete":true,"incomplete":null}"#),
        ("--csv", ",true"),
    ] {
        let answer = report(&format!("whole.parquet {options}"));
        assert_eq!(answer.err, "");
        assert!(answer.out.contains(words) && !answer.out.contains("incomplete:"), "{answer:?}");
    }
    let json = report("lost.parquet --json").out;
    let json: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let loss = serde_json::json!([
        {"cause": "lost_sample", "count": 5286, "first_ns": 4_000_000}
    ]);
    assert_eq!(json["incomplete"]["losses"], loss);
}

/// Bills have the interval beside the amount.
#[test]
fn a_report_has_the_interval_of_each_value() {
    let place = Place::new();
    let interval = |confidence, form: &str| {
        let pairs =
            BTreeMap::from([(metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string())]);
        let create = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let mut writer =
            Writer::create(RecordingTarget::File(place.path("x.parquet")), create, &pairs).unwrap();
        writer.write(&fabric::TABLE, &rows(&[2.0, 1.0], confidence)).unwrap();
        writer.finish(&pairs).unwrap();
        place.typed(&format!("report x.parquet --by pid {form}")).ok()
    };
    for (confidence, ends, shown) in [
        (Some(1.0), Some((2.0, 2.0)), " 2  "),
        (Some(0.9), Some((1.8, 2.2)), " 1.80 - 2.20  "),
        (Some(0.0), Some((0.0, 3.0)), " 0 - 3  "),
        (None, None, " -  "),
    ] {
        let json = interval(confidence, "--json");
        let json: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        let shown_interval = json["value_low"].as_f64().zip(json["value_high"].as_f64());
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs().max((b - d).abs()) < 1e-6;
        let agree = shown_interval
            .zip(ends)
            .map_or(shown_interval == ends, |(found, ends)| near(found, ends));
        assert!(agree, "{confidence:?}: {json}");
        let text = interval(confidence, "--ascii");
        assert!(text.contains("90 % interval") && text.contains(shown), "{text}");
        let csv = interval(confidence, "--csv");
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let (names, first) = (lines.next().unwrap(), lines.next().unwrap());
        let at =
            |name| first[names.iter().position(|column| *column == name).unwrap()].parse().ok();
        assert_eq!(at("value_low").zip(at("value_high")), shown_interval, "{csv}");
    }
}

#[test]
fn names_in_a_recording_cannot_steer_the_terminal() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    for by in ["cgroup", "container", "pod", "job", "pid", "pmu", "port", "device", "owner"] {
        for form in ["", "--ascii", "--json", "--csv"] {
            let text = place.typed(&format!("report x.parquet --by {by} {form}")).ok();
            let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(steers), "{text:?}");
        }
    }
    let text = place.typed("report x.parquet --by pid").ok();
    assert!(text.contains("a\\u{1b}[2Jb\\nc (7)"), "{text}");
    let text = place.typed("report x.parquet").ok();
    assert!(text.contains("/x\\u{1b}]0;title\\u{7}\\u{202e}"), "{text}");
}

/// JSON lines of a report by event, owner and key.
fn lines(options: &[&str]) -> BTreeMap<[String; 3], String> {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/vm.parquet");
    let json = run_ok([&["report", sample.to_str().unwrap(), "--json"], options].concat());
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        let line_key =
            ["event", "owner", "key"].map(|name| value[name].as_str().unwrap().to_owned());
        (line_key, line.to_owned())
    };
    json.lines().map(line).collect()
}

fn value(line: &str) -> f64 {
    serde_json::from_str::<Value>(line).unwrap()["value"].as_f64().unwrap_or_default()
}

/// What is selected has the lines that it has among all, and the lines of an event keep their sum.
#[test]
fn selected_events_links_and_cgroups_have_the_numbers_that_they_have_among_all() {
    for by in ["cgroup", "pid", "comm", "owner"] {
        let all = lines(&["--by", by]);
        let mut expected = all.clone();
        expected.retain(|line_key, _| {
            ["page-faults", "read_bytes", "write_bytes"].contains(&&*line_key[0])
        });
        // By event, and by link.
        let selected = ["--by", by, "--event", "page-*", "--event", "disk vda *"];
        assert!(lines(&selected) == expected, "{by}");

        let inside = lines(&["--by", by, "--cgroup", "/sample/build", "--cgroup", "/sample/web/"]);
        let sum = |lines: &BTreeMap<[String; 3], String>, event: &str| -> f64 {
            lines
                .iter()
                .filter(|(line_key, _)| line_key[0] == event)
                .map(|(_, line)| value(line))
                .sum()
        };
        for event in ["page-faults", "context-switches", "write_bytes"] {
            let (of_all, of_selected) = (sum(&all, event), sum(&inside, event));
            assert!(
                (of_all - of_selected).abs() <= 1e-9 * of_all,
                "{by} {event}: {of_all}, {of_selected}"
            );
        }
        // Processes of a name, and all tasks, are in several cgroups.
        let is_same = |(line_key, line): (&[String; 3], &String)| {
            line_key[1] == "other_tasks"
                || (line_key[1] == "task" && ["comm", "owner"].contains(&by))
                || all.get(line_key) == Some(line)
        };
        assert!(inside.iter().all(is_same), "{by}");
        let names: BTreeSet<&str> = inside
            .keys()
            .filter(|line_key| line_key[1] == "task")
            .map(|line_key| line_key[2].as_str())
            .collect();
        assert!(by != "cgroup" || names == BTreeSet::from(["/sample/build", "/sample/web"]));
    }
    // The page has them too.
    let place = Place::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/vm.parquet");
    let page = place.path("page.html");
    let options = ["--event", "disk*", "--cgroup", "/sample/backup", "--html"];
    let page = page.to_str().unwrap();
    run_ok([&["report", sample.to_str().unwrap()], &options[..], &[page]].concat());
    let data = crate::harness::page::page_data(&fs::read_to_string(page).unwrap());
    let plots: Vec<&str> = data["plots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plot| plot["name"].as_str().unwrap())
        .collect();
    assert_eq!(plots, ["disk vda in", "disk vda out"]);
    let names: Vec<&str> = data["tenants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tenant| tenant[0].as_str().unwrap())
        .collect();
    assert_eq!(names[..2], ["/sample/backup", "(other_tasks)"]);
}

#[test]
fn an_empty_selection_is_refused_with_the_known_names() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/vm.parquet");
    let sample = sample.to_str().unwrap();
    for (options, words) in [
        (["--event", "nope"], "matches \"nope\"; there are context-switches, cpu-clock, "),
        (["--event", "[a"], "--event \"[a\" is not a pattern"),
        (["--cgroup", "/sam"], "in the cgroup \"/sam\"; there are /sample/backup, "),
        (["--cgroup=/sample", "--by=pmu"], "lines of --by pmu have no owner: use --by cgroup"),
    ] {
        let output = run([&["report", sample], &options[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output);
        assert!(message.contains(words) && message.trim().lines().count() == 1, "{message}");
    }
}
