use std::collections::BTreeSet;

use arrow::array::{Float64Array, Int64Array};

use super::super::sample::{INTACT, Sample, WINDOWS, link, peak, plan};
use super::*;
use crate::schema::link::{Peak, PeakSource};
use crate::schema::{fabric, metadata};

const WINDOW: i64 = 10_000_000;

fn summer(windows: i64, owners: usize) -> Summer {
    Summer::new(Form { window_ns: windows * WINDOW, owners, slack_ns: 0 })
}

/// All rows of a recording's roll-up, window by window.
fn rolled(sample: &Sample, mut summer: Summer) -> Vec<RecordBatch> {
    let table = sample.open().table(&fabric::TABLE).unwrap();
    summer.metadata(table.metadata()).unwrap();
    let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
    let mut found = Vec::new();
    for batch in table.scan(&columns).unwrap() {
        summer.fabric(0, &batch.unwrap()).unwrap();
        found.extend(std::iter::from_fn(|| summer.closed(Label::Recorded)).map(|rows| rows.batch));
    }
    found.extend(std::iter::from_fn(|| summer.close(Label::Recorded)).map(|rows| rows.batch));
    found
}

fn sums(batches: &[RecordBatch], column: &str) -> f64 {
    let sum = |batch: &RecordBatch| -> f64 {
        let array: &Float64Array = columns::column(batch, column).unwrap();
        array.iter().flatten().sum()
    };
    batches.iter().map(sum).sum()
}

fn fabric_sum(sample: &Sample) -> f64 {
    let table = sample.open().table(&fabric::TABLE).unwrap();
    let batches: Vec<_> = table.scan(&["value"]).unwrap().map(Result::unwrap).collect();
    sums(&batches, "value")
}

#[test]
fn all_shares_are_in_it_whatever_the_window() {
    let sample = Sample::new(false, &INTACT);
    let expected = fabric_sum(&sample);
    assert!(expected > 0.0);
    for (windows, owners) in [(100, 100), (7, 100), (100, 1), (WINDOWS + 1, 1)] {
        let rolled = rolled(&sample, summer(windows, owners));
        let found = sums(&rolled, "value");
        assert!(
            (found - expected).abs() < expected * 1e-12,
            "{windows} {owners}: {found} {expected}"
        );
    }
}

#[test]
fn shares_of_a_counter_and_window_sum_to_its_total_and_lie_in_their_intervals() {
    let sample = Sample::new(false, &INTACT);
    for batch in rolled(&sample, summer(100, 100)) {
        let reals = |name: &str| columns::f64s(&batch, name).unwrap().clone();
        let (values, totals, lows, highs) =
            (reals("value"), reals("total"), reals("low"), reals("high"));
        let events = columns::words(&batch, "event").unwrap();
        let pmus = columns::words(&batch, "pmu").unwrap();
        let mut of: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let Some(value) = get(&values, row) else { continue };
            let key = (events.get(row).unwrap().to_owned(), pmus.get(row).unwrap().to_owned());
            let sum = of.entry(key).or_insert((0.0, totals.value(row)));
            sum.0 += value;
            assert!(lows.value(row) <= value && value <= highs.value(row));
            assert!(highs.value(row) <= totals.value(row));
        }
        assert!(!of.is_empty());
        for (counter, (sum, total)) in of {
            assert!((sum - total).abs() <= total * 1e-9, "{counter:?}: {sum} {total}");
        }
    }
}

#[test]
fn a_row_has_the_interval_of_its_cgroup() {
    let broken = super::super::sample::Broken {
        fabric: |row, _| {
            // Two processes of one cgroup.
            row.cgroup = row.cgroup.map(|_| "/a");
            row.confidence = Some(0.2);
            row.cgroup_confidence = Some(0.9);
            true
        },
        ..INTACT
    };
    let sample = Sample::new(false, &broken);
    for batch in rolled(&sample, summer(WINDOWS, 100)) {
        let reals = |name: &str| columns::f64s(&batch, name).unwrap().clone();
        let (values, lows, highs) = (reals("value"), reals("low"), reals("high"));
        for row in 0..batch.num_rows() {
            let part = |end: &Float64Array| end.value(row) / values.value(row);
            // Ends are rounded outwards by up to 0.1 %.
            assert!((0.898..0.901).contains(&part(&lows)), "{}", part(&lows));
            assert!((1.099..1.102).contains(&part(&highs)), "{}", part(&highs));
        }
    }
}

