use std::mem::offset_of;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapError};
use rustix::thread::{CpuSet, sched_setaffinity};
use uncore_trace_common::state::SamplerProgress;

use super::super::online::online_cpus;
use super::super::session::Session;
use super::super::{PlacementHints, SessionOptions};
use super::*;
use crate::drain::{DrainedRecord, RawReading, SampleRecord, SampleTrigger, decode_record};
use crate::plan::Plan;
use crate::skip::has_root;

const TICK: Duration = Duration::from_millis(1);

/// No wait of a test is longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// The place of `busy` in a [`SamplerProgress`], which has 64-bit words only.
const BUSY: usize = offset_of!(SamplerProgress, busy) / size_of::<u64>();

/// The turn that the tests give to the counters of the CPU.
const TURN: u32 = 1;

/// A recording of what the kernel counts on the first CPU.
struct FirstCpu {
    session: Session,
    cpu: u32,
    online: Vec<u32>,
    timer: Timer,
}

impl FirstCpu {
    fn start(timer: Timer) -> Self {
        Self::start_counter(timer, "context-switches", 3, false)
    }

    /// Counts an event of `enum perf_sw_ids`.
    fn start_counter(timer: Timer, event: &str, config: u64, at_switch: bool) -> Self {
        let online = online_cpus("/".as_ref()).unwrap();
        let cpu = online[0];
        let counter = serde_json::json!({
            "id": 0, "pmu": "software", "family": "software", "subsystem": "host",
            "event": event, "filter": "", "unit": "count", "scale": 1.0,
            "attr_type": 1, "config": [config, 0, 0, 0, 0], "cpu": cpu, "socket": 0, "sees": "0",
            "per_cpu": true, "at_switch": at_switch, "leader": null
        });
        let counters = vec![serde_json::from_value(counter).unwrap()];
        let tick_ns = TICK.as_nanos() as u64;
        let plan = Plan { tick_ns, window_ns: tick_ns, counters, ..Plan::default() };
        let options = SessionOptions {
            tick_ns,
            slices: false,
            sample_on_sched: true,
            sample_on_irq: false,
            min_gap_ns: u64::MAX / 4,
            io: false,
            holders: false,
            timer,
            buffer_bytes: 1 << 20,
        };
        let possible = online.iter().max().unwrap() + 1;
        let root = "/".as_ref();
        let mut session = Session::open(&plan, root, &online, possible, options, None).unwrap();
        let timer = session.start().unwrap();
        Self { session, cpu, online, timer }
    }

    /// The number of readings by the timer since the last call.
    fn take_readings(&mut self) -> usize {
        let is_tick = |sample: &SampleRecord| sample.trigger == SampleTrigger::Timer;
        self.take_samples().into_iter().filter(is_tick).count()
    }

    /// The samples since the last call, in the order of time.
    fn take_samples(&mut self) -> Vec<SampleRecord> {
        let mut samples = Vec::new();
        for ring in self.session.rings() {
            while let Some(record) = ring.next() {
                if let Ok(DrainedRecord::Sample(sample)) = decode_record(&record) {
                    samples.push(sample);
                }
            }
        }
        samples
    }

    /// Waits for a reading from now on; `false` if none comes.
    fn waits_for_reading(&mut self, time: Duration) -> bool {
        self.take_readings();
        let begin = Instant::now();
        while begin.elapsed() < time {
            sleep(TICK);
            if self.take_readings() > 0 {
                return true;
            }
        }
        false
    }

    fn set_sampler(&mut self, change: impl Fn(Sampler) -> Sampler) {
        let sampler = self.session.samplers.get(&self.cpu, 0).unwrap();
        self.session.samplers.set(self.cpu, change(sampler), 0).unwrap();
    }

    /// Gives the turn to a CPU; `None`: no CPU has it.
    fn set_turn(&mut self, holder: Option<u32>) {
        let map = self.session.ebpf.map_mut("TURNS").unwrap();
        let mut turns: HashMap<_, u32, u32> = map.try_into().unwrap();
        match holder {
            Some(cpu) => turns.insert(TURN, cpu, 0).unwrap(),
            None => match turns.remove(&TURN) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                // As from Linux before 6.1.
                Err(MapError::SyscallError(error)) => {
                    assert_eq!(error.io_error.raw_os_error(), Some(libc::ENOENT));
                }
                Err(error) => panic!("{error}"),
            },
        }
    }

    fn is_busy(&self) -> bool {
        let map = self.session.ebpf.map("PROGRESS").unwrap();
        let progress: Array<_, [u64; size_of::<SamplerProgress>() / size_of::<u64>()]> =
            map.try_into().unwrap();
        progress.get(&self.cpu, 0).unwrap()[BUSY] != 0
    }

    fn left_out(&self) -> u64 {
        self.session.drop_counts().unwrap().nested
    }
}

