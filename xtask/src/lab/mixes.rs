//! Mixes of tenants that share CPUs and a fabric: what attribution is tried on.
//!
//! A mix is a function and an entry of [`ALL`]. In none of them is CPU time a measure of traffic. The seed decides amounts, places and times, the mix
//! what they have to do with CPU time. Tenants move memory's traffic in proportion to CPU time on
//! the CPUs of the socket whose fabric counts it, those with a disk the bytes of its requests as
//! the traffic of its root port.

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde::Serialize;

use super::machine::Machine;
use super::step::{Burst, Disk, Move, Phase, Step, Tenant, Truth, Work};
use super::traffic;

/// CPU time between two moves of a tenant, us: a twentieth of a tick, so that a tick's count is what
/// ran in it.
const PERIOD_US: u32 = 50;

/// Bytes per beat of `cmem_rd_data` (NVIDIA Grace Performance Tuning Guide).
const BEAT: f64 = 32.0;

/// What each socket counts: reads and writes of its own memory.
const MODEL: &str = "grace-scf";
const EVENTS: [(&str, f64); 2] = [("cmem_rd_data", BEAT), ("cmem_wr_total_bytes", 1.0)];

/// What the root ports count of a disk that is read, and of one that is written: the disk writes
/// memory, and reads it.
const PORTS: &str = "grace-pcie";
const OF_DISK: [(&str, f64); 2] = [("wr_bytes_loc", 1.0), ("rd_bytes_loc", 1.0)];

/// The machine's second disk. It is in PCI domain 0, which stands for root port 0 of socket 0, the
/// first source of a move (NVIDIA Grace Performance Tuning Guide).
const DISK: &str = "/dev/vdb";

/// A mix.
pub struct Mix {
    pub name: &'static str,
    pub about: &'static str,
    /// What is recorded tells the tenants apart.
    pub told: bool,
    /// A disk's traffic is counted too.
    disk: bool,
    tenants: fn(&mut Draw<'_>) -> Vec<Tenant>,
}

/// In the order of the tables.
pub const ALL: &[Mix] = &[
    Mix {
        name: "spinners",
        about: "one heavy tenant among idle spinners",
        told: true,
        disk: false,
        tenants: spinners,
    },
    Mix {
        name: "equal-cpu",
        about: "equal CPU time, 10:1 bytes",
        told: true,
        disk: false,
        tenants: equal_cpu,
    },
    Mix {
        name: "equal-bytes",
        about: "equal bytes, 10:1 CPU time",
        told: true,
        disk: false,
        tenants: equal_bytes,
    },
    Mix {
        name: "bursts",
        about: "bursts of 0.1 to 3 ms",
        told: true,
        disk: false,
        tenants: bursts,
    },
    Mix {
        name: "phases",
        about: "rates change every 0.5 to 1 s",
        told: true,
        disk: false,
        tenants: phases,
    },
    Mix {
        name: "two-sockets",
        about: "one cgroup on both sockets",
        told: true,
        disk: false,
        tenants: two_sockets,
    },
    Mix {
        name: "device",
        about: "a disk's owners, while another burns CPU time",
        told: true,
        disk: true,
        tenants: device,
    },
    Mix {
        name: "random",
        about: "rates over 40:1, duty, places, phases, bursts at random",
        told: true,
        disk: false,
        tenants: random,
    },
    Mix {
        name: "inseparable",
        about: "a CPU for each tenant, and no pause",
        told: false,
        disk: false,
        tenants: inseparable,
    },
];

/// A counter of a mix, and what it must have seen.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    pub pmu: String,
    pub event: String,
    pub truth: Truth,
    #[serde(skip)]
    spec: String,
    #[serde(skip)]
    portion: Move,
    #[serde(skip)]
    unit: f64,
}

/// What a mix is drawn from.
struct Draw<'a> {
    rng: Rng,
    machine: &'a Machine,
    /// Of memory, by socket.
    memory: &'a [Vec<Counted>],
    disk: &'a [Counted],
    duration_ms: u32,
}

/// The mix with this name.
pub fn find(name: &str) -> Result<&'static Mix> {
    let names: Vec<&str> = ALL.iter().map(|mix| mix.name).collect();
    let found = ALL.iter().find(|mix| mix.name == name);
    found.with_context(|| format!("no mix {name}; there are: {}", names.join(", ")))
}

/// Counters of these events, for each instance of a model.
fn counted(machine: &Machine, model: &str, events: &[(&str, f64)]) -> Result<Vec<Vec<Counted>>> {
    let instances = machine.of(model).into_iter().map(|instance| {
        let of_event = |&(event, unit): &(&str, f64)| {
            let (spec, truth) = traffic::counted(instance, event)?;
            let portion = traffic::of_event(instance, event).first().copied();
            let portion = portion.with_context(|| format!("nothing moves {event}"))?;
            let (pmu, event) = (instance.name.clone(), event.to_owned());
            Ok(Counted { pmu, event, truth, spec, portion, unit })
        };
        events.iter().map(of_event).collect()
    });
    instances.collect()
}

