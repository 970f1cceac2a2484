//! Mixes of tenants that share CPUs and a fabric, for testing attribution.
//!
//! A mix is a function of [`tenants`] and an entry of [`ALL`]. In no mix is traffic in proportion
//! to CPU time. The mix determines how traffic relates to CPU time; the seed determines amounts,
//! places and times. Tenants move memory traffic in proportion to their CPU time on the CPUs of the
//! socket whose fabric counts it. Tenants with a disk move the bytes of its requests as the traffic
//! of its root port.

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde::Serialize;

use self::draw::Draw;
use super::machine::LabMachine;
use super::step::{Move, Step, Tenant, Truth, Work, Yields};
use super::{traffic, witness};

mod draw;
mod tenants;
mod unsteady;

/// Bytes per beat of `cmem_rd_data` (NVIDIA Grace Performance Tuning Guide).
const BEAT: f64 = 32.0;

/// The model whose events count reads and writes of each socket's own memory.
const MODEL: &str = "grace-scf";
const EVENTS: [(&str, f64); 2] = [("cmem_rd_data", BEAT), ("cmem_wr_total_bytes", 1.0)];

/// Events of root ports for a disk that is read, and for one that is written: the disk writes
/// memory, or reads it.
const PORTS: &str = "grace-pcie";
const OF_DISK: [(&str, f64); 2] = [("wr_bytes_loc", 1.0), ("rd_bytes_loc", 1.0)];

/// The cgroup of a tenant that stands for a device: its traffic does not count as its own
/// (`tests/lab/attribution.py`).
const DEVICE: &str = "device";

/// Tenants start at random within this time, which is the period of a CPU quota
/// (`sched_cfs_period_us`), and yield at random, ms and us of CPU time: the CPUs of a machine are
/// not in step for long, but those of an emulator are.
const START_MS: u32 = 100;
const YIELD_US: u32 = 20_000;

/// The machine with many CPUs, and the time after which the log of moves is full there, ms.
const LARGE: &str = "grace-large";
const LARGE_MS: u32 = 3000;

/// A mix.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    pub name: &'static str,
    pub about: &'static str,
    /// Whether the recorded data distinguish the tenants, so that methods have goals for it.
    pub separable: bool,
    /// Whether a disk's traffic is counted too.
    disk: bool,
    /// Whether it needs a machine with many CPUs.
    large: bool,
    tenants: fn(&mut Draw<'_>) -> Vec<Tenant>,
}

/// In the order of the tables.
pub(crate) const ALL: &[Mix] = &[
    Mix::new("spinners", "one heavy tenant among idle spinners", tenants::draw_spinners),
    Mix::new("equal-cpu", "equal CPU time, 10:1 bytes", tenants::draw_equal_cpu),
    Mix::new("equal-bytes", "equal bytes, 10:1 CPU time", tenants::draw_equal_bytes),
    Mix::new("bursts", "bursts of 0.1 to 3 ms", tenants::draw_bursts),
    Mix::new("phases", "rates change every 0.5 to 1 s", tenants::draw_phases),
    Mix::new("two-sockets", "one cgroup on both sockets", tenants::draw_two_sockets),
    Mix::new("device", "a disk's owners, while another burns CPU time", tenants::draw_device)
        .with_disk(),
    Mix::new(
        "random",
        "rates over 40:1, duty, places, phases, bursts at random",
        tenants::draw_random,
    ),
    Mix::new("inseparable", "a CPU for each tenant, and no pause", tenants::draw_inseparable)
        .not_separable(),
    Mix::new(
        "short-lived",
        "200 processes of one cgroup, 30 to 90 ms each",
        unsteady::draw_short_lived,
    ),
    Mix::new("migrating", "tenants that move between sockets", unsteady::draw_migrating),
    Mix::new("quota", "cgroups with a cpu.max", unsteady::draw_quota),
    Mix::new("drift", "rates drift slowly", unsteady::draw_drift),
    Mix::new("low-load", "CPUs are busy for 5 % of the time", unsteady::draw_low_load),
    Mix::new("remote", "tenants that use the other socket's memory too", unsteady::draw_remote),
    Mix::new("gpu", "a device moves bytes while tenants run", unsteady::draw_gpu).not_separable(),
    Mix::new("kernel", "kernel threads move bytes for tenants", unsteady::draw_kernel),
    Mix::new("large", "24 tenants on 8 CPUs a socket", unsteady::draw_large).on_many_cpus(),
];

/// A counter of a mix, and its true count.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MixCounter {
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

