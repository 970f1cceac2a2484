//! A made recording in which the latency depends on the others' traffic.

use std::collections::BTreeMap;

use super::super::grouping::GroupBy;
use super::super::render::TextStyle;
use super::super::sample::{Broken, INTACT, SampleRecording, WINDOWS, sample_link, sample_plan};
use super::*;
use crate::catalog::metric::{MetricValue, evaluate_metric};
use crate::schema::metric::{Across, Input};
use crate::schema::{fabric, metadata};
use crate::terminal::cells;

/// The link of counter 0 has a latency: counter 1 (ns) / reads of 64 bytes.
fn with_latency(pairs: &mut BTreeMap<String, String>) {
    let input = |name: &str, counter| Input { name: name.to_owned(), counter: Some(counter) };
    let mut link = sample_link(Vec::new());
    link.latencies = vec![PlannedMetric {
        name: "mem_read_latency".to_owned(),
        about: "time in which a read is answered".to_owned(),
        unit: "ns".to_owned(),
        formula: "waiting / (bytes / 64)".to_owned(),
        across: Across::Pool,
        family: "test_pmu".to_owned(),
        pmu: "test_pmu_0".to_owned(),
        filter: String::new(),
        cpu: 0,
        socket: Some(0),
        per_cpu: false,
        inputs: vec![input("waiting", 1), input("bytes", 0)],
        constants: BTreeMap::new(),
    }];
    pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![link]));
}

/// A second latency, `other`, made from the first by `change`.
fn with_two(pairs: &mut BTreeMap<String, String>, change: impl FnOnce(&mut serde_json::Value)) {
    with_latency(pairs);
    let mut plan: serde_json::Value = serde_json::from_str(&pairs[metadata::PLAN]).unwrap();
    let latencies = plan["links"][0]["latencies"].as_array_mut().unwrap();
    let mut other = latencies[0].clone();
    other["name"] = "other".into();
    change(&mut other);
    latencies.push(other);
    pairs.insert(metadata::PLAN.to_owned(), plan.to_string());
}

/// Bytes that `/tenant` and `/other` read in a window, and the latency of a read in ns. In every
/// second block of ten windows `/other` reads much, and the latency is higher.
fn window(number: usize) -> (f64, f64, f64) {
    let is_more = number.is_multiple_of(4);
    let own_bytes = if is_more { 640e3 } else { 320e3 };
    match (number / 10 % 2 == 1, is_more) {
        (true, _) => (own_bytes, 480e3, 148.0),
        (false, true) => (own_bytes, 16e3, 130.0),
        (false, false) => (own_bytes, 16e3, 100.0),
    }
}

/// Value of each of two further owners.
const OTHER_VALUE: f64 = 80e3;

fn set_window(row: &mut fabric::Row<'_>, (own, other, ns): (f64, f64, f64)) {
    let bytes = own + other + 2.0 * OTHER_VALUE;
    let value = match row.pid {
        Some(100) => own,
        Some(200) => other,
        _ => OTHER_VALUE,
    };
    let (value, total) = match row.event {
        "read_bytes" => (value, bytes),
        _ => (bytes / 64.0 * ns / 4.0, bytes / 64.0 * ns),
    };
    (row.value, row.total) = (Some(value), Some(total));
}

const WAITS: Broken = Broken {
    fabric: |row, number| {
        set_window(row, window(number / 8));
        true
    },
    metadata: with_latency,
    ..INTACT
};

fn by_cgroup() -> ReportQuestion<'static> {
    ReportQuestion::grouped_by(GroupBy::Cgroup)
}

fn latencies_of(broken: &Broken, question: &ReportQuestion<'_>) -> Vec<LinkLatency> {
    let sample = SampleRecording::new(false, broken);
    let recording = sample.open();
    let links = Links::from_recording(&recording).unwrap();
    let value: Evaluate = |metrics, count, ns| match evaluate_metric(metrics, count, ns) {
        MetricValue::Number(value) => Some(value),
        _ => None,
    };
    latencies(&recording, &links, question, value).unwrap()
}

fn assert_near(value: Option<f64>, expected: f64) {
    assert!(
        value.is_some_and(|number| (number - expected).abs() <= 1e-9 * expected),
        "{value:?} {expected}"
    );
}

