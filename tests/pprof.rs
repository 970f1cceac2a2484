//! Tests of profiles in the viewer that Go has: those of `export --pprof`, and those that the agent
//! serves.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::agent::Agent;
use crate::command::{Answer, Place};
use crate::harness::{need, root_or_skip};

fn grace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/grace")
}

/// What `go tool pprof` prints about a profile.
fn viewed(place: &Place, options: &[&str], profile: &str) -> String {
    need("go");
    let mut command = Command::new("go");
    command.args(["tool", "pprof"]).args(options).arg(profile);
    command.current_dir(place.path("")).env("PPROF_TMPDIR", place.path(""));
    // Go wants a home for its settings.
    command.env("HOME", place.path(""));
    Answer::of(command.output().unwrap()).ok()
}

/// The sum of each sample type, of the output of `-raw`.
fn raw_sums(raw: &str) -> BTreeMap<String, i64> {
    let (_, samples) = raw.split_once("\nSamples:\n").unwrap();
    let (samples, _) = samples.split_once("\nLocations\n").unwrap();
    let mut lines = samples.lines();
    let types: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let mut sums = vec![0; types.len()];
    // Lines with labels have no numbers before a colon.
    for values in lines.filter_map(|line| line.split_once(": ")).map(|(values, _)| values) {
        let values: Vec<i64> =
            values.split_whitespace().map_while(|word| word.parse().ok()).collect();
        if values.len() == sums.len() {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let name = |sample_type: &str| sample_type.split('/').next().unwrap().to_owned();
    types.into_iter().map(name).zip(sums).collect()
}

#[test]
fn go_has_the_sums_of_the_report() {
    let place = Place::new();
    let sample = grace().to_str().unwrap().to_owned();
    let line = place.run(["export", &sample, "--pprof", "grace.pb.gz"]).ok();
    assert!(line.starts_with("grace.pb.gz: ") && line.contains(" sample types, "), "{line}");
    let sums = raw_sums(&viewed(&place, &["-raw"], "grace.pb.gz"));
    let report = place.run(["report", &sample, "--json", "--by", "owner"]).ok();
    let mut totals: BTreeMap<String, f64> = BTreeMap::new();
    for line in report.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let total = totals.entry(line["event"].as_str().unwrap().to_owned()).or_default();
        *total += line["value"].as_f64().unwrap_or(0.0);
    }
    assert_eq!(sums.keys().collect::<Vec<_>>(), totals.keys().collect::<Vec<_>>());
    for (event, total) in totals {
        assert!((sums[&event] as f64 - total).abs() <= 0.5 + 1e-9 * total, "{event}: {sums:?}");
    }
    let top = viewed(
        &place,
        &["-top", "-cum", "-sample_index=remote_socket_rd_data", "-tagfocus=owner=task"],
        "grace.pb.gz",
    );
    assert!(top.contains("Type: remote_socket_rd_data\n"), "{top}");
    assert!(top.lines().any(|line| line.ends_with("  /train")), "{top}");
}

#[test]
fn one_event_in_a_part_of_the_time_is_exported() {
    let place = Place::new();
    let sample = grace().to_str().unwrap().to_owned();
    let export = |file: &str, options: &[&str]| {
        let args = ["export", &sample, "--event", "remote_socket_rd_data", "--pprof", file];
        place.run(args.iter().chain(options)).ok();
        raw_sums(&viewed(&place, &["-raw"], file))
    };
    let whole = export("whole", &[]);
    let parts = [export("first", &["--to", "2s"]), export("second", &["--from", "2s"])];
    assert_eq!(whole.len(), 1);
    let [first, second] = parts.map(|sums| sums["remote_socket_rd_data"]);
    assert!(first > 0 && second > 0);
    assert!((whole["remote_socket_rd_data"] - first - second).abs() <= 2, "{whole:?}");
    for (options, says) in [
        (["--pprof", "x", "--event", "nothing"], "no event or link of "),
        (["--csv", "x", "--event", "cpu-clock"], "--pprof <FILE>"),
        (["--pprof", "whole", "--to", "2s"], "whole exists; use --force to replace it"),
        (["--pprof", "x", "--from", "1h"], "nothing was recorded in that time"),
    ] {
        let line = place.refuses(["export", sample.as_str()].iter().chain(&options));
        assert!(line.contains(says), "{options:?}: {line}");
    }
    let within_window = ["export", &sample, "--pprof", "x", "--from", "1s", "--to", "1.0001s"];
    let line = place.refuses(within_window.iter());
    assert!(line.contains("no window of these events ends in the selected time"), "{line}");
}

#[test]
fn go_fetches_a_profile_from_the_agent() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let mut agent = Agent::new("");
    agent.start();
    let address = format!("http://127.0.0.1:{}/debug/pprof/fabric", agent.port);
    let raw = viewed(&place, &["-raw", "-seconds=2"], &address);
    let clock_s = raw_sums(&raw)["cpu-clock"] as f64 / 1e9;
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    assert!((clock_s / (2.0 * cpus) - 1.0).abs() < 0.1, "{clock_s} s of {cpus} CPUs: {raw}");
    assert!(raw.contains("Duration: 2"), "{raw}");
    let refused = agent.get("/debug/pprof/fabric?seconds=x");
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert!(refused.ends_with("seconds must be a whole number from 1 to 300\n"), "{refused}");
    agent.stop();
}