/// A recording of a mix, and what its counters must have seen.
#[derive(Debug)]
pub struct Planned {
    pub step: Step,
    pub counters: Vec<Counted>,
}

impl Mix {
    /// A recording of the mix, every tick a window.
    pub fn plan(&self, machine: &Machine, seed: u64, duration_ms: u32) -> Result<Planned> {
        let memory = counted(machine, MODEL, &EVENTS)?;
        let ports = if self.disk { counted(machine, PORTS, &OF_DISK)? } else { Vec::new() };
        let disk: Vec<Counted> = ports.into_iter().flatten().collect();
        // Each mix has draws of its own: another one beside it changes nothing.
        let seed = self
            .name
            .bytes()
            .fold(seed, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let rng = Rng::with_seed(seed);
        let mut draw = Draw { rng, machine, memory: &memory, disk: &disk, duration_ms };
        let tenants = (self.tenants)(&mut draw);
        let work = Work { tenants, settle_ms: 50, ..Work::default() };
        let mut options = vec!["--tick", "1ms", "--interval", "1ms"];
        let counters: Vec<Counted> = memory.into_iter().flatten().chain(disk).collect();
        for counted in &counters {
            options.extend(["-e", &counted.spec]);
        }
        if self.disk {
            options.push("--io");
        }
        let step = Step::record(self.name, &options, work, Vec::new());
        Ok(Planned { step, counters })
    }
}

impl Draw<'_> {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.rng.f64()
    }

    /// As often between 1 and 2 as between 2 and 4.
    fn over(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.rng.f64())
    }

    fn sockets(&self) -> u32 {
        self.machine.sockets
    }

    /// The CPUs of a socket.
    fn cpus(&self, socket: u32) -> Vec<u32> {
        let each = self.machine.cpus_per_socket;
        (socket * each..(socket + 1) * each).collect()
    }

    fn all_cpus(&self) -> Vec<(u32, u32)> {
        (0..self.sockets())
            .flat_map(|socket| self.cpus(socket).into_iter().map(move |cpu| (socket, cpu)))
            .collect()
    }

    /// A tenant that moves so many GB for a second of CPU time, more of it by reading or by writing.
    fn tenant(&mut self, cgroup: &str, socket: u32, cpus: Vec<u32>, rate: f64) -> Tenant {
        let reads = self.between(0.3, 0.9);
        let flows = self.memory.get(socket as usize).into_iter().flatten();
        let flows = flows.zip([reads, 1.0 - reads]).map(|(counted, part)| {
            // GB/s are 10^6 bytes a millisecond.
            let amount = rate * part * 1e6 / counted.unit;
            Move { amount: amount.round() as u64, ..counted.portion }
        });
        Tenant {
            cgroup: cgroup.to_owned(),
            cpus: Some(cpus),
            flows: flows.filter(|flow| flow.amount > 0).collect(),
            duration_ms: self.duration_ms,
            period_us: Some(PERIOD_US),
            ..Tenant::default()
        }
    }

    /// The same, asleep for part of the time; it runs for 0.5 to 4 ms at a time.
    fn resting(&mut self, tenant: Tenant, duty: f64) -> Tenant {
        let stint_us = Some(self.rng.u32(500..4000));
        Tenant { duty: Some(duty), stint_us, ..tenant }
    }

    fn phases(&mut self, ms: std::ops::Range<u32>, spread: f64) -> Vec<Phase> {
        let count = self.rng.usize(2..5);
        (0..count)
            .map(|_| Phase { ms: self.rng.u32(ms.clone()), scale: self.over(1.0 / spread, spread) })
            .collect()
    }
}

fn spinners(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for socket in 0..draw.sockets() {
        let (rate, cpus) = (draw.over(8.0, 32.0), draw.cpus(socket));
        tenants.push(draw.tenant(&format!("heavy-{socket}"), socket, cpus.clone(), rate));
        for cpu in cpus {
            for _ in 0..draw.rng.u32(1..3) {
                let cgroup = format!("spinner-{}", tenants.len());
                tenants.push(draw.tenant(&cgroup, socket, vec![cpu], 0.0));
            }
        }
    }
    tenants
}

fn equal_cpu(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 4.0);
        tenants.push(draw.tenant(&format!("light-{cpu}"), socket, vec![cpu], rate));
        tenants.push(draw.tenant(&format!("heavy-{cpu}"), socket, vec![cpu], 10.0 * rate));
    }
    tenants
}

fn equal_bytes(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 4.0);
        tenants.push(draw.tenant(&format!("busy-{cpu}"), socket, vec![cpu], rate));
        let brief = draw.tenant(&format!("brief-{cpu}"), socket, vec![cpu], 10.0 * rate);
        tenants.push(draw.resting(brief, 1.0 / 11.0));
    }
    tenants
}

