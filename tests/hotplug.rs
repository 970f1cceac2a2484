//! A CPU goes offline during a recording and comes back: the recording continues, missing counts
//! are reported, and nothing else is lost.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::attribute::again_the_same;
use crate::faults::{Random, assert_told};
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::rows::{self, ShareRow};
use crate::harness::{assert_checked, mono_ns, or_skip, root_or_skip, text, uncore_trace};
use crate::sums::conserved;
use crate::wait::{hold_for, pass_until_moment};
use crate::witness;

/// Switch of the CPU that goes offline.
const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

/// CPU 1, online again when dropped.
struct Cpu1 {
    online: &'static Path,
}

impl Cpu1 {
    /// It, if it can go offline.
    fn take() -> Result<Self, String> {
        let state = fs::read_to_string(ONLINE).map_err(|error| format!("{ONLINE}: {error}"))?;
        let cpu = Self { online: Path::new(ONLINE) };
        if state.trim() == "1" { Ok(cpu) } else { Err("CPU 1 is offline".to_owned()) }
    }

    /// Takes it offline for this time; returns a span in which it certainly was, ns.
    fn leave_for(&self, time: Duration) -> Result<(i64, i64), String> {
        fs::write(self.online, "0").map_err(|error| format!("CPU 1 cannot go offline: {error}"))?;
        let gone = mono_ns();
        hold_for(time);
        let end = mono_ns();
        fs::write(self.online, "1").unwrap();
        Ok((gone, end))
    }
}

impl Drop for Cpu1 {
    fn drop(&mut self) {
        // A failure here shows in the tests that follow.
        fs::write(self.online, "1").ok();
    }
}

/// Rows are soon on the disk, where tests wait for them.
const FLUSH: [&str; 2] = ["--flush", "200ms"];

/// Records while CPU 1 goes offline; returns when it was.
fn record(output: &Path, options: &[&str], cpu: &Cpu1) -> Result<(i64, i64), String> {
    let mut recorder = Recorder::start(output, &[options, &FLUSH].concat());
    rows::wait_for_window_after(output, recorder.started_ns);
    let away = cpu.leave_for(Duration::from_secs(1))?;
    // Its counters count again: that needs switches.
    let _load = Load::with_pauses(1);
    rows::wait_for_row(output, "counts of CPU 1", rows::read_shares, |share| {
        let is_of_cpu1 = share.cpu == 1 && share.event == "context-switches";
        is_of_cpu1 && share.mono_ns - share.window_ns > away.1 && share.total > Some(0.0)
    });
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(" 1 time a CPU was offline"), "{}", ended.stderr);
    Ok(away)
}

/// The windows of `context-switches` on a CPU in order: (begin, end, total).
fn windows(shares: &[ShareRow], cpu: i32) -> Vec<(i64, i64, Option<f64>)> {
    let cpu_shares =
        shares.iter().filter(|share| share.cpu == cpu && share.event == "context-switches");
    let mut windows: Vec<_> = cpu_shares
        .map(|share| (share.mono_ns - share.window_ns, share.mono_ns, share.total))
        .collect();
    windows.sort_by_key(|window| window.1);
    windows.dedup_by_key(|window| window.1);
    windows
}

