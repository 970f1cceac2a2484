//! Faults around a recorder: it is killed, stopped or flooded, many processes start, the clock is
//! set, another tool uses the same counters. Losses are reported, the exit code shows them, and the
//! remaining data are right. Faults of disks are in `slow_disk` and `full_disk`, damaged files in
//! `damage`, CPUs in `hotplug`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "a test prints what it measured")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism, spawn, yield_now};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use uncore_trace::schema::loss::Losses;
use uncore_trace::schema::metadata;

use crate::harness::load::Load;
use crate::harness::recorder::{Recorder, RecorderEnd};
use crate::harness::{assert_checked, mono_ns, need, or_skip, root_or_skip, rows, run, run_ok};
use crate::sums::{conserved, counted_switches, switches};
use crate::wait::{hold_for, pass_until_moment, run_for};

/// Holds after every fault: the recording passes `check`, the shares of each window sum to its
/// total, and the exit code says whether a loss is more than a note. Returns whether all losses are
/// notes.
pub(crate) fn assert_told(recording: &Path, ended: &RecorderEnd) -> bool {
    assert_checked(recording);
    conserved(recording);
    let losses = rows::read_losses(recording).into_iter();
    let losses = Losses::from_totals(losses.map(|loss| (loss.cause, loss.count.unsigned_abs())));
    assert_eq!(ended.code, Some(i32::from(!losses.is_complete())), "{losses:?}: {}", ended.stderr);
    losses.is_complete()
}

/// A number from an environment variable.
fn from_env(key: &str) -> Option<u64> {
    env::var(key).ok().map(|text| text.parse().unwrap())
}

/// Marsaglia's xorshift64, with a seed that is printed; `UNCORE_TRACE_SEED` repeats a run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let seed = from_env("UNCORE_TRACE_SEED").unwrap_or_else(|| now().as_nanos() as u64) | 1;
        println!("UNCORE_TRACE_SEED={seed}");
        Self(seed)
    }

    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Number of recorders that are killed; `UNCORE_TRACE_KILLS=100` for more.
const KILLS: u64 = 12;

/// Longest life of a recorder that is killed: several flushes, and merges of 32 segments.
const LIFE_MS: u64 = 800;

/// Longest time from the signal that ends a recording to the kill: during the last seal, during the
/// writing of the final files, and after the end.
const END_MS: u64 = 200;

#[test]
fn a_recording_killed_at_any_time_is_readable() {
    let _machine = root_or_skip!();
    let count = from_env("UNCORE_TRACE_KILLS").unwrap_or(KILLS);
    let mut random = Random::new();
    let _load = [Load::forks(), Load::with_pauses(0)];
    let (mut finished, mut rows_left) = (0, 0);
    for number in 0..count {
        let dir = tempfile::tempdir().unwrap();
        let name = if number % 2 == 0 { "run/" } else { "run.parquet" };
        let output = dir.path().join(name);
        let options = ["-p", "host", "-I", "5ms", "--flush", "100ms", "--lag", "0"];
        let mut recorder = Recorder::start(&output, &options);
        let objects = recorder.objects();
        let (life, end) = (random.below(LIFE_MS), random.below(END_MS));
        pass_until_moment(Duration::from_millis(life));
        let at_end = number % 4 >= 2;
        if at_end {
            recorder.signal(Signal::TERM);
            pass_until_moment(Duration::from_millis(end));
        }
        recorder.kill();
        objects.assert_gone();
        let label = format!("kill {number}: {name} after {life} ms, at its end {at_end}, {end} ms");
        let repaired = run([OsStr::new("repair"), output.as_os_str()]);
        assert_eq!(repaired.status.code(), Some(0), "{label}: {repaired:?}");
        assert_checked(&output);
        conserved(&output);
        let is_finished = rows::metadata_value(&output, metadata::REPAIRED).is_none();
        assert!(!is_finished || at_end, "{label}: nobody ended it");
        finished += u64::from(is_finished);
        rows_left += rows::read_shares(&output).len();
        let entry_count = dir.path().read_dir().unwrap().count();
        assert_eq!(entry_count, 1, "{label}: something is beside it");
    }
    println!("{count} killed, {finished} of them had finished; {rows_left} rows");
    assert!(rows_left > 0);
}

/// How long it is stopped.
const STOPPED: Duration = Duration::from_secs(5);

