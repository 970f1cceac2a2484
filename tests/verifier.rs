//! The output of `doctor --verifier`, compared with the figures that the kernel keeps for loaded
//! programs.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;

use aya::programs::loaded_programs;
use serde_json::Value;

use crate::command::Place;
use crate::harness::recorder::Recorder;
use crate::harness::{root_or_skip, run_ok};

/// Options that enable all parts of the programs.
const ALL: [&str; 6] = ["-p", "host", "--io", "--slices", "--sample-on", "sched,irq"];

/// The verifier's figures in `/proc/PID/fdinfo` for each program that the process holds.
fn verified(pid: u32) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        // A descriptor may be closed in between.
        let Ok(text) = fs::read_to_string(entry.unwrap().path()) else { continue };
        let line = text.lines().find_map(|line| line.strip_prefix("verified_insns:"));
        found.extend(line.map(|value| value.trim().parse::<u64>().unwrap()));
    }
    found
}

/// `verified_insns` is the verifier's own count for the programs that record (Linux 5.16).
#[test]
fn instructions_are_those_of_the_programs_that_record() {
    let _machine = root_or_skip!();
    let report: Value = serde_json::from_str(&run_ok(["doctor", "--verifier", "--json"])).unwrap();
    let programs = report["programs"].as_array().unwrap();
    let reported_counts: BTreeSet<u64> =
        programs.iter().map(|figures| figures["instructions"].as_u64().unwrap()).collect();
    assert!(
        programs.len() > 10 && reported_counts.iter().all(|count| *count < 1_000_000),
        "{report}"
    );
    for program in programs {
        let [states, peak] = ["states", "peak_states"].map(|key| program[key].as_u64().unwrap());
        assert!(peak <= states, "{program}");
    }
    let place = Place::new();
    let recorder = Recorder::start(&place.path("run/"), &ALL);
    let loaded = verified(recorder.pid());
    recorder.stop_and_tell();
    assert!(loaded.len() > 5, "{loaded:?}");
    assert!(loaded.is_subset(&reported_counts), "{loaded:?} and {reported_counts:?}");
}

#[test]
fn no_program_stays_loaded_after_doctor() {
    let _machine = root_or_skip!();
    let ids =
        || -> BTreeSet<u32> { loaded_programs().flatten().map(|program| program.id()).collect() };
    let before = ids();
    let text = run_ok(["doctor", "--verifier"]);
    assert!(text.contains("accepts all programs"), "{text}");
    let own_programs = ["sched_switch", "softirq_entry"];
    let new: Vec<u32> = ids().difference(&before).copied().collect();
    let left = loaded_programs().flatten().filter(|program| new.contains(&program.id()));
    let left: Vec<_> =
        left.filter_map(|program| program.name_as_str().map(str::to_owned)).collect();
    assert!(!left.iter().any(|name| own_programs.contains(&name.as_str())), "{left:?}");
}

#[test]
fn the_verifier_of_another_root_is_refused() {
    let place = Place::new();
    let answer = place.run(["doctor", "--verifier", "--root", "."]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("leave out --root"), "{answer:?}");
}