fn goes_on(options: &[&str]) {
    let cpu = or_skip!(Cpu1::take());
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let (gone, back) = or_skip!(record(&run, options, &cpu));
    assert_checked(&run);
    conserved(&run);
    let shares = rows::read_shares(&run);
    // CPU 0 has every window.
    let stayed = windows(&shares, 0);
    assert!(stayed.windows(2).all(|pair| pair[0].1 == pair[1].0), "{stayed:?}");
    assert!(stayed.iter().all(|window| window.2.is_some()), "{stayed:?}");
    // CPU 1 has windows before and after, and none ends while it was offline.
    let cpu1_windows = windows(&shares, 1);
    let (margin, window) = (50_000_000, 10_000_000);
    assert!(cpu1_windows.iter().any(|cpu1_window| cpu1_window.1 < gone), "{cpu1_windows:?}");
    assert!(
        cpu1_windows.iter().any(|cpu1_window| cpu1_window.0 > back && cpu1_window.2 > Some(0.0)),
        "{cpu1_windows:?}"
    );
    assert!(
        cpu1_windows
            .iter()
            .all(|cpu1_window| cpu1_window.1 < gone + window || cpu1_window.1 > back),
        "{cpu1_windows:?}"
    );
    // CPU 1 has no runtime while it was offline.
    let ran = rows::read_runtime(&run);
    let inside =
        |time: &&rows::TimeRow| time.cpu == 1 && time.mono_ns > gone && time.mono_ns < back;
    let ticks: Vec<_> = ran.iter().filter(inside).collect();
    assert!(ticks.is_empty(), "{ticks:?}");
    assert!(ran.iter().any(|time| time.cpu == 1 && time.mono_ns > back + margin));
    let times = rows::read_cpu_time(&run);
    let offline = times.iter().map(|time| (time.cpu, time.offline_ns)).collect::<Vec<_>>();
    assert!(times[0].offline_ns == 0 && times[1].offline_ns >= back - gone, "{offline:?}");
    let losses = rows::read_losses(&run);
    let losses_of =
        |cause: &str| losses.iter().filter(|loss| loss.cause == cause).collect::<Vec<_>>();
    assert!(losses_of("cpu_offline").iter().all(|loss| loss.cpu == Some(1)), "{losses:?}");
    let stopped: i64 = losses_of("counter_stopped").iter().map(|loss| loss.count).sum();
    let counters = shares.iter().filter(|share| share.cpu == 1).map(|share| &share.event);
    let counters = counters.collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(stopped, counters as i64, "{losses:?}");
    for cause in ["run_gap", "read_failed", "lost_sample", "timer_stopped", "not_scheduled"] {
        assert!(losses_of(cause).is_empty(), "{losses:?}");
    }
}

#[test]
fn a_cpu_that_leaves_and_returns_is_reported() {
    let _machine = root_or_skip!();
    goes_on(&["-p", "host", "-I", "10ms"]);
}

#[test]
fn a_cpu_that_leaves_costs_no_switch_its_owner() {
    let _machine = root_or_skip!();
    goes_on(&["-p", "host", "-I", "10ms", "--sample-on", "sched", "--min-gap", "0"]);
}

#[test]
fn the_fallback_timer_follows_a_cpu_that_leaves() {
    let _machine = root_or_skip!();
    goes_on(&["-p", "host", "-I", "10ms", "--timer", "run-on-cpu"]);
}

/// `--method auto` opened the witness by itself, so its stop does not make the recording
/// incomplete.
#[test]
fn the_witness_of_a_cpu_that_leaves_costs_precision_only() {
    let _machine = root_or_skip!();
    let cpu = or_skip!(Cpu1::take());
    let catalog = or_skip!(witness::catalog(witness::PAGE_FAULTS));
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let options = ["-e", "msr/tsc/", "--witness-budget", "100", "--tick", "10ms", "--catalog"];
    let options = [&options[..], &[catalog.path().to_str().unwrap()], &FLUSH].concat();
    let mut recorder = Recorder::start(&run, &options);
    rows::wait_for_window_after(&run, recorder.started_ns);
    let (_, back) = or_skip!(cpu.leave_for(Duration::from_millis(500)));
    let load = Load::forks();
    let read_again = |reading: &rows::ReadingRow| reading.cpu == 1 && reading.mono_ns > back;
    rows::wait_for_row(&run, "readings of CPU 1 again", rows::read_readings, read_again);
    drop(load);
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains(" 1 witness was lost"), "{}", ended.stderr);
    assert_checked(&run);
    again_the_same(&run);
}

/// A recording that ends while the CPU is offline ends normally.
#[test]
fn a_cpu_that_stays_away_holds_nothing_up() {
    let _machine = root_or_skip!();
    let cpu = or_skip!(Cpu1::take());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let script = format!("sleep 0.2; echo 0 >{ONLINE} || exit 3; sleep 0.3");
    let begin = Instant::now();
    let mut command = uncore_trace();
    command.args(["record", "-p", "host", "-o"]).arg(&file).args(["--", "sh", "-c", &script]);
    let output = command.output().unwrap();
    drop(cpu);
    assert_ne!(output.status.code(), Some(3), "CPU 1 cannot go offline");
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_checked(&file);
    assert!(rows::read_cpu_time(&file)[1].offline_ns > 200_000_000);
}

