//! What the threads of a drawn machine move, and what devices move by themselves.
//!
//! A piece of CPU time in a tick moves its length times
//!
//! | factor | |
//! |---|---|
//! | rate of the process | of its tenant, with a log-normal deviation of 0.4, and 0.3 of the thread |
//! | phases | six in ten processes change between three levels (log-normal, 0.6) after 0.1 .. 10 s (exponential) |
//! | drift | an Ornstein-Uhlenbeck process of 5 s and 15 % |
//! | bursts | one process in four moves 3 to 10 times as much in 1 to 10 % of its stretches of 0.3 .. 5 ms |
//! | noise | of the tenant, from ms to ms: a coefficient of variation of [`NOISE`] (log-uniform) |
//! | ground | those of `ground.rs` |
//! | link | the fall below |
//!
//! and after each switch 5 to 60 us' worth (at most [`MAX_COLD`] bytes) to fill a cold cache.
//! Phases and drift are those of processes that are there at the begin. A plain machine has rates
//! and a noise of 2 % only.
//!
//! Three devices of each socket move together [`DEVICE`] of its traffic, on or off for 37 ms each.
//! Near the capacity of a socket's memory (`peak` times the mean demand) all bytes of a tick fall
//! by `(1 + (demand / capacity)^4)^(-1/4)`.

use super::ground::{self, GroundFactors, TenantDevice};
use super::random::Random;
use super::schedule::{Schedule, Stretch};
use super::tenants::DrawnMachine;
use super::{DrawnCase, SOCKETS, TICK_NS};

/// Part of the traffic that devices move.
const DEVICE: f64 = 0.08;
/// Most bytes that fill a cold cache.
const MAX_COLD: f64 = 256e3;
/// Ticks of a level of phases and drift, and levels of a step of the drift.
const LEVEL: usize = 10;
const DRIFT: usize = 10;
/// Ticks for which a device is on or off.
const BURST: usize = 37;
/// Coefficients of variation of services' rates from ms to ms, in public measurements.
const NOISE: (f64, f64) = (0.07, 1.05);
/// What random numbers of a place are for.
const NOISES: u64 = 1;
const BURSTS: u64 = 2;

/// How a process moves bytes.
#[derive(Debug)]
pub(crate) struct TrafficProcess {
    tenant: usize,
    /// Bytes/ns.
    pub(crate) rate: f64,
    remote: f64,
    /// Deviation of the logarithm.
    noise: f64,
    /// Chance, factor, and length in ns of bursts.
    burst: (f64, f64, u64),
    /// Bytes after a switch.
    cold: f64,
}

/// A part of a stretch in one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) cpu: usize,
    pub(crate) thread: usize,
    pub(crate) process: usize,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Whether the stretch begins and ends with it.
    pub(crate) begins: bool,
    pub(crate) ends: bool,
    /// By socket of the memory.
    pub(crate) bytes: [f64; SOCKETS],
}

#[derive(Debug)]
pub(crate) struct DrawnTraffic<'a> {
    pub(crate) machine: &'a DrawnMachine,
    pub(crate) schedule: &'a Schedule,
    pub(crate) ticks: usize,
    seed: u64,
    processes: Vec<TrafficProcess>,
    /// Phases and drift, by process and level.
    levels: Vec<Vec<f32>>,
    factors: GroundFactors,
    /// The fall of the bytes of a tick, and what devices move in it, by socket.
    fall: Vec<[f64; SOCKETS]>,
    pub(crate) device: Vec<[f64; SOCKETS]>,
    pub(crate) tenant_devices: Vec<TenantDevice>,
}

/// Where each CPU is in its stretches.
pub(crate) type StretchPositions = Vec<usize>;

