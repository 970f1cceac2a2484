use super::*;
use crate::schema::rollup;

/// Rows of a window: link, owner, cgroup, value.
fn window(rows: &[(Option<&str>, &str, Option<&str>, f64)]) -> RecordBatch {
    let mut builder = rollup::Builder::default();
    for (link, owner, cgroup, value) in rows {
        builder.append(&rollup::Row {
            ts: 1,
            mono_ns: 1,
            window_ns: 1,
            known_ns: 1,
            host: "h",
            boot_id: "b",
            socket: Some(1),
            subsystem: "mem",
            link: *link,
            direction: link.map(|_| "in"),
            peak: link.map(|_| 1e9),
            peak_direction: link.map(|_| "in"),
            pmu: "p",
            event: "e",
            filter: "f",
            unit: "bytes",
            owner,
            cgroup: *cgroup,
            value: Some(*value),
            running: 1.0,
            method: "exact",
            confidence: Some(0.5),
            ..rollup::Row::default()
        });
    }
    builder.finish()
}

/// The value of the series whose line begins so.
fn value(page: &str, begin: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(begin))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn is(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() < 1e-9)
}

#[test]
fn the_owners_of_a_link_sum_to_what_it_counted() {
    let mut metrics = Metrics::new(1);
    for _ in 0..2 {
        let rows = [
            (Some("memory 0"), "task", Some("/a"), 60.0),
            (Some("memory 0"), "task", Some("/b"), 30.0),
            (Some("memory 0"), "other_tasks", None, 4.0),
            (Some("memory 0"), "unattributed", None, 6.0),
            (None, "idle", None, 5.0),
        ];
        metrics.window(&window(&rows)).unwrap();
    }
    let page = metrics.page().unwrap();
    let link = "{link=\"memory 0\",direction=\"in\",socket=\"1\"";
    let owner = |owner: &str, cgroup: &str| {
        format!(
            "uncore_trace_owner_bytes_total{link},owner=\"{owner}\",owner_device=\"\",owner_cgroup=\"{cgroup}\""
        )
    };
    assert!(is(value(&page, &format!("uncore_trace_link_bytes_total{link}")), 200.0), "{page}");
    assert!(is(value(&page, &owner("task", "/a")), 120.0), "{page}");
    assert!(is(value(&page, &owner("other", "")), 68.0), "{page}");
    assert!(is(value(&page, &format!("uncore_trace_unattributed_bytes_total{link}")), 12.0));
    assert!(is(value(&page, &format!("uncore_trace_link_peak_bytes_per_second{link}")), 1e9));
    assert!(is(value(&page, "uncore_trace_event_total{event=\"e\""), 10.0), "{page}");
    assert_eq!(value(&page, &owner("task", "/b")), None);
}

#[test]
fn who_has_much_more_takes_the_series_and_no_counter_goes_down() {
    let mut metrics = Metrics::new(1);
    let mut sums = Vec::new();
    for second in 0..40 {
        let late = if second < 5 { 0.0 } else { 1000.0 };
        let rows =
            [(Some("l"), "task", Some("/first"), 10.0), (Some("l"), "task", Some("/late"), late)];
        metrics.window(&window(&rows)).unwrap();
        let page = metrics.page().unwrap();
        sums.push(value(&page, "uncore_trace_owner_bytes_total{link=\"l\",direction=\"in\",socket=\"1\",owner=\"other\"").unwrap());
    }
    let page = metrics.page().unwrap();
    assert!(page.contains("owner_cgroup=\"/late\"") && !page.contains("\"/first\""), "{page}");
    assert!(sums.windows(2).all(|pair| pair[0] <= pair[1]), "{sums:?}");
    // It increases by at most the bytes of a window.
    assert!(sums.windows(2).all(|pair| pair[1] - pair[0] <= 1010.0), "{sums:?}");
}

