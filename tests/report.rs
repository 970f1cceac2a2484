//! `report` with the real binary: missing data come first, each value has its interval, and names
//! from the machine are escaped.

use std::collections::BTreeMap;

use uncore_trace::schema::{SCHEMA_VERSION, fabric, metadata};
use uncore_trace::tables::writer::{Create, Target, Writer};

use crate::command::Place;
use crate::small::{rows, small_recording, small_recording_with};

/// A table with missing numbers looks like any other.
#[test]
fn a_report_says_first_what_is_missing() {
    let place = Place::new();
    let pairs = [
        (metadata::COMPLETE, "false"),
        (metadata::LOSS, r#"{"late_tick":12,"lost_sample":5286}"#),
        (metadata::LOSS_FIRST, r#"{"late_tick":1000000,"lost_sample":4000000}"#),
    ];
    small_recording_with(Target::File(place.path("lost.parquet")), &pairs);
    let whole = [(metadata::COMPLETE, "true"), (metadata::LOSS, r#"{"late_tick":12}"#)];
    small_recording_with(Target::File(place.path("whole.parquet")), &whole);
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
    let json: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
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
        let create = Create { overwrite: true, ..Create::default() };
        let mut writer =
            Writer::create(Target::File(place.path("x.parquet")), create, &pairs).unwrap();
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
        let json: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        let found = json["value_low"].as_f64().zip(json["value_high"].as_f64());
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs().max((b - d).abs()) < 1e-6;
        let agree = found.zip(ends).map_or(found == ends, |(found, ends)| near(found, ends));
        assert!(agree, "{confidence:?}: {json}");
        let text = interval(confidence, "--ascii");
        assert!(text.contains("90 % interval") && text.contains(shown), "{text}");
        let csv = interval(confidence, "--csv");
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let (names, first) = (lines.next().unwrap(), lines.next().unwrap());
        let at = |name| first[names.iter().position(|it| *it == name).unwrap()].parse().ok();
        assert_eq!(at("value_low").zip(at("value_high")), found, "{csv}");
    }
}

#[test]
fn names_in_a_recording_cannot_steer_the_terminal() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    for by in ["cgroup", "container", "pod", "pid", "pmu", "port", "device", "owner"] {
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
