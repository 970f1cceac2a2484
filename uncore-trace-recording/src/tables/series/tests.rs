use super::*;
use crate::schema::{SCHEMA_VERSION, metadata};
use crate::tables::writer::{CreateOptions, Writer};

fn dataset(dir: &Path) -> RecordingTarget {
    RecordingTarget::Dataset(dir.to_owned())
}

fn series(target: &RecordingTarget, keep: Option<Keep>) -> PartSeries {
    PartSeries::open(target, keep, FileMode::default()).unwrap()
}

/// Records an empty next part.
fn record(series: &mut PartSeries) -> Writer {
    let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
    Writer::create(series.next_target(), CreateOptions::default(), &[version].into()).unwrap()
}

fn finish(series: &mut PartSeries) {
    let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
    record(series).finish(&[version].into()).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| name(entry).into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn sizes_and_numbers_are_told_apart() {
    assert_eq!("3".parse(), Ok(Keep::Parts(3)));
    assert_eq!("2GiB".parse(), Ok(Keep::Bytes(2 << 30)));
    assert_eq!(parse_size("256MiB"), Ok(256 << 20));
    assert_eq!(parse_size("1GB"), Ok(1_000_000_000));
    for wrong in ["256M", "1h", "", "-1MiB", "x", "MiB"] {
        assert!(parse_size(wrong).unwrap_err().contains("256MiB"), "{wrong}");
    }
    for wrong in ["0", "0B", "-3", "1.5"] {
        assert!(wrong.parse::<Keep>().is_err(), "{wrong}");
    }
}

#[test]
fn parts_are_numbered_on_and_the_oldest_are_removed() {
    let place = tempfile::tempdir().unwrap();
    for (target, dir, parts) in [
        (dataset(&place.path().join("run")), "run", ["00000002", "00000003"]),
        (
            RecordingTarget::File(place.path().join("run.parquet")),
            "",
            ["run-00000002.parquet", "run-00000003.parquet"],
        ),
    ] {
        let dir = place.path().join(dir);
        let mut first = series(&target, Some(Keep::Parts(2)));
        finish(&mut first);
        finish(&mut first);
        drop(first);
        // Files that do not belong to the series stay.
        fs::write(dir.join("notes"), "x").unwrap();
        let mut next = series(&target, Some(Keep::Parts(2)));
        finish(&mut next);
        next.trim_parts(0).unwrap();
        let found = names(&dir);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert!(parts.iter().all(|part| found.contains(part)), "{found:?}");
        assert!(!found.iter().any(|name| name.contains("00000001")), "{found:?}");
        assert!(found.contains(&"notes"));
    }
}

#[test]
fn the_oldest_part_makes_room_and_never_the_one_that_is_recorded() {
    let place = tempfile::tempdir().unwrap();
    let target = dataset(&place.path().join("run"));
    let mut all = series(&target, None);
    finish(&mut all);
    all.make_room().unwrap();
    assert_eq!(all.names.list_numbers().unwrap(), [1]);
    let mut some = series(&target, Some(Keep::Parts(9)));
    finish(&mut some);
    let live = record(&mut some);
    for left in [&[2, 3][..], &[3], &[3]] {
        some.make_room().unwrap();
        assert_eq!(some.names.list_numbers().unwrap(), left);
    }
    drop(live);
}

/// A part with one window.
fn window(series: &mut PartSeries, boot: &str, mono_ns: i64) {
    let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
    let pairs = [version, (metadata::BOOT_ID.to_owned(), boot.to_owned())].into();
    let mut writer =
        Writer::create(series.next_target(), CreateOptions::default(), &pairs).unwrap();
    let mut rows = fabric::Builder::default();
    rows.append(&fabric::Row {
        mono_ns,
        window_ns: 1,
        host: "h",
        boot_id: boot,
        subsystem: "mem",
        pmu: "p",
        event: "e",
        unit: "bytes",
        owner: "task",
        value: Some(1.0),
        total: Some(1.0),
        running: 1.0,
        method: "exact",
        ..fabric::Row::default()
    });
    writer.write(&fabric::TABLE, &rows.finish()).unwrap();
    writer.finish(&pairs).unwrap();
}

#[test]
fn a_time_is_looked_for_in_its_own_boot() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let mut series = series(&dataset(&dir), None);
    for (boot, mono_ns) in [("a", 10), ("a", 20), ("b", 15), ("b", 25)] {
        window(&mut series, boot, mono_ns);
    }
    let part = |number: u64| dir.join(format!("{number:08}"));
    assert_eq!(parts_within(&dir, "b", 0..=100).unwrap(), [part(3), part(4)]);
    assert_eq!(parts_within(&dir, "b", 20..=30).unwrap(), [part(4)]);
    assert_eq!(parts_within(&dir, "c", 0..=100).unwrap(), Vec::<PathBuf>::new());
}

