//! The kernel's own counters of each CPU are divided exactly.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "both counts, for readers of the log")]

use std::path::Path;

use uncore_trace::schema::loss;

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, python, root_or_skip, rows};

/// Number of pages to touch.
const PAGES: u64 = 5000;

/// Waits for a line, touches fresh small pages with pauses, and waits again.
const TOUCH: &str = "
import mmap, sys, time
pages = int(sys.argv[1])
memory = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
print('ready', flush=True)
for line in sys.stdin:
    for page in range(pages):
        memory[page * mmap.PAGESIZE] = 1
        if page % 100 == 0:
            time.sleep(0.001)
    print('done', flush=True)
";

/// A program touches fresh pages and sleeps while `options` record; it must get exactly its page
/// faults and its context switches. Returns `false` if a switch was not seen and it has more: the
/// kernel may hide a process from tracers, whose counts then belong to the process before it.
fn exact(python: &Path, options: &[&str]) -> bool {
    let mut load = Load::start(python, &["-c", TOUCH, &PAGES.to_string()]);
    assert_eq!(load.read_line(), "ready");
    load.wait_until_blocked();
    let before = [load.page_faults(), load.context_switches()];
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let recorder = Recorder::start(&run, options);
    assert_eq!(
        [load.page_faults(), load.context_switches()],
        before,
        "it waits while the recording starts"
    );
    load.write_line("touch");
    assert_eq!(load.read_line(), "done");
    load.wait_until_blocked();
    recorder.stop();
    let really = [load.page_faults() - before[0], load.context_switches() - before[1]];
    let [faults, switches] = really;
    assert!((PAGES..PAGES + 500).contains(&faults), "{faults} faults for {PAGES} pages");
    assert!(switches >= PAGES / 100, "{switches} switches");
    let shares = rows::read_shares(&run);
    let counted = ["page-faults", "context-switches"].map(|event| {
        let event_shares = shares.iter().filter(|share| share.event == event);
        let load_shares = event_shares.filter(|share| share.pid == Some(load.pid()));
        load_shares.filter_map(|share| share.value).sum::<f64>()
    });
    println!("{counted:?} page faults and switches, {really:?} by /proc");
    let lost: Vec<String> = rows::read_losses(&run).into_iter().map(|loss| loss.cause).collect();
    let mut off = counted.iter().zip(really).map(|(counted, really)| counted - really as f64);
    let is_exact = off.all(|off| off.abs() < 1e-6);
    if lost.iter().any(|cause| cause == "unseen_switch") && !is_exact {
        return false;
    }
    assert!(is_exact, "{counted:?}, really {really:?}");
    for share in &shares {
        // A count of 0 is not divided.
        let method = if share.total == Some(0.0) { "none" } else { "exact" };
        assert_eq!(share.method, method, "{share:?}");
    }
    // A machine that is stopped by its host misses ticks, but loses no counts.
    let losses = loss::Losses::from_totals(lost.iter().map(|cause| (cause, 1)));
    assert!(losses.is_complete(), "{lost:?}");
    assert_checked(&run);
    true
}

/// In one of three recordings nothing is hidden.
fn host_is_exact(options: &[&str]) {
    let _machine = root_or_skip!();
    let python = python();
    let options = [&["-p", "host"], options].concat();
    assert!((0..3).any(|_| exact(&python, &options)), "too many faults, three times");
}

#[test]
fn faults_and_switches_are_exactly_those_of_the_process() {
    host_is_exact(&[]);
}

/// More readings change nothing.
#[test]
fn faults_and_switches_are_exact_with_all_counters_read_at_switches() {
    host_is_exact(&["--sample-on", "sched"]);
    host_is_exact(&["--sample-on", "sched", "--min-gap", "0"]);
}
