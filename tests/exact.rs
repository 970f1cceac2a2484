//! `--sample-on sched --min-gap 0`: counts of a per-CPU counter belong to who made them, exactly.

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{assert_checked, or_skip, python, root_or_skip, rows};

/// Pages to touch.
const PAGES: u64 = 5000;

/// Waits for a line, touches fresh small pages of its own, and waits again.
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

#[test]
fn page_faults_are_exactly_those_of_the_process() {
    let _machine = root_or_skip!();
    let python = or_skip!(python());
    let mut load = Load::start(python, &["-c", TOUCH, &PAGES.to_string()]);
    assert_eq!(load.hear(), "ready");
    load.settle();
    let before = load.faults();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/");
    let recorder = Recorder::start(&run, &["-p", "host", "--sample-on", "sched", "--min-gap", "0"]);
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
    assert!((counted - faults as f64).abs() < 1e-6, "{counted}, really {faults}");
    for share in page_faults() {
        // A window in which nothing was counted has nothing to divide.
        let method = if share.total == Some(0.0) { "none" } else { "exact" };
        assert_eq!(share.method, method, "{share:?}");
    }
    assert!(rows::losses(&run).iter().all(|loss| loss.cause == "late_tick"));
    assert_checked(&run);
}
