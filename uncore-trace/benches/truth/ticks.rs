//! What a recorder would log of a drawn machine, tick by tick, and beside it what was moved.
//!
//! A counter is read 4 us after the end of each tick and an exponential time of 5 us more; four in
//! a thousand readings are 80 us later (exponential), none more than 600 us. It counts in units of
//! [`SCALE`] bytes, with an error of 0.1 % of each tick. With misses, each CPU has a counter that
//! is read at every switch and tick: of the bytes, 0 to 50 % by process are prefetched and not
//! counted; the others make one miss for each 64 bytes (log-normal, 0.25 by process), with noise in
//! pieces of 50 us or less, and less in longer ones. Misses in interrupts are idle's. A port counts
//! all bytes of its CPUs, but of each process a little more or less (log-normal, [`PORT`]), and is
//! read by another CPU, so that it is late by other times.

use std::collections::BTreeSet;

use uncore_trace::catalog::source::TrafficCause;
use uncore_trace::discover::CpuList;
use uncore_trace::drain::Comm;
use uncore_trace::entries::{CounterReading, CounterValue, Owner, ReadingTrigger};
use uncore_trace::plan::{Counter, CounterRole, Plan};
use uncore_trace::schema::link::{Direction, Link, LinkCounter, MEMORY};

use super::ground::LateBytes;
use super::random::Random;
use super::traffic::{DrawnTraffic, Piece, StretchPositions};
use super::{DrawnCase, SOCKETS, TICK_NS};

/// Bytes of a count.
const SCALE: f64 = 32.0;
/// How the bytes that a port counts for each byte of a process differ: reads, write-backs and
/// prefetches do.
const PORT: f64 = 0.15;
/// The vector of the network's softirqs: `NET_RX`.
const NET_RX: u32 = 3;
/// What random numbers of a place are for.
const LATE: u64 = 11;
const MISS: u64 = 12;

/// Who moved bytes or got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ByteMover {
    Process(u32),
    Softirq,
    Idle,
    Nobody,
}

/// What one of them moved at a counter, on CPUs near it or far from it, in a part of a tick. Late
/// bytes and those of tenants' devices have no time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedPart {
    pub(crate) counter: usize,
    pub(crate) mover: ByteMover,
    pub(crate) is_far: bool,
    pub(crate) ns: u64,
    pub(crate) bytes: f64,
}

/// A tick.
#[derive(Debug, Default)]
pub(crate) struct DrawnTick {
    /// Its readings, in the order of time for each counter.
    pub(crate) readings: Vec<CounterReading>,
    /// Nanoseconds by owner, by CPU.
    pub(crate) usage: Vec<Vec<(Owner, u64)>>,
    /// All that was moved on CPUs, and what devices moved, by counter.
    pub(crate) moved_parts: Vec<MovedPart>,
    pub(crate) device: Vec<f64>,
    /// Bytes of its begin that the reading of the tick before counts, and the others, by counter.
    early: Vec<f64>,
    later: Vec<f64>,
}

/// How a process misses: the part of its bytes that is not prefetched, over the bytes of a miss,
/// and noise.
#[derive(Debug)]
struct Missing {
    of_byte: f64,
    noise: f64,
}

pub(crate) struct Ticks<'a> {
    traffic: &'a DrawnTraffic<'a>,
    case: &'a DrawnCase,
    /// The tick at which the recording begins.
    start: u64,
    /// Counters that are divided.
    counters: usize,
    /// These and ports.
    with_ports: usize,
    /// Bytes at a port for each byte, by process.
    at_port: Vec<f64>,
    owners: Vec<Owner>,
    missing: Vec<Missing>,
    random: Random,
    late_bytes: LateBytes,
    positions: StretchPositions,
    next_tick: usize,
    ahead: DrawnTick,
    counted: Vec<f64>,
    missed: Vec<f64>,
}

/// The id of the cgroup of a tenant. The kernel's is the root.
pub(crate) fn cgroup_id(tenant: usize, tenants: usize) -> u64 {
    if tenant + 1 == tenants { 1 } else { 1000 + tenant as u64 }
}

/// The process of a pid.
pub(crate) const FIRST_PID: u32 = 1000;

