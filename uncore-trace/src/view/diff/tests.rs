//! Two made recordings with a known difference.

use std::collections::BTreeMap;

use super::super::render::TextStyle;
use super::super::sample::{
    Broken, INTACT, SampleRecording, sample_link, sample_peak, sample_plan,
};
use super::gate::Gate;
use super::rate::ChangeVerdict;
use super::*;
use crate::schema::link::PeakSource;
use crate::schema::metadata;
use crate::tables::reader::Recording;

/// One link, `memory 0`, with 64 MB/s: half of it by `/tenant`, a quarter by `/other`.
const LINKED: Broken = Broken {
    fabric: |row, _| {
        row.confidence = Some(0.9);
        true
    },
    metadata: with_link,
    ..INTACT
};

/// The same, but `/other` reads three times as much.
const GREW: Broken = Broken {
    fabric: |row, number| {
        (LINKED.fabric)(row, number);
        if row.event == "read_bytes" {
            row.total = row.total.map(|total| total * 1.5);
            if row.pid == Some(200) {
                row.value = row.value.map(|value| value * 3.0);
            }
        }
        true
    },
    ..LINKED
};

fn with_link(pairs: &mut BTreeMap<String, String>) {
    let peaks = vec![sample_peak(PeakSource::Sysfs, 150e6)];
    pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(peaks)]));
}

const BY_CGROUP: DiffQuestion =
    DiffQuestion { grouping: GroupBy::Cgroup, cgroup_depth: None, events: false };

fn request_span<'a>(recording: &'a Recording, from: &str, to: &str) -> RequestedSpan<'a> {
    let moment = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    RequestedSpan { recording, begin_moment: moment(from), end_moment: moment(to) }
}

fn compare(before: &Broken, after: &Broken, question: &DiffQuestion) -> Diff {
    let (before, after) = (SampleRecording::new(false, before), SampleRecording::new(false, after));
    let (before, after) = (before.open(), after.open());
    compare_spans(&request_span(&before, "", ""), &request_span(&after, "", ""), question).unwrap()
}

fn tenant_change<'a>(subject: &'a DiffSubject, key: &str) -> &'a RateChange {
    let tenants = subject.tenants.iter();
    &tenants.clone().find(|tenant| tenant.key.starts_with(key)).unwrap().change
}

fn assert_near(value: Option<f64>, expected: f64) {
    assert!(
        value.is_some_and(|actual| (actual - expected).abs() <= 1e-9 * expected.abs()),
        "{value:?}"
    );
}

#[test]
fn a_tenant_that_reads_more_is_named() {
    let comparison = compare(&LINKED, &GREW, &BY_CGROUP);
    let [subject] = comparison.subjects.as_slice() else { panic!("{comparison:#?}") };
    assert_eq!(subject.link, Some(("memory 0".to_owned(), Direction::In)));
    assert_near(subject.total.difference_per_s(), 32e6);
    assert_eq!(subject.total.verdict(), Some(ChangeVerdict::More));
    let grown = tenant_change(subject, "/other");
    assert_near(grown.difference_per_s(), 32e6);
    assert_near(grown.rate_ratio(), 3.0);
    // 10 % of 16 and of 48 MB/s.
    let reach = grown.difference_interval().unwrap();
    assert!((reach.low - 25.6e6).abs() < 10.0 && (reach.high - 38.4e6).abs() < 10.0, "{reach:?}");
    let names: Vec<&str> = subject.tenants.iter().map(|tenant| tenant.key.as_str()).collect();
    assert_eq!(names, ["/other", "/tenant\u{1b}[2J", "idle", "irq"]);
    for unchanged in &subject.tenants[1..] {
        assert_near(unchanged.change.rate_ratio(), 1.0);
        assert_eq!(unchanged.change.verdict(), Some(ChangeVerdict::WithinError));
    }
    assert_eq!(
        summary(&comparison, TextStyle::default()),
        "memory 0 in: 64.0 -> 96.0 MB/s, of which /other +32.0 MB/s; nothing else changed by more \
         than its error"
    );
    let reversed = compare(&GREW, &LINKED, &BY_CGROUP);
    assert_eq!(tenant_change(&reversed.subjects[0], "/other").verdict(), Some(ChangeVerdict::Less));
}

