//! Tests of `diff`: a real recording of a changing load, and typing errors.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::command::Place;
use crate::harness::cgroup::Cgroup;
use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::{or_skip, python, root_or_skip, run_ok};
use crate::small::small_recording;
use crate::wait::run_for;

/// Touches a number of fresh pages every 5 ms; the number is read from standard input.
const TOUCH: &str = "
import mmap, sys, threading, time
memory = mmap.mmap(-1, 1024 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
pages = 0
def touch():
    while True:
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
        memory.madvise(mmap.MADV_DONTNEED)
        time.sleep(0.005)
threading.Thread(target=touch, daemon=True).start()
for line in sys.stdin:
    pages = int(line)
    print('set', flush=True)
";

/// `web` ends after 1.8 s, and another process of it begins at 2.4 s (samples/README.md).
#[test]
fn a_process_that_was_started_again_is_neither_gone_nor_new() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/grace");
    let spans = ["--before", "..2s", "--after", "2.5s..", "--by", "pid"];
    let text = run_ok([&["diff", sample.to_str().unwrap()], &spans[..]].concat());
    let web: Vec<&str> =
        text.lines().filter(|line| line.trim_start().starts_with("web ")).collect();
    assert!(!web.is_empty() && web.iter().all(|line| line.contains(" -> ")), "{text}");
    assert!(!web.iter().any(|line| line.contains("gone") || line.contains("new")), "{text}");
    assert!(text.contains("init (133)") && text.contains("gone"), "{text}");
}

/// Options with which page faults are divided exactly.
const EXACT: [&str; 6] = ["-p", "host", "--sample-on", "sched", "--min-gap", "0"];

/// A program that touches pages, in its own cgroup.
struct Tenant {
    load: Load,
    cgroup: Cgroup,
}

impl Tenant {
    fn new(python: &Path) -> Result<Self, String> {
        let cgroup = Cgroup::new("diff")?;
        let load = Load::start(python, &["-c", TOUCH]);
        cgroup.add_process(load.pid());
        let mut tenant = Self { load, cgroup };
        tenant.touch(0);
        Ok(tenant)
    }

    fn touch(&mut self, pages: u32) {
        self.load.write_line(&pages.to_string());
        assert_eq!(self.load.read_line(), "set");
    }

    /// The line of its page faults.
    fn line(&self, json: &str) -> Value {
        let lines = json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut tenant_lines = lines.filter(|line| {
            line["what"] == "page-faults" && line["key"] == self.cgroup.path.as_str()
        });
        tenant_lines.next().unwrap_or_else(|| panic!("{json}"))
    }
}

/// Records for 1.5 s, and calls `change` in the middle.
fn record(to: &Path, change: impl FnOnce()) {
    record_events(to, &EXACT, change);
}

/// As [`record`], with the events that these options name.
fn record_events(to: &Path, options: &[&str], change: impl FnOnce()) {
    let recorder = Recorder::start(to, options);
    run_for(Duration::from_millis(750));
    change();
    run_for(Duration::from_millis(750));
    recorder.stop();
}

