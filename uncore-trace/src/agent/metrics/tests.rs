use super::*;
use crate::schema::rollup;

/// A row without link and owner.
fn row() -> rollup::Row<'static> {
    rollup::Row {
        ts: 1,
        mono_ns: 1,
        window_ns: 10_000_000_000,
        known_ns: 1,
        host: "h",
        boot_id: "b",
        socket: Some(1),
        subsystem: "mem",
        pmu: "p",
        event: "e",
        filter: "f",
        unit: "bytes",
        running: 1.0,
        method: "exact",
        confidence: Some(0.5),
        ..rollup::Row::default()
    }
}

/// Rows of a window: link, owner, cgroup, value. An interval is 10 either way.
fn window(rows: &[(Option<&str>, &str, Option<&str>, f64)]) -> RecordBatch {
    let mut builder = rollup::Builder::default();
    for (link, owner, cgroup, value) in rows {
        builder.append(&rollup::Row {
            link: *link,
            direction: link.map(|_| "in"),
            peak: link.map(|_| 1e9),
            peak_direction: link.map(|_| "in"),
            owner,
            cgroup: *cgroup,
            value: Some(*value),
            low: Some(*value - 10.0),
            high: Some(*value + 10.0),
            ..row()
        });
    }
    builder.finish()
}

/// The value of the series whose line begins so.
fn value(page: &str, begin: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(begin))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn is_near(actual: Option<f64>, expected: f64) -> bool {
    actual.is_some_and(|actual_value| (actual_value - expected).abs() < 1e-9)
}

#[test]
fn the_owners_of_a_link_sum_to_its_count() {
    let mut metrics = MetricsPage::new(1);
    // In the first three windows no owner has a series.
    for _ in 0..5 {
        let rows = [
            (Some("memory 0"), "task", Some("/a"), 60.0),
            (Some("memory 0"), "task", Some("/b"), 30.0),
            (Some("memory 0"), "other_tasks", None, 4.0),
            (Some("memory 0"), "unattributed", None, 6.0),
            (None, "idle", None, 5.0),
        ];
        metrics.add_window(&window(&rows)).unwrap();
    }
    let page = metrics.encode_page().unwrap();
    let link = "{link=\"memory 0\",direction=\"in\",socket=\"1\"";
    let owner = |owner: &str, cgroup: &str| {
        format!(
            "uncore_trace_owner_bytes_total{link},owner=\"{owner}\",owner_device=\"\",owner_cgroup=\"{cgroup}\""
        )
    };
    assert!(
        is_near(value(&page, &format!("uncore_trace_link_bytes_total{link}")), 500.0),
        "{page}"
    );
    assert!(is_near(value(&page, &owner("task", "/a")), 120.0), "{page}");
    assert!(is_near(value(&page, &owner("other", "")), 350.0), "{page}");
    assert!(is_near(value(&page, &format!("uncore_trace_unattributed_bytes_total{link}")), 30.0));
    assert!(is_near(value(&page, &format!("uncore_trace_link_peak_bytes_per_second{link}")), 1e9));
    assert!(is_near(value(&page, "uncore_trace_event_bytes_total{event=\"e\""), 25.0), "{page}");
    assert_eq!(value(&page, &owner("task", "/b")), None);
}

#[test]
fn a_tenant_with_much_more_takes_a_series_and_no_counter_goes_down() {
    let mut metrics = MetricsPage::new(1);
    let mut sums = Vec::new();
    for second in 0..40 {
        let late = if second < 5 { 0.0 } else { 1000.0 };
        let rows =
            [(Some("l"), "task", Some("/first"), 10.0), (Some("l"), "task", Some("/late"), late)];
        metrics.add_window(&window(&rows)).unwrap();
        let page = metrics.encode_page().unwrap();
        sums.push(value(&page, "uncore_trace_owner_bytes_total{link=\"l\",direction=\"in\",socket=\"1\",owner=\"other\"").unwrap());
    }
    let page = metrics.encode_page().unwrap();
    assert!(page.contains("owner_cgroup=\"/late\"") && !page.contains("\"/first\""), "{page}");
    assert!(sums.windows(2).all(|pair| pair[0] <= pair[1]), "{sums:?}");
    // It increases by at most the bytes of a window.
    assert!(sums.windows(2).all(|pair| pair[1] - pair[0] <= 1010.0), "{sums:?}");
}

#[test]
fn a_heavy_newcomer_is_seen_among_many_that_are_gone() {
    let mut metrics = MetricsPage::new(1);
    // As many owners as may wait, and one more that moves more bytes than the one with a series.
    let names: Vec<String> = (0..100).map(|n| format!("/{n}")).collect();
    let mut rows: Vec<_> =
        names.iter().map(|name| (Some("l"), "task", Some(name.as_str()), 1e6)).collect();
    metrics.add_window(&window(&rows)).unwrap();
    rows = vec![(Some("l"), "task", Some("/0"), 1e6), (Some("l"), "task", Some("/new"), 4e6)];
    for _ in 0..6 {
        metrics.add_window(&window(&rows)).unwrap();
    }
    assert!(metrics.encode_page().unwrap().contains("owner_cgroup=\"/new\""));
}

