//! Costs of a recording that do not depend on the load: the time of its start, and its memory.

use std::process::Command;
use std::time::Duration;

use rustix::thread::gettid;

use crate::harness::recorder::Recorder;
use crate::harness::{root_or_skip, rows};
use crate::wait::{pace, run_for};

/// Attempts at a quick start, a second apart: on a shared machine only the fastest is not delayed
/// by others.
const ATTEMPTS: usize = 30;

#[test]
fn the_first_reading_comes_within_half_a_second() {
    let _machine = root_or_skip!();
    // What this thread starts does not wait for a CPU behind other programs.
    let own = gettid().as_raw_nonzero().to_string();
    let status = Command::new("chrt").args(["--fifo", "--pid", "1", &own]).status();
    assert!(status.unwrap().success(), "cannot become a real-time thread");
    let mut took = Vec::new();
    for _ in 0..ATTEMPTS {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run/");
        let recorder = Recorder::start(&run, &["-p", "host"]);
        let spawned = recorder.spawned_ns;
        run_for(Duration::from_millis(50));
        recorder.stop();
        let readings = rows::read_readings(&run);
        let first = readings.iter().map(|reading| reading.mono_ns).min().unwrap();
        took.push((first - spawned) / 1_000_000);
        if took.last().is_some_and(|took| *took <= 500) {
            break;
        }
        pace(Duration::from_secs(1));
    }
    println!("from start to first reading: {took:?} ms");
    assert!(took.iter().min().is_some_and(|fastest| *fastest <= 500), "{took:?} ms");
}

/// Without optimization a program has about five times as much code, all of it file pages that
/// `VmHWM` counts as resident: these are subtracted.
#[test]
fn a_recorder_has_little_resident_memory() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let recorder = Recorder::start(&run, &["-p", "host"]);
    run_for(Duration::from_secs(10));
    let code = recorder.status_kib("RssFile") << 10;
    recorder.stop();
    let highest = rows::recorder_use(&run).max_rss_bytes;
    println!("at most {} MiB, of them {} MiB of files", highest >> 20, code >> 20);
    assert!(highest > 0);
    let counted = if cfg!(debug_assertions) { highest - code } else { highest };
    assert!(counted < 64 << 20, "{counted} bytes");
}
