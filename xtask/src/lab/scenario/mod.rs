//! What is tried on the machines. A scenario is one file and one line here; a machine's file says
//! which of them it is for.

use anyhow::{Result, bail};

use super::kernel::Series;
use super::machine::Machine;
use super::step::Step;

mod bare;
pub mod broken;
mod exact;
mod host;
mod hotplug;
mod multiplexing;
mod sockets;
mod tenants;
mod traps;

/// Where a scenario runs.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    pub machine: &'a Machine,
    /// Kernel series.
    pub series: Series,
}

/// A scenario.
pub struct Scenario {
    pub name: &'static str,
    steps: fn(&Setting<'_>) -> Result<Vec<Step>>,
}

/// In the order in which they run.
const ALL: &[Scenario] = &[
    Scenario { name: "bare", steps: bare::steps },
    Scenario { name: "host", steps: host::steps },
    Scenario { name: "exact", steps: exact::steps },
    Scenario { name: "sockets", steps: sockets::steps },
    Scenario { name: "multiplexing", steps: multiplexing::steps },
    Scenario { name: "traps", steps: traps::steps },
    Scenario { name: "tenants", steps: tenants::steps },
    Scenario { name: "broken", steps: broken::steps },
    Scenario { name: "hotplug", steps: hotplug::steps },
];

/// The steps of all scenarios of a machine, or of those asked for.
pub fn steps(setting: &Setting<'_>, only: &[String]) -> Result<Vec<Step>> {
    let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
    for name in setting.machine.scenarios.iter().chain(only) {
        if !names.contains(&name.as_str()) {
            bail!("no scenario {name}; there are: {}", names.join(", "));
        }
    }
    let mut steps = Vec::new();
    for scenario in ALL {
        let planned = setting.machine.scenarios.iter().any(|name| name == scenario.name);
        let asked = only.is_empty() || only.iter().any(|name| name == scenario.name);
        if planned && asked {
            steps.extend((scenario.steps)(setting)?);
        }
    }
    Ok(steps)
}

impl Setting<'_> {
    /// Whether this kernel is of a series, or of a later one.
    pub fn is_since(&self, series: &str) -> Result<bool> {
        Ok(self.series >= series.parse()?)
    }
}
