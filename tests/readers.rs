//! Other readers get the same numbers: DuckDB, pandas and PyArrow compared with `report --json`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use uncore_trace::schema::fabric;

use crate::harness::recorder::Recorder;
use crate::harness::{python, readers, root_or_skip, run_ok, text, uncore_trace};
use crate::wait::run_for;

/// Value and rows by event, owner and key.
type Sums = BTreeMap<(String, String, String), (f64, u64)>;

fn string(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn reported(recording: &Path) -> Sums {
    let text = run_ok(["report".as_ref(), recording.as_os_str(), "--json".as_ref()]);
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let key = (string(&line["event"]), string(&line["owner"]), string(&line["key"]));
        (key, (line["value"].as_f64().unwrap_or(0.0), line["rows"].as_u64().unwrap()))
    };
    text.lines().map(line).collect()
}

fn answered(answer: &Value) -> Sums {
    let line = |line: &Value| {
        let key = (string(&line[0]), string(&line[1]), string(&line[2]));
        (key, (line[3].as_f64().unwrap_or(0.0), line[4].as_u64().unwrap()))
    };
    answer.as_array().unwrap().iter().map(line).collect()
}

fn assert_same(tool: &str, ours: &Sums, theirs: &Sums) {
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{tool}");
    for (key, (value, rows)) in ours {
        let (their_value, their_rows) = theirs[key];
        assert_eq!(*rows, their_rows, "{tool}: rows of {key:?}");
        let off = (value - their_value).abs();
        assert!(off <= value.abs() * 1e-9, "{tool}: {key:?}: {their_value}, report: {value}");
    }
}

#[test]
fn duckdb_and_pandas_read_the_numbers_of_report() {
    let _machine = root_or_skip!();
    let python = python();
    let dir = tempfile::tempdir().unwrap();
    for name in ["run.parquet", "run/"] {
        let output = dir.path().join(name);
        let recorder = Recorder::start(&output, &["-p", "host"]);
        run_for(Duration::from_millis(1500));
        recorder.stop();
        let ours = reported(&output);
        // A busy machine has no idle rows.
        assert!(ours.len() >= 5, "{ours:?}");
        let file = if name.ends_with('/') { output.join("fabric.parquet") } else { output };
        for tool in ["duckdb", "pandas"] {
            let args = ["sums".as_ref(), tool.as_ref(), file.as_os_str()];
            assert_same(tool, &ours, &answered(&readers(&python, &args)));
        }
    }
}

#[test]
fn pyarrow_reads_the_stream() {
    let _machine = root_or_skip!();
    let python = python();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.arrows");
    let mut command = uncore_trace();
    command.args(["record", "-p", "host", "--duration", "1500ms", "-o", "-"]);
    command.stdout(File::create(&path).unwrap()).stderr(Stdio::piped());
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended));
    let answer = readers(&python, &[OsStr::new("stream"), path.as_os_str()]);
    let columns: Vec<String> = answer["columns"].as_array().unwrap().iter().map(string).collect();
    let schema = (fabric::TABLE.schema)();
    let column_names: Vec<&str> =
        schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(columns, column_names);
    let rows = answer["rows"].as_u64().unwrap();
    assert!(text(&ended).contains(&format!(" {rows} rows")), "{rows} rows: {}", text(&ended));
    let sums = answered(&answer["sums"]);
    let clock = sums.iter().filter(|((event, ..), _)| event == "cpu-clock");
    let clock_sum: f64 = clock.map(|(_, (value, _))| value).sum();
    // Each CPU's clock counts the length of the windows, which cover all of the time.
    let clocks = answer["clocks"].as_array().unwrap();
    println!("{rows} rows; cpu-clock by CPU, and what its windows are long: {clocks:?}");
    assert_eq!(clocks.len(), std::thread::available_parallelism().unwrap().get());
    let mut parts = 0.0;
    for clock in clocks {
        let (value, length) = (clock[1].as_f64().unwrap(), clock[2].as_f64().unwrap());
        assert!(length >= 1.49e9 && (value - length).abs() <= 0.01 * length, "{clock}");
        parts += value;
    }
    assert!((clock_sum - parts).abs() <= 1e-9 * clock_sum, "{clock_sum}, by CPU {parts}");
}
