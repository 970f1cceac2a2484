//! The accounts of the machines that `cargo xtask bench truth` draws.

#[path = "../uncore-trace/benches/truth/main.rs"]
#[expect(dead_code, reason = "only the bench itself prints")]
mod bench;
mod grounds;

use clap::ValueEnum as _;
use uncore_trace::entries::{CounterReading, Owner, ReadingTrigger};
use uncore_trace::plan::CounterRole;

use self::bench::ground::Ground;
use self::bench::random::Random;
use self::bench::scores::{GivenValue, Scores};
use self::bench::tenants::DrawnMachine;
use self::bench::ticks::{ByteMover, DrawnTick, MovedPart, Ticks};
use self::bench::traffic::DrawnTraffic;
use self::bench::{DrawnCase, Pauses, SOCKETS, TICK_NS, run_case, schedule, ticks as logged};

fn case() -> DrawnCase {
    DrawnCase {
        seed: 3,
        cpus: 3,
        tenants: 4,
        seconds: 0.6,
        method: "auto".to_owned(),
        window: 100,
        pauses: Pauses::Usual,
        ground: Ground::Base,
        quota: None,
        group: None,
        ports: None,
        plain: false,
        peak: 1.6,
        misses: None,
        monitors: None,
    }
}

/// All ticks of a case, and what each of its counters counted.
fn ticks(case: &DrawnCase) -> (Vec<DrawnTick>, Vec<f64>) {
    let stream = |stream_number| Random::for_place(case.seed, stream_number, 0);
    let machine = DrawnMachine::draw(case, &mut stream(1));
    let len_ns = case.tick_count() as u64 * TICK_NS;
    let schedule = schedule::simulate(&machine, len_ns, stream(2));
    let traffic = DrawnTraffic::draw(case, &machine, &schedule, &mut stream(3));
    let counters = logged::recording_plan(case).counters;
    let counted = counters.iter().filter(|counter| counter.role == CounterRole::Counted).count();
    let mut made_ticks = Ticks::new(case, &traffic, case.start_tick(), counted, stream(4));
    let mut value = vec![0.0; counters.len()];
    let mut last = |readings: Vec<CounterReading>| {
        for reading in
            readings.into_iter().filter(|reading| reading.trigger == ReadingTrigger::Timer)
        {
            let number = reading.counter as usize;
            let raw = reading.value.map_or(0, |value| value.value);
            value[number] = raw as f64 * counters[number].scale;
        }
        value.clone()
    };
    let first = last(made_ticks.first_readings());
    let all: Vec<_> = std::iter::from_fn(|| made_ticks.advance_tick()).collect();
    let end = last(all.last().map_or_else(Vec::new, |tick| tick.readings.clone()));
    (all, end.iter().zip(first).map(|(end, first)| end - first).collect())
}

#[test]
fn counters_count_what_is_moved_and_cpus_are_used_all_the_time() {
    let usual = (None, Pauses::Usual);
    let grounds = Ground::value_variants().iter().map(|ground| (usual, *ground));
    let others =
        [(None, Pauses::Never), (Some(2), Pauses::Usual)].map(|other| (other, Ground::Base));
    for ((group, pauses), ground) in grounds.chain(others) {
        let case = DrawnCase { pauses, ground, group, ..case() };
        let (ticks, counted) = ticks(&case);
        assert_eq!(ticks.len(), case.tick_count());
        let mut moved = vec![0.0; counted.len()];
        for tick in &ticks {
            let busy = |parts: &Vec<(Owner, u64)>| {
                assert_eq!(parts.iter().map(|(_, ns)| ns).sum::<u64>(), TICK_NS);
                parts
                    .iter()
                    .filter(|(owner, _)| *owner != Owner::Idle)
                    .map(|(_, ns)| ns)
                    .sum::<u64>()
            };
            let busy: u64 = tick.usage.iter().map(busy).sum();
            let part_ns: u64 = tick.moved_parts.iter().map(|part| part.ns).sum();
            // Each socket's memory sees all CPUs.
            assert_eq!(part_ns, if group.is_some() { busy } else { busy * SOCKETS as u64 });
            tick.moved_parts.iter().for_each(|part| moved[part.counter] += part.bytes);
            tick.device.iter().zip(&mut moved).for_each(|(bytes, sum)| *sum += bytes);
        }
        for (counted, moved) in counted.iter().zip(&moved) {
            assert!(*moved > 0.0 && (counted / moved - 1.0).abs() < 0.001, "{counted} {moved}");
        }
    }
}

#[test]
fn misses_follow_the_bytes_that_are_not_prefetched() {
    let case = DrawnCase { misses: Some(0.2), ..case() };
    let (ticks, counted) = ticks(&case);
    let moved: f64 = ticks.iter().flat_map(|tick| &tick.moved_parts).map(|part| part.bytes).sum();
    let missed: f64 = counted[SOCKETS..].iter().sum();
    // Half to all of the bytes, in lines of 64 bytes or a little more.
    assert!((30.0..400.0).contains(&(moved / missed)), "{moved} {missed}");
}

