//! Grounds: machines on which something is true that the model does not know or expect.
//!
//! Everything else is drawn as on the base, from the same random numbers: a ground has its own.
//! ("a to b": uniform; "a .. b": uniform in the logarithm.)
//!
//! | ground | what is drawn |
//! |---|---|
//! | base | nothing |
//! | free-siblings | CPUs `2n` and `2n + 1` of a socket are threads of one core, and the recording says so |
//! | hyperthreads | the same, and a thread moves [`SIBLING_COST`] less for the part of a tick for which its sibling was busy |
//! | full-link | memory moves at most [`FULL_PEAK`] times the mean demand of the CPUs; of a larger demand all get the same part |
//! | phases | the rates of all tenants have a factor in common (log-normal, 0.6), another one after 50 to 500 ms |
//! | cron | three tenants in ten of a socket are jobs that begin at the same moment, every [`CRON_NS`]; their threads run for 0.1 .. 1 s by tenant, times 0.5 to 1.5 |
//! | late | [`LATE_PART`] of the bytes of four tenants in ten come later than the CPU time: in one half of these tenants by 5 .. 60 ms, in the other by 300 .. 3000 ms, and by up to a third more |
//! | devices | 12 % of a socket's tenants, one at least, only poll: 0.3 ms in 50 ms. Their devices move [`DEVICE_PART`] as much as all CPUs, each on or off for 100 .. 2000 ms, with a noise of 20 % from ms to ms |
//! | pareto | tenants' rates are at least 0.05 bytes/ns, with a Pareto index of 1.05 |
//! | dominant | the tenant with more CPU time than four fifths of its socket's moves 1.5 times what the others of the socket move, 60 % of all |
//! | replicas | six in ten tenants that pause are in groups of six. All threads of a group wake at once, every 8 .. 60 ms (times 0.6 to 1.4), and run for 20 to 50 % of this. Rates of a group differ by 30 % |
//!
//! Late bytes and those of tenants' devices have no CPU time in their tick. They count as those of
//! the process that asked for them. Bytes that would come after the end are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use uncore_trace::attribute::CoreSiblings;
use uncore_trace::discover::cpus::CpuLocation;

pub(crate) use super::ground_name::Ground;
use super::random::Random;
use super::schedule::{Schedule, Stretch};
use super::tenants::{DrawnMachine, ThreadKind};
use super::ticks::{ByteMover, MovedPart};
use super::traffic::{Piece, TrafficProcess};
use super::{DrawnCase, SOCKETS, TICK_NS};

const SIBLING_COST: f64 = 0.45;
const FULL_PEAK: f64 = 1.15;
const CRON_NS: f64 = 5e9;
const LATE_PART: f64 = 0.6;
const DEVICE_PART: f64 = 0.45;
const GROUP: usize = 6;
const MS: f64 = 1e6;
/// What random numbers of a place are for.
const MACHINE: u64 = 21;
const PHASES: u64 = 22;
const DEVICES: u64 = 23;
const DELAYS: u64 = 24;
const LATENESS: u64 = 25;

impl Ground {
    /// Which CPUs of the machine share cores, as the recording says.
    pub(crate) fn core_siblings(self, case: &DrawnCase) -> CoreSiblings {
        if !matches!(self, Self::FreeSiblings | Self::Hyperthreads) {
            return CoreSiblings::default();
        }
        let location = |cpu: usize| CpuLocation {
            package: Some((cpu / case.cpus) as i16),
            core: Some((cpu % case.cpus / 2) as i32),
            ..CpuLocation::default()
        };
        let locations = (0..case.cpus * SOCKETS).map(|cpu| (cpu as u32, location(cpu)));
        CoreSiblings::from_locations(&locations.collect())
    }

    /// The part of a demand that a socket's memory moves, where the capacity is `peak` times the
    /// mean.
    pub(crate) fn moved_fraction(self, demand: f64, mean: f64, peak: f64) -> f64 {
        match self {
            Self::FullLink => (demand / (FULL_PEAK * mean)).max(1.0).recip(),
            _ => (1.0 + (demand / (peak * mean)).powi(4)).powf(-0.25),
        }
    }

    /// Whether bytes come without CPU time in their tick.
    pub(crate) const fn has_bytes_without_time(self) -> bool {
        matches!(self, Self::Late | Self::Devices)
    }
}