impl<'a> DrawnTraffic<'a> {
    pub(crate) fn draw(
        case: &DrawnCase,
        machine: &'a DrawnMachine,
        schedule: &'a Schedule,
        random: &mut Random,
    ) -> Self {
        let ticks = case.tick_count();
        let noises: Vec<f64> =
            machine.tenants.iter().map(|_| random.log_uniform(NOISE.0, NOISE.1)).collect();
        let process =
            |tenant: &usize| TrafficProcess::draw(case, machine, *tenant, noises[*tenant], random);
        let mut processes: Vec<TrafficProcess> = schedule.tenant_of.iter().map(process).collect();
        ground::shape_rates(case, schedule, &mut processes);
        let level =
            |_| if case.plain { Vec::new() } else { draw_levels(ticks.div_ceil(LEVEL), random) };
        let levels = (0..machine.processes).map(level).collect();
        let fall = vec![[1.0; SOCKETS]; ticks];
        let device = vec![[0.0; SOCKETS]; ticks];
        let mut traffic = Self {
            machine,
            schedule,
            ticks,
            seed: case.seed,
            processes,
            levels,
            factors: GroundFactors::draw(case, schedule),
            fall,
            device,
            tenant_devices: Vec::new(),
        };
        traffic.saturate_memory(case, random);
        traffic
    }

    /// Draws what devices move, and the fall of what all move.
    fn saturate_memory(&mut self, case: &DrawnCase, random: &mut Random) {
        let mut positions = self.start_positions();
        let mut demand = vec![[0.0; SOCKETS]; self.ticks];
        for (tick, demand) in demand.iter_mut().enumerate() {
            self.give_pieces(tick, &mut positions, |piece| {
                demand.iter_mut().zip(piece.bytes).for_each(|(sum, bytes)| *sum += bytes);
            });
        }
        let mut moved = [0.0; SOCKETS];
        for socket in 0..SOCKETS {
            let mean = demand.iter().map(|demand| demand[socket]).sum::<f64>() / self.ticks as f64;
            let mut device = vec![0.0; self.ticks];
            for _ in 0..3 {
                for ticks in device.chunks_mut(BURST) {
                    let is_on = f64::from(u8::from(random.draw_bool(0.4)));
                    for bytes in ticks {
                        *bytes += is_on * random.log_normal(0.0, 0.3);
                    }
                }
            }
            let unit = DEVICE * mean * self.ticks as f64 / device.iter().sum::<f64>().max(1e-9);
            for tick in 0..self.ticks {
                let demanded = demand[tick][socket] + unit * device[tick];
                let fall = case.ground.moved_fraction(demanded, mean.max(1.0), case.peak);
                self.fall[tick][socket] = fall;
                self.device[tick][socket] = unit * device[tick] * fall;
                moved[socket] += demand[tick][socket] * fall;
            }
        }
        self.tenant_devices = ground::draw_devices(case, self.machine, moved);
    }

    pub(crate) fn start_positions(&self) -> StretchPositions {
        vec![0; self.machine.all_cpus()]
    }

    /// Gives the pieces of a tick, CPU by CPU. Ticks come in order.
    pub(crate) fn give_pieces(
        &self,
        tick: usize,
        positions: &mut StretchPositions,
        mut visit: impl FnMut(Piece),
    ) {
        let (begin_ns, end_ns) = (tick as u64 * TICK_NS, (tick as u64 + 1) * TICK_NS);
        for (cpu, stretches) in self.schedule.stretches.iter().enumerate() {
            while let Some(stretch) =
                stretches.get(positions[cpu]).filter(|candidate| candidate.begin_ns < end_ns)
            {
                let bytes = self.stretch_bytes(cpu, stretch, tick);
                visit(Piece {
                    cpu,
                    thread: stretch.thread as usize,
                    process: stretch.process as usize,
                    begin: stretch.begin_ns.max(begin_ns),
                    end: stretch.end_ns.min(end_ns),
                    begins: stretch.begin_ns >= begin_ns,
                    ends: stretch.end_ns <= end_ns,
                    bytes,
                });
                if stretch.end_ns > end_ns {
                    break;
                }
                positions[cpu] += 1;
            }
        }
    }

