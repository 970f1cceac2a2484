use super::*;
use crate::agent::trigger::WatchedRate;
use crate::schema::readings;

const MS: i64 = 1_000_000;

/// A condition on the sum of counters 0 and 1: above 1000 a second for 3 ms.
fn watch() -> ConditionWatch {
    let meters = vec![WatchedRate { counters: vec![(0, 1.0), (1, 2.0)], level: 1000.0 }];
    ConditionWatch::new(Condition { text: String::new(), meters, lasting_ns: 3 * MS })
}

/// Readings of a tick of 1 ms: counter and raw value; `None` if the read failed.
fn tick(rows: &mut readings::Builder, number: i64, values: &[(i32, Option<u64>)]) {
    for (counter, value) in values {
        read(rows, (number, number * MS), *counter, *value, None);
    }
}

/// A reading: tick and time, counter, raw value, times enabled and running.
fn read(
    rows: &mut readings::Builder,
    (tick, mono_ns): (i64, i64),
    counter: i32,
    value: Option<u64>,
    times: Option<(u64, u64)>,
) {
    rows.append(&readings::Row {
        mono_ns,
        tick,
        counter,
        value,
        enabled: times.map(|pair| pair.0),
        running: times.map(|pair| pair.1),
        trigger: "timer",
        ..readings::Row::default()
    });
}

/// Counts of both counters in each tick from 1 on. Returns the times at which the condition came
/// true.
fn fired(counts: &[(u64, u64)]) -> Vec<i64> {
    let (mut watch, mut sums, mut found) = (watch(), (0, 0), Vec::new());
    let mut rows = readings::Builder::default();
    tick(&mut rows, 0, &[(0, Some(0)), (1, Some(0)), (7, Some(9))]);
    for (number, (first, second)) in counts.iter().enumerate() {
        sums = (sums.0 + first, sums.1 + second);
        tick(&mut rows, number as i64 + 1, &[(0, Some(sums.0)), (1, Some(sums.1))]);
        found.extend(watch.add_readings(&rows.finish()).unwrap());
    }
    found.into_iter().map(|time| time / MS).collect()
}

#[test]
fn a_condition_fires_only_when_its_rate_lasts() {
    // 1 a millisecond is 1000 a second, which is not above it.
    assert_eq!(fired(&[(1, 0); 9]), Vec::<i64>::new());
    assert_eq!(fired(&[(2, 0); 9]), [3]);
    assert_eq!(fired(&[(0, 1); 9]), [3]);
    assert_eq!(fired(&[(2, 0), (2, 0), (0, 0), (2, 0), (2, 0)]), Vec::<i64>::new());
    // It is reported again only after it was false.
    let values_twice_above = [(2, 0), (2, 0), (2, 0), (2, 0), (0, 0), (2, 0), (2, 0), (2, 0)];
    assert_eq!(fired(&values_twice_above), [3, 8]);
}

#[test]
fn a_tick_that_was_not_read_decides_nothing_by_what_is_missing() {
    let of = |counts: [u64; 2]| {
        let (mut watch, mut rows) = (watch(), readings::Builder::default());
        for number in 0..6_u64 {
            // The second counter fails in tick 2.
            let [first, second] = counts.map(|count| Some(count * number));
            let second = second.filter(|_| number != 2);
            tick(&mut rows, number as i64, &[(0, first), (1, second)]);
        }
        assert!(watch.states[0].ticks.len() <= WAITING);
        watch.add_readings(&rows.finish()).unwrap().map(|time| time / MS)
    };
    // Ticks without the second counter end nothing, and are not above the level by themselves; they
    // are where the first counter alone is above it.
    assert_eq!((of([0, 2]), of([2, 0])), (Some(4), Some(3)));
}

#[test]
fn a_multiplexed_counter_is_scaled_and_a_tick_in_which_it_stood_decides_nothing() {
    let meters = vec![WatchedRate { counters: vec![(0, 1.0)], level: 1500.0 }];
    let condition = Condition { text: String::new(), meters, lasting_ns: 9 * MS };
    // Four ticks in, four out, a count each half of a millisecond that it runs: 2000 a second while
    // it runs.
    let fired = |counts: u64| {
        let (mut watch, mut rows) =
            (ConditionWatch::new(condition.clone()), readings::Builder::default());
        let (mut value, mut running) = (0, 0);
        for number in 0..20_u64 {
            let time = (number as i64, number as i64 * MS);
            read(&mut rows, time, 0, Some(value), Some((number * 1_000_000, running)));
            if number / 4 % 2 == 0 {
                (value, running) = (value + counts, running + 1_000_000);
            }
        }
        watch.add_readings(&rows.finish()).unwrap().map(|time| time / MS)
    };
    // The tick that ends at 9 ms is the first in which it ran again.
    assert_eq!((fired(2), fired(1)), (Some(9), None));
    // It runs half of each tick: 1 in half a millisecond.
    let (mut watch, mut rows) = (ConditionWatch::new(condition), readings::Builder::default());
    for number in 0..20_u64 {
        let times = (number * 1_000_000, number * 500_000);
        // A counter that ran all the time has no times in its readings.
        let times = (number > 0).then_some(times);
        read(&mut rows, (number as i64, number as i64 * MS), 0, Some(number), times);
    }
    assert_eq!(watch.add_readings(&rows.finish()).unwrap(), Some(9 * MS));
}

