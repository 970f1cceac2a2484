use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::super::sample::{sample_metadata, sample_sums};
use super::*;
use crate::record::RecorderControl;
use crate::schema::columns;
use crate::tables::file::TableFile;

const S: i64 = 1_000_000_000;

fn consumer(root: &Path) -> TapConsumer {
    let shown = root.display();
    let text = format!(
        "[ring]\ndirectory = '{shown}/ring'\n[rollup]\ndirectory = '{shown}/rollup'\nwindow = '1s'\n\
         [metrics]\ntextfile = '{shown}/x.prom'\n"
    );
    let config = Config::parse(&text).unwrap();
    let asked = PendingRequests::default();
    let shared = Arc::new(HttpState::new(asked.clone(), &config).unwrap());
    let wishes =
        SpanSaver::new(&config, Vec::new(), Arc::clone(&shared), RecorderControl::default());
    let notify = Notify::from_environment();
    let pulse = Pulse::new(RecorderControl::default(), Duration::from_secs(2));
    let reload = Reload::new(root.join("agent.toml"));
    TapConsumer::new(ConsumerContext {
        config,
        reload,
        pulse,
        room: None,
        wishes,
        shared,
        requests: asked,
        notify,
    })
}

/// A value of the page of metrics that was written last.
fn metric(root: &Path, name: &str) -> String {
    let page = fs::read_to_string(root.join("x.prom")).unwrap();
    let line = page.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit_once(' ').unwrap().1.to_owned()
}

/// The unfinished directory of the hour that is being written.
fn partial(dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = entries.filter_map(|path| {
        let is_partial = path.to_string_lossy().ends_with(".partial");
        if is_partial { Some(path) } else { partial(&path) }
    });
    found.next()
}

#[test]
fn there_is_a_whole_page_before_the_first_window() {
    let place = tempfile::tempdir().unwrap();
    let mut consumer = consumer(place.path());
    consumer.publish_metrics();
    assert!(
        fs::read_to_string(place.path().join("x.prom"))
            .unwrap()
            .contains("uncore_trace_build_info")
    );
}

#[test]
fn an_hour_that_cannot_be_finished_keeps_nothing_else_from_being_done() {
    let place = tempfile::tempdir().unwrap();
    let mut consumer = consumer(place.path());
    consumer.consume_message(Tapped::Metadata(0, sample_metadata())).unwrap();
    consumer.consume_message(Tapped::Rows(0, &sums::TABLE, sample_sums(&[S, 20 * S]))).unwrap();
    // The disk fails: the segment gets no name.
    let left = partial(place.path()).unwrap();
    fs::create_dir(left.join("000001-000001.parquet")).unwrap();
    consumer.context.requests.keep.store(true, Ordering::Relaxed);
    consumer.look_around();
    let (sender, tapped) = mpsc::channel();
    drop(sender);
    let lacking = consumer.run(&tapped).unwrap();
    assert_eq!(lacking.as_deref(), Some("the roll-up is incomplete: 2 rows could not be written"));
    // The trigger is served, in vain here, and the metrics are published.
    assert_eq!(metric(place.path(), "uncore_trace_triggers_refused_total"), "1.0");
    assert_eq!(metric(place.path(), "uncore_trace_unwritten_rows_total"), "2.0");
}

#[test]
fn rows_that_cannot_be_sealed_are_counted_and_what_was_sealed_is_finished_when_it_can_be() {
    let place = tempfile::tempdir().unwrap();
    let mut consumer = consumer(place.path());
    consumer.consume_message(Tapped::Metadata(0, sample_metadata())).unwrap();
    consumer.consume_message(Tapped::Rows(0, &sums::TABLE, sample_sums(&[S, 20 * S]))).unwrap();
    consumer.seal_rows();
    consumer.look_around();
    let left = partial(place.path()).unwrap();
    let blocked = left.join("000002-000002.parquet");
    fs::create_dir(&blocked).unwrap();
    consumer.consume_message(Tapped::Rows(0, &sums::TABLE, sample_sums(&[40 * S]))).unwrap();
    consumer.seal_rows();
    assert_eq!((consumer.agent_metrics.unwritten, consumer.is_failing), (1, true));
    fs::remove_dir(&blocked).unwrap();
    consumer.consume_message(Tapped::Rows(0, &sums::TABLE, sample_sums(&[60 * S]))).unwrap();
    // The rows are only held in memory: whether they can be written is not known yet.
    assert!(consumer.is_failing);
    consumer.seal_rows();
    assert!(!consumer.is_failing);
    consumer.look_around();
    assert!(!left.exists());
    assert_ne!(partial(place.path()), None);
}