/// Seconds of CPU time are small numbers.
#[test]
fn an_owner_with_less_than_one_has_a_series_as_well() {
    let mut metrics = MetricsPage::new(3);
    for _ in 0..=traffic_counts::AFTER {
        metrics.add_window(&window(&[(Some("l"), "task", Some("/a"), 0.01)])).unwrap();
    }
    let page = metrics.encode_page().unwrap();
    assert!(page.contains("owner_cgroup=\"/a\""), "{page}");
}

#[test]
fn fewer_owners_leave_fewer_series_and_what_has_none_is_counted() {
    let mut metrics = MetricsPage::new(3);
    let other_bytes = |page: &str| {
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
    for _ in 0..traffic_counts::AFTER {
        metrics.add_window(&window(&rows)).unwrap();
    }
    let page = metrics.encode_page().unwrap();
    let (before, merged) = (other_bytes(&page), joined(&page));
    assert!(is_near(Some(before), 3.0 * 65.0) && is_near(Some(merged), 3.0 * 4.0), "{page}");
    metrics.owners = 1;
    metrics.add_window(&window(&rows)).unwrap();
    let page = metrics.encode_page().unwrap();
    assert!(
        page.contains("\"/a\"") && !page.contains("\"/b\"") && !page.contains("\"/c\""),
        "{page}"
    );
    // Two owners lost their series at the end of that window. The counter of the others continues.
    assert!(is_near(Some(other_bytes(&page)), before + 5.0), "{page}");
    assert!(is_near(Some(joined(&page)), merged + 3.0), "{page}");
    metrics.add_window(&window(&rows)).unwrap();
    let page = metrics.encode_page().unwrap();
    assert!(is_near(Some(other_bytes(&page)), before + 40.0), "{page}");
    assert!(is_near(Some(joined(&page)), merged + 6.0), "{page}");
}

/// The series of the owners of a link, and their values.
fn owners(metrics: &MetricsPage) -> BTreeMap<String, f64> {
    let counted = metrics.traffic.values().next().unwrap();
    let shown = counted.series.iter().map(|(name, series)| (format!("{name:?}"), series.total));
    shown.chain([("other".to_owned(), counted.other_owners)]).collect()
}

/// Every series of an hour with its last value: it may be gone meanwhile.
fn hour(owners_most: usize, rows: impl Fn(usize) -> Vec<(String, f64)>) -> BTreeMap<String, f64> {
    let mut metrics = MetricsPage::new(owners_most);
    let mut all = BTreeMap::new();
    for number in 0..360 {
        let rows = rows(number);
        let rows =
            rows.iter().map(|(name, value)| (Some("l"), "task", Some(name.as_str()), *value));
        metrics.add_window(&window(&rows.collect::<Vec<_>>())).unwrap();
        for (name, value) in owners(&metrics) {
            let before = all.insert(name.clone(), value).unwrap_or_default();
            assert!(value >= before, "{name} goes down in window {number}: {before} to {value}");
        }
    }
    all
}

#[test]
fn cgroups_that_come_and_go_have_no_series() {
    // Six a second, each in one or two windows of 10 s, and four that stay.
    let rows = |number: usize| {
        let short = (0..90).map(|n| (format!("/short/{}", number * 60 + n), 1e6));
        short.chain((0..4).map(|n| (format!("/long/{n}"), 1e3))).collect()
    };
    let all = hour(20, rows);
    // Those that stay, and `other`.
    assert_eq!(all.len(), 5, "{all:?}");
    assert!(all.values().all(|value| *value > 0.0), "{all:?}");
}

#[test]
fn a_tenant_that_makes_many_cgroups_makes_few_series() {
    // Each lives for four windows, and moves four times what those before it moved.
    let rows = |number: usize| {
        let new = (0..40).map(|n| {
            (format!("/made/{}/{n}", number / 4), 4.0_f64.powi((number / 4 % 200) as i32))
        });
        new.collect()
    };
    let all = hour(20, rows);
    // Three times as many as have series at once, and `other`.
    assert!((21..=61).contains(&all.len()), "{}", all.len());
}

#[test]
fn a_series_that_comes_back_goes_on() {
    // Interrupts are few, then many; a task is large, small, and large again.
    let mut metrics = MetricsPage::new(1);
    let mut before = BTreeMap::<String, f64>::new();
    for number in 0..2000 {
        let (large, small) = if number / 500 % 2 == 0 { (1e6, 1.0) } else { (1.0, 1e6) };
        let rows = [
            (Some("l"), "irq", None, small),
            (Some("l"), "task", Some("/a"), large),
            (Some("l"), "task", Some("/b"), small),
        ];
        metrics.add_window(&window(&rows)).unwrap();
        for (name, value) in owners(&metrics) {
            let last = before.insert(name.clone(), value).unwrap_or_default();
            assert!(value >= last, "{name} goes down in window {number}: {last} to {value}");
        }
    }
    assert_eq!(before.len(), 4, "{before:?}");
    let value_of_owner =
        |owner: &str| before.iter().find(|(name, _)| name.contains(owner)).unwrap().1;
    assert!((value_of_owner("\"irq\"") - 1e9 - 1000.0).abs() < 1.0, "{before:?}");
}

#[test]
fn a_tenant_has_an_interval_and_a_loss_its_kind() {
    let mut metrics = MetricsPage::new(1);
    for _ in 0..5 {
        metrics.add_window(&window(&[(Some("l"), "task", Some("/a"), 60.0)])).unwrap();
    }
    metrics.lost = [("ring_full".to_owned(), 1), ("late_tick".to_owned(), 7)].into();
    let page = metrics.encode_page().unwrap();
    let owner_metric = |name: &str| value(&page, &format!("uncore_trace_owner_{name}{{link=\"l\""));
    // A window of 10 s.
    assert!(is_near(owner_metric("low_bytes_per_second"), 5.0), "{page}");
    assert!(is_near(owner_metric("high_bytes_per_second"), 7.0), "{page}");
    assert!(is_near(owner_metric("confidence_ratio"), 0.5), "{page}");
    let lost = |labels: &str| value(&page, &format!("uncore_trace_lost_total{{{labels}}}"));
    assert!(is_near(lost("cause=\"ring_full\",kind=\"loss\""), 1.0), "{page}");
    assert!(is_near(lost("cause=\"late_tick\",kind=\"note\""), 7.0), "{page}");
}

#[test]
fn each_metric_name_has_one_unit() {
    let mut metrics = MetricsPage::new(1);
    let mut rows = rollup::Builder::default();
    for (event, unit) in [("clock", "ns"), ("faults", "count"), ("x", ""), ("beats", "GB/s")] {
        let row = rollup::Row { event, unit, value: Some(2e9), owner: "idle", ..row() };
        rows.append(&row);
    }
    metrics.add_window(&rows.finish()).unwrap();
    let page = metrics.encode_page().unwrap();
    let of = |name: &str, event: &str| {
        let begin = format!("uncore_trace_{name}_total{{event=\"{event}\",filter=\"f\"");
        value(&page, &begin)
    };
    assert!(
        is_near(of("event_seconds", "clock"), 2.0)
            && is_near(of("owner_event_seconds", "clock"), 2.0)
    );
    assert!(is_near(of("event", "faults"), 2e9) && is_near(of("event", "x"), 2e9), "{page}");
    assert!(is_near(of("event_gb_s", "beats"), 2e9), "{page}");
    // As node_exporter reads it.
    let text = format_textfile(&page);
    assert!(text.contains("# TYPE uncore_trace_event_seconds_total counter\n"), "{text}");
    assert!(text.contains("# HELP uncore_trace_event_seconds_total "), "{text}");
    assert!(text.contains("# TYPE uncore_trace_resident_bytes gauge\n"), "{text}");
    assert!(!text.contains("# EOF") && text.ends_with('\n'), "{text}");
    let samples = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&text), samples(&page));
}