#[test]
fn differences_of_tenants_sum_to_that_of_the_total() {
    for by in GroupBy::ALL {
        for events in [false, true] {
            let comparison =
                compare(&LINKED, &GREW, &DiffQuestion { grouping: by, cgroup_depth: None, events });
            assert_eq!(comparison.subjects.len(), if events { 2 } else { 1 });
            for subject in &comparison.subjects {
                let differences =
                    subject.tenants.iter().map(|tenant| tenant.change.difference_per_s());
                let sum: f64 = differences.map(Option::unwrap).sum();
                let total = subject.total.difference_per_s().unwrap();
                assert!((sum - total).abs() < 1e-3, "{by:?} {sum} {total}");
            }
        }
    }
}

#[test]
fn a_shorter_recording_has_the_same_rates() {
    let shorter =
        Broken { fabric: |row, number| (LINKED.fabric)(row, number) && number < 1600, ..LINKED };
    let unknown = Broken {
        fabric: |row, number| {
            if (400..1200).contains(&number) {
                (row.value, row.total) = (None, None);
            }
            (LINKED.fabric)(row, number)
        },
        ..LINKED
    };
    for (after, seconds) in [(&shorter, 2.0), (&unknown, 2.0)] {
        let comparison = compare(&LINKED, after, &BY_CGROUP);
        let subject = &comparison.subjects[0];
        for change in subject.all_changes() {
            assert_near(change.rate_ratio(), 1.0);
            assert_eq!(change.verdict(), Some(ChangeVerdict::WithinError));
        }
        assert_near(subject.total.after_rate.known_rate().map(|rate| rate.seconds), seconds);
        assert_near(subject.total.after_rate.known_rate().map(|rate| rate.total), seconds * 64e6);
        assert!(
            summary(&comparison, TextStyle::default())
                .starts_with("nothing changed by more than its error; the largest")
        );
    }
}

#[test]
fn spans_of_one_recording_are_compared() {
    let doubled = Broken {
        fabric: |row, number| {
            if number >= 1200 {
                (GREW.fabric)(row, number);
            }
            (LINKED.fabric)(row, number)
        },
        ..LINKED
    };
    let recording = SampleRecording::new(false, &doubled);
    let recording = recording.open();
    let compare_parts = |before_bounds: (&str, &str), after_bounds: (&str, &str)| {
        let (before_span, after_span) = (
            request_span(&recording, before_bounds.0, before_bounds.1),
            request_span(&recording, after_bounds.0, after_bounds.1),
        );
        compare_spans(&before_span, &after_span, &BY_CGROUP)
    };
    let halves = compare_parts(("", "1.5s"), ("1.5s", "")).unwrap();
    assert_near(halves.subjects[0].total.rate_ratio(), 1.5);
    assert_eq!(halves.notes, Vec::<String>::new());
    let common = compare_parts(("", "1.5s"), ("1s", "")).unwrap();
    // 1 s to 3 s: in a quarter of it the rate is as before.
    assert_near(common.subjects[0].total.rate_ratio(), 1.0 + 0.5 * 0.75);
    let error = compare_parts(("", "1s"), ("1h", "")).unwrap_err();
    assert!(format!("{error:#}").contains("cannot read the recording after: nothing was recorded"));
}