#[test]
fn ports_count_the_bytes_that_their_cpus_move() {
    let case = DrawnCase { ports: Some(2), ..case() };
    let (ticks, counted) = ticks(&case);
    let plan = logged::recording_plan(&case);
    let ports: Vec<_> =
        plan.counters.iter().filter(|counter| counter.role == CounterRole::Weight).collect();
    assert_eq!(ports.iter().map(|port| port.sees.len()).collect::<Vec<_>>(), [2; 3]);
    assert!(plan.counters[..SOCKETS].iter().all(|memory| plan.has_ports_of(memory)));
    let moved: f64 = ticks.iter().flat_map(|tick| &tick.moved_parts).map(|part| part.bytes).sum();
    let at_ports: f64 = counted[SOCKETS..].iter().sum();
    assert!((0.7..1.4).contains(&(at_ports / moved)), "{at_ports} {moved}");
    assert!(counted[SOCKETS..].iter().all(|count| *count > 0.02 * moved), "{counted:?}");
}

#[test]
fn scores_of_the_truth_are_zero_and_of_a_wrong_share_its_error() {
    let part = |tenant, bytes| MovedPart { counter: 0, mover: tenant, is_far: false, ns: 1, bytes };
    let tenants = [ByteMover::Process(0), ByteMover::Process(1)];
    for (wrong, misplaced) in [(0.0, 0.0), (30.0, 0.3)] {
        // The last process is the kernel's.
        let mut scores = Scores::new(vec![0, 1, 2], 1, 10, 0);
        for tick in 0..20 {
            scores.add_tick(tick, &[part(tenants[0], 4.0), part(tenants[1], 5.0)], &[1.0]);
        }
        let given = |mover, value| GivenValue {
            counter: 0,
            mover,
            value,
            total: 100.0,
            confidence: Some(0.95),
        };
        for window in [0, 10] {
            scores.add_value(window, given(tenants[0], 40.0 - wrong));
            scores.add_value(window, given(tenants[1], 50.0 + wrong));
            scores.add_value(window, given(ByteMover::Nobody, 10.0));
        }
        let figures = scores.into_figures(None).unwrap();
        let assert_near =
            |actual: f64, expected: f64| assert!((actual - expected).abs() < 1e-6, "{figures:?}");
        assert_near(figures.misplaced, misplaced);
        assert_near(figures.bill, f64::midpoint(wrong / 40.0, wrong / 50.0));
        assert_near(figures.right, if wrong > 0.0 { 0.0 } else { 1.0 });
        assert_near(figures.rms, if wrong > 0.0 { 0.95 } else { 0.05 });
        // Two tenants in two windows.
        let is_right = wrong == 0.0;
        assert_eq!(figures.windows, [if is_right { 4 } else { 0 }, 4]);
        let counts = if is_right { [4, 4, 0] } else { [4, 0, 4] };
        assert_eq!([figures.over_half, figures.over_nine], [counts; 2]);
    }
}

#[test]
fn rates_misplace_less_than_residency() {
    let case = DrawnCase { method: "residency".to_owned(), seconds: 2.0, ..case() };
    let result = run_case(&case).unwrap();
    let (floor, residency) = (result.floor.misplaced, result.figures.misplaced);
    assert!(0.0 < floor && floor < residency / 2.0, "{floor} {residency}");
}

#[test]
fn monitored_bytes_are_misplaced_less() {
    // Nothing is measured in the first 5 s.
    let case = DrawnCase { pauses: Pauses::Never, seconds: 12.0, peak: 2.5, ..case() };
    let misplaced = |monitors| {
        let case = DrawnCase { monitors, ..case.clone() };
        run_case(&case).unwrap().figures.misplaced
    };
    let (none, all) = (misplaced(None), misplaced(Some(8)));
    assert!(all < 0.8 * none, "{none} {all}");
}

#[test]
fn an_interval_of_a_window_is_as_wide_as_its_confidence_says() {
    // At a confidence of 0.5, a 90 % interval has 27 % on both sides.
    for (moved, holds) in [(20.0, 0), (24.0, 1), (38.0, 1), (42.0, 0)] {
        let mut scores = Scores::new(vec![0, 1], 1, 1, 0);
        let mover = ByteMover::Process(0);
        let part = MovedPart { counter: 0, mover, is_far: false, ns: 1, bytes: moved };
        scores.add_tick(0, &[part], &[100.0 - moved]);
        let (total, confidence) = (100.0, Some(0.5));
        let given = GivenValue { counter: 0, mover, value: 30.0, total, confidence };
        scores.add_value(0, given);
        assert_eq!(scores.into_figures(None).unwrap().windows, [holds, 1], "{moved}");
    }
}