#[test]
fn a_window_is_labelled_by_the_current_clock() {
    let place = tempfile::tempdir().unwrap();
    let mut consumer = consumer(place.path());
    consumer.consume_message(Tapped::Metadata(0, sample_metadata())).unwrap();
    // Rows whose label is 1970.
    let now = crate::clock::mono_ns();
    consumer
        .consume_message(Tapped::Rows(0, &sums::TABLE, sample_sums(&[now - 20 * S, now])))
        .unwrap();
    let left = partial(place.path()).unwrap();
    assert!(!left.to_string_lossy().contains("date=1970"), "{}", left.display());
}

/// The sets of rows of the roll-up: end, length, known time and sum of the values of a window.
fn sets(root: &Path) -> Vec<(i64, i64, i64, f64)> {
    let mut sets: Vec<(i64, i64, i64, f64)> = Vec::new();
    let mut below = vec![root.join("rollup")];
    while let Some(path) = below.pop() {
        if path.is_dir() {
            below.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let Ok(table) = TableFile::open(&rollup::TABLE, &path) else { continue };
        for batch in table.scan_columns(&["mono_ns", "window_ns", "known_ns", "value"]).unwrap() {
            let batch = batch.unwrap();
            let int_column = |name| columns::i64_column(&batch, name).unwrap();
            let values = columns::f64_column(&batch, "value").unwrap();
            let times = [int_column("mono_ns"), int_column("window_ns"), int_column("known_ns")];
            sets.extend((0..batch.num_rows()).map(|row| {
                let [end, length, known] = times.map(|time| time.value(row));
                (end, length, known, values.value(row))
            }));
        }
    }
    sets.sort_by_key(|set| set.0);
    sets
}

/// A row of `fabric` each 100 ms, of windows of 10 ms.
fn steady(from: i64, to: i64) -> Tapped {
    let ends: Vec<i64> = (from * 10 + 1..=to * 10).map(|tenth| tenth * S / 10).collect();
    Tapped::Rows(0, &sums::TABLE, sample_sums(&ends))
}

#[test]
fn a_configuration_that_is_read_again_writes_no_window_twice() {
    let place = tempfile::tempdir().unwrap();
    let mut consumer = consumer(place.path());
    consumer.consume_message(Tapped::Metadata(0, sample_metadata())).unwrap();
    consumer.consume_message(steady(0, 4)).unwrap();
    consumer.consume_message(Tapped::Rows(0, &sums::TABLE, sample_sums(&[4 * S + S / 2]))).unwrap();
    // Within a window, which is neither closed nor begun again.
    let same = consumer.context.config.clone();
    consumer.apply_reload(Ok(same.clone()));
    consumer.consume_message(steady(5, 7)).unwrap();
    let longer = Config {
        rollup: same.rollup.clone().map(|mut rollup| {
            rollup.window = Duration::from_secs(3);
            rollup
        }),
        ..same
    };
    consumer.apply_reload(Ok(longer));
    consumer.consume_message(steady(7, 16)).unwrap();
    consumer.close_all().unwrap();
    consumer.seal_rows();
    let sets = sets(place.path());
    let windows: Vec<(i64, i64)> = sets.iter().map(|set| (set.0 / S, set.1 / S)).collect();
    let seconds = (1..=7).map(|end| (end, 1));
    let longer = [(9, 2), (12, 3), (15, 3), (18, 3)];
    assert_eq!(windows, seconds.chain(longer).collect::<Vec<_>>());
    assert_eq!(sets.iter().map(|set| set.3 as i64).sum::<i64>(), 151);
    assert!(sets.iter().all(|set| set.2 <= set.1), "{sets:?}");
}
