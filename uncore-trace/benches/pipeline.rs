//! Time and memory for processing records to files, for a machine of any size.
//!
//! The records are generated: CPUs switch between processes of cgroups ([`BenchTenants`]), and one
//! CPU of each socket reads the counters. They go through the time line, the attributor and the
//! writer as those of a live recording. Prints one line of JSON. `cargo xtask bench pipeline` runs
//! it for many sizes, and `cargo xtask bench read` reads its recordings.
#![expect(clippy::print_stdout, reason = "the line is the result")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use fastrand::Rng;
use uncore_trace::assemble::{Sink, Timeline, TimelineSetup};
use uncore_trace::attribute::{
    self, AttributionSettings, Attributor, CoreSiblings, MIN_SHARE, RecordingFacts, order_counters,
};
use uncore_trace::choice::MethodChoice;
use uncore_trace::clock::Snapshot;
use uncore_trace::count::Count;
use uncore_trace::discover::CgroupMounts;
use uncore_trace::discover::cpus::CpuLocation;
use uncore_trace::drain::{
    CgroupChange, CgroupRecord, Comm, CpuContext, DrainedRecord, RawReading, RunRecord,
    SampleRecord, SampleTrigger, TaskIdentity, TaskSlot,
};
use uncore_trace::entries::Relief;
use uncore_trace::open::{Layout, PlacedCounter};
use uncore_trace::plan::{Counter, CounterRole, Plan};
use uncore_trace::record::load::RecorderLoad;
use uncore_trace::schema::origin::RecordingOrigin;
use uncore_trace::schema::row_limit::RowLimit;
use uncore_trace::schema::{SCHEMA_VERSION, metadata};
use uncore_trace::tables::thread::WriterHandle;
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget};

const TICK_NS: u64 = 1_000_000;
/// Ticks of a window.
const WINDOW: u64 = 10;
/// Ticks between two drains of the ring, and between two seals.
const DRAIN: u64 = 50;
const SEAL: u64 = 1000;
/// The first tick.
const START: u64 = 1_000_000;
/// A window waits this long.
const LAG_NS: u64 = 1_000_000_000;
/// Most CPUs of a socket.
const SOCKET: u32 = 176;

/// The size of the machine, and the limits of the recording in seconds and rows; the first one ends
/// it.
#[derive(Clone, Copy)]
struct MachineSize {
    cpus: u32,
    cgroups: u64,
    counters: u32,
    seconds: u64,
    /// Rows of `fabric`; a few more windows may follow.
    rows: u64,
}

impl MachineSize {
    fn socket_count(self) -> u32 {
        self.cpus.div_ceil(SOCKET)
    }

    fn socket_of(self, cpu: u32) -> u32 {
        (cpu / (self.cpus / self.socket_count())).min(self.socket_count() - 1)
    }

    /// The CPUs near a counter.
    fn near_cpus(self, counter: u32) -> std::ops::Range<u32> {
        let size = self.cpus / self.socket_count();
        let first_cpu = counter % self.socket_count() * size;
        first_cpu..first_cpu + size
    }
}

/// A part of a time slice.
const SLICE_NS: u64 = 2_800_000;

/// The part of CPU time that is not idle.
const LOAD: f64 = 0.6;

/// Traffic to the memory of the other socket, as a part of that to the own one.
const REMOTE: f64 = 0.04;

/// A cgroup: what it runs and the traffic that it causes.
struct BenchTenant {
    /// Ids of its processes.
    pids: std::ops::Range<u32>,
    /// Length of its time slices, ns.
    slice_ns: u64,
    /// Raw counts per ns on a CPU, by event.
    rates: Vec<f64>,
}

/// The cgroups of the machine, drawn at random: how much CPU time each wants is log-normal with a
/// deviation of 1, and its traffic per CPU time with 1.6. A third runs on all sockets, the others
/// on one.
struct BenchTenants {
    members: Vec<BenchTenant>,
    /// By socket: cumulated weights of the tenants that run there.
    weights: Vec<Vec<(f64, usize)>>,
}