/// The recorder is stopped while the CPU is offline; the stopped counters are reported anyway, also
/// if the recording ends right after.
#[test]
fn an_unseen_absence_of_a_cpu_is_reported() {
    let _machine = root_or_skip!();
    for goes_on in [false, true] {
        let cpu = or_skip!(Cpu1::take());
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run/");
        let options = [&["-p", "host", "-I", "10ms"], &FLUSH[..]].concat();
        let mut recorder = Recorder::start(&run, &options);
        rows::wait_for_window_after(&run, recorder.started_ns);
        recorder.signal(Signal::STOP);
        let away = cpu.leave_for(Duration::from_millis(300));
        recorder.signal(Signal::CONT);
        let (_, back) = or_skip!(away);
        if goes_on {
            rows::wait_for_window_after(&run, back);
        }
        recorder.signal(Signal::TERM);
        let ended = recorder.wait();
        assert_eq!(ended.code, Some(1), "goes on: {goes_on}: {}", ended.stderr);
        assert!(ended.stderr.contains("of a counter"), "goes on: {goes_on}: {}", ended.stderr);
        assert_checked(&run);
        conserved(&run);
    }
}

/// A CPU goes offline around the end of the recording: each count is in exactly one window.
#[test]
fn a_cpu_that_leaves_at_the_end_is_counted_once() {
    let _machine = root_or_skip!();
    for late_ms in [970, 1000, 1015, 1030, 1045, 1060, 1080, 1100] {
        let cpu = or_skip!(Cpu1::take());
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run/");
        let exact = ["-p", "host", "--sample-on", "sched", "--min-gap", "0"];
        // Without --kill it would wait for its command.
        let options = [&exact[..], &["--duration", "1s", "--kill"]].concat();
        let mut recorder = Recorder::start(&run, &options);
        pass_until_moment(Duration::from_millis(late_ms));
        let away = cpu.leave_for(Duration::from_millis(200));
        let ended = recorder.wait();
        or_skip!(away);
        assert!(ended.code == Some(0) || ended.code == Some(1), "{late_ms} ms: {}", ended.stderr);
        assert_checked(&run);
        conserved(&run);
        // A record for which the end waits in vain is a loss.
        assert!(!ended.stderr.contains("unfinished"), "{late_ms} ms: {}", ended.stderr);
        again_the_same(&run);
    }
}

/// The CPU goes and comes faster than the recorder can follow, with processes that start and end on
/// it.
#[test]
fn a_cpu_that_comes_and_goes_beside_spinners_loses_nothing_silently() {
    let _machine = root_or_skip!();
    let mut random = Random::new();
    let exact = ["-p", "host", "-I", "10ms", "--sample-on", "sched", "--min-gap", "0"];
    for options in [&exact[..4], &exact] {
        let cpu = or_skip!(Cpu1::take());
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run/");
        let mut recorder = Recorder::start(&run, options);
        // While CPU 1 is offline, its processes run elsewhere.
        let _spinners = [0, 0, 1, 1].map(Load::short_spins);
        for _ in 0..8 {
            pass_until_moment(Duration::from_millis(20 + random.below(300)));
            or_skip!(cpu.leave_for(Duration::from_millis(random.below(300))));
        }
        recorder.signal(Signal::TERM);
        let ended = recorder.wait();
        assert!(!assert_told(&run, &ended), "{}", ended.stderr);
    }
}

/// A CPU that was offline at the start is not counted, and the recording reports that.
#[test]
fn a_cpu_that_comes_online_is_reported() {
    let _machine = root_or_skip!();
    let cpu = or_skip!(Cpu1::take());
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    or_skip!(fs::write(cpu.online, "0").map_err(|error| format!("CPU 1 stays online: {error}")));
    let options = [&["-p", "host", "-I", "10ms"], &FLUSH[..]].concat();
    let mut recorder = Recorder::start(&run, &options);
    rows::wait_for_window_after(&run, recorder.started_ns);
    fs::write(cpu.online, "1").unwrap();
    rows::wait_for_row(&run, "time of CPU 1", rows::read_runtime, |time| time.cpu == 1);
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 CPU came online later"), "{}", ended.stderr);
    assert_checked(&run);
    conserved(&run);
    again_the_same(&run);
}