fn bursts(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 4.0);
        let mut peaks = draw.tenant(&format!("peaks-{cpu}"), socket, vec![cpu], rate);
        peaks.burst = Some(Burst { every: draw.rng.u32(20..80), factor: draw.rng.u32(10..40) });
        tenants.push(peaks);
        let rate = draw.over(4.0, 16.0);
        let stints = draw.tenant(&format!("stints-{cpu}"), socket, vec![cpu], rate);
        let duty = draw.between(0.1, 0.3);
        tenants.push(draw.resting(stints, duty));
        let rate = draw.over(1.0, 4.0);
        tenants.push(draw.tenant(&format!("steady-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

fn phases(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        for name in ["a", "b"] {
            let rate = draw.over(1.0, 16.0);
            let mut tenant = draw.tenant(&format!("{name}-{cpu}"), socket, vec![cpu], rate);
            tenant.phases = draw.phases(500..1000, 4.0);
            tenants.push(tenant);
        }
    }
    tenants
}

fn two_sockets(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for socket in 0..draw.sockets() {
        let (rate, cpus) = (draw.over(1.0, 32.0), draw.cpus(socket));
        tenants.push(draw.tenant("both", socket, cpus.clone(), rate));
        for cpu in cpus {
            let rate = draw.over(1.0, 16.0);
            tenants.push(draw.tenant(&format!("other-{cpu}"), socket, vec![cpu], rate));
        }
    }
    tenants
}

fn device(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    let counted: Option<[Counted; 2]> = draw.disk.to_vec().try_into().ok();
    for [read, written] in counted.iter().cloned().cycle().take(2) {
        let one = |counted: &Counted| Move { amount: 1, ..counted.portion };
        let disk = Disk {
            path: DISK,
            bytes: 4096 << draw.rng.u32(2..6),
            write_every: draw.rng.u32(2..6),
            pause_us: draw.rng.u32(100..600),
            read: one(&read),
            written: one(&written),
        };
        let cpu = draw.rng.choice(draw.cpus(0)).unwrap_or_default();
        let reader = draw.tenant(&format!("disk-{}", tenants.len()), 0, vec![cpu], 0.0);
        tenants.push(Tenant { disk: Some(disk), ..reader });
    }
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 16.0);
        tenants.push(draw.tenant(&format!("burner-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

fn random(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (number, (socket, cpu)) in draw.all_cpus().into_iter().cycle().take(10).enumerate() {
        let rate = draw.over(0.5, 20.0);
        let cpus = if draw.rng.f64() < 0.6 { vec![cpu] } else { draw.cpus(socket) };
        let mut tenant = draw.tenant(&format!("t{}", number % 8), socket, cpus, rate);
        if draw.rng.bool() {
            let duty = draw.between(0.05, 0.9);
            tenant = draw.resting(tenant, duty);
        }
        match draw.rng.u32(0..6) {
            0 => tenant.phases = draw.phases(500..2000, 2.0),
            1 => {
                let (every, factor) = (draw.rng.u32(10..80), draw.rng.u32(2..20));
                tenant.burst = Some(Burst { every, factor });
            }
            _ => {}
        }
        tenant.start_ms = if draw.rng.f64() < 0.2 { draw.rng.u32(0..2000) } else { 0 };
        tenant.duration_ms -= tenant.start_ms;
        tenants.push(tenant);
    }
    tenants
}

fn inseparable(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 16.0);
        tenants.push(draw.tenant(&format!("own-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uncore_trace_ebpf::stamp::workspace_root;

    use super::*;

    fn planned(mix: &Mix, seed: u64) -> Planned {
        let machine = Machine::read(&workspace_root().join("tests/lab"), "grace-mixes").unwrap();
        mix.plan(&machine, seed, 6000).unwrap()
    }

    #[test]
    fn a_seed_decides_everything() {
        for mix in ALL {
            let work = |seed| serde_json::to_string(&planned(mix, seed).step.work).unwrap();
            assert_eq!(work(1), work(1), "{}", mix.name);
            let different: BTreeSet<String> = (0..20).map(work).collect();
            assert_eq!(different.len(), 20, "{}", mix.name);
        }
    }

    #[test]
    fn tenants_move_only_what_their_cpus_fabric_counts() {
        for mix in ALL {
            for seed in 0..20 {
                let Planned { step, counters } = planned(mix, seed);
                for tenant in &step.work.tenants {
                    let cpus = tenant.cpus.as_deref().unwrap();
                    for flow in &tenant.flows {
                        let counted = counters.iter().find(|it| it.truth.device == flow.device);
                        let socket = counted.unwrap().pmu.ends_with('1');
                        assert!(cpus.iter().all(|&cpu| (cpu >= 2) == socket), "{}", mix.name);
                    }
                }
            }
        }
    }

    #[test]
    fn the_log_has_room_for_what_moves() {
        // BLOCKS of tests/lab/model/truth.c, and struct lab_truth.
        let room = (64 << 20) / 56;
        for mix in ALL {
            let Planned { step, .. } = planned(mix, 1);
            let flows = step.work.tenants.iter().map(|tenant| tenant.flows.len()).max().unwrap();
            let moves = 4 * 6_000_000 / PERIOD_US as usize * flows;
            assert!(moves < room, "{}: {moves} moves", mix.name);
        }
    }
}
