use super::*;
use crate::drain::{CpuContext, TaskIdentity};
use crate::entries::{CounterReading, STANDS_STILL};

const TICK: u64 = 1_000_000;

/// Trigger, and value or errno, of each entry.
#[derive(Default)]
struct Logged(Vec<(ReadingTrigger, Result<u64, i32>)>);

impl ReadingOutput for Logged {
    fn open_tick(&self) -> u64 {
        0
    }

    fn log_readings(&mut self, readings: &[CounterReading], _row: &ReadingColumns<'_>) {
        let logged = |reading: &CounterReading| (reading.trigger, reading.value.map(|it| it.value));
        self.0.extend(readings.iter().map(logged));
    }
}

/// A counter that CPU 0 reads, with the count of its previous event.
fn layouts(base: Count) -> BTreeMap<u32, Layout> {
    let counters = vec![PlacedCounter { id: 0, base }];
    BTreeMap::from([(0, Layout { counters, ..Layout::default() })])
}

fn readers() -> Readers {
    readers_of(&serde_json::json!({}))
}

/// With a counter that has these facts besides.
fn readers_of(facts: &serde_json::Value) -> Readers {
    let mut counter = serde_json::json!({
        "id": 0, "pmu": "mesh_0", "family": "mesh", "subsystem": "mesh", "event": "reads",
        "filter": "", "unit": "count", "scale": 1.0, "attr_type": 9, "config": [1, 0, 0, 0, 0],
        "cpu": 0, "socket": 0, "sees": "0", "per_cpu": false, "at_switch": false, "leader": null
    });
    let facts = facts.as_object().unwrap().clone();
    counter.as_object_mut().unwrap().extend(facts);
    let counters = vec![serde_json::from_value(counter).unwrap()];
    let plan = Plan { tick_ns: TICK, window_ns: TICK, counters, ..Plan::default() };
    Readers::new(&plan, &layouts(Count::default()), &HashSet::from([0]), 1)
}

/// The timer's sample of a tick.
fn sample(tick: u64, value: u64, enabled: u64) -> SampleRecord {
    SampleRecord {
        cpu: 0,
        begin_ns: tick * TICK,
        end_ns: tick * TICK + 100,
        sequence: 0,
        trigger: drain::SampleTrigger::Timer,
        context: CpuContext::Task,
        task: TaskIdentity::default(),
        first_slot: 0,
        readings: vec![drain::RawReading::Counted { value, enabled, running: enabled }],
    }
}

#[test]
fn a_counter_that_stands_still_is_not_read_and_goes_on_when_its_pmu_is_back() {
    let (mut readers, mut ledger, mut log) = (readers(), Ledger::default(), Logged::default());
    for (tick, value, enabled) in [(1, 100, TICK), (2, 130, 2 * TICK), (3, 150, 2 * TICK + 5)] {
        readers.log_sample(
            &sample(tick, value, enabled),
            SampleOwner::default(),
            &mut ledger,
            &mut log,
        );
    }
    assert!(!readers.take_counter_moved());
    // The kernel has removed the event from its PMU.
    for tick in [4, 5] {
        readers.log_sample(
            &sample(tick, 150, 2 * TICK + 5),
            SampleOwner::default(),
            &mut ledger,
            &mut log,
        );
    }
    assert!(readers.take_counter_moved());
    let count = Count { value: 150, enabled: 2 * TICK + 5, running: 2 * TICK + 5 };
    let stopped = vec![Stopped { id: 0, count, why: StopCause::Pmu }];
    let gone = CpuSetChange { stopped, layouts: Some(BTreeMap::new()), ..CpuSetChange::default() };
    readers.apply_change(&gone, 6 * TICK, &mut ledger, &mut log);
    let back = CpuSetChange { layouts: Some(layouts(count)), ..CpuSetChange::default() };
    readers.apply_change(&back, 10 * TICK, &mut ledger, &mut log);
    for (tick, value, enabled) in [(11, 7, TICK), (12, 9, 2 * TICK)] {
        readers.log_sample(
            &sample(tick, value, enabled),
            SampleOwner::default(),
            &mut ledger,
            &mut log,
        );
    }
    assert!(!readers.take_counter_moved());
    let timer = |value| (ReadingTrigger::Timer, value);
    let expected = [
        timer(Ok(100)),
        timer(Ok(130)),
        timer(Ok(150)),
        timer(Err(STANDS_STILL)),
        timer(Err(STANDS_STILL)),
        (ReadingTrigger::Stop, Ok(150)),
        (ReadingTrigger::Start, Err(0)),
        timer(Ok(157)),
        timer(Ok(159)),
    ];
    assert_eq!(log.0, expected);
    assert_eq!(ledger.totals().clone(), BTreeMap::from([(LossCause::CounterStopped, 1)]));
    assert!(!ledger.loss_summary().is_complete());
}

