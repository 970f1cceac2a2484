use super::*;
use crate::schema::{SCHEMA_VERSION, metadata};

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
    Hours::open(root, Mode::default(), pairs("h1", "c")).unwrap()
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
        socket: None,
        subsystem: "mem",
        link: None,
        direction: None,
        peak: None,
        pmu: "p",
        event: "e",
        filter: "",
        unit: "bytes",
        owner: "task",
        number: None,
        comm: None,
        cgroup: Some("/a"),
        container: None,
        pod: None,
        value: Some(1.0),
        low: Some(1.0),
        high: Some(1.0),
        total: Some(1.0),
        running: 1.0,
        method: "exact",
        confidence: Some(1.0),
    });
    rows.finish()
}

fn names(root: &Path) -> Vec<String> {
    let found = files(root, FILE).unwrap();
    found.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
}

#[test]
fn each_hour_is_a_file_of_its_partition_and_the_next_process_makes_another() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("deep/rollup");
    let mut hours = open(&root);
    assert_eq!(hours.write(DAY_US, &rows(DAY_US)).unwrap(), None);
    assert_eq!(names(&root), Vec::<String>::new());
    let (closed, finished) = hours.write(DAY_US + HOUR_US, &rows(DAY_US)).unwrap().unwrap();
    assert!(closed.ends_with("cluster=c/date=2026-11-24/hour=00/h1_01234567_000.parquet"));
    assert_eq!(finished.rows, 1);
    hours.finish().unwrap();
    let mut second = open(&root);
    second.write(DAY_US + HOUR_US + 1, &rows(DAY_US)).unwrap();
    second.finish().unwrap();
    assert_eq!(
        names(&root),
        [
            "cluster=c/date=2026-11-24/hour=00/h1_01234567_000.parquet",
            "cluster=c/date=2026-11-24/hour=01/h1_01234567_000.parquet",
            "cluster=c/date=2026-11-24/hour=01/h1_01234567_001.parquet",
        ]
    );
}

#[test]
fn a_clock_that_is_set_back_makes_another_file() {
    let place = tempfile::tempdir().unwrap();
    let mut hours = open(place.path());
    for at in [HOUR_US, 0, HOUR_US] {
        hours.write(DAY_US + at, &rows(DAY_US + at)).unwrap();
    }
    hours.finish().unwrap();
    assert_eq!(names(place.path()).len(), 3);
}

#[test]
fn what_was_left_is_finished_and_what_is_written_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let mut killed = open(place.path());
    killed.write(DAY_US, &rows(DAY_US)).unwrap();
    killed.seal().unwrap();
    let live = killed.live.take().unwrap();
    assert_eq!(repair(place.path()).unwrap(), Vec::<PathBuf>::new());
    live.writer.lock_of_a_killed().unwrap().release();
    assert_eq!(repair(place.path()).unwrap(), [live.path.clone()]);
    assert_eq!(crate::tables::reader::Table::open(&rollup::TABLE, &live.path).unwrap().rows(), 1);
}

#[test]
fn names_that_a_user_chose_stay_in_the_directory() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("rollup");
    let mut hours = Hours::open(&root, Mode::default(), pairs("../../x y", "../c=/d")).unwrap();
    hours.write(DAY_US, &rows(DAY_US)).unwrap();
    hours.finish().unwrap();
    let expected = "cluster=%2E.%2Fc%3D%2Fd/date=2026-11-24/hour=00/%2E.%2F..%2Fx%20y_01234567_000.parquet";
    assert_eq!(names(&root), [expected]);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    assert_eq!(encoded(""), "unknown");
}

#[test]
fn old_hours_are_removed_with_their_directories() {
    let place = tempfile::tempdir().unwrap();
    let mut hours = open(place.path());
    hours.write(DAY_US, &rows(DAY_US)).unwrap();
    hours.write(DAY_US + HOUR_US, &rows(DAY_US)).unwrap();
    hours.finish().unwrap();
    assert_eq!(trim(place.path(), Duration::from_hours(1)).unwrap(), 0);
    let old = place.path().join("cluster=c/date=2026-11-24/hour=00/h1_01234567_000.parquet");
    let file = fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(3)).unwrap();
    assert_eq!(trim(place.path(), Duration::from_hours(2)).unwrap(), 1);
    assert_eq!(names(place.path()).len(), 1);
    assert!(!old.parent().unwrap().exists());
}
