use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::*;
use crate::schema::{SCHEMA_VERSION, metadata};
use crate::tables::hour_tree::list_files;
use crate::tables::hour_upkeep::{UNUSED, repair_hours, trim_hours};
use crate::tables::layout::FILE;
use crate::tables::upload_journal::{self, Stamp};

const HOUR_US: i64 = 3_600_000_000;
/// 2026-11-24 00:00 UTC.
const DAY_US: i64 = 1_795_478_400_000_000;

fn pairs(host: &str, cluster: &str) -> BTreeMap<String, String> {
    [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::HOST, host.to_owned()),
        (metadata::BOOT_ID, "01234567-89ab".to_owned()),
        (metadata::CLUSTER, cluster.to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

fn open(root: &Path) -> Hours {
    Hours::open(root, FileMode::default(), pairs("h1", "c")).unwrap()
}

/// Both clocks, if the machine was started a day earlier.
fn at(ts_us: i64) -> RollupTime {
    RollupTime { ts_us, mono_ns: (ts_us - DAY_US + 24 * HOUR_US) * 1000 }
}

/// One row that ends at this time.
fn rows(ts_us: i64) -> RecordBatch {
    let mut rows = rollup::Builder::default();
    rows.append(&rollup::Row {
        ts: ts_us * 1000,
        mono_ns: 1,
        window_ns: 1,
        known_ns: 1,
        host: "h1",
        boot_id: "b",
        cluster: Some("c"),
        subsystem: "mem",
        pmu: "p",
        event: "e",
        unit: "bytes",
        owner: "task",
        cgroup: Some("/a"),
        value: Some(1.0),
        low: Some(1.0),
        high: Some(1.0),
        total: Some(1.0),
        running: 1.0,
        method: "exact",
        confidence: Some(1.0),
        ..rollup::Row::default()
    });
    rows.finish()
}

fn names(root: &Path) -> Vec<String> {
    let found = list_files(root, FILE).unwrap();
    found.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
}

#[test]
fn each_hour_is_a_file_of_its_partition_and_the_next_process_makes_another() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("deep/rollup");
    let mut hours = open(&root);
    assert_eq!(hours.write(at(DAY_US), &rows(DAY_US)).unwrap(), None);
    assert_eq!(names(&root), Vec::<String>::new());
    let (closed, finished) = hours.write(at(DAY_US + HOUR_US), &rows(DAY_US)).unwrap().unwrap();
    assert!(
        closed.ends_with("cluster=c/date=2026-11-24/hour=00/host=h1/01234567_0000086400.parquet")
    );
    assert_eq!(finished.rows, 1);
    hours.finish_hour().unwrap();
    let mut second = open(&root);
    second.write(at(DAY_US + HOUR_US + 1_000_000), &rows(DAY_US)).unwrap();
    second.finish_hour().unwrap();
    // A file that begins in the same window takes the next free name.
    let mut third = open(&root);
    third.write(at(DAY_US + HOUR_US), &rows(DAY_US)).unwrap();
    third.finish_hour().unwrap();
    assert_eq!(
        names(&root),
        [
            "cluster=c/date=2026-11-24/hour=00/host=h1/01234567_0000086400.parquet",
            "cluster=c/date=2026-11-24/hour=01/host=h1/01234567_0000090000.parquet",
            "cluster=c/date=2026-11-24/hour=01/host=h1/01234567_0000090001.parquet",
            "cluster=c/date=2026-11-24/hour=01/host=h1/01234567_0000090002.parquet",
        ]
    );
}

#[test]
fn windows_that_others_have_written_are_not_written_again_where_only_own_files_may_be_there() {
    let place = tempfile::tempdir().unwrap();
    let mut first = open(place.path());
    first.write(at(DAY_US), &rows(DAY_US)).unwrap();
    let (made, _) = first.finish_hour().unwrap().unwrap();
    let mut again = open(place.path()).allow_existing(BTreeSet::new());
    let Unwritten { rows: lost, error } = again.write(at(DAY_US), &rows(DAY_US)).unwrap_err();
    assert!(error.to_string().contains("already has these windows"), "{error}");
    assert_eq!(lost, 1);
    let mut next = open(place.path()).allow_existing([made].into());
    next.write(at(DAY_US), &rows(DAY_US)).unwrap();
    next.finish_hour().unwrap();
    assert_eq!(names(place.path()).len(), 2);
}

#[test]
fn rows_since_the_last_seal_are_counted_as_lost_and_the_rest_is_finished() {
    for is_hour_over in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let mut hours = open(place.path());
        assert!(!hours.seal_rows().unwrap());
        hours.write(at(DAY_US), &rows(DAY_US)).unwrap();
        assert!(hours.seal_rows().unwrap());
        assert!(!hours.seal_rows().unwrap());
        for second in 1..4 {
            let time = DAY_US + second * 1_000_000;
            hours.write(at(time), &rows(time)).unwrap();
        }
        let live = hours.live.as_ref().unwrap();
        let (partial, path) = (partial_dir(&live.path), live.path.clone());
        // The disk fails: the next segment, the third after an empty one, cannot be renamed.
        let blocked = partial.join("000002-000002.parquet");
        fs::create_dir(&blocked).unwrap();
        let lost = if is_hour_over {
            let time = DAY_US + HOUR_US;
            hours.write(at(time), &rows(time)).unwrap_err()
        } else {
            hours.seal_rows().unwrap_err()
        };
        assert_eq!(lost.rows, 3 + u64::from(is_hour_over), "{:#}", lost.error);
        assert!(!hours.seal_rows().unwrap());
        fs::remove_dir(&blocked).unwrap();
        // No process writes it any more, while the next file is being written.
        hours.write(at(DAY_US + HOUR_US), &rows(DAY_US)).unwrap();
        assert_eq!(repair_hours(place.path()).unwrap(), *std::slice::from_ref(&path));
        let table = crate::tables::reader::OpenTable::open(&rollup::TABLE, &path).unwrap();
        assert_eq!(table.row_count(), 1);
    }
}

