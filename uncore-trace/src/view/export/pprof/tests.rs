use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use prost::Message as _;

use super::proto::Profile;
use super::*;
use crate::view::grouping::GroupBy;
use crate::view::question::ReportQuestion;
use crate::view::report_sums::sum_report;
use crate::view::sample::{
    BEGIN, Broken, INTACT, SampleRecording, WALL, WINDOWS, sample_link, sample_plan,
};

/// A sample with its texts: type, frames from the root on, labels, value.
type ReadSample = (String, Vec<String>, BTreeMap<String, String>, i64);

/// Samples of a profile that is well-formed.
fn read_samples(profile: &Profile) -> Vec<ReadSample> {
    let text = |index: i64| profile.string_table[index as usize].clone();
    assert_eq!(text(0), "");
    let frame_name = |id: &u64| {
        let location = &profile.location[*id as usize - 1];
        let function = &profile.function[location.line[0].function_id as usize - 1];
        assert_eq!((location.id, function.id), (*id, *id));
        text(function.name)
    };
    let read_sample = |sample: &proto::Sample| {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        let index = sample.value.iter().position(|value| *value != 0).unwrap();
        let frames = sample.location_id.iter().rev().map(frame_name).collect();
        let labels = sample.label.iter().map(|label| {
            let number = format!("{} {}", label.num, text(label.num_unit));
            (text(label.key), if label.str == 0 { number } else { text(label.str) })
        });
        let sample_type = text(profile.sample_type[index].r#type);
        (sample_type, frames, labels.collect(), sample.value[index])
    };
    profile.sample.iter().map(read_sample).collect()
}

/// The sum of each sample type of a profile that is not gzipped.
pub(crate) fn decoded_sums(message: &[u8]) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (sample_type, _, _, value) in read_samples(&Profile::decode(message).unwrap()) {
        *sums.entry(sample_type).or_default() += value;
    }
    sums
}

fn whole_span(recording: &Recording) -> SelectedTime {
    let table = recording.open_table(&fabric::TABLE).unwrap();
    SelectedTime::between_moments(recording, &table, None, None).unwrap().unwrap()
}

fn exported(recording: &Recording, events: &[&str]) -> Profile {
    let span = whole_span(recording);
    let events: Vec<String> = events.iter().map(|&event| event.to_owned()).collect();
    let selected = ReportSelection::from_patterns(recording, &events, &[]).unwrap();
    let mut file = Vec::new();
    write_pprof(recording, &span, &selected, &mut file).unwrap();
    let mut message = Vec::new();
    GzDecoder::new(&file[..]).read_to_end(&mut message).unwrap();
    Profile::decode(&message[..]).unwrap()
}

fn comments(profile: &Profile) -> Vec<&str> {
    profile.comment.iter().map(|text| &*profile.string_table[*text as usize]).collect()
}

/// The samples of each event and owner sum to the line of the report.
fn assert_as_reported(
    recording: &Recording,
    grouping: GroupBy,
    line_of: fn(&ReadSample) -> String,
) {
    let profile = exported(recording, &[]);
    let table = recording.open_table(&fabric::TABLE).unwrap();
    let summed =
        sum_profile(recording, &table, &whole_span(recording), &ReportSelection::default());
    // Samples of 0 are not in the file. Each of them may belong to any line.
    let left_out = summed.unwrap().samples.len() - profile.sample.len();
    let mut sums: BTreeMap<(String, String), (f64, usize)> = BTreeMap::new();
    for sample in read_samples(&profile) {
        let (sum, samples) = sums.entry((sample.0.clone(), line_of(&sample))).or_default();
        *sum += sample.3 as f64;
        *samples += 1;
    }
    let report = sum_report(recording, &ReportQuestion::grouped_by(grouping)).unwrap();
    let mut lines = 0;
    for event in &report.events {
        for line in event.lines.iter().filter(|line| line.sum.value >= 1.0) {
            let key = (event.name.clone(), crate::text::printable(&line.key).into_owned());
            let (sum, samples) = sums.get(&key).copied().unwrap_or_default();
            // What a sample gets and what it passes on are at most 0.5 each.
            let tolerance = (samples + left_out) as f64 + 1e-9 * line.sum.value;
            let is_near = (sum - line.sum.value).abs() <= tolerance;
            assert!(is_near, "{key:?}: {sum} {} {tolerance}", line.sum.value);
            lines += 1;
        }
        let of_event = sums.iter().filter(|((name, _), _)| *name == event.name);
        let exported: f64 = of_event.map(|(_, (sum, _))| sum).sum();
        let reported: f64 = event.lines.iter().map(|line| line.sum.value).sum();
        let is_near = (exported - reported).abs() <= 0.5 + 1e-9 * reported;
        assert!(is_near, "{}: {exported}, {reported}", event.name);
    }
    assert!(lines > 3, "{lines}");
}