    fn stretch_bytes(&self, cpu: usize, stretch: &Stretch, tick: usize) -> [f64; SOCKETS] {
        let from = tick as u64 * TICK_NS;
        let begin = stretch.begin_ns.max(from);
        let ns = (stretch.end_ns.min(from + TICK_NS) - begin) as f64;
        let process = &self.processes[stretch.process as usize];
        let mut rate = process.rate * self.machine.threads[stretch.thread as usize].factor;
        let level = self
            .levels
            .get(stretch.process as usize)
            .and_then(|process_levels| process_levels.get(tick / LEVEL));
        rate *= f64::from(*level.unwrap_or(&1.0));
        let (chance, factor, len) = process.burst;
        if chance > 0.0
            && Random::for_place(BURSTS, stretch.process.into(), begin / len).draw_bool(chance)
        {
            rate *= factor;
        }
        rate *= self.factors.factor(cpu, tick);
        let mut noise = Random::for_place(NOISES ^ self.seed, process.tenant as u64, tick as u64);
        let mut bytes = rate * ns * noise.mean_one_factor(process.noise);
        if begin == stretch.begin_ns {
            bytes += process.cold;
        }
        let near = cpu / self.machine.cpus;
        std::array::from_fn(|socket| {
            let fraction = if socket == near { 1.0 - process.remote } else { process.remote };
            bytes * fraction * self.fall[tick][socket]
        })
    }
}

impl TrafficProcess {
    fn draw(
        case: &DrawnCase,
        machine: &DrawnMachine,
        tenant: usize,
        noise: f64,
        random: &mut Random,
    ) -> Self {
        let rate = machine.tenants[tenant].rate * random.mean_one_factor(0.4);
        let bursts = random.draw_bool(0.25);
        let burst = (random.uniform(0.01, 0.1), random.uniform(3.0, 10.0));
        let len = random.log_uniform(0.3e6, 5e6) as u64;
        let drawn = Self {
            tenant,
            rate,
            remote: machine.tenants[tenant].remote,
            noise: noise.mul_add(noise, 1.0).ln().sqrt(),
            burst: (if bursts { burst.0 } else { 0.0 }, burst.1, len),
            cold: (rate * random.uniform(5e3, 60e3)).min(MAX_COLD),
        };
        if !case.plain {
            return drawn;
        }
        Self { noise: 0.02, burst: (0.0, 1.0, 1), cold: 0.0, ..drawn }
    }

    pub(crate) fn scale_rate(&mut self, factor: f64) {
        self.rate *= factor;
        self.cold = (self.cold * factor).min(MAX_COLD);
    }
}

/// Phases and drift of a process: a factor for each level, with a mean of about 1.
fn draw_levels(count: usize, random: &mut Random) -> Vec<f32> {
    let mut logs = vec![-0.1; count];
    if random.draw_bool(0.6) {
        let dwell = random.log_uniform(0.1, 10.0) * 1e9 / (LEVEL as f64 * TICK_NS as f64);
        let phases = [0; 3].map(|_| random.normal(0.0, 0.6));
        let mut position = 0.0;
        while position < count as f64 {
            let end = position + random.exponential(dwell);
            let phase = phases[random.index_below(3)];
            let span = position as usize..(end as usize).min(count);
            logs[span].iter_mut().for_each(|log| *log += phase);
            position = end;
        }
    }
    let step = DRIFT as f64 * LEVEL as f64 * TICK_NS as f64;
    let kept = (-step / 5e9).exp();
    let mut drift = [random.normal(0.0, 1.0); 2];
    for chunk in logs.chunks_mut(DRIFT) {
        let next_level = kept * drift[1] + (1.0 - kept * kept).sqrt() * random.normal(0.0, 1.0);
        drift = [drift[1], next_level];
        for (step_index, log) in chunk.iter_mut().enumerate() {
            let within = step_index as f64 / DRIFT as f64;
            *log += 0.15 * (drift[0] * (1.0 - within) + drift[1] * within);
        }
    }
    logs.into_iter().map(|log| log.exp() as f32).collect()
}
