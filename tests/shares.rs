//! `residency` follows CPU time: two weights on one CPU, a move during a recording, and a recording
//! of one cgroup only. The kernel's own accounting is the truth.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "a test prints what it measured")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, best_of_three, mono_ns, or_skip, root_or_skip, rows};
use crate::wait::run_for;

/// The last CPU, because the first one has most of the interrupts.
fn last_cpu() -> usize {
    std::thread::available_parallelism().unwrap().get() - 1
}

/// Sum of an event on one CPU for the tasks of a cgroup.
fn value(shares: &[rows::ShareRow], event: &str, cpu: usize, cgroup: &Cgroup) -> f64 {
    let of_cpu = |share: &&rows::ShareRow| share.event == event && share.cpu == cpu as i32;
    let mine = shares.iter().filter(of_cpu);
    let mine = mine.filter(|share| share.cgroup.as_ref() == Some(&cgroup.path));
    mine.filter_map(|share| share.value).sum()
}

/// CPU time of a spinner in its cgroup before a recording.
const SETTLED: Duration = Duration::from_millis(20);

/// Difference of the shares of two cgroups on a CPU from 75 to 25, in percent.
fn off_weights(cpu: usize, [a, b]: [&Cgroup; 2]) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let recorder = Recorder::start(&file, &["-p", "host"]);
    run_for(Duration::from_secs(5));
    recorder.stop();
    let shares = rows::read_shares(&file);
    assert!(value(&shares, "cpu-clock", cpu, a) > 1e9, "the spinners ran for seconds");
    let [of_a, of_b] = [a, b].map(|cgroup| value(&shares, "cpu-clock", cpu, cgroup));
    let share = 100.0 * of_a / (of_a + of_b);
    println!("{share:.2} % to {:.2} %: {of_a} to {of_b}", 100.0 - share);
    (share - 75.0).abs()
}

#[test]
fn weights_of_75_to_25_are_shares_of_75_to_25() {
    let _machine = root_or_skip!();
    let (a, b) = (or_skip!(Cgroup::weighted("a", 3.0)), or_skip!(Cgroup::weighted("b", 1.0)));
    let cpu = last_cpu();
    let spinners = [Load::spin(cpu), Load::spin(cpu)];
    a.add_process(spinners[0].pid());
    b.add_process(spinners[1].pid());
    // Both run in their cgroups.
    for spinner in &spinners {
        spinner.run_for(SETTLED);
    }
    let off = best_of_three(2.0, || off_weights(cpu, [&a, &b]));
    assert!(off <= 2.0, "off by {off:.2} %");
    drop(spinners);
}

/// CPU time of the spinner before and after its move; the elapsed time is longer if it waits for
/// its CPU.
const HALF: Duration = Duration::from_secs(1);

/// Moves a spinner from one cgroup to the other during a recording. Returns the excess or lack of
/// their shares beyond the bounds, in percent of its time.
fn off_move(cpu: usize, [a, b]: [&Cgroup; 2]) -> f64 {
    let spinner = Load::spin(cpu);
    a.add_process(spinner.pid());
    spinner.run_for(SETTLED);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let recorder = Recorder::start(&file, &["-p", "host"]);
    let (begin, begin_ns) = (spinner.ran_ns(), mono_ns());
    spinner.run_for(HALF);
    // The kernel moves it at a time between the two figures: before, it may wait for other
    // processes, and after, this test may wait for a CPU.
    let not_yet = spinner.ran_ns();
    b.add_process(spinner.pid());
    let moved = spinner.ran_ns();
    spinner.run_for(HALF);
    let (end_ns, end) = (mono_ns(), spinner.ran_ns());
    let ran_ns = (end - begin) as f64;
    if !recorder.stop_and_tell() {
        println!("the machine was too busy: something was lost");
        return f64::INFINITY;
    }
    let shares = rows::read_shares(&file);
    // The kernel's figure includes interrupts, which are separate owners here.
    let interrupts = |share: &&rows::ShareRow| {
        share.event == "cpu-clock" && share.cpu == cpu as i32 && share.owner.ends_with("irq")
    };
    let interrupts: f64 =
        shares.iter().filter(interrupts).filter_map(|share| share.value).sum::<f64>();
    // The recording continues before and after the kernel's figures are read.
    let first = shares.iter().map(|share| share.mono_ns - share.window_ns).min().unwrap();
    let last = shares.iter().map(|share| share.mono_ns).max().unwrap();
    let (before, after) = ((begin_ns - first) as f64, (last - end_ns) as f64);
    let mut off = 0.0_f64;
    let of_a = (not_yet - begin, moved - begin, before);
    let of_b = (end - moved, end - not_yet, after);
    for (cgroup, (least, most, more)) in [(a, of_a), (b, of_b)] {
        let counted = value(&shares, "cpu-clock", cpu, cgroup);
        println!(
            "{}: {counted} ns of {least} to {most} ns, interrupts had {interrupts} ns, outside {more} ns",
            cgroup.path
        );
        off = off.max(counted - most as f64 - more).max(least as f64 - counted - interrupts);
    }
    100.0 * off / ran_ns
}

#[test]
fn a_task_that_is_moved_is_counted_where_it_was() {
    let _machine = root_or_skip!();
    let (a, b) = (or_skip!(Cgroup::new("from")), or_skip!(Cgroup::new("to")));
    let off = best_of_three(5.0, || off_move(last_cpu(), [&a, &b]));
    assert!(off <= 5.0, "off by {off:.2} % of what the spinner ran");
}

fn recorded_for(cgroup: &Cgroup, file: &Path) -> Vec<rows::ShareRow> {
    let recorder = Recorder::start(file, &["-p", "host", "--cgroup", &cgroup.path]);
    run_for(Duration::from_secs(1));
    recorder.stop();
    assert_checked(file);
    rows::read_shares(file)
}

#[test]
fn only_the_cgroup_that_was_asked_for_has_rows_of_its_own() {
    let _machine = root_or_skip!();
    let (requested, unrequested) = (or_skip!(Cgroup::new("wanted")), or_skip!(Cgroup::new("rest")));
    let cpu = last_cpu();
    let spinners = [Load::spin(cpu), Load::spin(cpu)];
    requested.add_process(spinners[0].pid());
    unrequested.add_process(spinners[1].pid());
    for spinner in &spinners {
        spinner.run_for(SETTLED);
    }
    let dir = tempfile::tempdir().unwrap();
    let shares = recorded_for(&requested, &dir.path().join("run.parquet"));
    let mut other_task_rows: BTreeMap<(i64, i32, &str), usize> = BTreeMap::new();
    for share in &shares {
        match share.owner.as_str() {
            "other_tasks" => {
                assert!(share.pid.is_none() && share.comm.is_none(), "{share:?}");
                assert_eq!(share.cgroup, None, "{share:?}");
                *other_task_rows.entry((share.mono_ns, share.cpu, &share.event)).or_default() += 1;
            }
            "task" => {
                assert_eq!(share.cgroup.as_deref(), Some(requested.path.as_str()), "{share:?}");
                assert_eq!(share.pid, Some(spinners[0].pid()), "{share:?}");
            }
            _ => {}
        }
    }
    assert!(value(&shares, "cpu-clock", cpu, &requested) > 1e8, "the spinner ran");
    assert!(
        other_task_rows.len() > 20,
        "the other spinner ran in {} windows",
        other_task_rows.len()
    );
    assert!(other_task_rows.values().all(|rows| *rows == 1), "one row for all others");
    drop(spinners);
}