/// The tenants at home on a socket.
fn socket_tenants(case: &DrawnCase, socket: usize) -> Range<usize> {
    socket * case.tenants..(socket + 1) * case.tenants
}

/// A part of the tenants of a socket, one at least.
fn choose_tenants(
    case: &DrawnCase,
    socket: usize,
    fraction: f64,
    random: &mut Random,
) -> BTreeSet<usize> {
    let count = ((case.tenants as f64 * fraction).round() as usize).max(1);
    let first = socket_tenants(case, socket).start;
    random.permutation(case.tenants).into_iter().take(count).map(|index| first + index).collect()
}

/// Changes who runs, and how.
pub(crate) fn shape_machine(case: &DrawnCase, machine: &mut DrawnMachine) {
    let random = &mut Random::for_place(MACHINE, case.seed, 0);
    match case.ground {
        Ground::Pareto => {
            for tenant in &mut machine.tenants[..case.tenants * SOCKETS] {
                tenant.rate = 0.05 * (1.0 - random.unit_interval()).powf(-1.0 / 1.05);
            }
        }
        Ground::Cron => {
            let gang = add_gang(machine, CRON_NS, 0.0);
            for socket in 0..SOCKETS {
                for tenant in choose_tenants(case, socket, 0.3, random) {
                    let run = random.log_uniform(100.0, 1000.0) * MS;
                    change_threads(machine, tenant, ThreadKind::Gang(gang), run, 0.0);
                }
            }
        }
        Ground::Devices => {
            for socket in 0..SOCKETS {
                for tenant in device_tenants(case, socket) {
                    change_threads(machine, tenant, ThreadKind::Periodic, 0.3 * MS, 50.0 * MS);
                }
            }
        }
        Ground::Replicas => {
            for socket in 0..SOCKETS {
                add_replicas(case, socket, machine, random);
            }
        }
        Ground::Base
        | Ground::FreeSiblings
        | Ground::Hyperthreads
        | Ground::FullLink
        | Ground::Phases
        | Ground::Late
        | Ground::Dominant => {}
    }
}

/// The tenants of a socket whose devices move bytes.
fn device_tenants(case: &DrawnCase, socket: usize) -> BTreeSet<usize> {
    choose_tenants(case, socket, 0.12, &mut Random::for_place(DEVICES, case.seed, socket as u64))
}

fn add_gang(machine: &mut DrawnMachine, period_ns: f64, spread: f64) -> usize {
    machine.gangs.push((period_ns, spread));
    machine.gangs.len() - 1
}

/// Lets all threads of a tenant run in another way.
fn change_threads(
    machine: &mut DrawnMachine,
    tenant: usize,
    thread_kind: ThreadKind,
    run: f64,
    pause: f64,
) {
    machine.tenants[tenant].quota = 0;
    let mut changed_threads = BTreeSet::new();
    for (id, thread) in machine.threads.iter_mut().enumerate() {
        if thread.tenant == tenant {
            (thread.thread_kind, thread.run, thread.pause) = (thread_kind, run, pause);
            (thread.pin, thread.spans, thread.wakes) = (None, false, None);
            changed_threads.insert(id);
        }
    }
    for thread in &mut machine.threads {
        thread.wakes = thread.wakes.filter(|woken| !changed_threads.contains(woken));
    }
}

fn add_replicas(case: &DrawnCase, socket: usize, machine: &mut DrawnMachine, random: &mut Random) {
    let never_pauses = |tenant: &usize| {
        let mut threads = machine.threads.iter();
        threads.any(|thread| thread.tenant == *tenant && thread.thread_kind == ThreadKind::Spin)
    };
    let mut pausing: Vec<usize> = socket_tenants(case, socket).collect();
    pausing.retain(|tenant| !never_pauses(tenant));
    let order = random.permutation(pausing.len());
    let replica_count = (pausing.len() as f64 * 0.6) as usize / GROUP * GROUP;
    for group in order[..replica_count].chunks(GROUP) {
        let period = random.log_uniform(8.0, 60.0) * MS;
        let gang = add_gang(machine, period, 0.8);
        let run = period * random.uniform(0.2, 0.5);
        let rate = machine.tenants[pausing[group[0]]].rate;
        for tenant in group.iter().map(|index| pausing[*index]) {
            machine.tenants[tenant].rate = rate * random.log_normal(0.0, 0.3);
            change_threads(machine, tenant, ThreadKind::Gang(gang), run, 0.0);
        }
    }
}