#[test]
fn a_tenant_of_one_side_is_new_or_gone_and_has_no_ratio() {
    let renamed = Broken {
        fabric: |row, number| {
            if row.pid == Some(200) {
                row.cgroup = Some("/newcomer");
                row.cgroup_id = Some(7);
            }
            (LINKED.fabric)(row, number)
        },
        ..LINKED
    };
    let comparison = compare(&LINKED, &renamed, &BY_CGROUP);
    let subject = &comparison.subjects[0];
    for (name, verdict, difference) in
        [("/newcomer", ChangeVerdict::New, 16e6), ("/other", ChangeVerdict::Gone, -16e6)]
    {
        let change = tenant_change(subject, name);
        assert_eq!((change.verdict(), change.rate_ratio()), (Some(verdict), None));
        assert_eq!(change.is_beyond_error(), Some(true));
        assert_near(change.difference_per_s(), difference);
    }
    assert_eq!(
        summary(&comparison, TextStyle::default()),
        "memory 0 in: /newcomer +16.0 MB/s and /other -16.0 MB/s; nothing else changed by more than \
         its error"
    );
}

#[test]
fn events_unknown_to_one_side_have_no_difference() {
    let without = Broken { fabric: |row, _| row.event != "page-faults", ..INTACT };
    let no_value = Broken {
        fabric: |row, _| {
            if row.event == "page-faults" {
                (row.value, row.total) = (None, None);
            }
            true
        },
        ..INTACT
    };
    for after in [&without, &no_value] {
        let comparison = compare(&INTACT, after, &BY_CGROUP);
        let subject = &comparison.subjects[1];
        assert_eq!(subject.name, "page-faults");
        assert_eq!(subject.notes.len(), usize::from(std::ptr::eq(after, &raw const without)));
        for change in subject.all_changes() {
            assert_eq!(
                (change.difference_per_s(), change.rate_ratio(), change.verdict()),
                (None, None, None)
            );
            assert_eq!(change.after_rate, SideRate::Unknown);
        }
        // The sum of hidden tenants is not known either.
        assert!(
            text::describe_hidden(subject, 1).ends_with("others, whose sum is not known\n"),
            "{subject:?}"
        );
    }
}

#[test]
fn zero_on_both_sides_is_known() {
    let nothing = Broken {
        fabric: |row, _| {
            row.value = row.value.map(|_| 0.0);
            row.total = row.total.map(|_| 0.0);
            true
        },
        ..INTACT
    };
    let sentence = summary(&compare(&nothing, &nothing, &BY_CGROUP), TextStyle::default());
    assert!(sentence.starts_with("nothing changed by more than its error"), "{sentence}");
}

#[test]
fn links_that_are_counted_otherwise_are_not_compared_silently() {
    let filtered = Broken {
        fabric: |row, number| {
            if row.event == "read_bytes" {
                row.filter = "root_port=0x1";
            }
            (GREW.fabric)(row, number)
        },
        ..LINKED
    };
    let comparison = compare(&LINKED, &filtered, &BY_CGROUP);
    let subject = &comparison.subjects[0];
    assert_eq!(
        subject.notes,
        ["the counters differ: 1 x read_bytes before, 1 x read_bytes[root_port=0x1] after"]
    );
    assert_near(subject.total.difference_per_s(), 32e6);
    assert!(subject.all_changes().all(|change| change.verdict().is_none()));
    assert!(
        summary(&comparison, TextStyle::default())
            .ends_with("whether that is more than the error is not known")
    );

    let faster = Broken {
        metadata: |pairs| {
            let peaks = vec![
                sample_peak(PeakSource::Catalog, 300e6),
                sample_peak(PeakSource::Calibrated, 180e6),
            ];
            pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(peaks)]));
            pairs.insert(metadata::HOST.to_owned(), "other\n".to_owned());
            pairs.insert(metadata::TICK_NS.to_owned(), "2000000".to_owned());
        },
        ..GREW
    };
    let comparison = compare(&LINKED, &faster, &BY_CGROUP);
    assert_eq!(
        comparison.subjects[0].notes,
        ["the peak differs: 150 MB/s (sysfs) before, 180 MB/s (calibrated) after"]
    );
    assert_eq!(comparison.subjects[0].total.verdict(), Some(ChangeVerdict::More));
    assert_eq!(
        comparison.notes,
        [
            "the host differs: not known before, other\n after",
            "the length of ticks differs: 1.00 ms before, 2.00 ms after",
        ]
    );
    let text = text::render_text(&comparison, ["a", "b"], None, TextStyle::default());
    assert!(text.contains("not known before, other\\n after"), "{text}");
}

