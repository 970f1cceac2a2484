//! Witnesses that `--method auto` opens by itself: they are read while their cost is low, dropped
//! when it is too high, and never a reason for an incomplete recording.
//!
//! A catalog of this test declares a PMU with one counter as a fabric whose traffic all CPUs cause,
//! and the kernel's own counters as those of a core.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;
use uncore_trace::plan::{CounterRole, Plan};
use uncore_trace::schema::metadata;

use crate::attribute::again_the_same;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, or_skip, root_or_skip, rows, run_ok};
use crate::sums::conserved;

const FABRIC: &str = r#"
family = "test_fabric"
about = "one counter for what all CPUs cause"
names = ["msr"]
group = "mem"
scope = "socket"
[opens]
mem = ["tsc"]
[[near]]
cpus = "all"
[[source]]
cause = "cpu"
"#;

const CORE: &str = r#"
family = "test_core"
about = "the kernel's counters in place of a core's"
kind = "core"
names = ["software"]
group = "core"
scope = "cpu"
[[exact]]
by = "readings"
[[event]]
names = ["witness"]
encoding = "config=CONFIG"
[[witness]]
event = "witness"
bytes = 64
unseen = ["all traffic"]
"#;

/// `PERF_COUNT_SW_PAGE_FAULTS`.
pub(crate) const PAGE_FAULTS: &str = "2";

/// `PERF_COUNT_SW_CONTEXT_SWITCHES`: as with misses of a cache, each task has some.
const SWITCHES: &str = "3";

/// A number without a software counter.
const NONE: &str = "200";

/// A catalog whose witness is the software counter with this number.
pub(crate) fn catalog(config: &str) -> Result<TempDir, String> {
    if !Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        return Err("no PMU msr, which stands for a fabric".to_owned());
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("fabric.toml"), FABRIC).unwrap();
    fs::write(dir.path().join("core.toml"), CORE.replace("CONFIG", config)).unwrap();
    Ok(dir)
}

/// Records with a catalog and a budget while `work` runs; returns the recorder's messages.
fn record(run: &Path, catalog: &TempDir, budget: &str, work: impl FnOnce(&mut Recorder)) -> String {
    let catalog = catalog.path().to_str().unwrap();
    let options = ["-e", "msr/tsc/", "--catalog", catalog, "--witness-budget", budget];
    // Without optimization the recorder is slow, and records must wait until a witness is dropped.
    let slow = ["--tick", "10ms", "--buffer", "128", "--flush", "200ms"];
    let mut recorder = Recorder::start(run, &[&options[..], &slow].concat());
    work(&mut recorder);
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_checked(run);
    conserved(run);
    again_the_same(run);
    ended.stderr
}

/// The witnesses of the plan, and those that were lost.
fn witnesses(run: &Path) -> (BTreeSet<i32>, usize) {
    let plan: Plan =
        serde_json::from_str(&rows::metadata_value(run, metadata::PLAN).unwrap()).unwrap();
    let weights = plan.counters.iter().filter(|counter| counter.role == CounterRole::Weight);
    let lost = rows::read_losses(run).into_iter().filter(|loss| loss.cause == "witness_lost");
    (weights.map(|counter| counter.id as i32).collect(), lost.count())
}

/// Times at which a witness was read at a switch, ns.
fn at_switches(run: &Path, witnesses: &BTreeSet<i32>) -> Vec<i64> {
    let is_of_witness = |reading: &rows::ReadingRow| witnesses.contains(&reading.counter);
    let readings = rows::read_readings(run).into_iter().filter(is_of_witness);
    readings.filter(|reading| reading.trigger == "sched").map(|reading| reading.mono_ns).collect()
}

#[test]
fn auto_reads_a_witness_on_every_cpu() {
    let _machine = root_or_skip!();
    let catalog = or_skip!(catalog(PAGE_FAULTS));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    record(&run, &catalog, "100", |_| {
        let _load = Load::forks();
        rows::wait_for_row(&run, "readings at switches", rows::read_readings, |reading| {
            reading.trigger == "sched"
        });
    });
    let (witnesses, lost) = witnesses(&run);
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!((witnesses.len(), lost), (cpus, 0));
    assert!(!at_switches(&run, &witnesses).is_empty());
    // The witness has no rows in `fabric`.
    assert!(rows::read_shares(&run).iter().all(|share| share.event == "tsc"));
}

#[test]
fn a_witness_that_costs_too_much_is_dropped_and_the_recording_is_complete() {
    let _machine = root_or_skip!();
    let catalog = or_skip!(catalog(SWITCHES));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let stderr = record(&run, &catalog, "5", |recorder| {
        // On one CPU no task is woken on another one, which can take long: more switches than the
        // budget allows, and more than the recorder can drain without optimization.
        let pipe = ["-c", "0", "perf", "bench", "sched", "pipe", "-l", "100000000"];
        let _load = Load::start("taskset", &pipe);
        recorder.wait_for_line("from now on counts are divided without it");
        let is_lost = |loss: &rows::LossRow| loss.cause == "witness_lost";
        rows::wait_for_row(&run, "the loss of the witness", rows::read_losses, is_lost);
        // The fabric is still read.
        let dropped_ns = rows::read_losses(&run).iter().find(|loss| is_lost(loss)).unwrap().mono_ns;
        rows::wait_for_window_after(&run, dropped_ns + 100_000_000);
    });
    let (witnesses, lost) = witnesses(&run);
    assert!(!witnesses.is_empty(), "the machine is too busy to begin with: {stderr}");
    assert_eq!(lost, witnesses.len(), "{stderr}");
    assert!(stderr.contains("from now on counts are divided without it"), "{stderr}");
    let dropped = rows::read_losses(&run).into_iter().find(|loss| loss.cause == "witness_lost");
    let dropped_ns = dropped.unwrap().mono_ns;
    let after = at_switches(&run, &witnesses).into_iter().filter(|time| *time > dropped_ns);
    assert_eq!(after.count(), 0, "it is still read");
    let newest =
        rows::read_readings(&run).into_iter().map(|reading| reading.mono_ns).max().unwrap();
    assert!(newest > dropped_ns + 100_000_000, "the fabric is not read any longer");
}

#[test]
fn a_witness_that_cannot_be_opened_is_a_note() {
    let _machine = root_or_skip!();
    let catalog = or_skip!(catalog(NONE));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let stderr = record(&run, &catalog, "100", |recorder| {
        rows::wait_for_window_after(&run, recorder.started_ns);
    });
    let (witnesses, lost) = witnesses(&run);
    assert_eq!(lost, witnesses.len(), "{stderr}");
    assert!(stderr.contains("counts are divided without this witness"), "{stderr}");
    assert_eq!(at_switches(&run, &witnesses), [] as [i64; 0]);
}

#[test]
fn a_witness_budget_of_0_opens_none_and_a_dry_run_says_so() {
    let catalog = or_skip!(catalog(PAGE_FAULTS));
    let catalog = catalog.path().to_str().unwrap();
    let plan = |budget: &str| {
        let args = ["record", "--dry-run", "-e", "msr/tsc/", "--catalog", catalog];
        run_ok([&args[..], &["--witness-budget", budget]].concat())
    };
    let none = "no witness software/witness/ for counter 0: --witness-budget is 0";
    assert!(plan("0").contains(none), "{}", plan("0"));
    let text = plan("100");
    assert!(text.contains("witness software/witness/ of counter 0 is read at every"), "{text}");
    assert!(text.contains(" context switches a second, --witness-budget is 100 %"), "{text}");
}
