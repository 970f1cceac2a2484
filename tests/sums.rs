//! Conservation: shares sum to counts, counts agree with the kernel's, and the times of each CPU
//! sum to the elapsed time.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{self, assert_checked, python, root_or_skip, rows};
use crate::wait::run_for;

/// Records for two seconds under this load.
fn under(load: Load, name: &str, options: &[&str]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join(name);
    let recorder = Recorder::start(&output, options);
    run_for(Duration::from_secs(2));
    // A recorder without optimization can read the rest after the load has ended.
    drop(load);
    recorder.stop();
    (dir, output)
}

/// Every window of every counter is the sum of its owners' shares; returns their number.
pub(crate) fn conserved(recording: &Path) -> usize {
    let mut windows: BTreeMap<(i64, i32, String, String), (f64, f64)> = BTreeMap::new();
    for share in rows::read_shares(recording) {
        let Some(total) = share.total else { continue };
        let key = (share.mono_ns, share.cpu, share.pmu, share.event);
        let window = windows.entry(key.clone()).or_insert((0.0, total));
        assert_eq!(window.1.to_bits(), total.to_bits(), "{key:?} has two totals");
        window.0 += share.value.unwrap();
    }
    for (key, (sum, total)) in &windows {
        assert!((sum - total).abs() <= total.abs() * 1e-9, "{key:?}: {sum} of {total}");
    }
    windows.values().filter(|(_, total)| *total != 0.0).count()
}

#[test]
fn shares_sum_to_the_count_by_every_reader() {
    let _machine = root_or_skip!();
    harness::need("perf");
    let python = python();
    let exact = ["-p", "host", "--sample-on", "sched", "--min-gap", "0"];
    for (name, options) in [("run.parquet", &exact[..2]), ("run/", &exact[..2]), ("run/", &exact)] {
        // Readings at every switch of hackbench exceed any ring: see `survive`.
        let load = if options.len() > 2 { Load::forks() } else { Load::hackbench() };
        let (_dir, output) = under(load, name, options);
        assert_checked(&output);
        let windows = conserved(&output);
        let file = if name.ends_with('/') { output.join("fabric.parquet") } else { output };
        let answer = harness::readers(&python, &[OsStr::new("conservation"), file.as_os_str()]);
        println!("{name} {options:?}: {windows} windows; DuckDB: {answer}");
        assert!(windows > 100, "{windows} windows");
        assert_eq!(answer[0].as_u64(), Some(windows as u64));
        assert!(answer[1].as_f64().unwrap() <= 1e-9, "{answer}");
        assert_eq!(answer[2].as_f64(), Some(0.0), "{answer}");
    }
}

/// Switches since boot, all CPUs: `ctxt` of `/proc/stat`.
pub(crate) fn switches() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    stat.lines().find_map(|line| line.strip_prefix("ctxt ")).unwrap().parse().unwrap()
}

/// The switches that a recording counted, all CPUs.
pub(crate) fn counted_switches(recording: &Path) -> f64 {
    let shares = rows::read_shares(recording);
    let switch_shares = shares.iter().filter(|share| share.event == "context-switches");
    switch_shares.filter_map(|share| share.value).sum()
}

/// The recording's first window begins between the start of the process and a tick after the first
/// line of its command; its last ends between the signal and the end of the process. So the
/// kernel's counts over the longest and the shortest of these intervals are strict bounds; with a
/// million switches in between the edges are small.
#[test]
fn context_switches_are_those_of_the_kernel() {
    let _machine = root_or_skip!();
    harness::need("perf");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let outer = switches();
    let recorder = Recorder::start(&file, &["-p", "host"]);
    recorder.wait_for_first_window();
    let inner = switches();
    let bench = Command::new("perf").args(["bench", "sched", "pipe", "-l", "500000"]).output();
    assert!(bench.unwrap().status.success());
    let least = switches() - inner;
    recorder.stop();
    let most = switches() - outer;
    let counted = counted_switches(&file);
    println!("{counted} switches, between {least} and {most} by /proc/stat");
    assert!(least >= 1_000_000.0, "the bench made {least} switches only");
    assert!((least..=most).contains(&counted), "{counted} is not in {least}..={most}");
    assert!((most - least) / least < 0.05, "the edges are too wide to tell anything");
}

/// Tolerance for the read that cuts a slice at the end of a tick, ns.
const EDGE_NS: i64 = 50_000;

#[test]
fn the_time_of_each_tick_adds_up() {
    let _machine = root_or_skip!();
    harness::need("perf");
    let (_dir, output) = under(Load::hackbench(), "run/", &["-p", "host"]);
    let mut ticks: BTreeMap<(i32, i64), (i64, i64)> = BTreeMap::new();
    for time in rows::read_runtime(&output).into_iter().chain(rows::read_irqs(&output)) {
        let tick = ticks.entry((time.cpu, time.mono_ns)).or_insert((0, time.tick_ns));
        assert_eq!(tick.1, time.tick_ns, "{time:?}");
        assert!(time.ns >= 0, "{time:?}");
        tick.0 += time.ns;
    }
    let tick_ns = 1_000_000;
    for time in rows::read_cpu_time(&output) {
        let count = (time.end_ns - time.begin_ns) / tick_ns;
        let unknown = time.unattributed_ns as f64 / (time.end_ns - time.begin_ns) as f64;
        println!("CPU {}: {count} ticks, unknown {unknown:.6}", time.cpu);
        assert!(unknown <= 1e-3, "CPU {}: {unknown} of the time is unknown", time.cpu);
        for tick in 1..=count {
            let end = time.begin_ns + tick * tick_ns;
            let (sum, length) = ticks.remove(&(time.cpu, end)).unwrap_or((0, tick_ns));
            let at = (end, time.cpu);
            assert_eq!(length, tick_ns, "{at:?}");
            assert!((sum - length).abs() <= EDGE_NS, "{at:?}: {sum} ns of {length}");
        }
    }
    assert!(ticks.is_empty(), "rows outside the recording: {ticks:?}");
}
