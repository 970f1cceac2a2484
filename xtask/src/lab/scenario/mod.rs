//! The tests in guests. A scenario is one file and one line here; the file of a machine names its
//! scenarios.

use anyhow::{Result, bail};

use super::kernel::Series;
use super::machine::LabMachine;
use super::step::Step;

mod agent;
mod attribution;
mod bare;
pub(super) mod broken;
mod core;
mod exact;
mod fabric;
mod full_memory;
mod holders;
mod host;
mod hotplug;
mod metrics;
pub(super) mod misses;
mod multiplexing;
mod opens;
mod scale;
mod sockets;
mod tenants;
mod traps;
mod unload;
mod verifier;

/// Where a scenario runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub machine: &'a LabMachine,
    /// Kernel series.
    pub series: Series,
}

/// A scenario.
pub(super) struct Scenario {
    pub name: &'static str,
    steps: fn(&Setting<'_>) -> Result<Vec<Step>>,
}

/// In the order in which they run.
const ALL: &[Scenario] = &[
    Scenario { name: "bare", steps: bare::build_steps },
    Scenario { name: "verifier", steps: verifier::build_steps },
    Scenario { name: "host", steps: host::build_steps },
    Scenario { name: "core", steps: core::build_steps },
    Scenario { name: "opens", steps: opens::build_steps },
    Scenario { name: "exact", steps: exact::build_steps },
    Scenario { name: "sockets", steps: sockets::build_steps },
    Scenario { name: "metrics", steps: metrics::build_steps },
    Scenario { name: "multiplexing", steps: multiplexing::build_steps },
    Scenario { name: "traps", steps: traps::build_steps },
    Scenario { name: "tenants", steps: tenants::build_steps },
    Scenario { name: "seen", steps: full_memory::build_steps },
    Scenario { name: "misses", steps: misses::build_steps },
    Scenario { name: "broken", steps: broken::build_steps },
    Scenario { name: "hotplug", steps: hotplug::build_steps },
    Scenario { name: "scale", steps: scale::build_steps },
    Scenario { name: "holders", steps: holders::build_steps },
    Scenario { name: "unload", steps: unload::build_steps },
    Scenario { name: "attribution", steps: attribution::build_steps },
    Scenario { name: "fabric", steps: fabric::build_steps },
    Scenario { name: "agent", steps: agent::build_steps },
];

/// The steps of all scenarios of a machine, or of those asked for.
pub(super) fn selected_steps(setting: &Setting<'_>, wanted_names: &[String]) -> Result<Vec<Step>> {
    let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
    for name in setting.machine.scenarios.iter().chain(wanted_names) {
        if !names.contains(&name.as_str()) {
            bail!("no scenario {name}; there are: {}", names.join(", "));
        }
    }
    let mut steps = Vec::new();
    for scenario in ALL {
        let planned = setting.machine.scenarios.iter().any(|name| name == scenario.name);
        let asked =
            wanted_names.is_empty() || wanted_names.iter().any(|name| name == scenario.name);
        if planned && asked {
            steps.extend((scenario.steps)(setting)?);
        }
    }
    Ok(steps)
}

impl Setting<'_> {
    /// Whether this kernel is of a series, or a later one.
    pub(super) fn is_since(&self, series: &str) -> Result<bool> {
        Ok(self.series >= series.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uncore_trace_ebpf::stamp::workspace_root;

    use super::super::step::Check;
    use super::super::traffic;
    use super::*;

    fn machines() -> Vec<LabMachine> {
        let lab = workspace_root().join("tests/lab");
        let names = LabMachine::machine_names(&lab).unwrap();
        names.iter().map(|name| LabMachine::read(&lab, name).unwrap()).collect()
    }

    #[test]
    fn every_machine_has_steps_with_names_of_their_own() {
        for machine in machines() {
            for &series in &machine.series {
                let setting = Setting { machine: &machine.for_series(series), series };
                let steps = selected_steps(&setting, &[]).unwrap();
                let names: BTreeSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
                assert_eq!(names.len(), steps.len(), "{} on {series}", machine.name);
                assert!(!steps.is_empty(), "{} on {series}", machine.name);
            }
        }
    }

    #[test]
    fn every_event_of_every_pmu_is_exact_somewhere() {
        // A machine that has only tenants must have PMUs that are tested exactly on another
        // machine.
        let exact = |machine: &LabMachine| machine.scenarios.iter().any(|name| name == "exact");
        let models =
            |machine: &LabMachine| machine.model_names().into_iter().map(str::to_owned).collect();
        let machines = machines();
        let tried: Vec<Vec<String>> = machines.iter().filter(|it| exact(it)).map(models).collect();
        for model in machines.iter().flat_map(LabMachine::model_names) {
            assert!(tried.iter().flatten().any(|it| it == model), "{model}");
        }
        for machine in machines.iter().filter(|machine| exact(machine)) {
            let Some(&series) = machine.series.first() else { continue };
            let machine = machine.for_series(series);
            let setting = Setting { machine: &machine, series };
            let steps = selected_steps(&setting, &[]).unwrap();
            let exact: BTreeSet<(u32, u32)> = steps
                .iter()
                .flat_map(|step| &step.checks)
                .filter_map(|check| match check {
                    Check::Exact { truth, .. } => Some((truth.device, truth.event)),
                    _ => None,
                })
                .collect();
            for model in machine.model_names() {
                let of = machine.instances_of(model);
                for (name, event) in &of[0].pmu.events {
                    let counted =
                        of.iter().any(|it| exact.contains(&(it.device, event.hardware_number())));
                    assert!(counted, "{}: {model}: {name}", machine.name);
                }
            }
        }
    }

    #[test]
    fn what_one_filter_bit_less_sees_has_another_sum() {
        for machine in machines() {
            for instance in &machine.instances {
                for event in instance.pmu.events.keys() {
                    let moves = traffic::moves_of_event(instance, event);
                    let amounts: BTreeSet<u64> = moves.iter().map(|it| it.amount).collect();
                    assert_eq!(amounts.len(), moves.len(), "{}/{event}/", instance.name);
                    assert!(!amounts.contains(&0), "{}/{event}/", instance.name);
                }
            }
        }
    }
}
