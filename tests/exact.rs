//! Counts of a per-CPU counter that is read at every switch are divided exactly: with
//! `--sample-on sched --min-gap 0`, and by default for a family with `at_switch`.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stdout, reason = "both counts, for readers of the log")]

use std::path::Path;

use uncore_trace::schema::loss;

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, python, root_or_skip, rows};

/// Number of pages to touch.
const PAGES: u64 = 5000;

/// Waits for a line, touches fresh small pages, and waits again.
const TOUCH: &str = "
import mmap, sys
pages = int(sys.argv[1])
memory = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
print('ready', flush=True)
for line in sys.stdin:
    for page in range(pages):
        memory[page * mmap.PAGESIZE] = 1
    print('done', flush=True)
";

/// A program touches fresh pages while `options` record; it must get exactly its page faults.
/// Returns `false` if a switch was not seen and it has more: the kernel may hide a process from
/// tracers, whose faults are then counted for the process before it.
fn exact(python: &Path, options: &[&str]) -> bool {
    let mut load = Load::start(python, &["-c", TOUCH, &PAGES.to_string()]);
    assert_eq!(load.hear(), "ready");
    load.settle();
    let before = load.faults();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let recorder = Recorder::start(&run, options);
    assert_eq!(load.faults(), before, "it waits while the recording starts");
    load.say("touch");
    assert_eq!(load.hear(), "done");
    load.settle();
    recorder.stop();
    let faults = load.faults() - before;
    assert!((PAGES..PAGES + 500).contains(&faults), "{faults} faults for {PAGES} pages");
    let shares = rows::shares(&run);
    let page_faults = || shares.iter().filter(|share| share.event == "page-faults");
    let own = page_faults().filter(|share| share.pid == Some(load.pid()));
    let counted: f64 = own.filter_map(|share| share.value).sum();
    println!("{counted} page faults, {faults} by /proc");
    let lost: Vec<String> = rows::losses(&run).into_iter().map(|loss| loss.cause).collect();
    if lost.iter().any(|cause| cause == "unseen_switch") && counted > faults as f64 {
        return false;
    }
    assert!((counted - faults as f64).abs() < 1e-6, "{counted}, really {faults}");
    for share in page_faults() {
        // A count of 0 is not divided.
        let method = if share.total == Some(0.0) { "none" } else { "exact" };
        assert_eq!(share.method, method, "{share:?}");
    }
    // A machine that is stopped by its host misses ticks, but loses no counts.
    let losses = loss::Losses::sort(lost.iter().map(|cause| (cause, 1)));
    assert!(losses.is_complete(), "{lost:?}");
    assert_checked(&run);
    true
}

/// In one of three recordings nothing is hidden.
fn faults_are_exact(options: &[&str]) {
    let _machine = root_or_skip!();
    let python = python();
    assert!((0..3).any(|_| exact(&python, options)), "too many faults, three times");
}

#[test]
fn page_faults_are_exactly_those_of_the_process() {
    faults_are_exact(&["-p", "host", "--sample-on", "sched", "--min-gap", "0"]);
}

/// As for counters of the core PMU, which not every machine has: a catalog file declares the
/// kernel's own counters as read at every switch, beside one that is not.
#[test]
fn a_family_can_be_read_at_every_switch() {
    let dir = tempfile::tempdir().unwrap();
    let embedded = include_str!("../uncore-trace/catalog/software.toml");
    let kind = "kind = \"software\"\n";
    assert!(embedded.contains(kind));
    let own = embedded.replace(kind, &format!("{kind}at_switch = true\n"));
    std::fs::write(dir.path().join("software.toml"), own).unwrap();
    let catalog = dir.path().to_str().unwrap();
    faults_are_exact(&["-p", "host", "--catalog", catalog]);
    faults_are_exact(&["-p", "host", "--catalog", catalog, "--sample-on", "sched"]);
}