#[test]
fn a_lasting_loss_is_not_added_up_over_parts() {
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
    let mut metrics = MetricsPage::new(3);
    for window_number in 0..50 {
        let names: Vec<String> = (0..100).map(|n| format!("/{window_number}/{n}")).collect();
        let rows: Vec<_> =
            names.iter().map(|name| (Some("l"), "task", Some(name.as_str()), 1.0)).collect();
        metrics.add_window(&window(&rows)).unwrap();
    }
    let counted = metrics.traffic.values().next().unwrap();
    assert!(counted.series.is_empty() && counted.waiting.len() <= 48, "{counted:?}");
    let links: Vec<String> = (0..NAMES + 5).map(|n| format!("link {n}")).collect();
    let rows: Vec<_> = links.iter().map(|link| (Some(link.as_str()), "idle", None, 1.0)).collect();
    metrics.add_window(&window(&rows)).unwrap();
    assert_eq!((metrics.traffic.len(), metrics.left_out), (NAMES, 6));
}

#[test]
fn names_that_a_tenant_chose_are_escaped() {
    let mut metrics = MetricsPage::new(3);
    let rows = [(Some("l"), "task", Some("/a\"} 1\nforged 2\\"), 1.0)];
    for _ in 0..4 {
        metrics.add_window(&window(&rows)).unwrap();
    }
    let page = metrics.encode_page().unwrap();
    assert!(!page.lines().any(|line| line.starts_with("forged")), "{page}");
    assert!(page.contains("/a\\\"} 1\\nforged 2\\\\"), "{page}");
}