/// Ratio of sums over the wanted windows, and their number.
fn pooled_latency(is_selected: impl Fn(usize) -> bool) -> (f64, u64) {
    let (mut total_ns, mut reads, mut windows) = (0.0, 0.0, 0);
    for (own_bytes, other_bytes, ns) in
        (0..WINDOWS as usize).filter(|number| is_selected(*number)).map(window)
    {
        let count = (own_bytes + other_bytes + 2.0 * OTHER_VALUE) / 64.0;
        (total_ns, reads, windows) = (total_ns + count * ns, reads + count, windows + 1);
    }
    (total_ns / reads, windows)
}

#[test]
fn a_tenant_waits_longer_with_others_busy() {
    let tenant_latencies = latencies_of(&WAITS, &by_cgroup());
    let [latency] = tenant_latencies.as_slice() else { panic!("{tenant_latencies:#?}") };
    assert_eq!((latency.link.as_str(), latency.metric.as_str()), ("memory 0", "mem_read_latency"));
    assert_eq!((latency.overall.windows, latency.unknown_windows), (WINDOWS as u64, 0));
    assert_near(latency.overall.value, pooled_latency(|_| true).0);
    let names: Vec<&str> = latency.tenants.iter().map(|tenant| tenant.key.as_str()).collect();
    assert_eq!(names, ["/tenant\u{1b}[2J", "/other"], "nobody waits who is no task");

    let [quiet, busy] = latency.tenants[0].split.unwrap();
    let (expected, windows) = pooled_latency(|number| number / 10 % 2 == 0);
    // The mean of the windows' latencies differs from it.
    assert!((expected - 107.5).abs() > 2.0, "{expected}");
    assert_near(quiet.value, expected);
    assert_near(busy.value, 148.0);
    assert_eq!((quiet.windows, busy.windows, windows), (150, 150, 150));
    assert_near(Some(quiet.others_per_s), (2.0 * OTHER_VALUE + 16e3) * 100.0);
    assert_near(Some(busy.others_per_s), (2.0 * OTHER_VALUE + 480e3) * 100.0);
    assert_near(latency.tenants[0].latency_difference(), 148.0 - expected);

    // `/other` uses the link only in its own blocks, where its latency is that with others busy.
    let second_tenant = &latency.tenants[1];
    let [quiet, busy] = second_tenant.split.unwrap();
    assert_eq!(second_tenant.used.windows, 150);
    assert_near(quiet.value, 148.0);
    assert_near(busy.value, 148.0);
    assert!(quiet.windows > busy.windows && busy.windows >= MIN_WINDOWS, "{second_tenant:?}");
}

#[test]
fn a_formula_may_have_the_time_and_a_link_several_latencies() {
    let clocked = Broken {
        metadata: |pairs| {
            with_two(pairs, |other| {
                other["formula"] = "waiting / bytes / (bytes / duration_ns)".into();
            });
        },
        ..WAITS
    };
    let tenant_latencies = latencies_of(&clocked, &by_cgroup());
    let names: Vec<&str> = tenant_latencies.iter().map(|latency| latency.metric.as_str()).collect();
    assert_eq!(names, ["mem_read_latency", "other"]);
    let (waits, clocked) = (tenant_latencies[0].overall, tenant_latencies[1].overall);
    // Bytes per ns, over all windows.
    let rate = waits.own_per_s / 1e9;
    assert_near(clocked.value, waits.value.unwrap() / 64.0 / rate);
}

/// Others move 240 kB in every second window, and `more` in the windows in between.
fn alternates(row: &mut fabric::Row<'_>, number: usize, more: f64) -> bool {
    let (own_bytes, _, ns) = window(number / 8);
    let is_even = (number / 8).is_multiple_of(2);
    set_window(row, (own_bytes, if is_even { 240e3 } else { 240e3 + more }, ns));
    true
}

#[test]
fn few_windows_or_equally_busy_others_give_no_split() {
    let short = ReportQuestion { end: Some("300ms".parse().unwrap()), ..by_cgroup() };
    let tenant = latencies_of(&WAITS, &short).remove(0).tenants.remove(0);
    assert_eq!((tenant.used.windows, tenant.split), (30, None));
    assert_near(tenant.used.value, pooled_latency(|number| number < 30).0);

    // On average, more than 800 kB go over the link in a window.
    let steady = Broken { fabric: |row, number| alternates(row, number, 40e3), ..WAITS };
    let unsteady = Broken { fabric: |row, number| alternates(row, number, 160e3), ..WAITS };
    for (broken, is_known) in [(&steady, false), (&unsteady, true)] {
        let tenants = latencies_of(broken, &by_cgroup()).remove(0).tenants;
        let tenant = tenants.iter().find(|tenant| tenant.key.starts_with("/tenant")).unwrap();
        assert_eq!((tenant.used.windows, tenant.split.is_some()), (300, is_known));
    }
}

