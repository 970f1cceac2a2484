//! Roll-ups of generated recordings, opened by every command that reads recordings.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::command::Place;
use crate::harness::made::{self, Size, USUAL};

/// 20 s of two links.
const SIZE: Size = Size { windows: 1000, links: 2, small: 5, ..USUAL };

/// The recordings `one/` and `two/` of two hosts, and the roll-up `rollups/` of both.
fn place() -> Place {
    let place = Place::new();
    for host in ["one", "two"] {
        made::write(&place.path(host), Size { host, ..SIZE });
        place.run(["rollup", host, "-o", "rollups", "-w", "1s", "--cluster", "lab"]).ok();
    }
    place
}

/// The hour of all windows.
const HOUR: &str = "rollups/cluster=lab/date=2026-11-23/hour=09";

/// The file of a host.
fn file_of(place: &Place, host: &str) -> PathBuf {
    let dir = place.path(HOUR).join(format!("host={host}"));
    std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path()
}

/// Lines of JSON.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Values by event and key.
fn values(text: &str) -> BTreeMap<(String, String), f64> {
    let word = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let of = |line: &Value| {
        let value = line["value"].as_f64()?;
        Some(((word(line, "event"), word(line, "key")), value))
    };
    lines(text).iter().filter_map(of).collect()
}

fn assert_same(
    found: &BTreeMap<(String, String), f64>,
    expected: &BTreeMap<(String, String), f64>,
    times: f64,
) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (key, value) in expected {
        let (found, value) = (found[key], value * times);
        assert!((found - value).abs() <= value.abs() * 1e-9, "{key:?}: {found}, {value}");
    }
}

#[test]
fn a_roll_up_has_the_sums_of_all_hosts_or_of_one() {
    let place = place();
    let recorded = values(&place.run(["report", "one", "--json"]).ok());
    assert!(recorded.len() > 20, "{recorded:?}");
    let report = |more: &[&str]| {
        let args = [&["report", "rollups", "--json"], more].concat();
        values(&place.run(args).ok())
    };
    assert_same(&report(&[]), &recorded, 2.0);
    assert_same(&report(&["--host", "two"]), &recorded, 1.0);
    assert_same(&report(&["--host", "*"]), &recorded, 2.0);
    // A part of a day, by the wall clock: half of the time has less than the whole sum.
    let half = report(&["--from", "2026-11-23T09:00:10Z"]);
    let sum = |sums: &BTreeMap<_, f64>| sums.values().sum::<f64>();
    let part = sum(&half) / sum(&recorded) / 2.0;
    assert!((0.3..0.7).contains(&part), "{part}");
    let refused = place.run(["report", "rollups", "--host", "three"]).refused();
    assert!(refused.contains("rollups has no host three: it has one, two"), "{refused}");
    let refused = place.run(["report", "one", "--host", "two"]).refused();
    assert!(refused.contains("one has no host two: it has one"), "{refused}");
    place.run(["report", "one", "--host", "one"]).ok();
}

#[test]
fn every_command_that_reads_recordings_opens_a_roll_up() {
    let place = place();
    let text = place.run(["report", "rollups"]).ok();
    assert!(text.contains("one memory 0 in") && text.contains("/lab/train"), "{text}");
    let links = lines(&place.run(["report", "rollups", "--links", "--json"]).ok());
    let link = links
        .iter()
        .find(|link_line| link_line["link"] == "two memory 0" && link_line["direction"] == "both");
    assert_eq!(link.unwrap()["peak_per_s"], 48e9, "{links:?}");
    assert_eq!(link.unwrap()["peak_source"], "roll-up");
    let report_of_one = place.run(["report", "rollups", "--host", "one", "--links", "--json"]).ok();
    assert!(
        lines(&report_of_one).iter().any(|link_line| link_line["link"] == "memory 0"),
        "{report_of_one}"
    );
    let csv = place.run(["report", "rollups", "--csv"]).ok();
    assert!(csv.lines().count() > 20 && csv.starts_with("event,"), "{csv}");
    place.run(["report", "rollups", "--html", "page.html"]).ok();
    assert!(std::fs::read_to_string(place.path("page.html")).unwrap().contains("two memory 0"));
    let marks = place.run(["report", "rollups", "--marks", "--json"]).ok();
    assert_eq!(marks, "");
    let export = ["--csv", "rows.csv", "--arrow", "rows.arrow"];
    let args = [&["export", "rollups", "--perfetto", "trace"][..], &export].concat();
    place.run(args).ok();
    let rows = std::fs::read_to_string(place.path("rows.csv")).unwrap();
    let head = rows.lines().next().unwrap();
    assert!(head.starts_with("ts,mono_ns,") && head.ends_with(",known_ns,low,high"), "{head}");
    let diff =
        place.run(["diff", "rollups", "--before", "..10s", "--after", "10s..", "--json"]).ok();
    assert!(lines(&diff).len() > 10, "{diff}");
    let check = place.run(["check", "rollups"]).ok();
    assert!(check.contains("none failed"), "{check}");
    // A partition, and one file.
    let hour = HOUR;
    let whole = values(&place.run(["report", "rollups", "--json"]).ok());
    assert_same(&values(&place.run(["report", hour, "--json"]).ok()), &whole, 1.0);
    let file = file_of(&place, "one");
    let file = file.to_str().unwrap();
    assert_same(&values(&place.run(["report", file, "--json"]).ok()), &whole, 0.5);
    place.run(["check", file]).ok();
}