impl<'a> Ticks<'a> {
    pub(crate) fn new(
        case: &'a DrawnCase,
        traffic: &'a DrawnTraffic<'a>,
        start: u64,
        counters: usize,
        mut random: Random,
    ) -> Self {
        let tenants = traffic.machine.tenants.len();
        let owner = |(process, tenant): (usize, &usize)| Owner::Task {
            pid: FIRST_PID + process as u32,
            comm: Comm::from_bytes(format!("p{process}").as_bytes()),
            cgroup_id: cgroup_id(*tenant, tenants),
        };
        let tenant_of = &traffic.schedule.tenant_of;
        let missing = case.misses.map(|noise| {
            let missing = |_| Missing {
                of_byte: (1.0 - random.uniform(0.0, 0.5)) / (64.0 * random.log_normal(0.2, 0.25)),
                noise: noise * random.uniform(0.5, 1.5),
            };
            tenant_of.iter().map(missing).collect()
        });
        let at_port =
            case.ports.map(|_| tenant_of.iter().map(|_| random.log_normal(0.0, PORT)).collect());
        let cpu_count = traffic.machine.all_cpus();
        let with_ports = counters + case.ports.map_or(0, |size| cpu_count.div_ceil(size));
        let mut ticks = Self {
            with_ports,
            at_port: at_port.unwrap_or_default(),
            traffic,
            case,
            start,
            counters,
            owners: tenant_of.iter().enumerate().map(owner).collect(),
            missing: missing.unwrap_or_default(),
            random,
            late_bytes: LateBytes::draw(case),
            positions: traffic.start_positions(),
            next_tick: 0,
            ahead: DrawnTick::default(),
            // Counters are not at 0 when a recording begins.
            counted: vec![12_345.0 * SCALE; with_ports],
            missed: vec![0.0; cpu_count],
        };
        ticks.ahead = ticks.make_tick(0);
        ticks
    }

    /// The readings at which the recording begins.
    pub(crate) fn first_readings(&self) -> Vec<CounterReading> {
        (0..self.with_ports).map(|counter| self.timer_reading(counter, 0)).collect()
    }

    /// The next tick.
    pub(crate) fn advance_tick(&mut self) -> Option<DrawnTick> {
        if self.next_tick >= self.traffic.ticks {
            return None;
        }
        self.next_tick += 1;
        let ahead = self.make_tick(self.next_tick);
        let mut tick = std::mem::replace(&mut self.ahead, ahead);
        for counter in 0..self.with_ports {
            let device = tick.device.get(counter).copied().unwrap_or(0.0);
            let sum = tick.later[counter] + device + self.ahead.early[counter];
            self.counted[counter] += (sum * self.random.normal(1.0, 0.001)).max(0.0);
            tick.readings.push(self.timer_reading(counter, self.next_tick));
        }
        Some(tick)
    }

    fn timer_reading(&self, counter: usize, tick: usize) -> CounterReading {
        let late = if tick == self.traffic.ticks { 5000 } else { self.lateness_ns(counter, tick) };
        let tick = self.start + tick as u64;
        CounterReading {
            tick,
            time: tick * TICK_NS + late,
            counter: counter as u32,
            cpu: self.first_cpu(counter) as u32,
            trigger: ReadingTrigger::Timer,
            value: Ok(CounterValue { value: (self.counted[counter] / SCALE) as u64, times: None }),
            owner: None,
        }
    }

    fn first_cpu(&self, counter: usize) -> usize {
        match (counter.checked_sub(self.counters), self.case.ports) {
            (Some(port), Some(size)) => port * size,
            _ => counter * self.case.group.unwrap_or(self.case.cpus),
        }
    }

    /// How late a port, or the counters of a socket, are read at the begin of a tick, ns.
    fn lateness_ns(&self, counter: usize, tick: usize) -> u64 {
        let socket = self.first_cpu(counter) / self.case.cpus;
        let place_key = if counter < self.counters { socket } else { SOCKETS + counter };
        let mut random = Random::for_place(LATE ^ self.case.seed, tick as u64, place_key as u64);
        let extra_ns = if random.draw_bool(0.004) { random.exponential(80_000.0) } else { 0.0 };
        (4000.0 + random.exponential(5000.0) + extra_ns).min(600_000.0) as u64
    }