/// Rows of `fabric` lack one tenant, which `sums` has.
const LIMITED: Broken = Broken {
    fabric: |row, _| row.cgroup != Some("/other"),
    has_sums: true,
    metadata: |pairs| {
        pairs.insert(metadata::LIMITED_WINDOWS.to_owned(), "1".to_owned());
        pairs.insert(metadata::INTERVAL_NS.to_owned(), "10000000".to_owned());
        pairs.insert(metadata::STOP_TICK.to_owned(), "8000".to_owned());
    },
    ..INTACT
};

#[test]
fn samples_sum_to_the_lines_of_the_report() {
    let grace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/grace");
    let samples = [SampleRecording::new(false, &INTACT), SampleRecording::new(true, &LIMITED)];
    let recordings = samples.iter().map(SampleRecording::open);
    for recording in recordings.chain([Recording::open(&grace).unwrap()]) {
        assert_as_reported(&recording, GroupBy::Owner, |(_, _, labels, _)| labels["owner"].clone());
        assert_as_reported(&recording, GroupBy::Cgroup, |(_, frames, labels, _)| {
            match labels["owner"].as_str() {
                "task" => frames[1..frames.len() - 1].concat(),
                owner => owner.to_owned(),
            }
        });
    }
    let limited = exported(&samples[1].open(), &[]);
    let tenant_lacks = |(_, frames, ..): &ReadSample| frames[1] != "/other";
    assert!(!read_samples(&limited).iter().all(tenant_lacks));
}

#[test]
fn a_stack_is_a_link_the_cgroup_and_the_process_and_names_are_escaped() {
    let broken = Broken {
        fabric: |row, _| {
            row.cgroup = row.cgroup.map(|path| if path == "/other" { "/a/b\n/c" } else { path });
            row.job = row.cgroup.map(|_| "12.0");
            true
        },
        metadata: |pairs| {
            let plan = sample_plan(vec![sample_link(Vec::new())]);
            pairs.insert(metadata::PLAN.to_owned(), plan);
        },
        ..INTACT
    };
    let sample = SampleRecording::new(false, &broken);
    let profile = exported(&sample.open(), &[]);
    let mut samples = read_samples(&profile).into_iter();
    let (sample_type, frames, labels, value) = samples.next().unwrap();
    assert_eq!(sample_type, "read_bytes");
    assert_eq!(frames, ["memory 0 in", "/tenant\\u{1b}[2J", "train"]);
    assert_eq!(value, WINDOWS * 320_000);
    let labels: Vec<(&str, &str)> = labels.iter().map(|(key, text)| (&**key, &**text)).collect();
    let expected = [
        ("confidence", "50 percent"),
        ("container", "web@3f4e5d6c7b8a"),
        ("job", "12"),
        ("method", "residency"),
        ("owner", "task"),
        ("pod", "shop/web-0"),
        ("socket", "0"),
    ];
    assert_eq!(labels, expected);
    let frames: Vec<Vec<String>> = samples.map(|(_, frames, ..)| frames).collect();
    assert_eq!(frames[0], ["memory 0 in", "/a", "/b\\n", "/c", "serve"]);
    assert_eq!(frames[1], ["memory 0 in", "(irq)", "irq:nvme0q1"]);
    assert_eq!(frames[2], ["memory 0 in", "(idle)"]);
    assert_eq!(frames[4], ["page-faults", "/a", "/b\\n", "/c", "serve"]);
    let file = |name: &str| {
        let index = profile.string_table.iter().position(|text| text == name).unwrap() as i64;
        let function = profile.function.iter().find(|function| function.name == index).unwrap();
        profile.string_table[function.filename as usize].as_str()
    };
    assert_eq!([file("/b\\n"), file("/c"), file("serve")], ["/a/b\\n", "/a/b\\n/c", ""]);
    assert_eq!((profile.time_nanos, profile.duration_nanos), (WALL + BEGIN, WINDOWS * 10_000_000));
}