#[test]
fn as_many_bytes_are_kept_as_fit_beside_what_is_recorded() {
    let place = tempfile::tempdir().unwrap();
    let target = dataset(&place.path().join("run"));
    let mut series = series(&target, Some(Keep::Bytes(u64::MAX)));
    (0..4).for_each(|_| finish(&mut series));
    let size = series.part_size(1);
    assert!(size > 0);
    series.keep = Some(Keep::Bytes(3 * size + size / 2));
    series.trim_parts(0).unwrap();
    assert_eq!(series.names.list_numbers().unwrap(), [2, 3, 4]);
    series.trim_parts(size).unwrap();
    assert_eq!(series.names.list_numbers().unwrap(), [3, 4]);
    series.trim_parts(u64::MAX / 2).unwrap();
    assert_eq!(series.names.list_numbers().unwrap(), Vec::<u64>::new());
}

#[test]
fn a_part_that_is_recorded_is_never_removed_and_nobody_else_may_record() {
    let place = tempfile::tempdir().unwrap();
    let target = dataset(&place.path().join("run"));
    let mut first = series(&target, Some(Keep::Bytes(1)));
    let live = record(&mut first);
    first.trim_parts(1 << 40).unwrap();
    assert_eq!(first.names.list_numbers().unwrap(), [1]);
    let error = PartSeries::open(&target, None, FileMode::default()).unwrap_err().to_string();
    assert!(error.contains("00000001 is being recorded now"), "{error}");
    drop(live);
}

#[test]
fn what_was_half_removed_is_removed_and_a_recording_is_no_series() {
    let place = tempfile::tempdir().unwrap();
    let target = dataset(&place.path().join("run"));
    let mut first = series(&target, None);
    finish(&mut first);
    let dir = place.path().join("run");
    fs::create_dir(dir.join(".00000000.removed")).unwrap();
    fs::write(dir.join(".00000000.removed/x"), "x").unwrap();
    fs::create_dir(dir.join(".other.removed")).unwrap();
    series(&target, None);
    assert_eq!(names(&dir), [".other.removed", "00000001"]);
    assert_eq!(parts_of(&dir), [dir.join("00000001")]);
    assert_eq!(parts_of(&dir.join("00000001")), Vec::<PathBuf>::new());
    let part = dataset(&dir.join("00000001"));
    let error = PartSeries::open(&part, None, FileMode::default()).unwrap_err().to_string();
    assert!(error.contains("holds a recording that was not rotated"), "{error}");
    let stream = RecordingTarget::Stream(Box::new(Vec::new()));
    assert!(PartSeries::open(&stream, None, FileMode::default()).is_err());
}

#[test]
fn a_part_has_a_time_or_a_size() {
    let parse = |text: &str| text.parse::<Rotate>();
    assert_eq!(parse("1h"), Ok(Rotate::After(Duration::from_hours(1))));
    assert_eq!(parse("90"), Ok(Rotate::After(Duration::from_secs(90))));
    assert_eq!(parse("256MiB"), Ok(Rotate::Bytes(256 << 20)));
    for (wrong, says) in [
        ("256M", "with its unit"),
        ("10ms", "at least 1s"),
        ("4KiB", "at least 1MiB"),
        ("soon", "with a unit"),
        ("xB", "not a size"),
    ] {
        let error = parse(wrong).unwrap_err();
        assert!(error.contains(says), "{wrong}: {error}");
    }
}
