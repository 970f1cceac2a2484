//! What is for analysts: the macros of `queries/fabric.sql` and the package in `python/` give the
//! numbers of `report`; the queries of `docs/analysis.md` have the answers that it shows; the
//! notebook runs; the package can be published.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::PROGRAM;
use crate::command::Place;
use crate::harness::made::{self, Size, UNEVEN};
use crate::harness::{python, run_ok, text};

/// Value, low, high, rate, known time and confidence by event, owner and key.
type Lines = BTreeMap<String, Vec<Option<f64>>>;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Runs `analysis.py`; its output is JSON.
fn analysis(args: &[&str]) -> Value {
    script("analysis.py", args)
}

/// Runs a script of `tests/` in the root of the repository; its output is JSON.
pub(crate) fn script(name: &str, args: &[&str]) -> Value {
    let mut command = Command::new(python());
    let path = Path::new("tests").join(name);
    let output = command.arg(path).args(args).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    let out = String::from_utf8(output.stdout).unwrap();
    // Commands of the document print too.
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

fn reported(recording: &str, by: &str) -> Lines {
    let json = run_ok(["report", recording, "--json", "--by", by]);
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| line[name].as_f64();
        let numbers = vec![
            number("value"),
            number("value_low"),
            number("value_high"),
            number("rate_per_s"),
            number("known_ns").map(|ns| ns / 1e9),
            number("confidence"),
        ];
        let name = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        // As Python writes it.
        let key = format!("[{:?}, {:?}, {:?}]", name("event"), name("owner"), name("key"));
        (key, numbers)
    };
    json.lines().map(line).collect()
}

/// Compares lines that have something; returns their number.
fn assert_same(tool: &str, ours: &Lines, theirs: &Lines) -> usize {
    let has_something = |numbers: &[Option<f64>]| numbers[0].is_some_and(|value| value != 0.0);
    for (key, numbers) in theirs {
        assert!(!has_something(numbers) || ours.contains_key(key), "{tool}: no line {key}");
    }
    let mut compared = 0;
    for (key, numbers) in ours.iter().filter(|(_, numbers)| has_something(numbers)) {
        let their_numbers = theirs.get(key).unwrap_or_else(|| panic!("{tool}: no line {key}"));
        for (expected, their_number) in numbers.iter().zip(their_numbers) {
            let is_same = match (expected, their_number) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) + 1e-9,
                (a, b) => a.is_none() == b.is_none(),
            };
            assert!(is_same, "{tool}: {key}: {their_number:?}, report: {expected:?}");
        }
        compared += 1;
    }
    compared
}

/// A recording in which counters go and come back, and one of the lab.
fn recordings(place: &Place) -> [String; 2] {
    let recording = place.path("run");
    made::write(&recording, Size { windows: 500, ..UNEVEN });
    [
        recording.to_str().unwrap().to_owned(),
        root().join("samples/grace").to_str().unwrap().to_owned(),
    ]
}

#[test]
fn sql_and_python_have_the_sums_and_intervals_of_report() {
    let place = Place::new();
    for recording in recordings(&place) {
        let answers = analysis(&["sums", &recording]);
        for by in ["cgroup", "owner", "pid"] {
            let mut ours = reported(&recording, by);
            if by == "pid" {
                ours.retain(|key, _| key.ends_with(")\"]"));
            }
            for tool in ["duckdb", "python"] {
                let theirs = &answers[format!("{tool} {by}")];
                let theirs: Lines = serde_json::from_value(theirs.clone()).unwrap();
                let compared = assert_same(&format!("{tool} by {by}"), &ours, &theirs);
                assert!(compared >= 8, "{recording}: only {compared} lines");
            }
        }
    }
}

#[test]
fn windows_have_zeros_and_lose_nothing() {
    let place = Place::new();
    for recording in recordings(&place) {
        let answers = analysis(&["windows", &recording]);
        let number = |name: &str| answers[name].as_f64().unwrap();
        assert!(number("zeros") > 100.0, "{answers}");
        // Moments with a counter without a value are null, so they hold less.
        let (value, whole_value) = (number("value"), number("whole"));
        let is_whole = (value - whole_value).abs() <= 1e-9 * whole_value;
        assert_eq!(is_whole, number("nulls") == 0.0, "{answers}");
        assert!(value <= whole_value * (1.0 + 1e-9), "{answers}");
    }
}

#[test]
fn the_questions_have_the_answers_that_are_shown() {
    // `UPDATE_DOCS=1` writes the answers; look at the difference.
    let update = env::var_os("UPDATE_DOCS").map(|_| "update");
    let args: Vec<&str> = ["document", PROGRAM].into_iter().chain(update).collect();
    assert_eq!(analysis(&args), 10);
}

/// What `package.py` tried.
fn count_tried(question: &str) -> u64 {
    script("package.py", &[question]).as_u64().unwrap()
}

#[test]
fn wheel_and_sdist_of_python_are_complete_and_the_wheel_needs_only_what_it_names() {
    assert_eq!(count_tried("archives"), 2);
}

#[test]
fn python_package_is_typed() {
    assert!(count_tried("types") > 10);
}

#[test]
fn first_questions_in_the_readme_of_python_run_and_have_five_lines() {
    assert_eq!(count_tried("readme"), 3);
}

#[test]
fn python_tests_of_the_package_pass() {
    assert!(count_tried("tests") >= 9);
}

#[test]
fn every_cell_of_the_notebook_runs() {
    let cells = analysis(&["notebook"]);
    assert!(cells.as_u64().unwrap() >= 5, "{cells}");
}