    /// What happens in a tick.
    fn make_tick(&mut self, tick: usize) -> DrawnTick {
        let zero = vec![0.0; self.with_ports];
        let mut new_tick = DrawnTick { early: zero.clone(), later: zero, ..DrawnTick::default() };
        if tick >= self.traffic.ticks {
            return new_tick;
        }
        let cpus = self.traffic.machine.all_cpus();
        new_tick.usage = vec![Vec::new(); cpus];
        let from = tick as u64 * TICK_NS;
        // The first reading begins the count.
        let late = |counter| if tick == 0 { 0 } else { self.lateness_ns(counter, tick) };
        let cuts: Vec<u64> = (0..self.with_ports).map(|counter| from + late(counter)).collect();
        let mut running = vec![(Owner::Idle, from); cpus];
        let mut positions = std::mem::take(&mut self.positions);
        let traffic = self.traffic;
        traffic.give_pieces(tick, &mut positions, |mut piece| {
            let tenant = traffic.schedule.tenant_of[piece.process];
            self.late_bytes.hold_back(tick, tenant, self.case.cpus, &mut piece);
            let is_softirq = traffic.machine.threads[piece.thread].is_softirq;
            let task = self.owners[piece.process];
            let owner = if is_softirq { Owner::Softirq(NET_RX) } else { task };
            let ns = piece.end - piece.begin;
            add_ns(&mut new_tick.usage[piece.cpu], owner, ns);
            let mover = if is_softirq {
                ByteMover::Softirq
            } else {
                ByteMover::Process(piece.process as u32)
            };
            let mut add_moved = |counter: usize, is_far, bytes| {
                let early = cuts[counter].clamp(piece.begin, piece.end) - piece.begin;
                let early = bytes * early as f64 / ns as f64;
                new_tick.early[counter] += early;
                new_tick.later[counter] += bytes - early;
                if counter >= self.counters {
                    return;
                }
                new_tick.moved_parts.push(MovedPart { counter, mover, is_far, ns, bytes });
            };
            match self.case.group {
                Some(group) => add_moved(piece.cpu / group, false, piece.bytes.iter().sum()),
                None => piece.bytes.iter().enumerate().for_each(|(socket, bytes)| {
                    add_moved(socket, piece.cpu / self.case.cpus != socket, *bytes);
                }),
            }
            if let Some(size) = self.case.ports {
                let bytes = piece.bytes.iter().sum::<f64>() * self.at_port[piece.process];
                add_moved(self.counters + piece.cpu / size, false, bytes);
            }
            if !self.missing.is_empty() {
                let owner = if is_softirq { Owner::Idle } else { task };
                self.count_misses(piece, owner, &mut running[piece.cpu], &mut new_tick.readings);
            }
        });
        self.positions = positions;
        let without_time = self.late_bytes.take_arrived(tick);
        let devices = traffic.tenant_devices.iter().map(|device| device.moved_part(tick));
        for moved_part in without_time.into_iter().chain(devices) {
            new_tick.later[moved_part.counter] += moved_part.bytes;
            new_tick.moved_parts.push(moved_part);
        }
        for used in &mut new_tick.usage {
            let busy: u64 = used.iter().map(|(_, ns)| ns).sum();
            if busy < TICK_NS {
                used.push((Owner::Idle, TICK_NS - busy));
            }
        }
        if !self.missing.is_empty() {
            let end = from + TICK_NS;
            for (cpu, (owner, _)) in running.into_iter().enumerate() {
                new_tick.readings.push(self.miss_reading(cpu, end, ReadingTrigger::Timer, owner));
            }
        }
        let device = if self.case.group.is_some() { &[] } else { &self.traffic.device[tick][..] };
        new_tick.device = device.to_vec();
        new_tick.device.resize(self.counters, 0.0);
        new_tick
    }

    /// Counts the misses of a piece, and reads them where its thread comes after idle time and
    /// leaves.
    fn count_misses(
        &mut self,
        piece: Piece,
        owner: Owner,
        running: &mut (Owner, u64),
        readings: &mut Vec<CounterReading>,
    ) {
        let Piece { cpu, begin, end, .. } = piece;
        if piece.begins && begin > running.1 {
            readings.push(self.miss_reading(cpu, begin, ReadingTrigger::Event, Owner::Idle));
        }
        let missing = &self.missing[piece.process];
        let noise = missing.noise * (50_000.0 / (end - begin) as f64).sqrt().min(3.0);
        let place_key = ((cpu as u64) << 48) + begin;
        let factor = Random::for_place(MISS, self.case.seed, place_key).mean_one_factor(noise);
        self.missed[cpu] += piece.bytes.iter().sum::<f64>() * missing.of_byte * factor;
        if piece.ends {
            readings.push(self.miss_reading(cpu, end, ReadingTrigger::Event, owner));
        }
        *running = (if piece.ends { Owner::Idle } else { owner }, end);
    }

    /// A reading of the misses of a CPU at a time. It is logged in the tick that ends next.
    fn miss_reading(
        &self,
        cpu: usize,
        time: u64,
        trigger: ReadingTrigger,
        owner: Owner,
    ) -> CounterReading {
        CounterReading {
            tick: self.start + time.div_ceil(TICK_NS),
            time: self.start * TICK_NS + time,
            counter: (self.with_ports + cpu) as u32,
            cpu: cpu as u32,
            trigger,
            value: Ok(CounterValue { value: self.missed[cpu] as u64, times: None }),
            owner: Some(owner),
        }
    }
}