impl BenchTenants {
    fn draw(size: MachineSize, random: &mut Rng) -> Self {
        let events = size.counters.div_ceil(size.socket_count());
        let (mut members, mut weights) =
            (Vec::new(), vec![Vec::new(); size.socket_count() as usize]);
        let mut next_pid = 1;
        for number in 0..size.cgroups as usize {
            let pids = next_pid..next_pid + 1 + random.u32(0..3);
            next_pid = pids.end;
            // Half of them are servers, whose requests take 50 to 500 us.
            let slice_ns = if random.bool() { random.u64(50_000..500_000) } else { SLICE_NS };
            let rate = 0.02 * (1.6 * normal_number(random)).exp();
            let rates = (0..events).map(|_| rate * (0.5 * normal_number(random)).exp()).collect();
            // Time is weight x length.
            let weight = normal_number(random).exp() / slice_ns as f64;
            let (home, spans) = (number % weights.len(), random.u32(0..3) == 0);
            for (socket, sum) in weights.iter_mut().enumerate() {
                if spans || socket == home {
                    let previous_sum = sum.last().map_or(0.0, |(last_sum, _)| *last_sum);
                    sum.push((previous_sum + weight, number));
                }
            }
            members.push(BenchTenant { pids, slice_ns, rates });
        }
        Self { members, weights }
    }

    /// Who runs next on a CPU of a socket.
    fn draw_tenant(&self, socket: usize, random: &mut Rng) -> usize {
        let sums = &self.weights[socket];
        let total_weight = sums.last().map_or(0.0, |(total, _)| *total);
        let drawn_weight = random.f64() * total_weight;
        sums[sums.partition_point(|(sum, _)| *sum <= drawn_weight).min(sums.len() - 1)].1
    }
}

/// What a CPU runs: the tenant and the process, or nothing; and until when, ns.
#[derive(Clone, Copy)]
struct CpuRun {
    tenant: Option<(usize, u32)>,
    until: u64,
}

/// The machine while it runs.
struct Drawn {
    size: MachineSize,
    random: Rng,
    tenants: BenchTenants,
    /// Counts so far, by counter.
    values: HashMap<u32, f64>,
    running: Vec<CpuRun>,
}

impl Drawn {
    fn new(size: MachineSize) -> Self {
        let mut random = Rng::with_seed(1);
        let tenants = BenchTenants::draw(size, &mut random);
        let running = vec![CpuRun { tenant: None, until: 0 }; size.cpus as usize];
        Self { size, random, tenants, values: HashMap::new(), running }
    }

    /// The records of a tick.
    fn make_records(
        &mut self,
        tick: u64,
        plan: &Plan,
        layouts: &BTreeMap<u32, Layout>,
    ) -> Vec<DrainedRecord> {
        let (size, tenants, random) = (self.size, &self.tenants, &mut self.random);
        let begin = tick * TICK_NS;
        let mut records = Vec::new();
        for (&cpu, layout) in layouts {
            let readings = layout.counters.iter().map(|placed| RawReading::Counted {
                value: self.values.get(&placed.id).copied().unwrap_or_default() as u64,
                enabled: begin,
                running: begin,
            });
            let sample = SampleRecord {
                cpu,
                begin_ns: begin + 2000,
                end_ns: begin + 5000,
                sequence: tick - START + 1,
                trigger: SampleTrigger::Timer,
                context: CpuContext::Task,
                task: TaskIdentity::default(),
                first_slot: layout.first_slot,
                readings: readings.collect(),
            };
            records.push(DrainedRecord::Sample(sample));
        }
        let mut used = vec![vec![0.0; tenants.members.len()]; size.socket_count() as usize];
        for (cpu, cpu_state) in (0..).zip(&mut self.running) {
            let socket = size.socket_of(cpu) as usize;
            let end = begin + TICK_NS;
            let (mut time_ns, mut slots) = (begin, Vec::new());
            while time_ns < end {
                if cpu_state.until <= time_ns {
                    let is_busy = random.f64() < LOAD;
                    let tenant = is_busy.then(|| tenants.draw_tenant(socket, random));
                    let length =
                        tenant.map_or(SLICE_NS / 4, |index| tenants.members[index].slice_ns);
                    let length = (-(1.0 - random.f64()).ln() * length as f64) as u64;
                    let occupant = tenant
                        .map(|index| (index, random.u32(tenants.members[index].pids.clone())));
                    *cpu_state = CpuRun { tenant: occupant, until: time_ns + length.max(10_000) };
                }
                let wall_ns = cpu_state.until.min(end) - time_ns;
                time_ns += wall_ns;
                if let Some((tenant, _)) = cpu_state.tenant {
                    used[socket][tenant] += wall_ns as f64;
                }
                let task = cpu_state.tenant.map_or_else(TaskIdentity::default, |(tenant, pid)| {
                    task_identity(tenant as u64, pid)
                });
                slots.push(TaskSlot { task, wall_ns, irq_ns: 0, slices: 1 });
            }
            records.push(DrainedRecord::Run(RunRecord {
                cpu,
                begin_ns: begin,
                last_slot_begin: end,
                end,
                slots,
            }));
        }
        for counter in &plan.counters {
            let (home, event) =
                (counter.id % size.socket_count(), counter.id / size.socket_count());
            let mut count = 0.0;
            for (socket, used) in (0..).zip(&used) {
                let fraction = if socket == home { 1.0 } else { REMOTE };
                let used_by_tenant = used.iter().zip(&tenants.members);
                count += used_by_tenant
                    .map(|(ns, member)| fraction * ns * member.rates[event as usize])
                    .sum::<f64>();
            }
            *self.values.entry(counter.id).or_default() +=
                count * (1.0 + 0.1 * normal_number(random));
        }
        records
    }
}