#[test]
fn a_witness_that_counts_no_guests_does_not_say_what_a_virtual_machine_did() {
    let values = |facts: serde_json::Value| {
        let (mut readers, mut ledger) = (readers_of(&facts), Ledger::default());
        let mut log = Logged::default();
        for (tick, ran_guest) in [(1, false), (2, true), (3, false)] {
            let sample = sample(tick, 10 * tick, tick * TICK);
            readers.log_sample(
                &sample,
                SampleOwner { owner: None, ran_guest },
                &mut ledger,
                &mut log,
            );
        }
        assert!(ledger.loss_summary().is_complete());
        log.0.iter().map(|(_, value)| *value).collect::<Vec<_>>()
    };
    let facts = |role: &str, exclude_guest: bool| serde_json::json!({ "per_cpu": true, "role": role, "exclude_guest": exclude_guest });
    assert_eq!(values(facts("weight", true)), [Ok(10), Err(RAN_GUEST), Ok(30)]);
    for (role, exclude_guest) in [("weight", false), ("counted", true)] {
        assert_eq!(values(facts(role, exclude_guest)), [Ok(10), Ok(20), Ok(30)], "{role}");
    }
}

#[test]
fn switches_of_other_cpus_are_readings_of_the_same_counter() {
    let (mut readers, mut ledger, mut log) = (readers(), Ledger::default(), Logged::default());
    let shared = |first: u32| {
        let counters = vec![PlacedCounter { id: 0, base: Count::default() }];
        BTreeMap::from([(
            0,
            Layout { first_slot: first, counters, shared: 1, other_cpus: vec![1], at_switch: 0 },
        )])
    };
    readers.apply_change(
        &CpuSetChange { layouts: Some(shared(4)), ..CpuSetChange::default() },
        TICK / 2,
        &mut ledger,
        &mut log,
    );
    let own = |tick: u64, value: u64| SampleRecord { first_slot: 4, ..sample(tick, value, value) };
    let other = |time: u64, value: u64, sequence: u64, first: u32| SampleRecord {
        cpu: 1,
        begin_ns: time,
        end_ns: time + 100,
        sequence,
        trigger: drain::SampleTrigger::Sched,
        first_slot: first,
        ..sample(1, value, value)
    };
    let mut take = |sample: &SampleRecord| {
        let needs_owner = readers.needs_owner(sample);
        readers.log_sample(sample, SampleOwner::default(), &mut ledger, &mut log);
        needs_owner
    };
    assert_eq!(take(&own(1, 10)), Some(false));
    assert_eq!(take(&other(TICK + 500, 14, 1, 4)), Some(false));
    // The tick's reading came from another ring, after that of a switch which was later.
    assert_eq!(take(&other(2 * TICK + 50, 21, 2, 4)), Some(false));
    assert_eq!(take(&own(2, 20)), Some(false));
    // Not a counter that this CPU reads.
    assert_eq!(take(&other(2 * TICK + 900, 30, 3, 5)), None);
    // An older reading of another CPU says nothing new.
    assert_eq!(take(&other(2 * TICK + 10, 19, 4, 4)), Some(false));
    assert!(readers.have_read(2), "no tick is expected of the other CPU");
    let (timer, event) = (ReadingTrigger::Timer, ReadingTrigger::Event);
    assert_eq!(log.0, [(timer, Ok(10)), (event, Ok(14)), (event, Ok(21)), (timer, Ok(20))]);
    assert_eq!(ledger.totals().get(&LossCause::LostSample), Some(&1));
    readers.stop_at(2);
    let after = other(3 * TICK + 5, 31, 5, 4);
    readers.log_sample(&after, SampleOwner::default(), &mut ledger, &mut log);
    assert_eq!(log.0.len(), 4, "the recording has ended");
}

/// Clocks of CPUs differ by some ns, and a damaged record has any numbers.
#[test]
fn a_sample_that_ends_before_its_begin_has_no_width_and_no_number_is_too_large() {
    /// The width of each sample.
    #[derive(Default)]
    struct Widths(Vec<u64>);
    impl ReadingOutput for Widths {
        fn open_tick(&self) -> u64 {
            0
        }

        fn log_readings(&mut self, _readings: &[CounterReading], row: &ReadingColumns<'_>) {
            self.0.push(row.width_ns);
        }
    }
    let (mut readers, mut ledger, mut log) = (readers(), Ledger::default(), Widths::default());
    let ordered = sample(1, 100, TICK);
    let reversed = SampleRecord { end_ns: 2 * TICK - 1, sequence: 1, ..sample(2, 110, 2 * TICK) };
    let last = SampleRecord { sequence: u64::MAX, ..sample(3, 120, 3 * TICK) };
    let wrapped = sample(4, 130, 4 * TICK);
    for record in [ordered, reversed, last, wrapped] {
        readers.log_sample(&record, SampleOwner::default(), &mut ledger, &mut log);
    }
    assert_eq!(log.0, [100, 0, 100, 100]);
    assert_eq!(ledger.totals().get(&LossCause::LostSample), Some(&(u64::MAX - 2)));
}