#[test]
fn a_heavy_newcomer_is_seen_among_many_that_are_gone() {
    let mut metrics = Metrics::new(1);
    // As many owners as may wait, and one more that moves more bytes than the one with a series.
    let names: Vec<String> = (0..100).map(|n| format!("/{n}")).collect();
    let mut rows: Vec<_> =
        names.iter().map(|name| (Some("l"), "task", Some(name.as_str()), 1e6)).collect();
    metrics.window(&window(&rows)).unwrap();
    rows = vec![(Some("l"), "task", Some("/0"), 1e6), (Some("l"), "task", Some("/new"), 4e6)];
    for _ in 0..2 {
        metrics.window(&window(&rows)).unwrap();
    }
    assert!(metrics.page().unwrap().contains("owner_cgroup=\"/new\""));
}

#[test]
fn fewer_owners_leave_fewer_series_and_what_has_none_is_counted() {
    let mut metrics = Metrics::new(3);
    let other = |page: &str| {
        let begin = "uncore_trace_owner_bytes_total{link=\"l\",direction=\"in\",socket=\"1\",owner=\"other\"";
        value(page, begin).unwrap()
    };
    let joined = |page: &str| value(page, "uncore_trace_owners_joined_total").unwrap();
    let rows = [
        (Some("l"), "task", Some("/a"), 30.0),
        (Some("l"), "task", Some("/b"), 20.0),
        (Some("l"), "task", Some("/c"), 10.0),
        (Some("l"), "other_tasks", None, 5.0),
    ];
    metrics.window(&window(&rows)).unwrap();
    let page = metrics.page().unwrap();
    assert!(is(Some(other(&page)), 5.0) && is(Some(joined(&page)), 1.0), "{page}");
    metrics.set_owners(1);
    metrics.window(&window(&rows)).unwrap();
    let page = metrics.page().unwrap();
    assert!(
        page.contains("\"/a\"") && !page.contains("\"/b\"") && !page.contains("\"/c\""),
        "{page}"
    );
    // Two owners lost their series at the end of that window. The counter of the others continues.
    assert!(is(Some(other(&page)), 10.0) && is(Some(joined(&page)), 4.0), "{page}");
    metrics.window(&window(&rows)).unwrap();
    let page = metrics.page().unwrap();
    assert!(is(Some(other(&page)), 45.0) && is(Some(joined(&page)), 7.0), "{page}");
}

#[test]
fn what_holds_is_one_loss_in_all_parts() {
    let part =
        |late| BTreeMap::from([("not_opened".to_owned(), 2), ("late_tick".to_owned(), late)]);
    let mut totals = BTreeMap::new();
    for late in [3, 4] {
        add_lost(&mut totals, &part(late));
    }
    assert_eq!(totals, part(7));
}

#[test]
fn series_and_memory_are_bounded() {
    let mut metrics = Metrics::new(3);
    for window_number in 0..50 {
        let names: Vec<String> = (0..100).map(|n| format!("/{window_number}/{n}")).collect();
        let rows: Vec<_> =
            names.iter().map(|name| (Some("l"), "task", Some(name.as_str()), 1.0)).collect();
        metrics.window(&window(&rows)).unwrap();
    }
    let counted = metrics.things.values().next().unwrap();
    assert!(counted.shown.len() <= 3 && counted.waiting.len() <= 12, "{counted:?}");
    let links: Vec<String> = (0..NAMES + 5).map(|n| format!("link {n}")).collect();
    let rows: Vec<_> = links.iter().map(|link| (Some(link.as_str()), "idle", None, 1.0)).collect();
    metrics.window(&window(&rows)).unwrap();
    assert_eq!((metrics.things.len(), metrics.left_out), (NAMES, 6));
}

#[test]
fn what_a_tenant_chose_is_escaped() {
    let mut metrics = Metrics::new(3);
    let rows = [(Some("l"), "task", Some("/a\"} 1\nforged 2\\"), 1.0)];
    metrics.window(&window(&rows)).unwrap();
    let page = metrics.page().unwrap();
    assert!(!page.lines().any(|line| line.starts_with("forged")), "{page}");
    assert!(page.contains("/a\\\"} 1\\nforged 2\\\\"), "{page}");
}
