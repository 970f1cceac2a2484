use std::collections::BTreeSet;

use arrow::array::{Float64Array, Int64Array};

use super::super::sample::{
    INTACT, SampleRecording, WINDOWS, sample_link, sample_peak, sample_plan,
};
use super::*;
use crate::schema::link::{PeakRate, PeakSource};
use crate::schema::{fabric, metadata};

const WINDOW: i64 = 10_000_000;

fn summer(windows: i64, owners: usize) -> RollupSummer {
    RollupSummer::new(RollupForm { window_ns: windows * WINDOW, owners, slack_ns: 0 })
}

/// All rows of a recording's roll-up, window by window.
fn rolled(sample: &SampleRecording, mut summer: RollupSummer) -> Vec<RecordBatch> {
    let table = sample.open().open_table(&fabric::TABLE).unwrap();
    summer.read_metadata(table.metadata_pairs()).unwrap();
    let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
    let mut batches = Vec::new();
    for batch in table.scan_columns(&columns).unwrap() {
        summer.add_fabric(0, &batch.unwrap()).unwrap();
        batches.extend(
            std::iter::from_fn(|| summer.close_complete_window(WallTimeSource::Recorded))
                .map(|rows| rows.batch),
        );
    }
    batches.extend(
        std::iter::from_fn(|| summer.close_oldest_window(WallTimeSource::Recorded))
            .map(|rows| rows.batch),
    );
    batches
}

fn sums(batches: &[RecordBatch], column: &str) -> f64 {
    let sum = |batch: &RecordBatch| -> f64 {
        let array: &Float64Array = columns::typed_column(batch, column).unwrap();
        array.iter().flatten().sum()
    };
    batches.iter().map(sum).sum()
}

fn fabric_sum(sample: &SampleRecording) -> f64 {
    let table = sample.open().open_table(&fabric::TABLE).unwrap();
    let batches: Vec<_> = table.scan_columns(&["value"]).unwrap().map(Result::unwrap).collect();
    sums(&batches, "value")
}

#[test]
fn a_roll_up_has_all_shares_whatever_its_window() {
    let sample = SampleRecording::new(false, &INTACT);
    let expected = fabric_sum(&sample);
    assert!(expected > 0.0);
    for (windows, owners) in [(100, 100), (7, 100), (100, 1), (WINDOWS + 1, 1)] {
        let rolled = rolled(&sample, summer(windows, owners));
        let value_sums = sums(&rolled, "value");
        assert!(
            (value_sums - expected).abs() < expected * 1e-12,
            "{windows} {owners}: {value_sums} {expected}"
        );
    }
}

