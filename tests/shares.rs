//! Residency follows who really ran: two weights on one CPU, a move in mid-recording, and a
//! recording of one cgroup only. The kernel's own accounting of the spinners is the truth.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, or_skip, root_or_skip, rows};

/// The last CPU: the first one has most of the interrupts.
fn last_cpu() -> usize {
    std::thread::available_parallelism().unwrap().get() - 1
}

/// Sum of an event on one CPU for the tasks of a cgroup.
fn value(shares: &[rows::Share], event: &str, cpu: usize, cgroup: &Cgroup) -> f64 {
    let of_cpu = |share: &&rows::Share| share.event == event && share.cpu == cpu as i32;
    let mine = shares.iter().filter(of_cpu);
    let mine = mine.filter(|share| share.cgroup.as_ref() == Some(&cgroup.path));
    mine.filter_map(|share| share.value).sum()
}

/// The time from a recorder's first to its last window is known of the file only; what a test
/// does meanwhile must lie well inside of it.
fn settle() {
    sleep(Duration::from_millis(100));
}

#[test]
fn weights_of_75_to_25_are_shares_of_75_to_25() {
    let _machine = root_or_skip!();
    let (a, b) = (or_skip!(Cgroup::weighted("a", 3.0)), or_skip!(Cgroup::weighted("b", 1.0)));
    let cpu = last_cpu();
    let spinners = [Load::spin(cpu), Load::spin(cpu)];
    a.add(spinners[0].pid());
    b.add(spinners[1].pid());
    settle();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let recorder = Recorder::start(&file, &["-p", "host"]);
    sleep(Duration::from_secs(5));
    recorder.stop();
    let shares = rows::shares(&file);
    for event in ["cpu-clock", "tsc"] {
        if !shares.iter().any(|share| share.event == event) {
            continue; // No time stamp counter on this architecture.
        }
        let (of_a, of_b) = (value(&shares, event, cpu, &a), value(&shares, event, cpu, &b));
        let share = 100.0 * of_a / (of_a + of_b);
        println!("{event}: {share:.2} % to {:.2} %", 100.0 - share);
        assert!((share - 75.0).abs() <= 2.0, "{event}: {of_a} to {of_b}: {share} %");
    }
    assert!(value(&shares, "cpu-clock", cpu, &a) > 1e9, "the spinners ran for seconds");
    drop(spinners);
}

#[test]
fn a_task_that_is_moved_is_counted_where_it_was() {
    let _machine = root_or_skip!();
    let (a, b) = (or_skip!(Cgroup::new("from")), or_skip!(Cgroup::new("to")));
    let cpu = last_cpu();
    let spinner = Load::spin(cpu);
    a.add(spinner.pid());
    settle();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let recorder = Recorder::start(&file, &["-p", "host"]);
    let begin = spinner.ran_ns();
    sleep(Duration::from_millis(1500));
    b.add(spinner.pid());
    let middle = spinner.ran_ns();
    sleep(Duration::from_millis(1500));
    let end = spinner.ran_ns();
    recorder.stop();
    let shares = rows::shares(&file);
    let whole = (end - begin) as f64;
    // The kernel's figure has the interrupts in it that are owners of their own here.
    let interrupts = |share: &&rows::Share| {
        share.event == "cpu-clock" && share.cpu == cpu as i32 && share.owner.ends_with("irq")
    };
    let interrupts: f64 =
        shares.iter().filter(interrupts).filter_map(|share| share.value).sum::<f64>() / whole;
    assert!(whole > 5e8, "the spinner had {whole} ns only");
    for (cgroup, truth) in [(&a, middle - begin), (&b, end - middle)] {
        let found = value(&shares, "cpu-clock", cpu, cgroup);
        let error = 100.0 * (found - truth as f64) / whole;
        let interrupts = 100.0 * interrupts;
        println!(
            "{}: {found} ns of {truth} ns: off by {error:.2} %, interrupts had {interrupts:.2} %",
            cgroup.path
        );
        assert!(
            (-5.0 - interrupts..=5.0).contains(&error),
            "{}: {found} ns, really {truth} ns, interrupts had {interrupts} %",
            cgroup.path
        );
    }
    drop(spinner);
}

fn recorded_for(cgroup: &Cgroup, file: &Path) -> Vec<rows::Share> {
    let recorder = Recorder::start(file, &["-p", "host", "--cgroup", &cgroup.path]);
    sleep(Duration::from_secs(1));
    recorder.stop();
    assert_checked(file);
    rows::shares(file)
}

#[test]
fn only_the_cgroup_that_was_asked_for_has_rows_of_its_own() {
    let _machine = root_or_skip!();
    let (wanted, other) = (or_skip!(Cgroup::new("wanted")), or_skip!(Cgroup::new("rest")));
    let cpu = last_cpu();
    let spinners = [Load::spin(cpu), Load::spin(cpu)];
    wanted.add(spinners[0].pid());
    other.add(spinners[1].pid());
    settle();
    let dir = tempfile::tempdir().unwrap();
    let shares = recorded_for(&wanted, &dir.path().join("run.parquet"));
    let mut rest: BTreeMap<(i64, i32, &str), usize> = BTreeMap::new();
    for share in shares.iter().filter(|share| share.owner == "task") {
        match share.cgroup.as_deref() {
            Some("(other)") => {
                assert!(share.pid.is_none() && share.comm.is_none(), "{share:?}");
                *rest.entry((share.mono_ns, share.cpu, &share.event)).or_default() += 1;
            }
            cgroup => {
                assert_eq!(cgroup, Some(wanted.path.as_str()), "{share:?}");
                assert_eq!(share.pid, Some(spinners[0].pid()), "{share:?}");
            }
        }
    }
    assert!(value(&shares, "cpu-clock", cpu, &wanted) > 1e8, "the spinner ran");
    assert!(rest.len() > 100, "the other spinner ran in {} windows", rest.len());
    assert!(rest.values().all(|rows| *rows == 1), "one row for all others");
    drop(spinners);
}
