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
//! | noise | 10 to 60 % of the process, in pieces of 0.2 ms or less; less by the root of the length in longer ones |
//! | link | the fall below |
//!
//! and after each switch 5 to 60 us' worth (at most 256 kB) to fill a cold cache. Phases and drift
//! are those of processes that are there at the begin. A plain machine has rates and a noise of 2 %
//! only.
//!
//! Three devices of each socket move together [`DEVICE`] of its traffic, on or off for 37 ms each.
//! Near the capacity of a socket's memory (`peak` times the mean demand) all bytes of a tick fall
//! by `(1 + (demand / capacity)^4)^(-1/4)`.

use super::random::Random;
use super::schedule::{Schedule, Stretch};
use super::tenants::Machine;
use super::{Case, SOCKETS, TICK_NS};

/// Part of the traffic that devices move.
const DEVICE: f64 = 0.08;
/// Ticks of a level of phases and drift, and levels of a step of the drift.
const LEVEL: usize = 10;
const DRIFT: usize = 10;
/// Ticks for which a device is on or off.
const BURST: usize = 37;
/// What random numbers of a place are for.
const NOISE: u64 = 1;
const BURSTS: u64 = 2;

/// How a process moves bytes.
#[derive(Debug)]
struct Process {
    /// Bytes/ns.
    rate: f64,
    remote: f64,
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
pub(crate) struct Traffic<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) schedule: &'a Schedule,
    pub(crate) ticks: usize,
    processes: Vec<Process>,
    /// Phases and drift, by process and level.
    levels: Vec<Vec<f32>>,
    /// The fall of the bytes of a tick, and what devices move in it, by socket.
    fall: Vec<[f64; SOCKETS]>,
    pub(crate) device: Vec<[f64; SOCKETS]>,
}

/// Where each CPU is in its stretches.
pub(crate) type Places = Vec<usize>;

impl<'a> Traffic<'a> {
    pub(crate) fn draw(
        case: &Case,
        machine: &'a Machine,
        schedule: &'a Schedule,
        random: &mut Random,
    ) -> Self {
        let ticks = case.ticks();
        let process = |tenant: &usize| Process::draw(case, machine, *tenant, random);
        let processes: Vec<Process> = schedule.tenant_of.iter().map(process).collect();
        let level = |_| if case.plain { Vec::new() } else { levels(ticks.div_ceil(LEVEL), random) };
        let levels = (0..machine.processes).map(level).collect();
        let fall = vec![[1.0; SOCKETS]; ticks];
        let device = vec![[0.0; SOCKETS]; ticks];
        let mut made = Self { machine, schedule, ticks, processes, levels, fall, device };
        made.saturate(case, random);
        made
    }

    /// Draws what devices move, and the fall of what all move.
    fn saturate(&mut self, case: &Case, random: &mut Random) {
        let mut places = self.places();
        let mut demand = vec![[0.0; SOCKETS]; self.ticks];
        for (tick, demand) in demand.iter_mut().enumerate() {
            self.pieces(tick, &mut places, |piece| {
                demand.iter_mut().zip(piece.bytes).for_each(|(sum, bytes)| *sum += bytes);
            });
        }
        for socket in 0..SOCKETS {
            let mean = demand.iter().map(|demand| demand[socket]).sum::<f64>() / self.ticks as f64;
            let mut device = vec![0.0; self.ticks];
            for _ in 0..3 {
                for ticks in device.chunks_mut(BURST) {
                    let is_on = f64::from(u8::from(random.chance(0.4)));
                    for bytes in ticks {
                        *bytes += is_on * random.log_normal(0.0, 0.3);
                    }
                }
            }
            let unit = DEVICE * mean * self.ticks as f64 / device.iter().sum::<f64>().max(1e-9);
            for tick in 0..self.ticks {
                let load =
                    (demand[tick][socket] + unit * device[tick]) / (case.peak * mean.max(1.0));
                let fall = (1.0 + load.powi(4)).powf(-0.25);
                self.fall[tick][socket] = fall;
                self.device[tick][socket] = unit * device[tick] * fall;
            }
        }
    }

    pub(crate) fn places(&self) -> Places {
        vec![0; self.machine.all_cpus()]
    }

