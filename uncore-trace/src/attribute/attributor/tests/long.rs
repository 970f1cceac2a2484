//! Windows that are longer than the time for which the use of ticks is kept.

use super::*;

/// What each owner is given until tick `end`, in windows of `window_ms`, by process. `runs` says
/// for a tick how long each of two owners runs, ns, and what is left out. `look` sees the state
/// after each tick.
fn given(
    (choice, lag_ms, window_ms): (MethodChoice, u64, u64),
    end: u64,
    runs: impl Fn(u64) -> ([u64; 2], Relief),
    look: impl Fn(&Attributor),
) -> BTreeMap<Option<i64>, f64> {
    let mut plan = plan();
    plan.window_ns = window_ms * 1_000_000;
    plan.counters.truncate(1);
    let settings = AttributionSettings {
        choice,
        lag_ns: lag_ms * 1_000_000,
        ..AttributionSettings::default()
    };
    let mut attributor = attributor_of(&plan, settings);
    let mut tables = Builders::default();
    let owner = |pid| Owner::Task { pid, comm: Comm::default(), cgroup_id: u64::from(pid) };
    let mut value = 0;
    for tick in 10..=end {
        let (times, relief) = runs(tick);
        attributor.set_relief(relief);
        let mut take = |entry: LogEntry<'_>| attributor.take_entry(entry, &mut tables).unwrap();
        if tick > 10 {
            value += times[0] + 5 * times[1];
            let parts: Vec<_> = (1..).zip(times).map(|(pid, ns)| (owner(pid), ns)).collect();
            take(LogEntry::Usage { cpu: 0, usage: &parts });
        }
        take(LogEntry::Reading(CounterReading {
            tick,
            time: tick * 1_000_000,
            counter: 0,
            cpu: 0,
            trigger: ReadingTrigger::Timer,
            value: Ok(CounterValue { value, times: None }),
            owner: None,
        }));
        if tick > 10 {
            take(LogEntry::EndOfTick { tick, is_last: tick == end });
        }
        look(&attributor);
    }
    attributor.finish_windows(&mut tables);
    let batch = tables.fabric.finish();
    let values = batch.column_by_name("value").unwrap().as_primitive::<Float64Type>();
    let pids = batch.column_by_name("pid").unwrap().as_primitive::<Int32Type>();
    let mut sums: BTreeMap<Option<i64>, f64> = BTreeMap::new();
    for (pid, value) in pids.iter().zip(values) {
        *sums.entry(pid.map(i64::from)).or_default() += value.unwrap_or_default();
    }
    let sum: f64 = sums.values().sum();
    assert!((sum - value as f64).abs() < 1e-6 * sum, "{sum} is not {value}");
    sums
}

/// Both owners run at random, and after tick 4000 one after the other, each for 1 s. None of them
/// runs in the last tick of the other's second.
fn in_turns(tick: u64) -> [u64; 2] {
    let mut random = fastrand::Rng::with_seed(tick);
    let times = [random.u64(0..800_000), random.u64(0..200_000)];
    match tick {
        0..=4000 => times,
        _ if (tick - 1) % 2000 < 1000 => [times[0], 0],
        _ => [0, times[1]],
    }
}

/// The largest difference between what an owner is given in two ways, as a part of the whole.
fn difference(short: &BTreeMap<Option<i64>, f64>, long: &BTreeMap<Option<i64>, f64>) -> f64 {
    let all: f64 = short.values().sum();
    let owners = short.keys().chain(long.keys());
    let of = |sums: &BTreeMap<Option<i64>, f64>, who| sums.get(who).copied().unwrap_or_default();
    owners.map(|who| (of(short, who) - of(long, who)).abs() / all).fold(0.0, f64::max)
}

#[test]
fn who_ran_at_the_begin_of_a_long_window_has_its_part() {
    for lag_ms in [0, 1000] {
        let sums = |window_ms| {
            let how = (MethodChoice::Regression, lag_ms, window_ms);
            given(how, 12_000, |tick| (in_turns(tick), Relief::None), |_| ())
        };
        let short = sums(100);
        for window_ms in [250, 1000, 4000] {
            let off = difference(&short, &sums(window_ms));
            assert!(off < 0.03, "lag {lag_ms} ms, {window_ms} ms: {off}");
        }
    }
}

/// Where there are no rates for a part of a long window, that part is divided by time.
#[test]
fn a_long_window_in_which_a_recorder_ceases_to_be_late_has_the_parts_of_all_its_ticks() {
    // One owner runs while the recorder is late, and the other one after that.
    let relief = |tick| if (4000..4900).contains(&tick) { Relief::Residency } else { Relief::None };
    let runs = |tick| {
        let times = in_turns(tick);
        match tick {
            4000..4500 => [800_000, 0],
            4500..5000 => [0, 160_000],
            _ => times,
        }
    };
    for lag_ms in [0, 1000] {
        let sums = |window_ms| {
            let how = (MethodChoice::Regression, lag_ms, window_ms);
            given(how, 5_000, |tick| (runs(tick), relief(tick)), |_| ())
        };
        let off = difference(&sums(100), &sums(5000));
        assert!(off < 0.1, "lag {lag_ms} ms: {off}");
    }
}

#[test]
fn what_is_kept_does_not_grow_with_the_length_of_a_window() {
    for choice in [MethodChoice::Regression, MethodChoice::Residency] {
        let kept = |attributor: &Attributor| {
            for histories in attributor.learning.all_histories() {
                let ticks = histories.time.last_tick() - histories.time.first_tick();
                assert!(ticks < 1500, "the use of {ticks} ticks is kept");
            }
            let readings = attributor.tracks.iter().map(|track| track.series.waiting()).max();
            assert!(readings < Some(250), "{readings:?} readings wait");
        };
        given((choice, 1000, 20_000), 20_000, |tick| (in_turns(tick), Relief::None), kept);
    }
}