/// The mix with this name.
pub(crate) fn find_mix(name: &str) -> Result<&'static Mix> {
    let names: Vec<&str> = ALL.iter().map(|mix| mix.name).collect();
    let known_mix = ALL.iter().find(|mix| mix.name == name);
    known_mix.with_context(|| format!("no mix {name}; there are: {}", names.join(", ")))
}

/// Counters of these events, for each instance of a model.
fn mix_counters(
    machine: &LabMachine,
    model: &str,
    events: &[(&str, f64)],
) -> Result<Vec<Vec<MixCounter>>> {
    let instances = machine.instances_of(model).into_iter().map(|instance| {
        let of_event = |&(event, unit): &(&str, f64)| {
            let (spec, truth) = traffic::spec_and_truth(instance, event)?;
            let portion = traffic::moves_of_event(instance, event).first().copied();
            let portion = portion.with_context(|| format!("nothing moves {event}"))?;
            let (pmu, event) = (instance.name.clone(), event.to_owned());
            Ok(MixCounter { pmu, event, truth, spec, portion, unit })
        };
        events.iter().map(of_event).collect()
    });
    instances.collect()
}

/// A recording of a mix, and the true counts of its counters.
#[derive(Debug)]
pub(crate) struct PlannedMix {
    pub step: Step,
    pub counters: Vec<MixCounter>,
}

impl PlannedMix {
    /// The same, with a core PMU that counts the misses of the tenants, but not those of a device.
    pub(crate) fn with_misses(mut self, machine: &LabMachine, seed: u64) -> Result<Self> {
        let core = machine.instances_of(witness::CORE);
        let core = core.first().with_context(|| format!("{} has no core PMU", machine.name))?;
        let bytes = |flow: &Move| {
            let is_moved = |counter: &&MixCounter| {
                counter.truth.device == flow.device && counter.truth.event == flow.event
            };
            self.counters.iter().find(is_moved).map_or(1.0, |counted| counted.unit)
        };
        let tenants = &mut self.step.work.tenants;
        witness::give_witnesses(tenants, core, bytes, seed)?;
        for tenant in tenants.iter_mut().filter(|tenant| tenant.cgroup.as_deref() == Some(DEVICE)) {
            tenant.witness = None;
        }
        Ok(self)
    }
}

impl Mix {
    const fn new(
        name: &'static str,
        about: &'static str,
        tenants: fn(&mut Draw<'_>) -> Vec<Tenant>,
    ) -> Self {
        Self { name, about, separable: true, disk: false, large: false, tenants }
    }

    const fn not_separable(self) -> Self {
        Self { separable: false, ..self }
    }

    const fn with_disk(self) -> Self {
        Self { disk: true, ..self }
    }

    const fn on_many_cpus(self) -> Self {
        Self { large: true, ..self }
    }

    /// The machine that it needs, if not every machine with these PMUs is suitable.
    pub(crate) fn machine_name(&self) -> Option<&'static str> {
        self.large.then_some(LARGE)
    }

