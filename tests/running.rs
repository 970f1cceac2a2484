//! A recording that goes on: every view shows what is on the disk and says so, and what takes
//! finished recordings only says that.

use crate::command::{Answer, Place};
use crate::harness::recorder::Recorder;
use crate::harness::root_or_skip;
use crate::wait::wait_for;

/// Waits until something is on the disk.
fn wait_for_report(place: &Place, name: &str) -> Answer {
    wait_for("something on the disk", || {
        let answer = place.run(["report", name, "--json"]);
        let is_there = answer.code == 0;
        assert!(is_there || answer.err.contains("no data is on the disk yet"), "{answer:?}");
        is_there.then_some(answer)
    })
}

#[test]
fn views_show_a_running_recording_up_to_its_last_flush() {
    let _machine = root_or_skip!();
    for name in ["run.parquet", "run/"] {
        let place = Place::new();
        let options = ["-p", "host", "--flush", "200ms"];
        let mut recorder = Recorder::start(&place.path(name), &options);
        let json = wait_for_report(&place, name);
        let line: serde_json::Value =
            serde_json::from_str(json.out.lines().next().unwrap()).unwrap();
        assert_eq!(line["complete"], false);
        assert_eq!(line["incomplete"]["recording"], true);
        assert_eq!(line["incomplete"]["killed"], false);
        let notice = "it is being recorded now, nothing after ";
        assert!(json.err.contains(notice) && !json.err.contains("check"), "{json:?}");
        let report = place.typed(&format!("report {name}")).ok();
        assert!(report.starts_with(&format!("incomplete: {notice}")), "{report}");
        assert!(report.contains("context-switches") && !report.contains("repair"), "{report}");
        let marks = place.typed(&format!("report {name} --marks"));
        assert!(marks.err.contains("is being recorded now (process"), "{marks:?}");
        let page = place.typed(&format!("report {name} --html -")).ok();
        assert!(page.contains("it is being recorded now"), "no notice");
        let diff = place.typed(&format!("diff {name} --before 0..20ms --after 20ms..1m --json"));
        assert_eq!(diff.code, 0, "{diff:?}");
        let export = place.typed(&format!("export {name} --perfetto trace.json"));
        assert!(export.code == 0 && export.err.contains(notice), "{export:?}");
        for refused in ["check", "attribute -o new.parquet", "rollup -o rolled/"] {
            let line = place.typed(&format!("{refused} {name}")).refused();
            assert!(line.contains("is being recorded now (process"), "{line}");
        }
        let line = place.typed(&format!("cut {name} -o cut/")).refused();
        assert!(line.contains("is being recorded now (process"), "{line}");
        recorder.kill();
        let line = place.typed(&format!("report {name}")).refused();
        assert!(line.contains("was not finished; run `uncore-trace repair"), "{line}");
    }
}
