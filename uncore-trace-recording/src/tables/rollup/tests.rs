use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use arrow::array::Array as _;

use super::*;
use crate::clock::{RollupTime, TimeSpan};
use crate::schema::SCHEMA_VERSION;
use crate::schema::columns::{self, nullable_value};
use crate::tables::hours::Hours;
use crate::tables::mode::FileMode;
use crate::tables::reader::Recording;

const SECOND: i64 = 1_000_000_000;
const WINDOW: i64 = 10 * SECOND;
/// 2026-11-24 00:00 UTC, ns.
const DAY: i64 = 1_795_478_400 * SECOND;

/// What a host has in one window of one counter: values of two cgroups and the time that is known.
#[derive(Clone, Copy)]
struct HostWindow {
    /// Which since the boot.
    number: i64,
    event: &'static str,
    values: Option<[f64; 2]>,
    known_ns: i64,
}

impl HostWindow {
    fn of(number: i64, event: &'static str, values: [f64; 2]) -> Self {
        Self { number, event, values: Some(values), known_ns: WINDOW }
    }
}

/// A boot of a host, which began at this wall time.
struct Boot<'a> {
    root: &'a Path,
    host: &'a str,
    id: &'a str,
    wall_ns: i64,
}

impl Boot<'_> {
    /// Writes windows into files of their hours; what is `live` is not finished.
    fn write(&self, windows: &[HostWindow], live: bool) {
        self.write_below(self.host, windows, live);
    }

    /// The same, where path and footer say another host.
    fn write_below(&self, host: &str, windows: &[HostWindow], live: bool) {
        let pairs = [
            (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
            (metadata::HOST, host.to_owned()),
            (metadata::BOOT_ID, self.id.to_owned()),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value)).into();
        let mut hours =
            Hours::open(self.root, FileMode::default(), rollup::file_metadata(&pairs)).unwrap();
        for window in windows {
            let mono_ns = window.number * WINDOW;
            let ts = self.wall_ns + mono_ns;
            let mut rows = rollup::Builder::default();
            for cgroup in 0..2 {
                let value = window.values.map(|values| values[cgroup]);
                let link = (window.event == "rd").then_some("memory 0");
                rows.append(&rollup::Row {
                    ts,
                    mono_ns,
                    window_ns: WINDOW,
                    known_ns: window.known_ns,
                    host: self.host,
                    boot_id: self.id,
                    cluster: None,
                    socket: Some(0),
                    subsystem: "mem",
                    link,
                    direction: link.map(|_| "in"),
                    peak: link.map(|_| 64e9),
                    peak_direction: link.map(|_| "both"),
                    pmu: "p0",
                    event: window.event,
                    filter: "",
                    unit: "bytes",
                    owner: "task",
                    number: None,
                    comm: None,
                    cgroup: Some(["/a", "/b"][cgroup]),
                    container: None,
                    pod: None,
                    value,
                    low: value,
                    high: value,
                    total: window.values.map(|values| values[0] + values[1]),
                    running: 1.0,
                    method: "exact",
                    confidence: None,
                    job: None,
                });
            }
            hours.write(RollupTime { ts_us: ts / 1000, mono_ns }, &rows.finish()).unwrap();
        }
        if live {
            hours.seal_rows().unwrap();
            // As if the process was killed: what is sealed stays.
            std::mem::forget(hours);
        } else {
            hours.finish_hour().unwrap();
        }
    }
}

fn open(root: &Path, hosts: &[&str]) -> Result<Recording> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    Recording::open_selection(root, &RollupSelection { hosts, ..RollupSelection::default() })
}

/// End, counter, cgroup, value, total and known time of the rows between two times.
type FoundRows = Vec<(i64, i32, String, Option<f64>, Option<f64>, i64)>;

fn rows(recording: &Recording, wanted: RangeInclusive<i64>) -> FoundRows {
    let table = recording.open_table(&fabric::TABLE).unwrap();
    let asked = ["mono_ns", "counter", "cgroup", "value", "total", "known_ns", "pid", "cpu"];
    let mut found = Vec::new();
    for batch in table.scan_within(&asked, TIME, wanted).unwrap() {
        let batch = batch.unwrap();
        let cgroups = columns::word_column(&batch, "cgroup").unwrap();
        let (values, totals) = (
            columns::f64_column(&batch, "value").unwrap(),
            columns::f64_column(&batch, "total").unwrap(),
        );
        for row in 0..batch.num_rows() {
            assert!(columns::i32_column(&batch, "pid").unwrap().is_null(row));
            found.push((
                columns::i64_column(&batch, "mono_ns").unwrap().value(row),
                columns::i32_column(&batch, "counter").unwrap().value(row),
                cgroups.get(row).unwrap().to_owned(),
                nullable_value(values, row),
                nullable_value(totals, row),
                columns::i64_column(&batch, "known_ns").unwrap().value(row),
            ));
        }
    }
    found
}

