//! Pages of made recordings: their data are right, and recorded text in them is inert.

use serde_json::Value;

use super::super::grouping::GroupBy;
use super::super::sample::{
    Broken, INTACT, MARKS, SampleRecording, sample_link, sample_peak, sample_plan,
};
use super::super::span::{SelectedTime, TimePoint};
use super::*;
use crate::schema::link::PeakSource;
use crate::schema::metadata;

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\u{2028}\u{1b}[2J\u{202e}'\"&amp;";

/// The page of a recording.
fn page(recording: &Recording, question: ReportQuestion<'_>, tenants: usize) -> String {
    let mut out = Vec::new();
    write_page(recording, &PageOptions { question, tenants, path: "run.parquet" }, &mut out)
        .unwrap();
    String::from_utf8(out).unwrap()
}

/// Its data.
fn data(page: &str) -> Value {
    let begin = "<script type=\"application/json\" id=\"data\">";
    let (_, rest) = page.split_once(begin).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn page_data(broken: &Broken, by: GroupBy) -> Value {
    data(&page(
        &SampleRecording::new(false, broken).open(),
        ReportQuestion::grouped_by(by),
        TENANTS,
    ))
}

/// A column with its runs expanded.
fn column(entries: &Value) -> Vec<Option<f64>> {
    let mut numbers = Vec::new();
    for entry in entries.as_array().unwrap() {
        match entry.as_array() {
            Some(run) => {
                (0..run[0].as_u64().unwrap()).for_each(|_| numbers.push(run[1].as_f64()));
            }
            None => numbers.push(entry.as_f64()),
        }
    }
    numbers
}

/// Windows have a length, and the first of two counters is on a link.
fn linked(pairs: &mut std::collections::BTreeMap<String, String>) {
    pairs.insert(metadata::INTERVAL_NS.to_owned(), "10000000".to_owned());
    let mut plan: Value = serde_json::from_str(&sample_plan(vec![sample_link(vec![sample_peak(
        PeakSource::Sysfs,
        128e6,
    )])]))
    .unwrap();
    let counter = |(id, event): (usize, &str)| {
        serde_json::json!({"id": id, "pmu": "test_pmu_0", "family": "test_pmu", "subsystem": "host",
            "event": event, "filter": "", "unit": "count", "scale": 1.0, "attr_type": 40,
            "config": [id, 0, 0, 0, 0], "cpu": 0, "socket": 0, "sees": "0-1", "per_cpu": false,
            "at_switch": false, "leader": null})
    };
    plan["counters"] = ["read_bytes", "page-faults"].into_iter().enumerate().map(counter).collect();
    pairs.insert(metadata::PLAN.to_owned(), plan.to_string());
}

/// Every owner has twice as much in the last second, a second is not known, and one window is high.
const PHASES: Broken = Broken {
    fabric: |row, number| {
        let window = number / 8;
        let factor = match window {
            200.. => 2.0,
            50 => 10.0,
            _ => 1.0,
        };
        row.value = row.value.map(|value| value * factor);
        row.total = row.total.map(|total| total * factor);
        if (100..200).contains(&window) && row.event == "read_bytes" {
            (row.value, row.total) = (None, None);
        }
        true
    },
    metadata: linked,
    ..INTACT
};

fn plot<'a>(data: &'a Value, name: &str) -> &'a Value {
    let plots = data["plots"].as_array().unwrap();
    plots.iter().find(|plot| plot["name"] == name).unwrap_or_else(|| panic!("{plots:#?}"))
}

#[test]
fn areas_sum_to_the_mean_and_unknown_buckets_are_null() {
    let data = page_data(&PHASES, GroupBy::Cgroup);
    assert_eq!(data["time"]["count"], 300);
    assert_eq!(data["time"]["bucket"], 0.01);
    for (name, per_second, gap) in [("memory 0 in", 64e6, true), ("page-faults", 3000.0, false)] {
        let plot = plot(&data, name);
        let means = column(&plot["mean"]);
        let areas: Vec<_> =
            plot["areas"].as_array().unwrap().iter().map(|area| column(&area["value"])).collect();
        assert_eq!((means.len(), areas.len()), (300, 4));
        for (at, mean) in means.into_iter().enumerate() {
            let sum = areas.iter().map(|area| area[at]).sum::<Option<f64>>();
            if gap && (100..200).contains(&at) {
                assert_eq!((mean, sum), (None, None), "{at}");
                continue;
            }
            let factor = if at == 50 {
                10.0
            } else if at >= 200 {
                2.0
            } else {
                1.0
            };
            let near = |value: f64| (value - per_second * factor).abs() < per_second * 1e-3;
            assert!(near(mean.unwrap()) && near(sum.unwrap()), "{at}: {mean:?} {sum:?}");
        }
    }
}