#[test]
fn nothing_lasts_over_a_long_time_of_which_nothing_is_known() {
    let (mut watch, mut rows) = (watch(), readings::Builder::default());
    let ticks = [0, 1, 2, 200, 201, 202, 203];
    for number in ticks {
        // From tick 2 to tick 200 the counters did not run.
        let running = if number < 200 { number } else { number - 198 } as u64 * 1_000_000;
        for counter in [0, 1] {
            let times = Some((number as u64 * 1_000_000, running));
            let value = if number < 200 { 2 * number } else { 2 * (number - 198) } as u64;
            read(&mut rows, (number, number * MS), counter, Some(value), times);
        }
    }
    assert_eq!(watch.add_readings(&rows.finish()).unwrap(), Some(203 * MS));
}

#[test]
fn a_counter_that_is_not_read_is_not_waited_for_and_the_log_says_so() {
    let first_firing = |first: u64, ends: i64| {
        let (mut watch, mut rows) = (watch(), readings::Builder::default());
        for number in 0..ends {
            tick(&mut rows, number, &[(0, Some(first * number as u64)), (7, Some(1))]);
        }
        let time = watch.add_readings(&rows.finish()).unwrap();
        (time.map(|time| time / MS), watch)
    };
    // The known part of the first tick is above the level when the queue of waiting ticks is full.
    assert_eq!(first_firing(2, 64).0, None);
    let (time, mut watch) = first_firing(2, 80);
    assert!(time.is_some_and(|time| time < 70), "{time:?}");
    assert_eq!((watch.states[0].awaited, watch.states[0].logged_unread), (1, 1));
    assert!(watch.states[0].ticks.is_empty());
    // It was logged once, and is not logged again.
    assert_eq!(watch.unread_warnings(), Vec::<String>::new());
    watch.states[0].logged_unread = 0;
    let line = watch.unread_warnings().concat();
    assert!(line.contains("1 of 2 counters") && !line.contains('\n'), "{line}");
    // A tick that is not above the level ends the condition, although a counter is not read.
    let mut rows = readings::Builder::default();
    tick(&mut rows, 81, &[(0, Some(160))]);
    watch.add_readings(&rows.finish()).unwrap();
    assert_eq!(watch.states[0].above_since, None);
    // The counter is read again, and is waited for again.
    tick(&mut rows, 82, &[(0, Some(160)), (1, Some(0))]);
    tick(&mut rows, 83, &[(0, Some(160))]);
    watch.add_readings(&rows.finish()).unwrap();
    assert_eq!((watch.states[0].awaited, watch.states[0].ticks.len()), (2, 1));
}

#[test]
fn a_reading_out_of_order_changes_no_decision() {
    let (mut watch, mut rows) = (watch(), readings::Builder::default());
    for number in 0..6 {
        tick(&mut rows, number, &[(0, Some(2 * number as u64)), (1, Some(0))]);
        // An older reading arrives late, in the same tick and in a tick of its own.
        read(&mut rows, (number, number * MS - 10), 0, Some(0), None);
        read(&mut rows, (number, number * MS + 10), 0, Some(2 * number as u64), None);
    }
    assert_eq!(watch.add_readings(&rows.finish()).unwrap(), Some(3 * MS));
    assert!(watch.states[0].ticks.is_empty());
}

/// Cost of a reading with three conditions, where each of 20 counters belongs to one of them and a
/// batch has one second at 1 kHz:
/// `cargo test --release -p uncore-trace --lib cost_of_three -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn cost_of_three_conditions() {
    let mut watches: Vec<ConditionWatch> = (0..3).map(|_| watch()).collect();
    let mut rows = readings::Builder::default();
    for number in 0..1000 {
        let values: Vec<(i32, Option<u64>)> = (0..20).map(|id| (id, Some(5))).collect();
        tick(&mut rows, number, &values);
    }
    let batch = rows.finish();
    let mut times: Vec<u128> = Vec::new();
    for _ in 0..21 {
        let begin = std::time::Instant::now();
        for watch in &mut watches {
            assert_eq!(watch.add_readings(&batch).unwrap(), None);
            watch.watched_counters.iter_mut().for_each(|counter| {
                *counter =
                    WatchedCounter { meters: counter.meters.clone(), ..WatchedCounter::default() }
            });
        }
        times.push(begin.elapsed().as_nanos());
    }
    times.sort_unstable();
    println!("{} ns a tick of 20 readings, median of 21", times[10] / 1000);
}