    /// A recording of the mix in ticks of 1 ms, with further options. Its windows are compared with
    /// the truth, so they have all rows.
    pub(crate) fn plan_recording(
        &self,
        step_name: &str,
        machine: &LabMachine,
        seed: u64,
        duration_ms: u32,
        options: &[&str],
    ) -> Result<PlannedMix> {
        let duration_ms = if self.large { duration_ms.min(LARGE_MS) } else { duration_ms };
        let memory = mix_counters(machine, MODEL, &EVENTS)?;
        let ports = if self.disk { mix_counters(machine, PORTS, &OF_DISK)? } else { Vec::new() };
        let disk: Vec<MixCounter> = ports.into_iter().flatten().collect();
        // Each mix has its own random draws, so that other mixes do not change them.
        let seed = self
            .name
            .bytes()
            .fold(seed, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let rng = Rng::with_seed(seed);
        let mut draw = Draw { rng, machine, memory: &memory, disk: &disk, duration_ms };
        let mut tenants = (self.tenants)(&mut draw);
        for tenant in &mut tenants {
            tenant.start_ms += draw.rng.u32(0..START_MS);
            tenant.yields = Some(Yields { mean_us: YIELD_US, seed: draw.rng.u64(..) });
        }
        let work = Work { tenants, settle_ms: 50, ..Work::default() };
        let all_rows = ["--tick", "1ms", "--rows", "all"];
        let mut options: Vec<&str> = all_rows.iter().chain(options).copied().collect();
        let counters: Vec<MixCounter> = memory.into_iter().flatten().chain(disk).collect();
        for counted in &counters {
            options.extend(["-e", &counted.spec]);
        }
        if self.disk {
            options.push("--io");
        }
        let step = Step::for_record(step_name, &options, work, Vec::new());
        Ok(PlannedMix { step, counters })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uncore_trace_ebpf::stamp::workspace_root;

    use super::*;

    fn planned(mix: &Mix, seed: u64) -> PlannedMix {
        let machine = LabMachine::read(
            &workspace_root().join("tests/lab"),
            mix.machine_name().unwrap_or("grace-housekeeping"),
        )
        .unwrap();
        mix.plan_recording(mix.name, &machine, seed, 6000, &[]).unwrap()
    }

    #[test]
    fn a_cpu_of_its_own_for_the_recorder_changes_nothing_else() {
        let lab = workspace_root().join("tests/lab");
        let [shared, own] =
            ["grace-mixes", "grace-housekeeping"].map(|name| LabMachine::read(&lab, name).unwrap());
        assert_eq!([shared.housekeeping_cpu(), own.housekeeping_cpu()], [None, Some(4)]);
        for mix in ALL.iter().filter(|mix| mix.machine_name().is_none() && mix.name != "gpu") {
            let of = |machine| mix.plan_recording(mix.name, machine, 1, 6000, &[]).unwrap().step;
            let work = |machine| serde_json::to_string(&of(machine).work).unwrap();
            assert_eq!(work(&shared), work(&own), "{}", mix.name);
        }
        let near = own.instances.iter().filter(|instance| instance.is_near(4));
        assert_eq!(near.count(), 0);
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
        let elsewhere = ["remote", "gpu"];
        for mix in ALL.iter().filter(|mix| !elsewhere.contains(&mix.name)) {
            let first_of_1 = if mix.large { 8 } else { 2 };
            for seed in 0..20 {
                let PlannedMix { step, counters } = planned(mix, seed);
                for tenant in &step.work.tenants {
                    let own = (tenant.cpus.as_deref().unwrap(), &tenant.flows);
                    let stays = tenant.stays.iter().map(|stay| (&*stay.cpus, &stay.flows));
                    for (cpus, flow) in stays
                        .chain([own])
                        .flat_map(|(cpus, flows)| flows.iter().map(move |it| (cpus, it)))
                    {
                        let counted = counters.iter().find(|it| it.truth.device == flow.device);
                        let socket = counted.unwrap().pmu.ends_with('1');
                        let is_near = |&cpu: &u32| (cpu >= first_of_1) == socket;
                        assert!(cpus.iter().all(is_near), "{}", mix.name);
                    }
                }
            }
        }
    }

    #[test]
    fn only_a_device_is_on_the_cpu_of_the_recorder() {
        for mix in ALL {
            let PlannedMix { step, .. } = planned(mix, 1);
            let first = if mix.large { 16 } else { 4 };
            for tenant in &step.work.tenants {
                let stays = tenant.stays.iter().flat_map(|stay| &stay.cpus);
                let there = tenant.cpus.iter().flatten().chain(stays).any(|&cpu| cpu >= first);
                assert_eq!(there, tenant.cgroup.as_deref() == Some(DEVICE), "{}", mix.name);
            }
        }
    }

    #[test]
    fn all_but_devices_have_misses_where_they_are_counted() {
        for mix in ALL {
            let name = mix.machine_name().unwrap_or("grace-housekeeping");
            let machine = LabMachine::read(&workspace_root().join("tests/lab"), name).unwrap();
            let planned = planned(mix, 1).with_misses(&machine, 1).unwrap();
            for tenant in &planned.step.work.tenants {
                let moves = !tenant.flows.is_empty() || !tenant.stays.is_empty();
                let has = tenant.witness.is_some();
                assert_eq!(has, moves && tenant.cgroup.as_deref() != Some(DEVICE), "{}", mix.name);
            }
        }
    }

    #[test]
    fn the_log_has_room_for_what_moves() {
        // BLOCKS of tests/lab/model/truth.c, and struct lab_truth.
        let room = (128 << 20) / 56;
        for mix in ALL {
            let PlannedMix { step, .. } = planned(mix, 1);
            let tenants = &step.work.tenants;
            let flows = tenants.iter().map(|tenant| tenant.flows.len()).max().unwrap();
            let each_us = tenants[0].period_us;
            let (cpus, duration_ms) = if mix.large { (16, LARGE_MS) } else { (4, 6000) };
            // And one of misses.
            let moves = (cpus * duration_ms * 1000 / each_us) as usize * (flows + 1);
            assert!(moves < room, "{}: {moves} moves", mix.name);
        }
    }
}