#[test]
fn shares_of_a_counter_and_window_sum_to_its_total_and_lie_in_their_intervals() {
    let sample = SampleRecording::new(false, &INTACT);
    for batch in rolled(&sample, summer(100, 100)) {
        let reals = |name: &str| columns::f64_column(&batch, name).unwrap().clone();
        let (values, totals, lows, highs) =
            (reals("value"), reals("total"), reals("low"), reals("high"));
        let events = columns::word_column(&batch, "event").unwrap();
        let pmus = columns::word_column(&batch, "pmu").unwrap();
        let mut sums_and_totals: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let Some(value) = nullable_value(&values, row) else { continue };
            let key = (events.get(row).unwrap().to_owned(), pmus.get(row).unwrap().to_owned());
            let sum = sums_and_totals.entry(key).or_insert((0.0, totals.value(row)));
            sum.0 += value;
            assert!(lows.value(row) <= value && value <= highs.value(row));
            assert!(highs.value(row) <= totals.value(row));
        }
        assert!(!sums_and_totals.is_empty());
        for (counter, (sum, total)) in sums_and_totals {
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
    let sample = SampleRecording::new(false, &broken);
    for batch in rolled(&sample, summer(WINDOWS, 100)) {
        let reals = |name: &str| columns::f64_column(&batch, name).unwrap().clone();
        let (values, lows, highs) = (reals("value"), reals("low"), reals("high"));
        for row in 0..batch.num_rows() {
            let part = |end: &Float64Array| end.value(row) / values.value(row);
            // Ends are rounded outwards by up to 0.1 %.
            // The sum is over less time than errors last that do not last longer: 73 % of each
            // process, which add up in a cgroup.
            assert!((0.272..0.275).contains(&part(&lows)), "{}", part(&lows));
            assert!((1.725..1.729).contains(&part(&highs)), "{}", part(&highs));
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
    let sample = SampleRecording::new(false, &broken);
    let all = rolled(&sample, summer(1000, 100));
    let mut known_times = BTreeSet::new();
    for batch in &all {
        let array: &Int64Array = columns::typed_column(batch, "known_ns").unwrap();
        known_times.extend(array.values().iter().copied());
    }
    assert!(known_times.contains(&(WINDOWS / 2 * WINDOW)), "{known_times:?}");
    assert!(
        known_times.iter().all(|known| *known > 0 && *known <= WINDOWS * WINDOW),
        "{known_times:?}"
    );
}

#[test]
fn parts_that_overlap_in_arrival_are_counted_once() {
    let sample = SampleRecording::new(false, &INTACT);
    let table = sample.open().open_table(&fabric::TABLE).unwrap();
    let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
    let batches: Vec<_> = table.scan_columns(&columns).unwrap().map(Result::unwrap).collect();
    let mut summer =
        RollupSummer::new(RollupForm { window_ns: WINDOW * 1000, owners: 9, slack_ns: i64::MAX });
    summer.read_metadata(table.metadata_pairs()).unwrap();
    // The first rows of the second half arrive between those of the first half.
    for batch in &batches {
        let half = batch.num_rows() / 2;
        let cut = |begin: usize, end: usize| batch.slice(begin, end - begin);
        summer.add_fabric(0, &cut(0, half / 2)).unwrap();
        summer.add_fabric(1, &cut(half, batch.num_rows())).unwrap();
        summer.add_fabric(0, &cut(half / 2, half)).unwrap();
    }
    summer.end_source(0);
    let mut totals: BTreeMap<(String, i64), (f64, f64)> = BTreeMap::new();
    while let Some(rows) = summer.close_oldest_window(WallTimeSource::Recorded) {
        let batch = &rows.batch;
        let events = columns::word_column(batch, "event").unwrap();
        let ends = columns::i64_column(batch, "mono_ns").unwrap();
        for row in 0..batch.num_rows() {
            let value =
                nullable_value(columns::f64_column(batch, "value").unwrap(), row).unwrap_or(0.0);
            let total =
                nullable_value(columns::f64_column(batch, "total").unwrap(), row).unwrap_or(0.0);
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
    let sample = SampleRecording::new(false, &INTACT);
    let table = sample.open().open_table(&fabric::TABLE).unwrap();
    let both = PeakRate { direction: Direction::Both, ..sample_peak(PeakSource::Catalog, 5.0) };
    let own = sample_peak(PeakSource::Catalog, 3.0);
    for (peaks, expected) in [(vec![both.clone()], (5.0, "both")), (vec![both, own], (3.0, "in"))] {
        let mut pairs = table.metadata_pairs().clone();
        pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(peaks)]));
        let mut summer = summer(100, 100);
        summer.read_metadata(&pairs).unwrap();
        let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
        for batch in table.scan_columns(&columns).unwrap() {
            summer.add_fabric(0, &batch.unwrap()).unwrap();
        }
        let batch = summer.close_oldest_window(WallTimeSource::Recorded).unwrap().batch;
        let (found, ways) = (
            columns::f64_column(&batch, "peak").unwrap(),
            columns::word_column(&batch, "peak_direction").unwrap(),
        );
        let rows = (0..batch.num_rows())
            .filter_map(|row| Some((nullable_value(found, row)?, ways.get(row)?)));
        assert_eq!(rows.collect::<Vec<_>>().first(), Some(&expected));
    }
}

#[test]
fn a_window_has_the_wall_time_of_its_rows_or_of_the_current_clock() {
    let sample = SampleRecording::new(false, &INTACT);
    let table = sample.open().open_table(&fabric::TABLE).unwrap();
    let columns: Vec<&str> = fabric::TABLE.encodings.iter().map(|(name, _)| *name).collect();
    // The clock was set forward by an hour after the recording began.
    let wall_ns = super::super::sample::WALL + 3_600_000_000_000;
    let now = WallTimeSource::Clock(Snapshot { mono_ns: 0, wall_ns });
    for (label, ahead_us) in [(WallTimeSource::Recorded, 0), (now, 3_600_000_000)] {
        let mut summer = summer(100, 100);
        summer.read_metadata(table.metadata_pairs()).unwrap();
        for batch in table.scan_columns(&columns).unwrap() {
            summer.add_fabric(0, &batch.unwrap()).unwrap();
        }
        let RollupTime { ts_us, mono_ns } = summer.close_complete_window(label).unwrap().end;
        assert_eq!(ts_us, (super::super::sample::WALL + mono_ns) / 1000 + ahead_us);
    }
}

/// Windows of a roll-up: end, known time and total, of the counter of the rows.
fn written(summer: &mut RollupSummer, is_end: bool) -> Vec<(i64, i64, i64)> {
    let next = |summer: &mut RollupSummer| {
        if is_end {
            summer.close_oldest_window(WallTimeSource::Recorded)
        } else {
            summer.close_complete_window(WallTimeSource::Recorded)
        }
    };
    let mut all = Vec::new();
    while let Some(RollupRows { batch, .. }) = next(summer) {
        let int_column = |name| columns::i64_column(&batch, name).unwrap();
        let total = columns::f64_column(&batch, "total").unwrap();
        assert_eq!(int_column("window_ns").values().iter().max(), Some(&WINDOW));
        all.extend((0..batch.num_rows()).map(|row| {
            (
                int_column("mono_ns").value(row),
                int_column("known_ns").value(row),
                total.value(row).round() as i64,
            )
        }));
    }
    all
}

/// A row of a counter: end and length in tenths of a window, count.
fn row(counter: i32, end: i64, length: i64, count: f64) -> RecordBatch {
    let tenth = WINDOW / 10;
    let mut rows = fabric::Builder::default();
    rows.append(&fabric::Row {
        ts: end * tenth,
        mono_ns: end * tenth,
        window_ns: length * tenth,
        host: "h",
        boot_id: "b",
        cluster: None,
        counter,
        socket: Some(0),
        cpu: counter,
        subsystem: "host",
        pmu: "p",
        event: "e",
        filter: "",
        unit: "events",
        owner: "idle",
        pid: None,
        number: None,
        comm: None,
        cgroup_id: None,
        cgroup: None,
        container: None,
        pod: None,
        value: Some(count),
        total: Some(count),
        running: 1.0,
        method: "exact",
        confidence: Some(1.0),
        cgroup_confidence: None,
        processes: None,
        job: None,
    });
    rows.finish()
}

#[test]
fn a_row_longer_than_a_window_is_spread_over_windows_written_once() {
    let mut summer = summer(1, 100);
    let mut add = |counter, end, length, count| {
        summer.add_fabric(0, &row(counter, end, length, count)).unwrap();
        written(&mut summer, false)
    };
    // Two counters of one event. The recorder was stopped after the first half of a window.
    assert_eq!((add(0, 5, 5, 5.0), add(1, 5, 5, 5.0)), (Vec::new(), Vec::new()));
    // The windows wait for the other counter, however late it is.
    assert_eq!(add(0, 42, 37, 37.0), []);
    let end = |window: i64| window * WINDOW;
    let whole = |window| (end(window), WINDOW, 20);
    assert_eq!(add(1, 42, 37, 37.0), [1, 2, 3, 4].map(whole));
    assert_eq!(add(0, 48, 6, 6.0), []);
    assert_eq!(add(1, 48, 6, 6.0), []);
    // One goes away: the others go on after a while, and at once later.
    assert_eq!(add(0, 50, 2, 2.0), []);
    let patience = closing::PATIENCE_NS / WINDOW;
    let later = add(0, 50 + patience * 10, patience * 10, patience as f64 * 10.0);
    assert_eq!(later.first(), Some(&(end(5), WINDOW, 18)));
    // It was not in the first one to its end.
    assert_eq!(later.last(), Some(&(end(5 + patience), WINDOW, 10)));
    assert_eq!(add(0, 60 + patience * 10, 10, 10.0), [(end(6 + patience), WINDOW, 10)]);
    // What it counted meanwhile is in the next window.
    assert_eq!(add(1, 65 + patience * 10, 17 + patience * 10, 77.0), []);
    assert_eq!(written(&mut summer, true), [(end(7 + patience), WINDOW / 2, 77)]);
}

#[test]
fn a_row_of_any_length_takes_no_more_than_a_limit() {
    let mut summer = summer(1, 100);
    summer.add_fabric(0, &row(0, 1 << 40, 1 << 40, 7e6)).unwrap();
    assert_eq!(summer.open_windows.len(), MAX_OPEN_WINDOWS);
    let total: i64 = written(&mut summer, true).iter().map(|window| window.2).sum();
    assert!((6_999_000..=7_001_000).contains(&total), "{total}");
}