/// The ring is full long before the recorder continues: 1 MiB holds the timers' readings of about 3
/// s.
#[test]
fn a_stopped_recorder_reports_its_losses() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    let most = switches();
    let options = ["-p", "host", "-I", "10ms", "--flush", "200ms", "--buffer", "1"];
    let mut recorder = Recorder::start(&output, &options);
    let load = Load::forks();
    rows::wait_for_window_after(&output, mono_ns());
    let least = switches();
    recorder.signal(Signal::STOP);
    let stopped = mono_ns();
    hold_for(STOPPED);
    let continued_ns = mono_ns();
    recorder.signal(Signal::CONT);
    // The numbers of the next readings show how many were lost.
    rows::wait_for_window_after(&output, continued_ns);
    drop(load);
    let least = switches() - least;
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    let most = switches() - most;
    assert!(!assert_told(&output, &ended), "{}", ended.stderr);
    let losses = rows::read_losses(&output);
    // The programs count readings that found the ring full, and each reading has a number.
    let refused: i64 = losses.iter().filter(|loss| loss.cause == "ring_full").map(samples).sum();
    let missing: i64 =
        losses.iter().filter(|loss| loss.cause == "lost_sample").map(|loss| loss.count).sum();
    println!("{refused} readings were refused; {}", ended.stderr.trim());
    assert!(refused > 0 && refused == missing, "{refused} were refused, {missing} are missing");
    // Counters are cumulative: no count is missing, only its time is less precise.
    let counted = counted_switches(&output);
    assert!((least..=most).contains(&counted), "{counted} is not in {least}..={most}");
    let shares = rows::read_shares(&output);
    assert!(shares.iter().any(|share| share.mono_ns < stopped && share.value > Some(0.0)));
    let begin = |share: &rows::ShareRow| share.mono_ns - share.window_ns;
    assert!(shares.iter().any(|share| begin(share) > continued_ns && share.value > Some(0.0)));
}

/// A ring that holds all records of the time in which the recorder is stopped.
#[test]
fn a_late_recorder_reports_longer_windows_and_loses_no_count() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    let options = ["-p", "host", "-I", "10ms", "--flush", "200ms", "--buffer", "64"];
    let mut recorder = Recorder::start(&output, &options);
    let load = Load::with_pauses(0);
    rows::wait_for_window_after(&output, mono_ns());
    recorder.signal(Signal::STOP);
    hold_for(STOPPED);
    recorder.signal(Signal::CONT);
    let usual = "from here windows are divided as usual";
    let ends_with_usual =
        |loss: &rows::LossRow| loss.detail.as_deref().is_some_and(|detail| detail.ends_with(usual));
    rows::wait_for_row(&output, "the end of the overload", rows::read_losses, ends_with_usual);
    drop(load);
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert!(assert_told(&output, &ended), "{}", ended.stderr);
    // No rate is learnt: all counts are exact.
    let step = "the recorder is late: from here windows are longer";
    assert!(ended.stderr.contains(step), "{}", ended.stderr);
    let losses = rows::read_losses(&output).into_iter();
    let overloads: Vec<_> = losses.filter(|loss| loss.cause == "overload").collect();
    let details: Vec<_> = overloads.iter().filter_map(|loss| loss.detail.as_deref()).collect();
    assert!(details[0].starts_with(step), "{details:?}");
    assert!(details.last().unwrap().ends_with(usual), "{details:?}");
    // The last row does not count: it says how it ended.
    assert_eq!(overloads.last().unwrap().count, 0, "{details:?}");
}

/// Number of readings in a row of `ring_full`: `N records of kind 1`.
fn samples(loss: &rows::LossRow) -> i64 {
    let detail = loss.detail.as_deref().unwrap();
    let (count, kind) = detail.split_once(" records of kind ").unwrap();
    if kind == "1" { count.parse().unwrap() } else { 0 }
}

/// Two threads on each CPU that yield to each other all the time.
struct Yielders {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Yielders {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let cpus = available_parallelism().unwrap().get();
        let threads = (0..2 * cpus).map(|number| {
            let over = Arc::clone(&over);
            spawn(move || {
                let mut cpu = CpuSet::new();
                cpu.set(number % cpus);
                // If the CPU is not allowed, it runs elsewhere.
                sched_setaffinity(None, &cpu).ok();
                while !over.load(Ordering::Relaxed) {
                    yield_now();
                }
            })
        });
        Self { threads: threads.collect(), over }
    }
}

impl Drop for Yielders {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_million_switches_a_second_are_counted() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in [("plain/", &[][..]), ("slices/", &["--slices"])] {
        let output = dir.path().join(name);
        let outer = switches();
        let yielders = Yielders::start();
        let mut recorder = Recorder::start(&output, &[&["-p", "host"], options].concat());
        recorder.wait_for_first_window();
        let (inner, begin) = (switches(), Instant::now());
        run_for(Duration::from_secs(2));
        let least = switches() - inner;
        let rate = least / begin.elapsed().as_secs_f64();
        drop(yielders);
        recorder.signal(Signal::TERM);
        let ended = recorder.wait();
        let most = switches() - outer;
        println!("{name} {rate:.0} switches/s; {}", ended.stderr.trim());
        assert_told(&output, &ended);
        let counted = counted_switches(&output);
        assert!((least..=most).contains(&counted), "{counted} is not in {least}..={most}");
    }
}

/// Starts short processes as fast as possible, from two shells at once, and prints their pids.
const STORM: &str = "
storm() { i=0; while [ $i -lt 1000 ]; do /bin/true & echo $!; i=$((i + 1)); done; wait; }
storm & storm & wait";

