use std::collections::BTreeMap;

use super::*;
use crate::schema::{fabric, metadata};
use crate::view::sample::{BEGIN, Broken, INTACT, SampleRecording, WALL, sample_link, sample_plan};

const STEP: SeriesOptions = SeriesOptions { top: 1, step_ms: 1000 };

fn text_by(sample: &SampleRecording, question: SeriesOptions, cells: usize) -> String {
    let recording = sample.open();
    let table = recording.open_table(&fabric::TABLE).unwrap();
    let span = SelectedTime::between_moments(&recording, &table, None, None).unwrap().unwrap();
    let mut out = Vec::new();
    let selection = SelectedRows::new(&table, &span);
    let written = write_in_chunks(&selection, &span, question, cells, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let series: std::collections::BTreeSet<&str> =
        samples.clone().map(|line| line.split_once('}').unwrap().0).collect();
    assert_eq!(written.series, series.len() as u64);
    assert_eq!(written.samples, samples.count() as u64);
    text
}

fn text(broken: &Broken, question: SeriesOptions) -> String {
    text_by(&SampleRecording::new(false, broken), question, MOST_CELLS)
}

/// Times and values by series.
fn samples(text: &str) -> BTreeMap<&str, Vec<(f64, f64)>> {
    let mut samples_by_series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, time_and_value) = line.split_at(line.rfind('}').unwrap() + 1);
        let (value, time) = time_and_value.trim().split_once(' ').unwrap();
        samples_by_series.entry(series).or_default().push((time.parse().unwrap(), value.parse().unwrap()));
    }
    samples_by_series
}

fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 1e-9 * expected, "{value}, not {expected}");
}