#[test]
fn a_tenant_that_touches_more_pages_is_found() {
    let _machine = root_or_skip!();
    let python = python();
    let place = Place::new();
    let mut tenant = or_skip!(Tenant::new(&python));
    record(&place.path("idle.parquet"), || ());
    tenant.touch(100);
    record(&place.path("few.parquet"), || ());
    record(&place.path("both/"), || tenant.touch(400));
    record(&place.path("many.parquet"), || ());

    let line_of = |typed: &str| tenant.line(&place.typed(&format!("diff {typed} --json")).ok());
    // The tenant wants to touch four times as many pages; on a busy machine it cannot.
    for (typed, verdict, ratios) in [
        ("few.parquet many.parquet", "more", 1.2..6.0),
        ("many.parquet few.parquet", "less", 1.0 / 6.0..0.8),
        // The recording begins before its command, so the middle is not known to the millisecond.
        ("both/ --before ..0.5s --after 1.2s..", "more", 1.2..6.0),
        ("both/ many.parquet --before ..0.5s", "more", 1.2..6.0),
    ] {
        let line = line_of(typed);
        assert_eq!(line["verdict"], verdict, "{typed}: {line}");
        assert!(ratios.contains(&line["ratio"].as_f64().unwrap()), "{typed}: {line}");
        let before = &line["before"];
        let (rate, total) =
            (before["rate_per_s"].as_f64().unwrap(), before["total"].as_f64().unwrap());
        let seconds = before["seconds"].as_f64().unwrap();
        assert!((rate * seconds - total).abs() < 1e-6 * total, "{line}");
        assert!(before["variation_per_s"].as_f64().unwrap() > 0.0, "{line}");
    }
    let line = line_of("few.parquet few.parquet");
    assert_eq!(
        (&line["verdict"], &line["difference_per_s"]),
        (&"within error".into(), &0.0.into())
    );

    let failed = place.typed("diff few.parquet many.parquet --fail-above 50%");
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.err.contains("page-faults") && failed.err.contains(" grew by "), "{failed:?}");
    // Of page faults alone: what other work of the machine begins in between is new in the others.
    for (name, pages) in [("few-faults.parquet", 100), ("many-faults.parquet", 400)] {
        tenant.touch(pages);
        record_events(&place.path(name), &["-e", "page-faults"], || ());
    }
    place.typed("diff few-faults.parquet many-faults.parquet --fail-above 100000%").ok();
    let text = place.typed("diff few.parquet many.parquet --top 3").ok();
    let heads = ["before", "after", "difference", "90 % interval", "ratio", "change"];
    assert!(heads.iter().all(|head| text.contains(head)), "{text}");
    assert!(text.contains("few.parquet, 1.") && text.contains("page-faults  "), "{text}");
}

#[test]
fn a_tenant_of_one_recording_only_is_new() {
    let _machine = root_or_skip!();
    let python = python();
    let place = Place::new();
    record(&place.path("before.parquet"), || ());
    let mut tenant = or_skip!(Tenant::new(&python));
    tenant.touch(100);
    record(&place.path("after.parquet"), || ());
    let line_of = |typed: &str| tenant.line(&place.typed(&format!("diff {typed} --json")).ok());
    let new = line_of("before.parquet after.parquet");
    assert_eq!((&new["verdict"], &new["beyond_error"]), (&"new".into(), &true.into()), "{new}");
    assert!(new["ratio"].is_null() && new["before"]["rate_per_s"] == 0.0, "{new}");
    assert_eq!(line_of("after.parquet before.parquet")["verdict"], "gone");
    let failed = place.typed("diff before.parquet after.parquet --fail-above 1000% --min-share 0%");
    assert_eq!(failed.code, 1, "{failed:?}");
}

#[test]
fn a_rate_without_a_known_error_is_not_compared() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    let text = place.typed("diff x.parquet x.parquet --fail-above 0%").ok();
    assert!(text.contains("whether that is more than the error is not known"), "{text}");
    assert!(!text.contains("within error"), "{text}");
    // A recording made by a test does not say that it is complete.
    assert!(text.contains("incomplete"), "{text}");
    let json = place.typed("diff x.parquet x.parquet --json");
    assert_eq!(json.code, 0);
    assert!(json.err.contains("warning: the recording before is incomplete"), "{json:?}");
    for line in json.out.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["verdict"].is_null() && line["before"]["variation_per_s"].is_null(), "{line}");
        assert_eq!(line["before"]["complete"], false, "{line}");
    }
}

#[test]
fn recordings_that_cannot_be_compared_are_refused_with_the_reason() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    for (typed, why) in [
        ("diff x.parquet", "one recording needs two spans to compare"),
        ("diff x.parquet --before ..1s", "one recording needs two spans to compare"),
        ("diff x.parquet y.parquet", "cannot open y.parquet"),
        ("diff x.parquet x.parquet --before 1h..2h", "nothing was recorded in that time"),
        ("diff x.parquet x.parquet --before 5s", "write it as FROM..TO"),
        ("diff x.parquet x.parquet --fail-above 10", "write it as a percentage: 10%"),
    ] {
        let message = place.typed(typed).refused();
        assert!(message.contains(why), "{typed}: {message}");
    }
}