#[test]
fn every_process_of_a_storm_is_seen() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    let mut recorder = Recorder::start(&output, &["-p", "host", "--buffer", "64"]);
    let storm = Command::new("sh").args(["-c", STORM]).output().unwrap();
    let pids = String::from_utf8(storm.stdout).unwrap();
    let pids: BTreeSet<i32> = pids.lines().map(|line| line.parse().unwrap()).collect();
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    let is_complete = assert_told(&output, &ended);
    let mut ends: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for task in rows::read_tasks(&output) {
        ends.entry(task.pid).or_default().push(task.what);
    }
    let ran = rows::pids_that_ran(&output);
    let has_ended = |pid: &i32| {
        ends.get(pid).is_some_and(|changes| changes.iter().any(|change| change == "exit"))
    };
    let is_seen = |pid: &&i32| ran.contains(*pid) && has_ended(pid);
    let unseen: Vec<_> = pids.iter().filter(|pid| !is_seen(pid)).collect();
    println!("{} processes, {} unseen; {}", pids.len(), unseen.len(), ended.stderr.trim());
    assert!(pids.len() > 1000, "{} pids", pids.len());
    assert!(unseen.is_empty() || !is_complete, "complete, but without {unseen:?}");
}

/// The wall clock, which is set right on drop.
struct WallClock {
    /// Wall time - monotonic time, ns.
    offset: i64,
}

impl WallClock {
    fn take() -> Self {
        let wall = clock_gettime(ClockId::Realtime);
        Self { offset: wall.tv_sec * 1_000_000_000 + wall.tv_nsec - mono_ns() }
    }

    /// Sets it to the right time plus `seconds`.
    fn step(&self, seconds: i64) -> Result<(), String> {
        let now = mono_ns() + self.offset + seconds * 1_000_000_000;
        let time = Timespec { tv_sec: now / 1_000_000_000, tv_nsec: now % 1_000_000_000 };
        clock_settime(ClockId::Realtime, time).map_err(|error| format!("clock_settime: {error}"))
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        // If it could be set wrong, it can be set right.
        self.step(0).ok();
    }
}

/// Sets the clock an hour forward, an hour back, and right again, within half a second, because
/// other programs need it.
#[test]
fn a_step_of_the_clock_moves_no_window() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    let mut recorder = Recorder::start(&output, &["-p", "host", "-I", "10ms", "--flush", "200ms"]);
    rows::wait_for_window_after(&output, recorder.started_ns);
    let clock = WallClock::take();
    or_skip!(clock.step(3600));
    hold_for(Duration::from_millis(150));
    or_skip!(clock.step(-3600));
    hold_for(Duration::from_millis(150));
    recorder.signal(Signal::TERM);
    // The recorder reads the clock at its end.
    let ended = recorder.wait();
    let offset = clock.offset;
    drop(clock);
    assert!(assert_told(&output, &ended), "{}", ended.stderr);
    // All rows have one offset, that of the start; `ts` is in microseconds.
    let offsets = rows::wall_offsets(&output);
    let (first, last) = (offsets.first().unwrap(), offsets.last().unwrap());
    assert!(last - first < 1000, "wall time jumped: {first} to {last}");
    assert!((first - offset).abs() < 1_000_000_000, "{first} is not the offset {offset}");
    let ends: BTreeSet<i64> =
        rows::read_shares(&output).iter().map(|share| share.mono_ns).collect();
    let (first, last) = (ends.first().unwrap(), ends.last().unwrap());
    assert!(last - first < 60_000_000_000, "an hour is in the times: {first} to {last}");
}

/// perf counts the same software events and a tracepoint: both programs have all counts.
#[test]
fn another_tool_on_the_same_counters_takes_none() {
    let _machine = root_or_skip!();
    need("perf");
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("run/");
    let outer = switches();
    let mut recorder = Recorder::start(&output, &["-p", "host"]);
    let _load = Load::forks();
    recorder.wait_for_first_window();
    let inner = switches();
    let kernel = "context-switches,page-faults,cpu-migrations,minor-faults,major-faults,cpu-clock";
    let mut perf = Command::new("perf");
    perf.args(["stat", "-a", "-x,", "-e", kernel, "-e", kernel, "--", "sleep", "1"]);
    let perf_output = perf.output().unwrap();
    let least = switches() - inner;
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    let most = switches() - outer;
    assert_told(&output, &ended);
    let counted = counted_switches(&output);
    assert!((least..=most).contains(&counted), "{counted} is not in {least}..={most}");
    let counts = String::from_utf8(perf_output.stderr).unwrap();
    let perf_counts: Vec<f64> = counts
        .lines()
        .filter(|line| line.contains("context-switches"))
        .map(|line| line.split(',').next().unwrap().parse().unwrap())
        .collect();
    println!("{counted} recorded, {perf_counts:?} by perf, {least} to {most} by the kernel");
    assert_eq!(perf_counts.len(), 2, "{counts}");
    assert!(perf_counts.iter().all(|count| *count > 0.0 && *count <= most), "{counts}");
    run_ok([OsStr::new("report"), output.as_os_str()]);
}