#[test]
fn processes_of_two_recordings_are_compared_by_name() {
    let restarted = Broken {
        fabric: |row, number| {
            // Two processes with the same name instead of one.
            row.pid =
                row.pid.map(|pid| 10 * pid + i32::from(row.pid == Some(100) && number % 16 < 8));
            row.container = row.container.map(|_| "web@00112233");
            (LINKED.fabric)(row, number)
        },
        ..LINKED
    };
    for (by, names) in [
        (GroupBy::Pid, vec!["idle", "irq:nvme0q1", "serve", "train"]),
        (GroupBy::Container, vec!["idle", "irq", "web"]),
    ] {
        let question = DiffQuestion { grouping: by, ..BY_CGROUP };
        let comparison = compare(&LINKED, &restarted, &question);
        let subject = &comparison.subjects[0];
        let mut names_found: Vec<&str> =
            subject.tenants.iter().map(|subject_tenant| subject_tenant.key.as_str()).collect();
        names_found.sort_unstable();
        assert_eq!(names_found, names);
        for tenant in &subject.tenants {
            let RateChange { before_rate: before, after_rate: after, .. } = &tenant.change;
            let (before, after) = (before.known_rate().unwrap(), after.known_rate().unwrap());
            assert_near(Some(after.per_s), before.per_s);
            // Rows with one program name have one cause of error, however many processes there are.
            assert_near(after.interval.map(|interval| interval.low), before.interval.unwrap().low);
        }
    }
}

/// Alternates every 0.2 s between 0 and twice the rate.
const WAVES: Broken = Broken {
    fabric: |row, number| {
        let factor = if number / 160 % 2 == 0 { 2.0 } else { 0.0 };
        row.value = row.value.map(|value| value * factor);
        row.total = row.total.map(|total| total * factor);
        (LINKED.fabric)(row, number)
    },
    ..LINKED
};

#[test]
fn a_load_that_goes_up_and_down_is_not_a_change() {
    let comparison = compare(&LINKED, &WAVES, &BY_CGROUP);
    let rate = *comparison.subjects[0].total.after_rate.known_rate().unwrap();
    // 8 waves in 3 s: the last one is cut.
    assert!((rate.per_s / 64e6 - 16.0 / 15.0).abs() < 1e-9, "{rate:?}");
    assert_eq!(comparison.subjects[0].total.verdict(), Some(ChangeVerdict::WithinError));
    let parts = rate.variation.unwrap() / rate.per_s;
    assert!((0.2..0.6).contains(&parts), "{parts}");
}

fn judge_growth(
    before: &Broken,
    after: &Broken,
    above: f64,
    min_share: f64,
) -> (Vec<String>, usize) {
    let comparison = compare(before, after, &BY_CGROUP);
    let judged = Gate { above, min_share }.judge_diff(&comparison);
    let name = |grown: &gate::ExcessGrowth<'_>| {
        let tenant_key = grown.tenant.map_or("", |tenant| &tenant.key);
        let percent = grown.growth.map(|growth| (growth * 100.0).round());
        format!("{} {tenant_key} {percent:?}", grown.subject.name)
    };
    (judged.grown.iter().map(name).collect(), judged.unknown)
}