#[test]
fn counters_begin_at_0_and_have_a_sample_each_step() {
    let text = text(&INTACT, STEP);
    let sample_lists = samples(&text);
    let read_bytes_series = r#"uncore_trace_counted_bytes_total{pmu="test_pmu_0",event="read_bytes"}"#;
    // 300 windows of 10 ms with 10 ticks each, and 1000 counts of 64 bytes per tick.
    let begin = ((WALL + BEGIN) / 1_000_000_000) as f64;
    let window = 640_000.0;
    let windows_at_time = [(0.0, 0.0), (0.99, 99.0), (1.99, 199.0), (2.99, 299.0), (3.0, 300.0)];
    let wanted: Vec<_> = windows_at_time.map(|(seconds, windows)| (begin + seconds, windows * window)).into();
    assert_eq!(sample_lists[read_bytes_series], wanted);
    let parts: Vec<(&&str, f64)> = sample_lists
        .iter()
        .filter(|(name, _)| name.starts_with("uncore_trace_owned_bytes_total"))
        .map(|(name, samples)| (name, samples.last().unwrap().1))
        .collect();
    assert_eq!(parts.len(), 4);
    assert_near(parts.iter().map(|(_, value)| value).sum(), 300.0 * window);
    let others_series = parts.iter().find(|(name, _)| name.contains(r#"owner="other""#)).unwrap();
    assert_near(others_series.1, 75.0 * window);
    assert!(text.starts_with(
        "# TYPE uncore_trace_counted_bytes counter\n# UNIT uncore_trace_counted_bytes bytes\n"
    ));
    assert!(text.ends_with("\n# EOF\n"));
}

#[test]
fn a_step_that_is_not_known_has_no_sample_and_its_time_is_counted() {
    let broken = Broken {
        fabric: |row, number| {
            // One second of the first counter in the middle; a window has eight rows.
            if row.counter == 0 && (100 * 8..101 * 8).contains(&number) {
                (row.value, row.total) = (None, None);
                return row.owner == "idle";
            }
            true
        },
        ..INTACT
    };
    let text = text(&broken, STEP);
    let sample_lists = samples(&text);
    let series = |metric: &str| {
        let name =
            format!("uncore_trace_{metric}_total{{pmu=\"test_pmu_0\",event=\"read_bytes\"}}");
        sample_lists[name.as_str()].iter().map(|(_, value)| *value).collect::<Vec<_>>()
    };
    let window = 640_000.0;
    let expected_values = [0.0, 99.0, 298.0, 299.0].map(|windows| windows * window);
    assert_eq!(series("counted_bytes"), expected_values);
    assert_eq!(series("unknown_seconds"), [0.0, 0.0, 0.01, 0.01, 0.01]);
    let of_owners = sample_lists.iter().filter(|(name, _)| name.contains("owned_bytes"));
    for (name, samples) in of_owners {
        assert_eq!(samples.len(), 4, "{name}");
    }
}

#[test]
fn several_passes_have_the_text_of_one() {
    let sample = SampleRecording::new(false, &INTACT);
    let question = SeriesOptions { top: 9, step_ms: 100 };
    let once = text_by(&sample, question, MOST_CELLS);
    for cells in [1, 100] {
        assert_eq!(text_by(&sample, question, cells), once);
    }
}

#[test]
fn units_that_are_not_bytes_have_metrics_of_their_own() {
    let broken = Broken {
        fabric: |row, _| {
            if row.counter == 0 {
                (row.event, row.unit) = ("cpu-clock", "ns");
            }
            true
        },
        ..INTACT
    };
    let text = text(&broken, STEP);
    let sample_lists = samples(&text);
    let last = |series: &str| sample_lists[series].last().unwrap().1;
    let clock = r#"uncore_trace_counted_seconds_total{pmu="test_pmu_0",event="cpu-clock"}"#;
    assert_near(last(clock), 0.192);
    let faults = r#"uncore_trace_counted_events_total{pmu="test_pmu_0",event="page-faults"}"#;
    assert_near(last(faults), 9000.0);
    assert!(!text.contains("UNIT uncore_trace_counted_events"));
}

#[test]
fn hostile_names_are_values_of_labels() {
    let broken = Broken {
        fabric: |row, _| {
            if row.pid == Some(100) {
                row.cgroup = Some("/a\"} 1 2\n# EOF\n\\");
            }
            true
        },
        ..INTACT
    };
    let text = text(&broken, STEP);
    assert_eq!(text.matches("\n# EOF\n").count(), 1);
    assert!(text.contains(r#"owner_cgroup="/a\"} 1 2\\n# EOF\\n\\""#), "{text}");
}

#[test]
fn bytes_of_a_link_have_its_labels_and_those_of_their_event() {
    let broken = Broken {
        metadata: |pairs| {
            pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(Vec::new())]));
            pairs.insert(metadata::HOST.to_owned(), "node-1".to_owned());
        },
        ..INTACT
    };
    let text = text(&broken, STEP);
    let labels = r#"host="node-1",link="memory 0",link_kind="memory",direction="in",socket="0""#;
    let event = r#"pmu="test_pmu_0",event="read_bytes""#;
    let link_line = format!("\nuncore_trace_counted_bytes_total{{{labels},{event}}} 192000000 ");
    assert!(text.contains(&link_line), "{text}");
    let owner = r#"owner="task",owner_cgroup="/tenant\\u{1b}[2J""#;
    let owner_labels = r#"owner_container="web@3f4e5d6c7b8a",owner_pod="shop/web-0""#;
    let part = format!("\nuncore_trace_owned_bytes_total{{{labels},{event},{owner},{owner_labels}}} 0 ");
    assert!(text.contains(&part), "{text}");
    let page_fault_labels = r#"{host="node-1",pmu="test_pmu_0",event="page-faults"}"#;
    assert!(text.contains(page_fault_labels), "{text}");
}

#[test]
fn steps_that_a_long_unknown_window_covers_have_no_sample() {
    // From 1.5 s on a counter has no value; one row at the end says so.
    let failed = Broken {
        fabric: |row, number| {
            let window = number / 8;
            if row.event == "page-faults" && window >= 150 {
                (row.value, row.total, row.window_ns) = (None, None, 1_500_000_000);
            }
            row.event != "page-faults" || !(150..299).contains(&window)
        },
        ..INTACT
    };
    let text = text(&failed, STEP);
    let sample_lists = samples(&text);
    let counted = sample_lists.iter().filter(|(name, _)| {
        name.starts_with("uncore_trace_counted") && name.contains("page-faults")
    });
    let lengths: Vec<usize> = counted.map(|(_, samples)| samples.len()).collect();
    assert_eq!(lengths, [2], "{text}");
}
