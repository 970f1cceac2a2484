//! Mixes of tenants that share CPUs and a fabric: what attribution is tried on.
//!
//! A mix is a function of [`tenants`] and an entry of [`ALL`]. In none of them is CPU time a measure
//! of traffic. The seed decides amounts, places and times, the mix what they have to do with CPU
//! time. Tenants move memory's traffic in proportion to CPU time on the CPUs of the socket whose
//! fabric counts it, those with a disk the bytes of its requests as the traffic of its root port.

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde::Serialize;

use self::tenants::Draw;
use super::machine::Machine;
use super::step::{Move, Step, Tenant, Truth, Work};
use super::traffic;

mod tenants;

/// Bytes per beat of `cmem_rd_data` (NVIDIA Grace Performance Tuning Guide).
const BEAT: f64 = 32.0;

/// What each socket counts: reads and writes of its own memory.
const MODEL: &str = "grace-scf";
const EVENTS: [(&str, f64); 2] = [("cmem_rd_data", BEAT), ("cmem_wr_total_bytes", 1.0)];

/// What the root ports count of a disk that is read, and of one that is written: the disk writes
/// memory, and reads it.
const PORTS: &str = "grace-pcie";
const OF_DISK: [(&str, f64); 2] = [("wr_bytes_loc", 1.0), ("rd_bytes_loc", 1.0)];

/// A mix.
pub(crate) struct Mix {
    pub name: &'static str,
    pub about: &'static str,
    /// What is recorded tells the tenants apart.
    pub told: bool,
    /// A disk's traffic is counted too.
    disk: bool,
    tenants: fn(&mut Draw<'_>) -> Vec<Tenant>,
}

/// In the order of the tables.
pub(crate) const ALL: &[Mix] = &[
    Mix {
        name: "spinners",
        about: "one heavy tenant among idle spinners",
        told: true,
        disk: false,
        tenants: tenants::spinners,
    },
    Mix {
        name: "equal-cpu",
        about: "equal CPU time, 10:1 bytes",
        told: true,
        disk: false,
        tenants: tenants::equal_cpu,
    },
    Mix {
        name: "equal-bytes",
        about: "equal bytes, 10:1 CPU time",
        told: true,
        disk: false,
        tenants: tenants::equal_bytes,
    },
    Mix {
        name: "bursts",
        about: "bursts of 0.1 to 3 ms",
        told: true,
        disk: false,
        tenants: tenants::bursts,
    },
    Mix {
        name: "phases",
        about: "rates change every 0.5 to 1 s",
        told: true,
        disk: false,
        tenants: tenants::phases,
    },
    Mix {
        name: "two-sockets",
        about: "one cgroup on both sockets",
        told: true,
        disk: false,
        tenants: tenants::two_sockets,
    },
    Mix {
        name: "device",
        about: "a disk's owners, while another burns CPU time",
        told: true,
        disk: true,
        tenants: tenants::device,
    },
    Mix {
        name: "random",
        about: "rates over 40:1, duty, places, phases, bursts at random",
        told: true,
        disk: false,
        tenants: tenants::random,
    },
    Mix {
        name: "inseparable",
        about: "a CPU for each tenant, and no pause",
        told: false,
        disk: false,
        tenants: tenants::inseparable,
    },
];

/// A counter of a mix, and what it must have seen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Counted {
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
pub(crate) fn find(name: &str) -> Result<&'static Mix> {
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
pub(crate) struct Planned {
    pub step: Step,
    pub counters: Vec<Counted>,
}

impl Mix {
    /// A recording of the mix in ticks of 1 ms, with further options.
    pub(crate) fn plan(
        &self,
        machine: &Machine,
        seed: u64,
        duration_ms: u32,
        options: &[&str],
    ) -> Result<Planned> {
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
        let mut options: Vec<&str> = ["--tick", "1ms"].iter().chain(options).copied().collect();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uncore_trace_ebpf::stamp::workspace_root;

    use super::*;

    fn planned(mix: &Mix, seed: u64) -> Planned {
        let machine = Machine::read(&workspace_root().join("tests/lab"), "grace-mixes").unwrap();
        mix.plan(&machine, seed, 6000, &[]).unwrap()
    }

    #[test]
    fn a_cpu_of_its_own_for_the_recorder_changes_nothing_else() {
        let lab = workspace_root().join("tests/lab");
        let [shared, own] =
            ["grace-mixes", "grace-housekeeping"].map(|name| Machine::read(&lab, name).unwrap());
        assert_eq!([shared.housekeeping_cpu(), own.housekeeping_cpu()], [None, Some(4)]);
        for mix in ALL {
            let of = |machine| mix.plan(machine, 1, 6000, &[]).unwrap().step;
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
            let moves = 4 * 6_000_000 / tenants::PERIOD_US as usize * flows;
            assert!(moves < room, "{}: {moves} moves", mix.name);
        }
    }
}