fn add_ns(usage: &mut Vec<(Owner, u64)>, owner: Owner, ns: u64) {
    match usage.iter_mut().find(|(known, _)| *known == owner) {
        Some((_, sum)) => *sum += ns,
        None => usage.push((owner, ns)),
    }
}

/// The plan of the recording: a counter of each socket's memory, which sees all CPUs, or one of
/// what each group of CPUs moves, ports, and those of misses.
pub(crate) fn recording_plan(case: &DrawnCase) -> Plan {
    let cpus = |from: usize, limit: usize| (from as u32..limit as u32).collect::<CpuList>();
    let cpu_count = case.cpus * SOCKETS;
    let size = case.group.unwrap_or(case.cpus);
    let mut counters: Vec<Counter> = Vec::new();
    for (id, first_cpu) in (0..cpu_count).step_by(size).enumerate() {
        let near_cpus = cpus(first_cpu, (first_cpu + size).min(cpu_count));
        let far = (0..cpu_count as u32)
            .filter(|cpu| !near_cpus.iter().any(|near| near == *cpu))
            .collect();
        let is_group = case.group.is_some();
        counters.push(Counter {
            id: id as u32,
            pmu: format!("{}_{id}", if is_group { "group" } else { "memory" }),
            family: "bench".to_owned(),
            subsystem: "mem".to_owned(),
            event: "bytes".to_owned(),
            filter: String::new(),
            unit: "bytes".to_owned(),
            scale: SCALE,
            attr_type: 10,
            config: Default::default(),
            cpu: first_cpu as u32,
            socket: Some((first_cpu / case.cpus) as i16),
            sees: if is_group { near_cpus } else { cpus(0, cpu_count) },
            far: if is_group { CpuList::default() } else { far },
            per_cpu: false,
            exclude_guest: false,
            functions: Vec::new(),
            part_of: None,
            exclusive: false,
            at_switch: false,
            exact_by: None,
            cause: is_group.then_some(TrafficCause::Cpu),
            causes: if is_group {
                BTreeSet::new()
            } else {
                [TrafficCause::Cpu, TrafficCause::Remote].into()
            },
            io: None,
            behind: Vec::new(),
            leader: None,
            role: CounterRole::Counted,
            witness_bytes: None,
        });
    }
    let counted = counters.len();
    if let (Some(size), Some(like)) = (case.ports, counters.first().cloned()) {
        counters.extend((0..cpu_count).step_by(size).enumerate().map(|(port, first_cpu)| {
            Counter {
                id: (counted + port) as u32,
                pmu: format!("port_{port}"),
                cpu: first_cpu as u32,
                socket: Some((first_cpu / case.cpus) as i16),
                sees: cpus(first_cpu, (first_cpu + size).min(cpu_count)),
                far: CpuList::default(),
                cause: Some(TrafficCause::Cpu),
                causes: BTreeSet::new(),
                role: CounterRole::Weight,
                witness_bytes: Some(SCALE),
                ..like.clone()
            }
        }));
    }
    let planned = counters.len();
    if let (Some(_), Some(like)) = (case.misses, counters.first().cloned()) {
        counters.extend((0..cpu_count).map(|cpu| Counter {
            id: (planned + cpu) as u32,
            pmu: "core".to_owned(),
            subsystem: "core".to_owned(),
            event: "misses".to_owned(),
            unit: "count".to_owned(),
            scale: 1.0,
            cpu: cpu as u32,
            socket: Some((cpu / case.cpus) as i16),
            sees: cpus(cpu, cpu + 1),
            far: CpuList::default(),
            per_cpu: true,
            at_switch: true,
            cause: Some(TrafficCause::Cpu),
            causes: BTreeSet::new(),
            role: CounterRole::Weight,
            witness_bytes: Some(64.0),
            ..like.clone()
        }));
    }
    let window_ns = case.window as u64 * TICK_NS;
    // Monitors measure the bytes of a link.
    let link = |counter: &Counter| Link {
        name: counter.pmu.clone(),
        kind: MEMORY.to_owned(),
        subsystem: counter.subsystem.clone(),
        socket: counter.socket,
        devices: None,
        counters: vec![LinkCounter { counter: counter.id, direction: Direction::Both }],
        peaks: Vec::new(),
        latencies: Vec::new(),
    };
    let counted = counters.iter().filter(|counter| counter.role == CounterRole::Counted);
    let links = case.monitors.map(|_| counted.map(link).collect()).unwrap_or_default();
    Plan { tick_ns: TICK_NS, window_ns, counters, links, ..Plan::default() }
}