const ALWAYS: RangeInclusive<i64> = i64::MIN..=i64::MAX;

#[test]
fn the_windows_of_hosts_meet_on_one_clock_and_come_in_their_order() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let boot = |host, id, wall_ns| Boot { root, host, id, wall_ns };
    let windows = |from: i64, to: i64, event: &'static str| -> Vec<HostWindow> {
        (from..to).map(|number| HostWindow::of(number, event, [1.0, 2.0])).collect()
    };
    // Clocks that were started at different times, one of them off the seconds of the other; over
    // an hour's end and a boot.
    boot("one", "aaaaaaaa", DAY).write(&windows(300, 500, "rd"), false);
    boot("two", "bbbbbbbb", DAY + 2000 * SECOND + 4_999_000_000)
        .write(&windows(100, 300, "rd"), false);
    boot("two", "cccccccc", DAY + 5010 * SECOND).write(&windows(1, 100, "wr"), false);
    let recording = open(root, &[]).unwrap();
    let found = rows(&recording, ALWAYS);
    assert_eq!(found.len(), 2 * (200 + 200 + 99));
    assert!(found.is_sorted_by_key(|row| row.0));
    assert!(found.iter().all(|row| row.0 % WINDOW == 0 && row.5 == WINDOW));
    let counters: BTreeSet<i32> = found.iter().map(|row| row.1).collect();
    assert_eq!(counters, (0..3).collect());
    // Both hosts have windows up to 4990 s of the day, and one of them was started again after
    // that.
    let at = |seconds: i64| found.iter().filter(|row| row.0 == DAY + seconds * SECOND).count();
    assert_eq!((at(3000), at(3010), at(4990), at(5000), at(5020)), (4, 4, 4, 0, 2));
    let bounds = (DAY + 3000 * SECOND, DAY + 6000 * SECOND);
    let table = recording.open_table(&fabric::TABLE).unwrap();
    assert_eq!((table.column_bounds(TIME), table.row_count()), (Some(bounds), found.len() as i64));
    // A part of it has the rows and the counters of the whole.
    let part = DAY + 4000 * SECOND..=DAY + 5500 * SECOND;
    let expected: FoundRows = found.iter().filter(|row| part.contains(&row.0)).cloned().collect();
    assert_eq!(rows(&recording, part), expected);
    // Links are told apart by their hosts, and say where their peak is from.
    let plan: serde_json::Value =
        serde_json::from_str(&table.metadata_pairs()[metadata::PLAN]).unwrap();
    let links = plan["links"].as_array().unwrap();
    let names: Vec<&str> = links.iter().map(|link| link["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one memory 0", "two memory 0"]);
    assert_eq!(links[0]["kind"], "memory");
    assert_eq!(links[0]["peaks"][0]["source"], "roll-up");
    assert_eq!(links[0]["peaks"][0]["direction"], "both");
    assert_eq!(plan["counters"].as_array().unwrap().len(), 3);
    assert_eq!(table.metadata_pairs().get(metadata::HOST), None);
    assert_eq!(table.metadata_pairs()[metadata::INTERVAL_NS], WINDOW.to_string());
}

#[test]
fn hosts_are_named_or_matched_and_one_keeps_its_clock() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    for (host, value) in [("web-1", 1.0), ("web-2", 10.0), ("db-1", 100.0)] {
        let of = Boot { root, host, id: "aaaaaaaa", wall_ns: DAY };
        of.write(&[HostWindow::of(7, "rd", [value, value])], false);
    }
    let sum = |hosts: &[&str]| -> f64 {
        rows(&open(root, hosts).unwrap(), ALWAYS).iter().filter_map(|row| row.3).sum()
    };
    assert_eq!(
        (sum(&[]), sum(&["web-*"]), sum(&["db-1"]), sum(&["web-2", "db-1", "web-2"])),
        (222.0, 22.0, 200.0, 220.0)
    );
    let one = open(root, &["db-1"]).unwrap();
    assert_eq!(rows(&one, ALWAYS)[0].0, 7 * WINDOW);
    let pairs = one.open_table(&fabric::TABLE).unwrap().metadata_pairs().clone();
    assert_eq!(pairs[metadata::HOST], "db-1");
    assert!(pairs[metadata::PLAN].contains("\"name\":\"memory 0\""), "{pairs:?}");
    let error = open(root, &["db-1", "mail-*"]).unwrap_err().to_string();
    assert!(error.ends_with("has no host mail-*: it has db-1, web-1, web-2"), "{error}");
}