#[test]
fn a_clock_that_is_set_back_makes_another_file() {
    let place = tempfile::tempdir().unwrap();
    let mut hours = open(place.path());
    for (second, at) in [HOUR_US, 0, HOUR_US].into_iter().enumerate() {
        let mono_ns = second as i64 * 1_000_000_000;
        hours.write(RollupTime { ts_us: DAY_US + at, mono_ns }, &rows(DAY_US + at)).unwrap();
    }
    hours.finish_hour().unwrap();
    assert_eq!(names(place.path()).len(), 3);
}

/// A week in hours of two windows: each day the process is killed and restarted, and once the clock
/// is set back.
#[test]
fn a_week_is_one_file_an_hour_and_one_for_each_interruption() {
    let place = tempfile::tempdir().unwrap();
    let mut windows = 0;
    for day in 0..7 {
        let mut hours = open(place.path());
        for hour in 0..24 {
            let begin = DAY_US + (24 * day + hour) * HOUR_US;
            for time in [begin, begin + HOUR_US / 2] {
                hours.write(at(time), &rows(time)).unwrap();
                windows += 1;
            }
            if (day, hour) == (3, 12) {
                let mono_ns = at(begin).mono_ns + 1_000_000_000;
                let end = RollupTime { ts_us: begin - HOUR_US, mono_ns };
                hours.write(end, &rows(begin)).unwrap();
                windows += 1;
            }
        }
        hours.seal_rows().unwrap();
        let killed = hours.live.take().unwrap();
        killed.writer.lock_of_a_killed().unwrap().release_lock();
        assert_eq!(repair_hours(place.path()).unwrap(), *std::slice::from_ref(&killed.path));
    }
    let found = list_files(place.path(), FILE).unwrap();
    // After the clock was set back, rows go into a second file of that hour.
    assert_eq!(found.len(), 7 * 24 + 1);
    let of = |path: &PathBuf| {
        crate::tables::reader::OpenTable::open(&rollup::TABLE, path).unwrap().row_count()
    };
    assert_eq!(found.iter().map(of).sum::<i64>(), windows);
    assert!(found.iter().all(|path| !disk::is_occupied(&partial_dir(path)).unwrap()));
}