    /// Gives the pieces of a tick, CPU by CPU. Ticks come in order.
    pub(crate) fn pieces(&self, tick: usize, places: &mut Places, mut give: impl FnMut(Piece)) {
        let (from, to) = (tick as u64 * TICK_NS, (tick as u64 + 1) * TICK_NS);
        for (cpu, stretches) in self.schedule.stretches.iter().enumerate() {
            while let Some(stretch) = stretches.get(places[cpu]).filter(|its| its.begin < to) {
                let bytes = self.bytes(cpu, places[cpu], stretch, tick);
                give(Piece {
                    cpu,
                    thread: stretch.thread as usize,
                    process: stretch.process as usize,
                    begin: stretch.begin.max(from),
                    end: stretch.end.min(to),
                    begins: stretch.begin >= from,
                    ends: stretch.end <= to,
                    bytes,
                });
                if stretch.end > to {
                    break;
                }
                places[cpu] += 1;
            }
        }
    }

    fn bytes(&self, cpu: usize, place: usize, stretch: &Stretch, tick: usize) -> [f64; SOCKETS] {
        let from = tick as u64 * TICK_NS;
        let begin = stretch.begin.max(from);
        let ns = (stretch.end.min(from + TICK_NS) - begin) as f64;
        let process = &self.processes[stretch.process as usize];
        let mut rate = process.rate * self.machine.threads[stretch.thread as usize].factor;
        let level = self.levels.get(stretch.process as usize).and_then(|its| its.get(tick / LEVEL));
        rate *= f64::from(*level.unwrap_or(&1.0));
        let (chance, factor, len) = process.burst;
        if chance > 0.0 && Random::at(BURSTS, stretch.process.into(), begin / len).chance(chance) {
            rate *= factor;
        }
        let noise = process.noise * (200_000.0 / ns).sqrt().min(1.0);
        let place = ((cpu as u64) << 32) + place as u64;
        let mut bytes = rate * ns * Random::at(NOISE, place, tick as u64).factor(noise);
        if begin == stretch.begin {
            bytes += process.cold;
        }
        let near = cpu / self.machine.cpus;
        std::array::from_fn(|socket| {
            let part = if socket == near { 1.0 - process.remote } else { process.remote };
            bytes * part * self.fall[tick][socket]
        })
    }
}

impl Process {
    fn draw(case: &Case, machine: &Machine, tenant: usize, random: &mut Random) -> Self {
        let tenant = &machine.tenants[tenant];
        let rate = tenant.rate * random.factor(0.4);
        let bursts = random.chance(0.25);
        let burst = (random.uniform(0.01, 0.1), random.uniform(3.0, 10.0));
        let len = random.log_uniform(0.3e6, 5e6) as u64;
        let made = Self {
            rate,
            remote: tenant.remote,
            noise: random.uniform(0.1, 0.6),
            burst: (if bursts { burst.0 } else { 0.0 }, burst.1, len),
            cold: (rate * random.uniform(5e3, 60e3)).min(256e3),
        };
        if !case.plain {
            return made;
        }
        Self { noise: 0.02, burst: (0.0, 1.0, 1), cold: 0.0, ..made }
    }
}

/// Phases and drift of a process: a factor for each level, with a mean of about 1.
fn levels(count: usize, random: &mut Random) -> Vec<f32> {
    let mut logs = vec![-0.1; count];
    if random.chance(0.6) {
        let dwell = random.log_uniform(0.1, 10.0) * 1e9 / (LEVEL as f64 * TICK_NS as f64);
        let phases = [0; 3].map(|_| random.normal(0.0, 0.6));
        let mut at = 0.0;
        while at < count as f64 {
            let end = at + random.exponential(dwell);
            let phase = phases[random.below(3)];
            let part = at as usize..(end as usize).min(count);
            logs[part].iter_mut().for_each(|log| *log += phase);
            at = end;
        }
    }
    let step = DRIFT as f64 * LEVEL as f64 * TICK_NS as f64;
    let kept = (-step / 5e9).exp();
    let mut drift = [random.normal(0.0, 1.0); 2];
    for part in logs.chunks_mut(DRIFT) {
        let next = kept * drift[1] + (1.0 - kept * kept).sqrt() * random.normal(0.0, 1.0);
        drift = [drift[1], next];
        for (at, log) in part.iter_mut().enumerate() {
            let within = at as f64 / DRIFT as f64;
            *log += 0.15 * (drift[0] * (1.0 - within) + drift[1] * within);
        }
    }
    logs.into_iter().map(|log| log.exp() as f32).collect()
}