#[test]
fn a_window_in_two_files_is_one_with_the_sum_of_what_is_known() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let boot = Boot { root, host: "one", id: "aaaaaaaa", wall_ns: DAY };
    let part = |values, known_ns| HostWindow { number: 8, event: "rd", values, known_ns };
    boot.write(&[HostWindow::of(7, "rd", [1.0, 2.0]), part(Some([3.0, 4.0]), WINDOW / 2)], false);
    boot.write(&[part(Some([5.0, 6.0]), WINDOW / 4), part(None, 0)], false);
    boot.write(&[part(None, 0)], false);
    let found = rows(&open(root, &[]).unwrap(), 8 * WINDOW..=8 * WINDOW);
    let values: Vec<f64> = found.iter().filter_map(|row| row.3).collect();
    assert_eq!((values.len(), values.iter().sum::<f64>()), (4, 18.0));
    for row in found.iter().filter(|row| row.3.is_some()) {
        assert_eq!((row.4, row.5), (Some(18.0), WINDOW * 3 / 4));
    }
    assert_eq!(rows(&open(root, &[]).unwrap(), ALWAYS)[0].4, Some(3.0));
}

#[test]
fn an_hour_that_is_written_has_what_is_sealed_and_other_files_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let boot = Boot { root, host: "one", id: "aaaaaaaa", wall_ns: DAY };
    boot.write(&[HostWindow::of(1, "rd", [1.0, 2.0])], false);
    boot.write(&[HostWindow::of(2, "rd", [3.0, 4.0])], true);
    let found = rows(&open(root, &[]).unwrap(), ALWAYS);
    let values: Vec<f64> = found.iter().filter_map(|row| row.3).collect();
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
    let error = Recording::open(root).unwrap_err().to_string();
    assert!(error.contains("is a roll-up, not a recording: `report`"), "{error}");
    // Of one hour, and one file.
    let hour = root.join("cluster=default/date=2026-11-24/hour=00/host=one");
    assert_eq!(rows(&open(&hour, &[]).unwrap(), ALWAYS), found);
    let file = hour.join("aaaaaaaa_0000000010.parquet");
    assert_eq!(rows(&open(&file, &[]).unwrap(), ALWAYS).len(), 2);
    let error = Recording::open(&file).unwrap_err().to_string();
    assert!(error.contains("is a roll-up, not a recording"), "{error}");
    let foreign = hour.join("_2.parquet");
    std::fs::write(&foreign, "not Parquet").unwrap();
    let error = format!("{:#}", open(root, &[]).unwrap_err());
    assert!(error.contains("_2.parquet is not a readable Parquet file"), "{error}");
    let nothing = tempfile::tempdir().unwrap();
    let error = open(nothing.path(), &[]).unwrap_err().to_string();
    assert!(error.contains("holds no recording"), "{error}");
}

/// What is left out, by the end of its path.
fn left_out(root: &Path) -> Vec<(String, String)> {
    let recording = Recording::open_selection(root, &RollupSelection::default()).unwrap();
    let name = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
    recording.left_out().iter().map(|it| (name(&it.path), it.why.clone())).collect()
}

