//! Short-lived processes and interrupts have their names.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, root_or_skip, rows, run_ok};
use crate::wait::pace;

/// Prints the pid of each process it makes.
const FORKS: &str = "for i in $(seq 2000); do /bin/true & echo $!; wait $!; done";

#[test]
fn two_thousand_short_processes_all_have_names() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let path = run.to_str().unwrap();
    let printed = run_ok(["record", "-q", "-p", "host", "-o", path, "--", "sh", "-c", FORKS]);
    let pids: BTreeSet<i32> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert!(pids.len() > 1900, "{} pids", pids.len());
    let tasks = rows::read_tasks(&run);
    let named = |what: &str| -> BTreeSet<i32> {
        let rows = tasks.iter().filter(|task| task.what == what && task.comm == "true");
        rows.map(|task| task.pid).collect()
    };
    for what in ["exec", "exit"] {
        let named = named(what);
        let missing: Vec<_> = pids.difference(&named).collect();
        println!("{what}: {} of {} named", named.len(), pids.len());
        // A recording that lost records would not have exit code 0.
        assert!(missing.is_empty(), "{what}: lost silently: {missing:?}");
    }
    let runtime = rows::read_runtime(&run);
    assert!(runtime.iter().any(|time| time.name == "true"));
    for time in &runtime {
        assert!(!time.name.is_empty(), "{time:?}");
    }
    assert_checked(&run);
}

/// The task that runs when a recording ends is not seen to leave its CPU, and may have exited
/// before its name is read. With I/O recorded, names of the last 50 ms are read in time.
#[test]
fn a_task_that_ran_at_the_end_and_exited_has_its_time() {
    let _machine = root_or_skip!();
    let cpus = rustix::thread::sched_getaffinity(None).unwrap();
    let online = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu));
    let _loads: Vec<Load> = online.map(Load::short_spins).collect();
    for _ in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run/");
        let path = run.to_str().unwrap();
        run_ok(["record", "-q", "-p", "host", "--io", "--duration", "0.2s", "-o", path]);
        assert_checked(&run);
    }
}

/// Writes to the disk until it is stopped, so that a device causes interrupts.
fn write_for(length: Duration, dir: &std::path::Path) {
    let begin = Instant::now();
    while begin.elapsed() < length {
        let mut file = fs::File::create(dir.join("data")).unwrap();
        file.write_all(&vec![1; 1 << 16]).unwrap();
        file.sync_all().unwrap();
        pace(Duration::from_millis(5));
    }
}

#[test]
fn interrupts_are_owners_with_names() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let recorder = Recorder::start(&run, &["-p", "host", "--sample-on", "irq"]);
    // Not on a tmpfs: beside the binary, which is on a disk.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    write_for(Duration::from_secs(2), disk.path());
    recorder.stop();
    assert_checked(&run);
    let triggers: BTreeSet<String> =
        rows::read_readings(&run).into_iter().map(|reading| reading.trigger).collect();
    println!("read at {triggers:?}");
    assert!(triggers.contains("irq"), "no reading at an interrupt: {triggers:?}");
    let shares = rows::read_shares(&run);
    for (owner, prefix) in [("irq", "irq:"), ("softirq", "softirq:")] {
        let own = || shares.iter().filter(|share| share.owner == owner);
        let names: BTreeSet<&str> = own().filter_map(|share| share.comm.as_deref()).collect();
        println!("{owner}: {names:?}");
        assert!(!names.is_empty(), "no {owner} was seen");
        for share in own() {
            let comm = share.comm.as_deref().unwrap_or_default();
            let name = comm.strip_prefix(prefix).unwrap_or_default();
            assert!(!name.is_empty() && name.parse::<u32>().is_err(), "{share:?}");
            assert!(share.pid.is_none() && share.cgroup.is_none(), "{share:?}");
        }
    }
    for time in rows::read_irqs(&run) {
        assert!(!time.name.is_empty(), "{time:?}");
    }
}
