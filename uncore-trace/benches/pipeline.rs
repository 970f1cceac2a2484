//! Time and memory for processing records to files, for a machine of any size.
//!
//! The records are generated: CPUs switch twice a tick between processes of many cgroups, and one CPU of
//! each socket reads the counters. They go through the time line, the attributor and the writer as those of
//! a live recording. Prints one line of JSON. `cargo xtask bench pipeline` runs it for many sizes, and
//! `cargo xtask bench read` reads its recordings.
#![expect(clippy::print_stdout, reason = "the line is the result")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use uncore_trace::assemble::{Setup, Sink, Timeline};
use uncore_trace::attribute::{Attributor, Choice, Effort, Methods, RecordingFacts, order};
use uncore_trace::clock::Snapshot;
use uncore_trace::count::Count;
use uncore_trace::discover::CpuList;
use uncore_trace::discover::cpus::CpuPlace;
use uncore_trace::drain::{
    CgroupChange, CgroupEvent, Comm, Context, Reading, Record, Run, Sample, Slot, Task, Trigger,
};
use uncore_trace::open::{Layout, Placed};
use uncore_trace::plan::{Counter, Plan, Role};
use uncore_trace::schema::origin::Origin;
use uncore_trace::schema::{SCHEMA_VERSION, metadata};
use uncore_trace::tables::thread::WriterHandle;
use uncore_trace::tables::writer::{Create, Target};

const TICK_NS: u64 = 1_000_000;
/// Ticks of a window.
const WINDOW: u64 = 10;
/// Ticks between two drains of the ring, and between two seals.
const DRAIN: u64 = 50;
const SEAL: u64 = 1000;
/// The first tick.
const START: u64 = 1_000_000;
/// Most CPUs of a socket.
const SOCKET: u32 = 128;

/// The size of the machine, and the limits of the recording in seconds and rows; the first one ends it.
#[derive(Clone, Copy)]
struct Size {
    cpus: u32,
    cgroups: u64,
    counters: u32,
    seconds: u64,
    /// Rows of `fabric`; a few more windows may follow.
    rows: u64,
}

impl Size {
    fn sockets(self) -> u32 {
        self.cpus.div_ceil(SOCKET)
    }

    /// The CPUs near a counter.
    fn sees(self, counter: u32) -> std::ops::Range<u32> {
        let size = self.cpus / self.sockets();
        let first = counter % self.sockets() * size;
        first..first + size
    }
}

/// `SplitMix64`, Steele, Lea and Flood 2014: the numbers are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let (machine, kept) = match args.as_slice() {
        [machine @ .., rows, dir] if machine.len() == 5 => (machine, Some((rows, dir))),
        all => (all, None),
    };
    let [cpus, cgroups, counters, seconds, method] = machine else {
        // `cargo test --benches` and `cargo bench` run it without arguments.
        println!("usage: pipeline CPUS CGROUPS COUNTERS SECONDS residency|auto [ROWS DIR]");
        return Ok(());
    };
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text} is no number"));
    let size = Size {
        cpus: number(cpus)? as u32,
        cgroups: number(cgroups)?,
        counters: number(counters)? as u32,
        seconds: number(seconds)?,
        rows: kept.map_or(Ok(u64::MAX), |(rows, _)| number(rows))?,
    };
    let method = if method == "auto" { Choice::Auto } else { Choice::Residency };
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let run = kept.map_or_else(|| dir.path().join("run"), |(_, dir)| PathBuf::from(dir));
    let begin = Instant::now();
    let (records, rows) = record(size, method, &run)?;
    let wall_s = begin.elapsed().as_secs_f64();
    let bytes = |path: &Path| fs::metadata(path).map(|found| found.len());
    let fabric = bytes(&run.join("fabric.parquet"))?;
    let all: u64 = fs::read_dir(&run)?.flatten().map(|it| bytes(&it.path()).unwrap_or(0)).sum();
    println!(
        "{{\"records\": {records}, \"rows\": {rows}, \"wall_s\": {wall_s}, \"fabric_bytes\": {fabric}, \
         \"bytes\": {all}, \"peak_kib\": {}}}",
        peak_kib()?
    );
    Ok(())
}

/// `VmHWM` of this process, KiB.
fn peak_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("no VmHWM in /proc/self/status")
}

fn plan(size: Size) -> Plan {
    let counter = |id: u32| {
        let sees = size.sees(id);
        Counter {
            id,
            pmu: format!("pmu_{}", id % size.sockets()),
            family: "bench".to_owned(),
            subsystem: "mem".to_owned(),
            event: format!("event{}", id / size.sockets()),
            filter: String::new(),
            unit: "bytes".to_owned(),
            scale: 64.0,
            attr_type: 10,
            config: Default::default(),
            cpu: sees.start,
            socket: Some((id % size.sockets()) as i16),
            sees: sees.collect(),
            far: CpuList::default(),
            per_cpu: false,
            at_switch: false,
            exact_by: None,
            cause: None,
            causes: BTreeSet::default(),
            io: None,
            leader: None,
            role: Role::Counted,
            witness_bytes: None,
        }
    };
    Plan {
        tick_ns: TICK_NS,
        window_ns: WINDOW * TICK_NS,
        counters: (0..size.counters).map(counter).collect(),
        ..Plan::default()
    }
}