#[test]
fn few_buckets_keep_the_sum_and_the_highest_window() {
    let sample = SampleRecording::new(false, &PHASES);
    let recording = sample.open();
    let table = recording.open_table(&fabric::TABLE).unwrap();
    let span = SelectedTime::between_moments(&recording, &table, None, None).unwrap().unwrap();
    let question = ReportQuestion::grouped_by(GroupBy::Cgroup);
    let links = Links::from_metadata(table.metadata_pairs()).unwrap();
    let survey = {
        let (start_ns, events) =
            survey::plotted_events(&recording, None, &links, &question).unwrap();
        PageSurvey::new(start_ns, events, question.grouping, 30)
    };
    let grid = PageGrid::new(&span, table.metadata_pairs(), 7);
    assert_eq!((grid.count, grid.bucket_ns), (7, 430_000_000));
    let series =
        SeriesFilling::new(&survey, &links, grid).read_rows(&recording, &question, &span).unwrap();
    for (plot, series) in survey.plots.iter().zip(&series.plots) {
        let sum: f64 = series.areas.iter().flat_map(|area| &area.value).sum();
        assert!((sum - plot.event.total).abs() < 1e-6 * sum, "{}", plot.event.name);
        let highest = series.total.rates.highest.iter().copied().fold(0.0, f64::max);
        let usual = if plot.event.unit == "bytes" { 64e6 } else { 3000.0 };
        assert!((highest - 10.0 * usual).abs() < 1e-6 * highest, "{}: {highest}", plot.event.name);
        assert!(series.total.bucket_mean(1).unwrap() < 2.0 * usual);
        assert!((series.total.rates.lowest[1] - usual).abs() < 1e-6 * usual);
    }
    // The third bucket is not known at all, the one before it in part.
    let link = &series.plots[0].total;
    assert_eq!((link.bucket_mean(3), link.bucket_known_fraction(3)), (None, Some(0.0)));
    assert!(link.bucket_known_fraction(2).is_some_and(|known| known > 0.0 && known < 1.0));
    assert!((link.bucket_mean(2).unwrap() - 64e6).abs() < 1.0);
}

#[test]
fn an_interval_is_a_part_of_the_value() {
    let data = page_data(&PHASES, GroupBy::Cgroup);
    let area = &plot(&data, "page-faults")["areas"][0];
    // 27 % at a confidence of 0.5.
    for (name, expected) in [("low", 73.0), ("high", 127.0), ("confidence", 50.0)] {
        assert!(
            column(&area[name]).iter().all(|bucket_value| *bucket_value == Some(expected)),
            "{name}"
        );
    }
    // By PMU, nothing was divided.
    let by_pmu = page_data(&PHASES, GroupBy::Pmu);
    let area = &plot(&by_pmu, "page-faults")["areas"][0];
    assert_eq!(column(&area["low"])[0], Some(100.0));
    assert_eq!(by_pmu["tenants"][0][0], "test_pmu_0");
}

#[test]
fn a_link_has_its_peak_and_its_answer() {
    let data = page_data(&PHASES, GroupBy::Cgroup);
    let memory = plot(&data, "memory 0 in");
    assert_eq!(memory["peak"]["rate"].as_f64(), Some(128e6));
    assert_eq!(memory["peak"]["source"], "sysfs: 16 GT/s x4");
    assert_eq!(data["links"][0]["full"][0]["full"].as_f64(), Some(1.01));
    assert_eq!(
        data["answer"],
        serde_json::json!([
            "/tenant\\u{1b}[2J had 50 % (37 to 63 %) of what went over memory 0 (in): 98.9 MB of 198 MB.",
            "memory 0 (in) was 77 % full on average and 500 % at most, for 1.01 s above 80 %."
        ])
    );
    let events = page_data(&INTACT, GroupBy::Cgroup);
    assert_eq!(
        events["answer"][0],
        "/tenant\\u{1b}[2J had 50 % (37 to 63 %) of page-faults and 50 % (37 to 63 %) of read_bytes."
    );
}