#[test]
fn windows_that_are_not_known_are_in_no_part() {
    let gaps = Broken {
        fabric: |row, number| {
            (WAITS.fabric)(row, number);
            // Of the busy windows, 50 have no known latency, and 50 no known traffic.
            let (counter, is_busy) = (usize::from(row.event == "read_bytes"), number / 80 % 2 == 1);
            if is_busy && number / 800 == 1 + counter {
                (row.value, row.total) = (None, None);
            }
            true
        },
        metadata: |pairs| {
            with_two(pairs, |other| {
                other["formula"] = "waiting / duration_ns".into();
                other["inputs"].as_array_mut().unwrap().truncate(1);
            });
        },
        ..WAITS
    };
    let mut tenant_latencies = latencies_of(&gaps, &by_cgroup());
    // The same for a latency that shares no counter with the link.
    let unlinked_latency = tenant_latencies.pop().unwrap();
    let latency = tenant_latencies.remove(0);
    assert_eq!((unlinked_latency.unknown_windows, unlinked_latency.overall.windows), (100, 200));
    assert_eq!((latency.unknown_windows, latency.overall.windows), (100, 200));
    let [quiet, busy] = latency.tenants[0].split.unwrap();
    assert_eq!((quiet.windows, busy.windows), (150, 50));
    assert_near(quiet.value, pooled_latency(|number| number / 10 % 2 == 0).0);
    assert_near(busy.value, 148.0);
}

#[test]
fn without_a_latency_or_tenants_there_are_no_latencies() {
    assert_eq!(latencies_of(&INTACT, &by_cgroup()), []);
    assert_eq!(latencies_of(&WAITS, &ReportQuestion { grouping: GroupBy::Pmu, ..by_cgroup() }), []);
    assert_eq!(text::render_text(&[], GroupBy::Cgroup, None, TextStyle::default()), "");
    // No reads, so there is no latency.
    let idle = Broken {
        fabric: |row, _| {
            (row.value, row.total) = (Some(0.0), Some(0.0));
            true
        },
        ..WAITS
    };
    let latency = latencies_of(&idle, &by_cgroup()).remove(0);
    assert_eq!((latency.overall.value, latency.tenants.len()), (None, 0));
}

#[test]
fn the_text_of_latencies_fits_and_claims_no_cause() {
    let tenant_latencies = latencies_of(&WAITS, &by_cgroup());
    let mut shown = Vec::new();
    for width in (60..160).step_by(7).chain([80]) {
        for ascii in [false, true] {
            let style = TextStyle { ascii, width: Some(width) };
            let text = text::render_text(&tenant_latencies, GroupBy::Cgroup, None, style);
            assert!(text.lines().all(|line| cells(line) <= width), "{width}:\n{text}");
            assert!(!text.contains('\u{1b}') && (text.is_ascii() || !ascii), "{text}");
            assert!(text.replace('\n', " ").contains("(correlation, not cause)"), "{text}");
            if width == 80 {
                shown.push(text);
            }
        }
    }
    shown.push(text::render_text(
        &tenant_latencies,
        GroupBy::Cgroup,
        Some(1),
        TextStyle::default(),
    ));
    let short = ReportQuestion { end: Some("300ms".parse().unwrap()), ..by_cgroup() };
    shown.push(text::render_text(
        &latencies_of(&WAITS, &short),
        GroupBy::Cgroup,
        None,
        TextStyle::default(),
    ));
    insta::assert_snapshot!("latency", shown.join("---\n"));
}

#[test]
fn json_lines_have_the_overall_line_first_and_null_for_unknown() {
    let short = ReportQuestion { end: Some("300ms".parse().unwrap()), ..by_cgroup() };
    for (question, is_known) in [(by_cgroup(), true), (short, false)] {
        let text = json::write_json_lines(&latencies_of(&WAITS, &question), GroupBy::Cgroup, true)
            .unwrap();
        assert!(!text.contains('\u{1b}'));
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0]["key"].is_null() && lines[0]["used"]["others_per_s"].is_null());
        for line in &lines[1..] {
            assert_eq!((&line["link"], &line["owner"]), (&"memory 0".into(), &"task".into()));
            assert_eq!(line["quiet"].is_null(), !is_known, "{line}");
            assert_eq!(line["difference"].is_null(), !is_known, "{line}");
        }
        assert_eq!(lines[1]["busy"]["latency"].as_f64(), is_known.then_some(148.0));
    }
}