/// Changes the rates of processes, where that takes their CPU time.
pub(crate) fn shape_rates(case: &DrawnCase, schedule: &Schedule, processes: &mut [TrafficProcess]) {
    if case.ground != Ground::Dominant {
        return;
    }
    let mut sums = vec![(0, 0.0); case.tenants * SOCKETS + 1];
    for stretch in schedule.stretches.iter().flatten() {
        let ns = stretch.end_ns - stretch.begin_ns;
        let sum = &mut sums[schedule.tenant_of[stretch.process as usize]];
        *sum = (sum.0 + ns, sum.1 + processes[stretch.process as usize].rate * ns as f64);
    }
    for socket in 0..SOCKETS {
        let mut by_time: Vec<usize> = socket_tenants(case, socket).collect();
        by_time.sort_by_key(|tenant| sums[*tenant].0);
        let dominant = by_time[case.tenants * 4 / 5];
        let bytes = |tenants: &[usize]| tenants.iter().map(|tenant| sums[*tenant].1).sum::<f64>();
        let own_bytes = sums[dominant].1;
        let factor = 1.5 * (bytes(&by_time) - own_bytes) / own_bytes.max(1.0);
        let tenant_of = schedule.tenant_of.iter();
        processes
            .iter_mut()
            .zip(tenant_of)
            .filter(|(_, tenant)| **tenant == dominant)
            .for_each(|(process, _)| process.scale_rate(factor));
    }
}

/// Factors of all rates.
#[derive(Debug, Default)]
pub(crate) struct GroundFactors {
    /// By tick.
    common: Vec<f32>,
    /// The part of each tick for which the sibling of a CPU was busy, by CPU.
    busy_siblings: Vec<Vec<f32>>,
}