#[test]
fn windows_without_a_value_are_not_in_the_known_time() {
    // The second half of the windows of the first counter has no value.
    let broken = super::super::sample::Broken {
        fabric: |row, _| {
            if row.counter == 0 && row.mono_ns > super::super::sample::BEGIN + WINDOWS / 2 * WINDOW
            {
                (row.value, row.total, row.confidence) = (None, None, None);
            }
            true
        },
        ..INTACT
    };
    let sample = Sample::new(false, &broken);
    let all = rolled(&sample, summer(1000, 100));
    let mut known = BTreeSet::new();
    for batch in &all {
        let array: &Int64Array = columns::column(batch, "known_ns").unwrap();
        known.extend(array.values().iter().copied());
    }
    assert!(known.contains(&(WINDOWS / 2 * WINDOW)), "{known:?}");
    assert!(known.iter().all(|known| *known > 0 && *known <= WINDOWS * WINDOW), "{known:?}");
}

#[test]
fn parts_that_overlap_in_arrival_are_counted_once() {
    let sample = Sample::new(false, &INTACT);
    let table = sample.open().table(&fabric::TABLE).unwrap();
    let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
    let batches: Vec<_> = table.scan(&columns).unwrap().map(Result::unwrap).collect();
    let mut summer = Summer::new(Form { window_ns: WINDOW * 1000, owners: 9, slack_ns: i64::MAX });
    summer.metadata(table.metadata()).unwrap();
    // The first rows of the second half arrive between those of the first half.
    for batch in &batches {
        let half = batch.num_rows() / 2;
        let cut = |begin: usize, end: usize| batch.slice(begin, end - begin);
        summer.fabric(0, &cut(0, half / 2)).unwrap();
        summer.fabric(1, &cut(half, batch.num_rows())).unwrap();
        summer.fabric(0, &cut(half / 2, half)).unwrap();
    }
    summer.end(0);
    let mut totals: BTreeMap<(String, i64), (f64, f64)> = BTreeMap::new();
    while let Some(rows) = summer.close(Label::Recorded) {
        let batch = &rows.batch;
        let events = columns::words(batch, "event").unwrap();
        let ends = columns::i64s(batch, "mono_ns").unwrap();
        for row in 0..batch.num_rows() {
            let value = get(columns::f64s(batch, "value").unwrap(), row).unwrap_or(0.0);
            let total = get(columns::f64s(batch, "total").unwrap(), row).unwrap_or(0.0);
            let sum = totals.entry((events.get(row).unwrap().to_owned(), ends.value(row)));
            let sum = sum.or_insert((0.0, total));
            sum.0 += value;
        }
    }
    for (counter, (sum, total)) in totals {
        assert!((sum - total).abs() <= total * 1e-9, "{counter:?}: {sum} {total}");
    }
}

#[test]
fn a_peak_of_both_directions_is_there_where_no_other_is_known() {
    let sample = Sample::new(false, &INTACT);
    let table = sample.open().table(&fabric::TABLE).unwrap();
    let both = Peak { direction: Direction::Both, ..peak(PeakSource::Catalog, 5.0) };
    let own = peak(PeakSource::Catalog, 3.0);
    for (peaks, expected) in [(vec![both.clone()], (5.0, "both")), (vec![both, own], (3.0, "in"))] {
        let mut pairs = table.metadata().clone();
        pairs.insert(metadata::PLAN.to_owned(), plan(vec![link(peaks)]));
        let mut summer = summer(100, 100);
        summer.metadata(&pairs).unwrap();
        let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
        for batch in table.scan(&columns).unwrap() {
            summer.fabric(0, &batch.unwrap()).unwrap();
        }
        let batch = summer.close(Label::Recorded).unwrap().batch;
        let (found, ways) = (
            columns::f64s(&batch, "peak").unwrap(),
            columns::words(&batch, "peak_direction").unwrap(),
        );
        let rows = (0..batch.num_rows()).filter_map(|row| Some((get(found, row)?, ways.get(row)?)));
        assert_eq!(rows.collect::<Vec<_>>().first(), Some(&expected));
    }
}

#[test]
fn a_window_has_the_wall_time_of_its_rows_or_of_the_clock_as_it_is() {
    let sample = Sample::new(false, &INTACT);
    let table = sample.open().table(&fabric::TABLE).unwrap();
    let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
    // The clock was set forward by an hour after the recording began.
    let wall_ns = super::super::sample::WALL + 3_600_000_000_000;
    let now = Label::Clock(Snapshot { mono_ns: 0, wall_ns });
    for (label, ahead_us) in [(Label::Recorded, 0), (now, 3_600_000_000)] {
        let mut summer = summer(100, 100);
        summer.metadata(table.metadata()).unwrap();
        for batch in table.scan(&columns).unwrap() {
            summer.fabric(0, &batch.unwrap()).unwrap();
        }
        let (ts_us, mono_ns) = summer.closed(label).unwrap().end;
        assert_eq!(ts_us, (super::super::sample::WALL + mono_ns) / 1000 + ahead_us);
    }
}