#[test]
fn questions_that_a_roll_up_cannot_answer_are_refused_in_one_line() {
    let place = place();
    for (args, says) in [
        (&["report", "rollups", "--by", "pid"][..], "has no processes: use --by cgroup"),
        (&["report", "rollups", "--latency"], "is a roll-up, which has no latencies"),
        (&["diff", "rollups", "one", "--by", "pid"], "has no processes: use --by cgroup"),
        (&["export", "rollups", "--csv", "-", "--table", "runtime"], "has no table runtime"),
        (&["rollup", "rollups", "-o", "more"], "is a roll-up, not a recording"),
        (&["attribute", "rollups", "-o", "more.parquet"], "is a roll-up, not a recording"),
        (&["cut", "rollups", "-o", "more/"], "is a roll-up, not a recording"),
        (&["repair", "rollups"], "is a roll-up, not a recording"),
        (&["report", "rollups", "--html", "rollups/page.html"], "inside the recording rollups"),
    ] {
        let line = place.run(args).refused();
        assert!(line.contains(says), "{args:?}: {line}");
    }
}

#[test]
fn a_damaged_roll_up_fails_the_check() {
    let place = place();
    let file = file_of(&place, "one");
    let whole = std::fs::read(&file).unwrap();
    // In a row group, and in the footer.
    for position in [2000, whole.len() - 2000] {
        let mut bytes = whole.clone();
        bytes[position] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let answer = place.run(["check", "rollups"]);
        assert_eq!(answer.code, 1, "{answer:?}");
        let line = answer.out.lines().find(|line| line.starts_with("FAILED")).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(line.contains("bytes are as written") && line.contains(name), "{answer:?}");
        assert!(answer.out.contains("1 FAILED: bytes are as written"), "{answer:?}");
        // The other host is sound.
        let check_of_two = place.run(["check", "rollups", "--host", "two"]).ok();
        assert!(check_of_two.contains("none failed"), "{check_of_two}");
        let refused = place.run(["report", "rollups"]).refused();
        assert!(refused.contains(name) && refused.contains("is damaged"), "{refused}");
        place.run(["report", "rollups", "--host", "two"]).ok();
    }
}

/// What a host wrote about another, or where nothing is.
#[test]
fn a_file_where_it_does_not_belong_fails_the_check_and_is_left_out_of_reports() {
    let place = place();
    let values_of_one = values(&place.run(["report", "rollups", "--json", "--host", "one"]).ok());
    let (intact_file, other_file) = (file_of(&place, "one"), file_of(&place, "two"));
    let hour = place.path(HOUR);
    let copied = hour.join("host=two").join(intact_file.file_name().unwrap());
    let moved = place.path("rollups/cluster=lab/date=2026-11-23/hour=10/host=one/_1.parquet");
    let foreign = place.path("rollups/cluster=other/date=2026-11-23/hour=09/host=one/_1.parquet");
    let above = hour.join("_1.parquet");
    std::fs::remove_file(&other_file).unwrap();
    for (to, says) in [
        (&copied, "it is of the host one, but is in host=two"),
        (&moved, "outside of its hour"),
        (&foreign, "it is of the cluster lab, but is in cluster=other"),
        (&above, "it is not at cluster=C/date=YYYY-MM-DD/hour=HH/host=NAME/BOOT_SECOND.parquet"),
    ] {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&intact_file, to).unwrap();
        let answer = place.run(["check", "rollups"]);
        assert_eq!(answer.code, 1, "{answer:?}");
        let line = answer.out.lines().find(|line| line.starts_with("FAILED")).unwrap();
        let name = to.strip_prefix(place.path("rollups")).unwrap().to_str().unwrap();
        assert!(line.contains(name) && line.contains(says), "{answer:?}");
        assert!(answer.out.contains("1 FAILED: files are in their place"), "{answer:?}");
        let answer = place.run(["report", "rollups", "--json"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let is_said = |line: &str| line.contains(name) && line.contains(says);
        assert!(answer.err.lines().any(is_said), "{answer:?}");
        assert_same(&values(&answer.out), &values_of_one, 1.0);
        // Where nothing else is, there is nothing to report.
        let hour_dir = to.parent().unwrap().to_str().unwrap();
        if !hour_dir.ends_with("hour=09") {
            let refused = place.run(["report", hour_dir]).refused();
            assert!(refused.contains(says), "{refused}");
            assert_eq!(place.run(["check", hour_dir]).code, 1, "{hour_dir}");
        }
        std::fs::remove_file(to).unwrap();
    }
    assert!(place.run(["check", "rollups"]).ok().contains("none failed"));
}

#[test]
fn check_takes_hosts_and_hours_of_a_roll_up() {
    let place = place();
    let check = |more: &[&str]| place.run([&["check", "rollups"], more].concat());
    let hour_span = ["--from", "2026-11-23T09:00:00Z", "--to", "2026-11-23T10:00:00Z"];
    let files = |more: &[&str]| {
        let report = check(&[&hour_span[..], more].concat()).ok();
        let line = report.lines().find(|line| line.contains("files are in their place"));
        line.unwrap().split_whitespace().rev().nth(1).unwrap().to_owned()
    };
    assert_eq!((files(&[]), files(&["--host", "one"])), ("2".to_owned(), "1".to_owned()));
    let empty_span = ["--from", "2026-11-23T12:00:00Z"];
    assert!(check(&empty_span).refused().contains("rollups has no windows in that time"));
    assert!(check(&["--from", "2s"]).refused().contains("write times such as"));
    let refused = place.run(["check", "one", "--to", "2026-11-23T10:00:00Z"]).refused();
    assert!(refused.contains("one is not a roll-up"), "{refused}");
}