/// A normal number, Box and Muller 1958.
fn normal_number(random: &mut Rng) -> f64 {
    let (radius_draw, angle_draw) = (1.0 - random.f64(), random.f64());
    (-2.0 * radius_draw.ln()).sqrt() * (std::f64::consts::TAU * angle_draw).cos()
}

/// CPU time of this thread, seconds.
fn thread_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time of this process, seconds.
fn process_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let (args, speed) = match args.as_slice() {
        [args @ .., speed] if matches!(args.len(), 5 | 7) => (args, Some(speed)),
        all_args => (all_args, None),
    };
    let speed =
        speed.map(|text| text.parse::<f64>().with_context(|| format!("{text} is no speed")));
    let speed = speed.transpose()?;
    let (machine, kept) = match args {
        [machine @ .., rows, dir] if machine.len() == 5 => (machine, Some((rows, dir))),
        machine_args => (machine_args, None),
    };
    let [cpus, cgroups, counters, seconds, method] = machine else {
        // `cargo test --benches` and `cargo bench` run it without arguments.
        println!("usage: pipeline CPUS CGROUPS COUNTERS SECONDS residency|auto [ROWS DIR] [SPEED]");
        return Ok(());
    };
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("{text} is no number"));
    let size = MachineSize {
        cpus: number(cpus)? as u32,
        cgroups: number(cgroups)?,
        counters: number(counters)? as u32,
        seconds: number(seconds)?,
        rows: kept.map_or(Ok(u64::MAX), |(rows, _)| number(rows))?,
    };
    let method = if method == "auto" { MethodChoice::Auto } else { MethodChoice::Residency };
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let run = kept.map_or_else(|| dir.path().join("run"), |(_, dir)| PathBuf::from(dir));
    let (begin, before_s) = (Instant::now(), process_s());
    let BenchRecording { records, rows, made_s, behind_s, relief } =
        record_machine(size, method, speed, &run)?;
    let wall_s = begin.elapsed().as_secs_f64() - made_s;
    let used_s = process_s() - before_s - made_s;
    let bytes = |path: &Path| fs::metadata(path).map(|file_data| file_data.len());
    let fabric = bytes(&run.join("fabric.parquet"))?;
    let total_bytes: u64 =
        fs::read_dir(&run)?.flatten().map(|entry| bytes(&entry.path()).unwrap_or(0)).sum();
    println!(
        "{{\"records\": {records}, \"rows\": {rows}, \"wall_s\": {wall_s}, \"cpu_s\": {used_s}, \"fabric_bytes\": {fabric}, \
         \"bytes\": {total_bytes}, \"peak_kib\": {}, \"behind_s\": {behind_s:?}, \"relief\": \"{}\"}}",
        peak_kib()?,
        relief.in_words()
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

fn machine_plan(size: MachineSize, row_limit: RowLimit) -> Plan {
    let counter = |id: u32| {
        let sees = size.near_cpus(id);
        Counter {
            id,
            pmu: format!("pmu_{}", id % size.socket_count()),
            family: "bench".to_owned(),
            subsystem: "mem".to_owned(),
            event: format!("event{}", id / size.socket_count()),
            filter: String::new(),
            unit: "bytes".to_owned(),
            scale: 64.0,
            attr_type: 10,
            config: Default::default(),
            cpu: sees.start,
            socket: Some((id % size.socket_count()) as i16),
            far: (0..size.cpus).filter(|cpu| !sees.contains(cpu)).collect(),
            sees: (0..size.cpus).collect(),
            per_cpu: false,
            exclude_guest: false,
            functions: Vec::new(),
            part_of: None,
            exclusive: false,
            at_switch: false,
            exact_by: None,
            cause: None,
            causes: BTreeSet::default(),
            io: None,
            behind: Vec::new(),
            leader: None,
            role: CounterRole::Counted,
            witness_bytes: None,
        }
    };
    let mut plan = Plan {
        tick_ns: TICK_NS,
        window_ns: WINDOW * TICK_NS,
        counters: (0..size.counters).map(counter).collect(),
        ..Plan::default()
    };
    plan.choose_window(row_limit);
    plan
}

/// The counters that each CPU reads.
fn cpu_layouts(plan: &Plan) -> BTreeMap<u32, Layout> {
    let mut layouts: BTreeMap<u32, Layout> = BTreeMap::new();
    for counter in &plan.counters {
        let layout = layouts.entry(counter.cpu).or_default();
        layout.counters.push(PlacedCounter { id: counter.id, base: Count::default() });
    }
    let mut next_slot = 0;
    for layout in layouts.values_mut() {
        layout.first_slot = next_slot;
        next_slot += layout.counters.len() as u32;
    }
    layouts
}

/// The metadata of a recording that `attribute` and `check` need.
fn metadata_pairs(plan: &Plan, clock: Snapshot) -> Result<BTreeMap<String, String>> {
    let pairs = [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::PLAN, serde_json::to_string(plan)?),
        (metadata::CLOCKS, serde_json::to_string(&[clock])?),
        (metadata::TICK_NS, plan.tick_ns.to_string()),
        (metadata::INTERVAL_NS, plan.window_ns.to_string()),
        (metadata::LOSS, "{}".to_owned()),
        (metadata::COMPLETE, "true".to_owned()),
    ];
    Ok(pairs.map(|(key, value)| (key.to_owned(), value)).into())
}