impl GroundFactors {
    pub(crate) fn draw(case: &DrawnCase, schedule: &Schedule) -> Self {
        let ticks = case.tick_count();
        match case.ground {
            Ground::Phases => Self { common: draw_phases(case, ticks), ..Self::default() },
            Ground::Hyperthreads => {
                let busy = |cpu: usize| match sibling_of(case, cpu) {
                    Some(sibling) => busy_parts(&schedule.stretches[sibling], ticks),
                    None => vec![0.0; ticks],
                };
                let busy_siblings = (0..schedule.stretches.len()).map(busy).collect();
                Self { busy_siblings, ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    pub(crate) fn factor(&self, cpu: usize, tick: usize) -> f64 {
        let common = self.common.get(tick).copied().unwrap_or(1.0);
        let busy = self.busy_siblings.get(cpu).map_or(0.0, |parts| parts[tick]);
        f64::from(common) * (1.0 - SIBLING_COST * f64::from(busy))
    }
}

fn draw_phases(case: &DrawnCase, ticks: usize) -> Vec<f32> {
    let random = &mut Random::for_place(PHASES, case.seed, 0);
    let mut factors = Vec::new();
    while factors.len() < ticks {
        let len = random.uniform(50.0, 500.0) as usize;
        factors.extend(std::iter::repeat_n(random.log_normal(0.0, 0.6) as f32, len));
    }
    factors.truncate(ticks);
    factors
}

/// The other thread of a CPU's core.
pub(crate) fn sibling_of(case: &DrawnCase, cpu: usize) -> Option<usize> {
    let sibling = (cpu % case.cpus) ^ 1;
    (sibling < case.cpus).then(|| cpu / case.cpus * case.cpus + sibling)
}

/// The part of each tick for which a CPU was busy.
fn busy_parts(stretches: &[Stretch], ticks: usize) -> Vec<f32> {
    let mut busy = vec![0.0; ticks];
    for stretch in stretches {
        let mut begin_ns = stretch.begin_ns;
        while begin_ns < stretch.end_ns {
            let tick = begin_ns / TICK_NS;
            let end_ns = stretch.end_ns.min((tick + 1) * TICK_NS);
            busy[tick as usize] += (end_ns - begin_ns) as f32 / TICK_NS as f32;
            begin_ns = end_ns;
        }
    }
    busy
}

/// What the devices of a tenant move, by tick.
#[derive(Debug)]
pub(crate) struct TenantDevice {
    socket: usize,
    process: usize,
    bytes: Vec<f32>,
}

impl TenantDevice {
    /// What they move in a tick.
    pub(crate) fn moved_part(&self, tick: usize) -> MovedPart {
        MovedPart {
            counter: self.socket,
            mover: ByteMover::Process(self.process as u32),
            is_far: false,
            ns: 0,
            bytes: self.bytes[tick].into(),
        }
    }
}

/// The devices of tenants; `moved` is what the CPUs moved at each socket.
pub(crate) fn draw_devices(
    case: &DrawnCase,
    machine: &DrawnMachine,
    moved: [f64; SOCKETS],
) -> Vec<TenantDevice> {
    if case.ground != Ground::Devices {
        return Vec::new();
    }
    let mut devices = Vec::new();
    for (socket, moved) in moved.into_iter().enumerate() {
        let tenants = device_tenants(case, socket);
        let sum = moved * DEVICE_PART / tenants.len() as f64;
        for tenant in &tenants {
            let random = &mut Random::for_place(DEVICES, case.seed, (SOCKETS + tenant) as u64);
            let mut bytes: Vec<f64> = Vec::new();
            let mut is_on = true;
            while bytes.len() < case.tick_count() {
                let len = random.log_uniform(100.0, 2000.0) as usize;
                let draw = |_| if is_on { random.log_normal(0.0, 0.2) } else { 0.0 };
                bytes.extend((0..len).map(draw));
                is_on = !is_on;
            }
            bytes.truncate(case.tick_count());
            let scale = sum / bytes.iter().sum::<f64>();
            let mut threads = machine.threads.iter();
            devices.extend(threads.find(|thread| thread.tenant == *tenant).map(|thread| {
                let bytes = bytes.iter().map(|bytes| (bytes * scale) as f32).collect();
                TenantDevice { socket, process: thread.process, bytes }
            }));
        }
    }
    devices
}

/// Bytes that come later than the CPU time that caused them.
#[derive(Debug)]
pub(crate) struct LateBytes {
    seed: u64,
    /// The least delay of tenants whose bytes are late, ticks.
    delays: Vec<Option<usize>>,
    /// By the tick in which they come.
    pending: BTreeMap<usize, Vec<MovedPart>>,
}

impl LateBytes {
    pub(crate) fn draw(case: &DrawnCase) -> Self {
        let random = &mut Random::for_place(DELAYS, case.seed, 0);
        let mut delays = vec![None; case.tenants * SOCKETS];
        for socket in (0..SOCKETS).filter(|_| case.ground == Ground::Late) {
            for tenant in choose_tenants(case, socket, 0.4, random) {
                let is_long = random.draw_bool(0.5);
                let limits = if is_long { (300.0, 3000.0) } else { (5.0, 60.0) };
                delays[tenant] = Some(random.log_uniform(limits.0, limits.1) as usize);
            }
        }
        Self { seed: case.seed, delays, pending: BTreeMap::new() }
    }

    /// Holds back the late bytes of a piece of a tenant in a tick.
    pub(crate) fn hold_back(&mut self, tick: usize, tenant: usize, cpus: usize, piece: &mut Piece) {
        let Some(delay) = self.delays.get(tenant).copied().flatten() else { return };
        let place_key = ((piece.cpu as u64) << 48) + piece.begin;
        let mut random = Random::for_place(LATENESS, self.seed, place_key);
        let arrival = tick + delay + random.index_below((delay / 3).max(1));
        let pending = self.pending.entry(arrival).or_default();
        for (socket, bytes) in piece.bytes.iter_mut().enumerate() {
            pending.push(MovedPart {
                counter: socket,
                mover: ByteMover::Process(piece.process as u32),
                is_far: piece.cpu / cpus != socket,
                ns: 0,
                bytes: *bytes * LATE_PART,
            });
            *bytes *= 1.0 - LATE_PART;
        }
    }

    /// The bytes that come in a tick.
    pub(crate) fn take_arrived(&mut self, tick: usize) -> Vec<MovedPart> {
        self.pending.remove(&tick).unwrap_or_default()
    }
}