/// The counters that each CPU reads.
fn layouts(plan: &Plan) -> BTreeMap<u32, Layout> {
    let mut layouts: BTreeMap<u32, Layout> = BTreeMap::new();
    for counter in &plan.counters {
        let layout = layouts.entry(counter.cpu).or_default();
        layout.counters.push(Placed { id: counter.id, base: Count::default() });
    }
    let mut first = 0;
    for layout in layouts.values_mut() {
        layout.first = first;
        first += layout.counters.len() as u32;
    }
    layouts
}

/// The metadata of a recording that `attribute` needs.
fn pairs(plan: &Plan, clock: Snapshot) -> Result<BTreeMap<String, String>> {
    let pairs = [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::PLAN, serde_json::to_string(plan)?),
        (metadata::CLOCKS, serde_json::to_string(&[clock])?),
        (metadata::TICK_NS, plan.tick_ns.to_string()),
        (metadata::INTERVAL_NS, plan.window_ns.to_string()),
    ];
    Ok(pairs.map(|(key, value)| (key.to_owned(), value)).into())
}

/// Records into a dataset; returns the records, and the rows of `fabric`.
fn record(size: Size, method: Choice, run: &Path) -> Result<(u64, u64)> {
    let plan = plan(size);
    let layouts = layouts(&plan);
    let clock = Snapshot { mono_ns: 0, wall_ns: 0 };
    let pairs = pairs(&plan, clock)?;
    let mut writer =
        WriterHandle::create(Target::Dataset(run.to_owned()), Create::default(), &pairs, None)?;
    let cpus: Vec<u32> = (0..size.cpus).collect();
    let mut sink = Sink::new(&writer, false, Origin::of(&pairs));
    let attributor = Attributor::new(&RecordingFacts {
        plan: &plan,
        counters: &order(&plan, |_| false),
        methods: Methods { choice: method, io: false, lag_ns: 1_000_000_000, effort: Effort::Live },
        start_tick: START,
        clock,
        origin: &sink.origin,
    });
    let setup = Setup {
        plan: &plan,
        layouts: &layouts,
        opened: &(0..size.counters).collect(),
        cpus: &cpus,
        away: &[],
        places: &cpus.iter().map(|cpu| (*cpu, CpuPlace::default())).collect(),
        start_tick: START,
        clock,
        // There are no files: the names come from the records.
        root: &run.join("nowhere"),
        cgroup_mount: None,
        only_cgroups: Vec::new(),
        cgroup_depth: None,
        io: false,
    };
    let mut timeline = Timeline::new(&setup, Box::new(attributor), &mut sink);
    for id in 0..size.cgroups {
        let path = Some(format!("/kubepods/pod{:08x}/{id:016x}", id / 4));
        let (time, change) = (START * TICK_NS, CgroupChange::Created);
        timeline.feed(Record::Cgroup(CgroupEvent { time, change, cgroup_id: id, path }), &mut sink);
    }
    let mut random = Random(1);
    let mut values: HashMap<u32, u64> = HashMap::new();
    let mut records = 0;
    let mut stop = START + size.seconds * 1000;
    for tick in START.. {
        if tick > stop {
            break;
        }
        let begin = tick * TICK_NS;
        for (&cpu, layout) in &layouts {
            let readings = layout.counters.iter().map(|placed| {
                let value = values.entry(placed.id).or_default();
                *value += 1000 + random.below(100_000);
                Reading::Counted { value: *value, enabled: begin, running: begin }
            });
            let sample = Sample {
                cpu,
                begin: begin + 2000,
                end: begin + 5000,
                sequence: tick - START + 1,
                trigger: Trigger::Timer,
                context: Context::Task,
                task: task(0),
                first: layout.first,
                readings: readings.collect(),
            };
            timeline.feed(Record::Sample(sample), &mut sink);
            records += 1;
        }
        for cpu in 0..size.cpus {
            let first = random.below(TICK_NS - 2) + 1;
            let slots = [first, TICK_NS - first].map(|wall_ns| Slot {
                task: task(random.below(size.cgroups)),
                wall_ns,
                irq_ns: 0,
                slices: 1,
            });
            let end = begin + TICK_NS;
            let run = Run { cpu, begin, last: end, end, slots: slots.to_vec() };
            timeline.feed(Record::Run(run), &mut sink);
            records += 1;
        }
        if tick == stop - 1 {
            timeline.stop_at(stop);
        }
        if tick % DRAIN == 0 || tick == stop {
            while !timeline.advance(begin + TICK_NS, true, &mut sink, &mut |_| None) {
                sink.hand_over(&mut writer)?;
            }
            sink.hand_over(&mut writer)?;
            if sink.fabric_rows() >= size.rows {
                stop = stop.min(tick + 2);
            }
        }
        if tick % SEAL == 0 {
            sink.flush(&mut writer)?;
            writer.seal()?;
        }
    }
    let rows = sink.fabric_rows();
    sink.finish(&mut writer)?;
    writer.finish(pairs)?;
    Ok((records, rows))
}

/// The only process of a cgroup.
fn task(cgroup: u64) -> Task {
    let id = cgroup as u32 + 1;
    let comm = Comm::from_bytes(format!("tenant{id}").as_bytes());
    Task { tid: id, pid: id, cgroup_id: cgroup, comm }
}