#[test]
fn only_growth_beyond_the_allowance_and_the_error_fails() {
    let total_and_other =
        vec!["memory 0 in  Some(50.0)".to_owned(), "memory 0 in /other Some(200.0)".to_owned()];
    assert_eq!(judge_growth(&LINKED, &GREW, 0.1, 0.01), (total_and_other.clone(), 0));
    assert_eq!(judge_growth(&LINKED, &GREW, 0.6, 0.01), (total_and_other[1..].to_vec(), 0));
    assert_eq!(judge_growth(&LINKED, &GREW, 2.5, 0.01), (vec![], 0));
    // 96 of 150 MB/s, and 48 of 96.
    assert_eq!(judge_growth(&LINKED, &GREW, 0.1, 0.55), (total_and_other[..1].to_vec(), 0));
    assert_eq!(judge_growth(&LINKED, &GREW, 0.1, 0.65), (vec![], 0));
    assert_eq!(judge_growth(&GREW, &LINKED, 0.0, 0.0), (vec![], 0));
    assert_eq!(judge_growth(&LINKED, &WAVES, 0.01, 0.0), (vec![], 0));
    let unsure = Broken {
        fabric: |row, number| {
            (GREW.fabric)(row, number);
            row.confidence = (row.pid != Some(200)).then_some(0.9);
            true
        },
        ..GREW
    };
    assert_eq!(judge_growth(&LINKED, &unsure, 0.6, 0.0), (vec![], 1));
    let renamed = Broken {
        fabric: |row, number| {
            row.cgroup = row.cgroup.map(|_| "/newcomer");
            (LINKED.fabric)(row, number)
        },
        ..LINKED
    };
    assert_eq!(
        judge_growth(&LINKED, &renamed, 9.0, 0.0),
        (vec!["memory 0 in /newcomer None".to_owned()], 0)
    );
}

#[test]
fn json_lines_have_a_total_then_tenants_and_keep_null_apart_from_zero() {
    let gone =
        Broken { fabric: |row, number| (GREW.fabric)(row, number) && row.pid != Some(100), ..GREW };
    let text = json::write_json_lines(&compare(&LINKED, &gone, &BY_CGROUP)).unwrap();
    assert!(!text.contains('\u{1b}'));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    let total = &lines[0];
    assert_eq!(
        (total["what"].as_str(), total["link"].as_str()),
        (Some("memory 0 in"), Some("memory 0"))
    );
    assert!(total["key"].is_null() && total["by"].is_null());
    assert!(total["before"]["variation_per_s"].as_f64().unwrap() < 1.0);
    let lost = lines.iter().find(|line| line["verdict"] == "gone").unwrap();
    assert_eq!((&lost["after"]["rate_per_s"], &lost["after"]["total"]), (&0.0.into(), &0.0.into()));
    assert!(lost["ratio"].is_null() && lost["after"]["share"].is_null());
    assert_eq!(lost["beyond_error"], true);
}

#[test]
fn the_text_of_a_comparison_has_the_answer_first_and_fits() {
    let long = Broken {
        fabric: |row, number| {
            if row.pid == Some(200) {
                row.cgroup = Some(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0123.slice/x.scope",
                );
            }
            (GREW.fabric)(row, number)
        },
        metadata: |pairs| {
            with_link(pairs);
            pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned());
            pairs.insert(metadata::HOST.to_owned(), "other".to_owned());
        },
        ..LINKED
    };
    let mut texts = Vec::new();
    for (question, after) in [
        (BY_CGROUP, &GREW),
        (DiffQuestion { events: true, ..BY_CGROUP }, &long),
        (BY_CGROUP, &WAVES),
    ] {
        let comparison = compare(&LINKED, after, &question);
        for width in (60..200).step_by(7) {
            for ascii in [false, true] {
                let text = text::render_text(
                    &comparison,
                    ["a.parquet", "b.parquet"],
                    None,
                    TextStyle { ascii, width: Some(width) },
                );
                let widest = text.lines().map(crate::terminal::cells).max().unwrap();
                assert!(widest <= width, "{width}:\n{text}");
                assert!(!text.contains('\u{1b}') && (text.is_ascii() || !ascii), "{text}");
            }
        }
        for width in [Some(80), None] {
            let style = TextStyle { ascii: false, width };
            texts.push(text::render_text(&comparison, ["a.parquet", "b.parquet"], Some(3), style));
        }
    }
    insta::assert_snapshot!("diff", texts.join("---\n"));
}