/// What was recorded.
struct BenchRecording {
    records: u64,
    /// Rows of `fabric`.
    rows: u64,
    /// CPU time in which records were generated, s.
    made_s: f64,
    /// How far it was behind the records, at most and at the end, s.
    behind_s: [f64; 2],
    /// The most that was left out.
    relief: Relief,
}

/// The limit of rows of `record`, or that of the variable `ROWS_PER_S`. A recording that is kept for
/// its number of rows has all.
fn row_limit(size: MachineSize) -> Result<RowLimit> {
    match std::env::var("ROWS_PER_S") {
        Ok(text) => text.parse().map_err(|error| anyhow!("ROWS_PER_S={text}: {error}")),
        Err(_) if size.rows < u64::MAX => Ok(RowLimit::All),
        Err(_) => Ok(RowLimit::DEFAULT),
    }
}

/// Records into a dataset. With a speed, records come so many times as fast as those of a machine.
fn record_machine(
    size: MachineSize,
    method: MethodChoice,
    speed: Option<f64>,
    run: &Path,
) -> Result<BenchRecording> {
    let row_limit = row_limit(size)?;
    let plan = machine_plan(size, row_limit);
    let layouts = cpu_layouts(&plan);
    let clock = Snapshot { mono_ns: 0, wall_ns: 0 };
    let pairs = metadata_pairs(&plan, clock)?;
    let target = RecordingTarget::Dataset(run.to_owned());
    let mut writer = WriterHandle::create(target, CreateOptions::default(), &pairs, None)?;
    let cpus: Vec<u32> = (0..size.cpus).collect();
    let mut sink = Sink::new(&writer, false, RecordingOrigin::from_metadata(&pairs));
    let attributor = Attributor::new(&RecordingFacts {
        plan: &plan,
        counters: &order_counters(&plan, |_| false),
        settings: AttributionSettings {
            choice: method,
            lag_ns: LAG_NS,
            min_share: MIN_SHARE,
            row_limit,
            ..AttributionSettings::default()
        },
        start_tick: START,
        clock,
        origin: &sink.origin,
        siblings: &CoreSiblings::default(),
        threads: attribute::available_threads(),
        sums: true,
    });
    let setup = TimelineSetup {
        plan: &plan,
        layouts: &layouts,
        opened: &(0..size.counters).collect(),
        cpus: &cpus,
        offline: &[],
        cpu_locations: &cpus.iter().map(|cpu| (*cpu, CpuLocation::default())).collect(),
        start_tick: START,
        clock,
        // There are no files: the names come from the records.
        root: &run.join("nowhere"),
        cgroups: &CgroupMounts::default(),
        trusted_cgroups: Vec::new(),
        only_cgroups: Vec::new(),
        cgroup_depth: None,
        io: false,
        holders: false,
    };
    let mut timeline = Timeline::new(&setup, Box::new(attributor), &mut sink);
    for id in 0..size.cgroups {
        let path = Some(format!("/kubepods/pod{:08x}/{id:016x}", id / 4));
        let (time, change) = (START * TICK_NS, CgroupChange::Created);
        timeline.feed_record(
            DrainedRecord::Cgroup(CgroupRecord { time_ns: time, change, cgroup_id: id, path }),
            &mut sink,
        );
    }
    let mut machine = Drawn::new(size);
    let (mut records, mut made_s) = (0, 0.0);
    let mut stop = START + size.seconds * 1000;
    let (arrival, mut load) = (Instant::now(), RecorderLoad::new(LAG_NS, timeline.relief_steps()));
    let (mut behind_s, mut relief) = ([0.0f64; 2], Relief::None);
    for tick in START.. {
        if tick > stop {
            break;
        }
        let started = thread_s();
        let begin = tick * TICK_NS;
        let generated = machine.make_records(tick, &plan, &layouts);
        records += generated.len() as u64;
        made_s += thread_s() - started;
        for record in generated {
            timeline.feed_record(record, &mut sink);
        }
        if tick == stop - 1 {
            timeline.stop_at(stop);
        }
        if tick % DRAIN == 0 || tick == stop {
            if let Some(speed) = speed {
                let now_s = arrival.elapsed().as_secs_f64() - made_s;
                let due_s = (tick - START) as f64 * TICK_NS as f64 / 1e9 / speed;
                std::thread::sleep(Duration::from_secs_f64((due_s - now_s).max(0.0)));
                let late_s = (now_s - due_s).max(0.0);
                behind_s = [behind_s[0].max(late_s), late_s];
                let [now_s, late_s] = [now_s.max(due_s), late_s].map(|s| (s * 1e9) as u64);
                load.update_relief(now_s, late_s, false);
                timeline.set_relief(load.relief);
                relief = relief.max(load.relief);
            }
            while !timeline.close_bins(begin + TICK_NS, true, &mut sink, &mut |_| None) {
                sink.hand_over(&mut writer)?;
            }
            sink.hand_over(&mut writer)?;
            if sink.fabric_rows() >= size.rows {
                stop = stop.min(tick + 2);
            }
        }
        if tick % SEAL == 0 {
            sink.hand_over_all(&mut writer)?;
            writer.seal_rows()?;
        }
    }
    sink.finish_rows(&mut writer)?;
    writer.finish(pairs)?;
    Ok(BenchRecording { records, rows: sink.fabric_rows(), made_s, behind_s, relief })
}

/// A process of a cgroup.
fn task_identity(cgroup: u64, pid: u32) -> TaskIdentity {
    let comm = Comm::from_bytes(format!("tenant{pid}").as_bytes());
    TaskIdentity { tid: pid, pid, cgroup_id: cgroup, comm }
}