/// What user space writes while a program stops its timer overwrites that: the value then says that
/// the timer runs.
#[test]
fn a_timer_that_stopped_starts_again_whatever_its_state_says() {
    if !has_root("loading BPF programs") {
        return;
    }
    let mut first = FirstCpu::start(Timer::Auto);
    if first.timer != Timer::Pinned {
        return;
    }
    assert!(first.waits_for_reading(DEADLINE));
    first.set_sampler(|sampler| Sampler { state: SAMPLER_OFF, ..sampler });
    let begin = Instant::now();
    while first.waits_for_reading(20 * TICK) {
        assert!(begin.elapsed() < DEADLINE, "the timer does not stop");
    }
    first.set_sampler(|sampler| Sampler { state: SAMPLER_ARMED, ..sampler });
    let online = first.online.clone();
    let mut follow = |hints| first.session.follow_cpus(&online, "/".as_ref(), hints).unwrap();
    assert!(follow(PlacementHints::default()).is_none());
    let change = follow(PlacementHints { timer_moved: true, ..PlacementHints::default() });
    let layouts = change.unwrap().layouts.unwrap();
    assert!(layouts.contains_key(&first.cpu), "{layouts:?}");
    assert!(first.waits_for_reading(DEADLINE));
    // A timer that runs goes on.
    let hints = PlacementHints { timer_moved: true, ..PlacementHints::default() };
    first.session.follow_cpus(&first.online, "/".as_ref(), hints).unwrap();
    assert!(first.waits_for_reading(DEADLINE));
    first.session.stop().unwrap();
}

/// The counts are watched: what a tick has read is not read again at the next switch.
#[test]
fn a_reading_at_a_switch_has_counted_since_the_last_reading() {
    if !has_root("loading BPF programs") {
        return;
    }
    let mut first = FirstCpu::start_counter(Timer::Auto, "page-faults", 2, true);
    assert!(first.waits_for_reading(DEADLINE));
    let mut this_cpu = CpuSet::new();
    this_cpu.set(first.cpu as usize);
    sched_setaffinity(None, &this_cpu).unwrap();
    // A program has pages that are new, whereas an allocator gives out old ones again.
    let touch_pages = || assert!(Command::new("true").status().unwrap().success());
    for _ in 0..50 {
        touch_pages();
        let begin = Instant::now();
        while begin.elapsed() < 2 * TICK {}
        sleep(TICK);
        touch_pages();
        sleep(TICK);
    }
    let samples = first.take_samples();
    first.session.stop().unwrap();
    let at_switches = |sample: &&[SampleRecord]| sample[1].trigger == SampleTrigger::Sched;
    let pairs: Vec<&[SampleRecord]> = samples.windows(2).filter(at_switches).collect();
    assert!(pairs.len() >= 20, "{} readings at switches", pairs.len());
    let value = |sample: &SampleRecord| match sample.readings[..] {
        [RawReading::Counted { value, .. }] => value,
        _ => panic!("{sample:?}"),
    };
    let again = pairs.iter().filter(|pair| value(&pair[0]) == value(&pair[1])).count();
    assert_eq!(again, 0, "of {} readings at switches", pairs.len());
}

/// A turn that the kernel did not let a CPU give up is its own, and does not end its readings. That
/// of another CPU is waited for, while the CPU is busy: an interrupt then does not begin a reading.
#[test]
fn a_turn_that_is_left_over_ends_no_readings() {
    if !has_root("loading BPF programs") {
        return;
    }
    let mut first = FirstCpu::start(Timer::Auto);
    first.set_sampler(|sampler| Sampler { turn: TURN, ..sampler });
    assert!(first.waits_for_reading(DEADLINE));
    for _ in 0..20 {
        first.set_turn(Some(first.cpu));
        assert!(first.waits_for_reading(DEADLINE));
    }
    let before = first.left_out();
    // Such a CPU does not exist. A reading that is under way takes the entry away at its end.
    let other_cpu = u32::MAX;
    let begin = Instant::now();
    let mut was_busy = false;
    while first.left_out() < before + 20 || !was_busy {
        assert!(begin.elapsed() < DEADLINE, "{} {before} {was_busy}", first.left_out());
        first.set_turn(Some(other_cpu));
        was_busy |= first.is_busy();
    }
    assert!(!first.waits_for_reading(20 * TICK), "it reads without its turn");
    first.set_turn(None);
    assert!(first.waits_for_reading(DEADLINE));
    first.session.stop().unwrap();
    assert!(!first.is_busy());
}