#[test]
fn what_was_left_is_finished_and_what_is_written_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let mut killed = open(place.path());
    killed.write(at(DAY_US), &rows(DAY_US)).unwrap();
    killed.seal_rows().unwrap();
    let live = killed.live.take().unwrap();
    assert_eq!(repair_hours(place.path()).unwrap(), Vec::<PathBuf>::new());
    live.writer.lock_of_a_killed().unwrap().release_lock();
    assert_eq!(repair_hours(place.path()).unwrap(), *std::slice::from_ref(&live.path));
    assert_eq!(
        crate::tables::reader::OpenTable::open(&rollup::TABLE, &live.path).unwrap().row_count(),
        1
    );
}

#[test]
fn names_that_a_user_chose_stay_in_the_directory() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("rollup");
    let mut hours = Hours::open(&root, FileMode::default(), pairs("../../x y", "../c=/d")).unwrap();
    hours.write(at(DAY_US), &rows(DAY_US)).unwrap();
    hours.finish_hour().unwrap();
    let expected = "cluster=%2E.%2Fc%3D%2Fd/date=2026-11-24/hour=00/host=%2E.%2F..%2Fx%20y/01234567_0000086400.parquet";
    assert_eq!(names(&root), [expected]);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn old_hours_are_removed_with_their_directories() {
    let place = tempfile::tempdir().unwrap();
    let mut hours = open(place.path());
    hours.write(at(DAY_US), &rows(DAY_US)).unwrap();
    hours.write(at(DAY_US + HOUR_US), &rows(DAY_US)).unwrap();
    hours.finish_hour().unwrap();
    assert_eq!(trim_hours(place.path(), Duration::from_hours(1), None).unwrap(), 0);
    let old =
        place.path().join("cluster=c/date=2026-11-24/hour=00/host=h1/01234567_0000086400.parquet");
    let file = fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(3)).unwrap();
    assert_eq!(trim_hours(place.path(), Duration::from_hours(2), None).unwrap(), 1);
    assert_eq!(names(place.path()).len(), 1);
    assert!(!old.ancestors().nth(2).unwrap().exists());
}

#[test]
fn hours_that_were_not_sent_stay_until_too_many_wait() {
    let place = tempfile::tempdir().unwrap();
    let mut hours = open(place.path());
    for hour in 0..3 {
        hours.write(at(DAY_US + hour * HOUR_US), &rows(DAY_US)).unwrap();
    }
    hours.finish_hour().unwrap();
    let all = list_files(place.path(), FILE).unwrap();
    for path in &all {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_hours(3)).unwrap();
    }
    let age = Duration::from_hours(2);
    let stamp = |path: &Path| Stamp::from_metadata(&fs::metadata(path).unwrap());
    let name = |path: &Path| path.strip_prefix(place.path()).unwrap().to_str().unwrap().to_owned();
    assert_eq!(trim_hours(place.path(), age, Some(1 << 30)).unwrap(), 0);
    let journal =
        format!("uploaded to s3://b\n{}", upload_journal::line(&name(&all[1]), stamp(&all[1])));
    fs::write(place.path().join(upload_journal::JOURNAL), journal).unwrap();
    assert_eq!(trim_hours(place.path(), age, Some(1 << 30)).unwrap(), 1);
    assert_eq!(list_files(place.path(), FILE).unwrap(), [all[0].clone(), all[2].clone()]);
    // There is room for one of the two: the newer one.
    assert_eq!(trim_hours(place.path(), age, Some(stamp(&all[2]).size)).unwrap(), 1);
    assert_eq!(list_files(place.path(), FILE).unwrap(), [all[2].clone()]);
}

#[test]
fn directories_that_an_upload_has_emptied_go() {
    let place = tempfile::tempdir().unwrap();
    let host = place.path().join("cluster=c/date=2026-11-24/hour=00/host=h1");
    fs::create_dir_all(&host).unwrap();
    assert_eq!(trim_hours(place.path(), UNUSED, None).unwrap(), 0);
    assert!(host.exists());
    let old = SystemTime::now() - UNUSED - Duration::from_mins(1);
    fs::File::open(&host).unwrap().set_modified(old).unwrap();
    trim_hours(place.path(), UNUSED, None).unwrap();
    assert!(!host.ancestors().nth(2).unwrap().exists());
}