#[test]
fn a_file_that_does_not_belong_where_it_lies_is_left_out() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let of = |host| Boot { root, host, id: "aaaaaaaa", wall_ns: DAY };
    let window = HostWindow::of(7, "rd", [1.0, 2.0]);
    of("one").write(&[window], false);
    let alone = rows(&open(root, &[]).unwrap(), ALWAYS);
    let hour = "cluster=default/date=2026-11-24/hour=00";
    let file = "aaaaaaaa_0000000070.parquet";
    let good = root.join(hour).join("host=one").join(file);
    of("two").write_below("three", &[window], false);
    let mut expected = vec![(
        format!("{hour}/host=three/{file}"),
        "it has rows of the host two, and its footer says three".to_owned(),
    )];
    for (to, why) in [
        (format!("{hour}/host=two/{file}"), "it is of the host one, but is in host=two"),
        (
            format!("cluster=c/date=2026-11-24/hour=00/host=one/{file}"),
            "it is of the cluster default, but is in cluster=c",
        ),
        (
            format!("cluster=default/date=2026-11-24/hour=01/host=one/{file}"),
            "it has a window that ends at 2026-11-24T00:01:10Z, outside of its hour",
        ),
        (
            format!("cluster=default/date=2026-11-23/hour=00/host=one/{file}"),
            "it has a window that ends at 2026-11-24T00:01:10Z, outside of its hour",
        ),
    ] {
        std::fs::create_dir_all(root.join(&to).parent().unwrap()).unwrap();
        std::fs::copy(&good, root.join(&to)).unwrap();
        expected.push((to, why.to_owned()));
    }
    let shape = format!("it is not at {}", layout::SHAPE);
    for to in [
        file.to_owned(),
        format!("cluster=default/{file}"),
        format!("{hour}/{file}"),
        format!("{hour}/host=one/copy.parquet"),
    ] {
        std::fs::copy(&good, root.join(&to)).unwrap();
        expected.push((to, shape.clone()));
    }
    for to in ["hour=25", "host=%41"] {
        let to = format!("cluster=default/date=2026-11-24/{to}");
        std::fs::create_dir_all(root.join(&to).join("host=x")).unwrap();
        expected.push((to, shape.clone()));
    }
    let deep = format!("{hour}/host=one/hour=00");
    std::fs::create_dir_all(root.join(&deep).join("host=two")).unwrap();
    expected.push((deep, shape));
    let mut found = left_out(root);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(rows(&open(root, &[]).unwrap(), ALWAYS), alone);
    // A part that was copied without the directories above it, and a file of it.
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("host=one")).unwrap();
    let copied = copy.path().join("host=one").join(file);
    std::fs::copy(&good, &copied).unwrap();
    for at in [copy.path(), &copy.path().join("host=one"), &copied] {
        assert_eq!(rows(&open(at, &[]).unwrap(), ALWAYS), alone, "{}", at.display());
    }
    // Nothing of the layout at all.
    let former = tempfile::tempdir().unwrap();
    std::fs::copy(&good, former.path().join("one_aaaaaaaa_1.parquet")).unwrap();
    let error = open(former.path(), &[]).unwrap_err().to_string();
    assert!(error.contains("holds no roll-up: ") && error.contains(layout::SHAPE), "{error}");
}

#[test]
fn directories_of_other_hosts_and_hours_are_not_opened() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let hours = |hour: i64| hour * 360;
    for host in ["one", "two"] {
        for hour in [9, 10, 11, 13] {
            let boot = Boot { root, host, id: "aaaaaaaa", wall_ns: DAY };
            boot.write(&[HostWindow::of(hours(hour) + 180, "rd", [1.0, 2.0])], false);
        }
    }
    let of = |hosts: &[&str], from: i64, to: i64| {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let at = |hour: i64| DAY + hours(hour) * WINDOW;
        Recording::open_selection(
            root,
            &RollupSelection { hosts, wall_span: Some(TimeSpan::new(at(from), at(to))) },
        )
    };
    let one = of(&["one"], 10, 11).unwrap();
    assert_eq!(rows(&one, ALWAYS).len(), 2);
    assert_eq!(rows(&of(&[], 10, 12).unwrap(), ALWAYS).len(), 8);
    // Would be refused if they were opened.
    for (host, hour) in [("one", "13"), ("two", "10"), ("two", "13")] {
        let dir = root.join(format!("cluster=default/date=2026-11-24/hour={hour}/host={host}"));
        std::fs::write(dir.join("_1.parquet"), "not Parquet").unwrap();
    }
    assert_eq!(rows(&of(&["one"], 10, 12).unwrap(), ALWAYS).len(), 4);
    assert!(of(&["one"], 13, 14).is_err() && of(&[], 10, 12).is_err());
    let error = of(&["three"], 10, 11).unwrap_err().to_string();
    assert!(error.ends_with("has no host three: it has one, two"), "{error}");
    let error = of(&[], 16, 17).unwrap_err().to_string();
    assert!(error.ends_with("has no windows in that time"), "{error}");
}
