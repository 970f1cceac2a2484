use super::*;
use crate::schema::readings;

const MS: i64 = 1_000_000;

/// A condition of one sum of counters 0 and 1, above 1000 a second for 3 ms.
fn watch() -> Watch {
    let meters = vec![Meter { counters: vec![(0, 1.0), (1, 2.0)], level: 1000.0 }];
    Watch::new(Condition { meters, lasting_ns: 3 * MS })
}

/// Readings of a tick of 1 ms: counter and raw value; none where the read failed.
fn tick(rows: &mut readings::Builder, number: i64, values: &[(i32, Option<u64>)]) {
    for (counter, value) in values {
        rows.append(&readings::Row {
            mono_ns: number * MS,
            tick: number,
            counter: *counter,
            cpu: 0,
            value: *value,
            enabled: None,
            running: None,
            width_ns: 0,
            trigger: "timer",
            error: None,
            pid: None,
            tid: None,
            cgroup_id: None,
            owner: None,
            process: None,
            owner_cgroup_id: None,
            number: None,
        });
    }
}

/// Counts of both counters in each tick from 1 on; when the condition came true.
fn fired(counts: &[(u64, u64)]) -> Vec<i64> {
    let (mut watch, mut sums, mut found) = (watch(), (0, 0), Vec::new());
    let mut rows = readings::Builder::default();
    tick(&mut rows, 0, &[(0, Some(0)), (1, Some(0)), (7, Some(9))]);
    for (number, (first, second)) in counts.iter().enumerate() {
        sums = (sums.0 + first, sums.1 + second);
        tick(&mut rows, number as i64 + 1, &[(0, Some(sums.0)), (1, Some(sums.1))]);
        found.extend(watch.readings(&rows.finish()).unwrap());
    }
    found.into_iter().map(|time| time / MS).collect()
}

#[test]
fn a_rate_must_last() {
    // 1 a millisecond is 1000 a second, which is not above it.
    assert_eq!(fired(&[(1, 0); 9]), Vec::<i64>::new());
    assert_eq!(fired(&[(2, 0); 9]), [3]);
    assert_eq!(fired(&[(0, 1); 9]), [3]);
    assert_eq!(fired(&[(2, 0), (2, 0), (0, 0), (2, 0), (2, 0)]), Vec::<i64>::new());
    // It is told again only after it was over.
    let again = [(2, 0), (2, 0), (2, 0), (2, 0), (0, 0), (2, 0), (2, 0), (2, 0)];
    assert_eq!(fired(&again), [3, 8]);
}

#[test]
fn a_tick_that_was_not_read_decides_nothing() {
    let mut watch = watch();
    let mut rows = readings::Builder::default();
    for number in 0..6_u64 {
        // The second counter fails in tick 2.
        let second = (number != 2).then_some(0);
        tick(&mut rows, number as i64, &[(0, Some(2 * number)), (1, second)]);
    }
    assert_eq!(watch.readings(&rows.finish()).unwrap(), Some(4 * MS));
    assert!(watch.states[0].ticks.len() <= WAITING);
}

#[test]
fn levels_have_units() {
    for (text, level) in [
        ("80%", Level::OfPeak(0.8)),
        ("5GB/s", Level::Rate(5e9)),
        ("2.5 MB/s", Level::Rate(2.5e6)),
        ("100/s", Level::Rate(100.0)),
        ("1B/s", Level::Rate(1.0)),
    ] {
        assert_eq!(parse_level(text).unwrap(), level, "{text}");
    }
    for wrong in ["80", "x%", "-1/s", "0%", "5GiB/s", "nan/s", "inf/s", ""] {
        assert!(parse_level(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_cannot_be_met_is_refused_with_the_way_out() {
    let plan = Plan {
        tick_ns: 1,
        window_ns: 1,
        counters: Vec::new(),
        metrics: Vec::new(),
        links: vec![crate::schema::link::Link {
            name: "memory 0".to_owned(),
            kind: "memory".to_owned(),
            subsystem: "mem".to_owned(),
            socket: None,
            devices: None,
            counters: vec![crate::schema::link::Counted { counter: 0, direction: Direction::In }],
            peaks: Vec::new(),
            latencies: Vec::new(),
        }],
        warnings: Vec::new(),
        notes: Vec::new(),
    };
    for (text, says) in [
        ("memory 0", "SUBJECT > LEVEL"),
        ("memory 0 > 80", "write the level as"),
        ("memory 0 in > 80%", "no peak is known of memory 0 in"),
        ("memory 0 out > 1GB/s", "nothing that is recorded counts that"),
        ("memry 0 > 1GB/s", "did you mean memory 0?"),
        ("mem in > 1GB/s for soon", "with a unit"),
        ("mem in > 1GB/s for 5min", "at most 1min"),
    ] {
        let error = format!("{:#}", Condition::new(text, &plan).unwrap_err());
        assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
    }
    assert!(Condition::new("mem in > 1GB/s for 5ms", &plan).is_ok());
}

/// What a reading costs where three conditions are watched and one of 20 counters is in each, and a batch of
/// one second at 1 kHz: `cargo test --release -p uncore-trace --lib cost_of_three -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn cost_of_three_conditions() {
    let mut watches: Vec<Watch> = (0..3).map(|_| watch()).collect();
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
            assert_eq!(watch.readings(&batch).unwrap(), None);
            watch.of.iter_mut().for_each(|its| its.last = None);
        }
        times.push(begin.elapsed().as_nanos());
    }
    times.sort_unstable();
    println!("{} ns a tick of 20 readings, median of 21", times[10] / 1000);
}