#[test]
fn the_smallest_tenants_are_one_area_and_nobody_stays() {
    let sample = SampleRecording::new(false, &INTACT);
    let page = data(&page(&sample.open(), ReportQuestion::grouped_by(GroupBy::Pid), 1));
    let tenants: Vec<&str> =
        page["tenants"].as_array().unwrap().iter().map(|it| it[0].as_str().unwrap()).collect();
    assert_eq!(tenants, ["train (100)", "(others)", "(idle)", "(irq)"]);
    let areas = plot(&page, "page-faults")["areas"].as_array().unwrap();
    let values: Vec<_> = areas.iter().map(|area| column(&area["value"])[0].unwrap()).collect();
    assert_eq!(values, [1500.0, 750.0, 375.0, 375.0]);
    let lines = plot(&page, "page-faults")["lines"].as_array().unwrap();
    let names: Vec<_> = lines.iter().map(|line| (&line["name"], &line["tenant"])).collect();
    assert!(names.contains(&(&"(1 other)".into(), &1.into())), "{names:?}");
    assert!(names.contains(&(&"irq:nvme0q1".into(), &3.into())), "{names:?}");
}

#[test]
fn a_part_of_the_time_has_its_own_buckets() {
    let sample = SampleRecording::new(false, &PHASES);
    let at = |text: &str| Some(text.parse::<TimePoint>().unwrap());
    let question = ReportQuestion {
        begin: at("2s"),
        end: at("2.5s"),
        ..ReportQuestion::grouped_by(GroupBy::Cgroup)
    };
    let data = data(&page(&sample.open(), question, TENANTS));
    assert_eq!((&data["time"]["begin"], &data["time"]["end"]), (&2.0.into(), &2.5.into()));
    assert_eq!(data["time"]["count"], 50);
    assert!(
        column(&plot(&data, "memory 0 in")["mean"])
            .iter()
            .all(|bucket_value| *bucket_value == Some(128e6))
    );
}

#[test]
fn hostile_names_are_data() {
    let hostile = Broken {
        fabric: |row, _| {
            (row.event, row.pmu, row.unit) = (HOSTILE, HOSTILE, HOSTILE);
            row.cgroup = row.cgroup.map(|_| HOSTILE);
            row.comm = row.comm.map(|_| HOSTILE);
            row.container = row.container.map(|_| HOSTILE);
            row.pod = row.pod.map(|_| HOSTILE);
            row.method = HOSTILE;
            true
        },
        metadata: |pairs| {
            for key in [metadata::HOST, metadata::COMMAND_LINE, metadata::KERNEL, metadata::BOOT_ID]
            {
                pairs.insert(key.to_owned(), HOSTILE.to_owned());
            }
        },
        ..INTACT
    };
    let sample = SampleRecording::new(false, &hostile);
    let clean = page(
        &SampleRecording::new(false, &INTACT).open(),
        ReportQuestion::grouped_by(GroupBy::Cgroup),
        TENANTS,
    );
    for by in GroupBy::ALL {
        let mut out = Vec::new();
        let asked =
            PageOptions { question: ReportQuestion::grouped_by(by), tenants: 30, path: HOSTILE };
        write_page(&sample.open(), &asked, &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        for sign in ["</script", "<img", "<!--", "<"] {
            assert_eq!(page.matches(sign).count(), clean.matches(sign).count(), "{sign}");
        }
        assert!(!page.contains(['\u{2028}', '\u{1b}', '\u{202e}']));
        let data = data(&page);
        assert!(data["host"].as_str().unwrap().starts_with("</script><img"), "{}", data["host"]);
        assert!(data["host"].as_str().unwrap().contains("\\u{2028}\\u{1b}[2J\\u{202e}"));
    }
}

#[test]
fn names_losses_and_cpus_of_a_dataset_are_marked() {
    let lossy = Broken {
        loss: Some(crate::schema::loss::Row {
            host: "test",
            boot_id: "3f4e5d6c",
            cluster: None,
            mono_ns: super::super::sample::BEGIN + 1_500_000_000,
            span_ns: 500_000_000,
            cause: "run_gap",
            cpu: Some(1),
            counter: None,
            count: 7,
            detail: Some("so it was"),
        }),
        marks: MARKS,
        ..PHASES
    };
    let sample = SampleRecording::new(true, &lossy);
    let data = data(&page(&sample.open(), ReportQuestion::grouped_by(GroupBy::Cgroup), TENANTS));
    let expected = serde_json::json!([{"words": "7 gaps in the records of a CPU", "from": 1.0, "to": 1.5,
        "detail": "CPU 1, so it was"}]);
    assert_eq!(data["losses"], expected);
    assert_eq!((&data["cpus"], &data["more_cpus"]), (&serde_json::json!([]), &0.into()));
    assert!(data["incomplete"].as_str().unwrap().contains("7 gaps in the records"));
    let expected = serde_json::json!([
        [0.5, null, "warm\\u{1b}[2J\\nup"],
        [1.0, 2.0, "epoch 1"],
        [1.5, null, "epoch 1"],
        [2.5, 3.0, "save"]
    ]);
    assert_eq!((&data["marks"], &data["more_marks"]), (&expected, &0.into()));
}
