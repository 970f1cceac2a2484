use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::super::sample::{fabric, pairs};
use super::*;
use crate::record::Control;

const S: i64 = 1_000_000_000;

fn consumer(root: &Path) -> Consumer {
    let shown = root.display();
    let text = format!(
        "[ring]\ndirectory = '{shown}/ring'\n[rollup]\ndirectory = '{shown}/rollup'\nwindow = '1s'\n\
         [metrics]\ntextfile = '{shown}/x.prom'\n"
    );
    let config = Config::parse(&text).unwrap();
    let asked = Asked::default();
    let shared = Arc::new(Shared::new(asked.clone(), &config).unwrap());
    let wishes = Wishes::new(&config, Vec::new(), Arc::clone(&shared), Control::default());
    let notify = Notify::from_environment().unwrap();
    let pulse = Pulse::new(Control::default(), Duration::from_secs(2));
    let reload = Reload::new(root.join("agent.toml"));
    Consumer::new(config, (reload, pulse, None), wishes, shared, asked, notify)
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
    consumer.publish();
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
    consumer.take(Tapped::Metadata(0, pairs())).unwrap();
    consumer.take(Tapped::Rows(0, &fabric::TABLE, fabric(&[S, 20 * S]))).unwrap();
    // The disk fails: the segment gets no name.
    let left = partial(place.path()).unwrap();
    fs::create_dir(left.join("000001-000001.parquet")).unwrap();
    consumer.asked.keep.store(true, Ordering::Relaxed);
    consumer.look_around();
    let (sender, tapped) = mpsc::channel();
    drop(sender);
    let error = consumer.run(&tapped).unwrap_err();
    assert!(error.to_string().contains("the last hour of the roll-up"), "{error:#}");
    // The trigger is served, in vain here, and the metrics are published.
    assert_eq!(metric(place.path(), "uncore_trace_triggers_refused_total"), "1.0");
    assert_eq!(metric(place.path(), "uncore_trace_unwritten_rows_total"), "2.0");
}

#[test]
fn rows_that_cannot_be_sealed_are_counted_and_what_was_sealed_is_finished_when_it_can_be() {
    let place = tempfile::tempdir().unwrap();
    let mut consumer = consumer(place.path());
    consumer.take(Tapped::Metadata(0, pairs())).unwrap();
    consumer.take(Tapped::Rows(0, &fabric::TABLE, fabric(&[S, 20 * S]))).unwrap();
    consumer.seal();
    consumer.look_around();
    let left = partial(place.path()).unwrap();
    let blocked = left.join("000002-000002.parquet");
    fs::create_dir(&blocked).unwrap();
    consumer.take(Tapped::Rows(0, &fabric::TABLE, fabric(&[40 * S]))).unwrap();
    consumer.seal();
    assert_eq!((consumer.own.unwritten, consumer.failing), (1, true));
    fs::remove_dir(&blocked).unwrap();
    consumer.take(Tapped::Rows(0, &fabric::TABLE, fabric(&[60 * S]))).unwrap();
    // The rows are only held in memory: whether they can be written is not known yet.
    assert!(consumer.failing);
    consumer.seal();
    assert!(!consumer.failing);
    consumer.look_around();
    assert!(!left.exists());
    assert_ne!(partial(place.path()), None);
}

#[test]
fn a_window_is_labelled_by_the_clock_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let mut consumer = consumer(place.path());
    consumer.take(Tapped::Metadata(0, pairs())).unwrap();
    // Rows whose label is 1970.
    let now = crate::clock::mono_ns();
    consumer.take(Tapped::Rows(0, &fabric::TABLE, fabric(&[now - 20 * S, now]))).unwrap();
    let left = partial(place.path()).unwrap();
    assert!(!left.to_string_lossy().contains("date=1970"), "{}", left.display());
}