#[test]
fn an_event_is_selected_and_bytes_are_shown_first() {
    let sample = SampleRecording::new(false, &INTACT);
    let recording = sample.open();
    let name = |profile: &Profile, text: i64| profile.string_table[text as usize].clone();
    let all = exported(&recording, &[]);
    let types: Vec<[String; 2]> = all
        .sample_type
        .iter()
        .map(|kind| [kind.r#type, kind.unit].map(|text| name(&all, text)))
        .collect();
    assert_eq!(types, [["read_bytes", "bytes"], ["page-faults", "count"]]);
    assert_eq!(name(&all, all.default_sample_type), "read_bytes");
    let faults = exported(&recording, &["page*"]);
    assert_eq!(faults.sample_type.len(), 1);
    assert_eq!(name(&faults, faults.default_sample_type), "page-faults");
}

#[test]
fn what_is_not_known_is_a_comment_and_never_0() {
    let broken = Broken {
        fabric: |row, _| {
            if row.event == "page-faults" {
                (row.value, row.total) = (None, None);
            }
            true
        },
        metadata: |pairs| {
            pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned());
            pairs.insert(metadata::LOSS.to_owned(), r#"{"ring_full":3}"#.to_owned());
            metadata::set_misfits(pairs, &["the model\nis wrong".to_owned()]).unwrap();
        },
        ..INTACT
    };
    let sample = SampleRecording::new(false, &broken);
    let profile = exported(&sample.open(), &[]);
    assert_eq!(profile.sample_type.len(), 1);
    let expected = [
        "incomplete: 3 records were dropped",
        "the model\\nis wrong",
        "page-faults: rows without a value, which are in no sample: 1200",
    ];
    assert_eq!(comments(&profile), expected);
}

#[test]
fn values_that_the_format_cannot_hold_are_its_largest_number_or_named() {
    let broken = Broken {
        fabric: |row, _| {
            match (row.event, row.owner) {
                ("page-faults", _) => row.value = Some(f64::NAN),
                (_, "irq") => row.value = Some(0.0),
                _ if row.cgroup == Some("/other") => row.value = Some(1e18),
                _ => {}
            }
            true
        },
        ..INTACT
    };
    let profile = exported(&SampleRecording::new(false, &broken).open(), &[]);
    let samples = read_samples(&profile);
    let of_other = samples.iter().find(|(_, frames, ..)| frames[1] == "/other").unwrap();
    assert_eq!(of_other.3, i64::MAX);
    let others = samples.iter().filter(|sample| sample.3 != i64::MAX);
    let largest = others.map(|sample| sample.3).max();
    assert!(largest.is_some_and(|value| value <= WINDOWS * 640_000), "{largest:?}");
    assert!(samples.iter().all(|(_, frames, ..)| frames[1] != "(irq)"));
    let missing = "page-faults: rows without a value, which are in no sample: 1200";
    assert_eq!(comments(&profile), [missing]);
}

#[test]
fn samples_beyond_a_limit_are_one_and_all_is_still_there() {
    // Two samples and those of the others of two events; the texts are full after one.
    assert_limited(ProfileLimits { samples: 2, ..LIMITS }, 4);
    assert_limited(ProfileLimits { text_bytes: 250, ..LIMITS }, 3);
}

/// `samples` is their number, of which the last ones are those of the others.
fn assert_limited(limits: ProfileLimits, samples: usize) {
    let sample = SampleRecording::new(false, &INTACT);
    let recording = sample.open();
    let table = recording.open_table(&fabric::TABLE).unwrap();
    let mut profile = ShareProfile::new(Links::default(), limits);
    let all = i64::MIN..=i64::MAX;
    for batch in table.scan_columns(&ShareProfile::columns_to_read()).unwrap() {
        profile.add_rows(&batch.unwrap(), &all, &ReportSelection::default()).unwrap();
    }
    assert_eq!(profile.samples.len(), samples);
    let facts = ProfileFacts { wall_ns: 0, window_ns: None, comments: Vec::new() };
    let mut file = Vec::new();
    profile.write_gzip(facts, &mut file).unwrap();
    let mut message = Vec::new();
    GzDecoder::new(&file[..]).read_to_end(&mut message).unwrap();
    let sums = decoded_sums(&message);
    assert_eq!(sums["read_bytes"], WINDOWS * 640_000);
    assert_eq!(sums["page-faults"], WINDOWS * 30);
    let frames = read_samples(&Profile::decode(&message[..]).unwrap());
    assert_eq!(frames[samples - 1].1, ["page-faults", "(others)"]);
}
