//! The witnesses of `record`: which, and their budget.

use std::path::Path;

use anyhow::{Result, ensure};

use super::heading::COST;
use crate::catalog::Catalog;
use crate::choice::MethodChoice;
use crate::discover::Machine;
use crate::plan::allowance::WitnessAllowance;
use crate::plan::misses::WitnessDemand;
use crate::plan::{self, Plan, PlanRequest};
use crate::record;

/// Default of --witness-budget, percent.
const BUDGET: f64 = 2.0;

/// The options.
#[derive(clap::Args, Debug)]
pub(super) struct WitnessArgs {
    /// With --method auto: the part of each CPU's time that witnesses may take, in percent. A
    /// witness is a counter of each CPU, such as last-level cache misses, that is read at every
    /// context switch and tells whose traffic it was. With 0, no witness is opened
    #[arg(long, value_name = "PERCENT", default_value_t = BUDGET, value_parser = percent,
          help_heading = COST)]
    witness_budget: f64,
    /// With --method auto: divide counts of many CPUs by ports instead of by witnesses of each CPU.
    /// A port is a counter of the traffic of a few CPUs, and every CPU must have one. Ports are
    /// read once a tick
    #[arg(long, value_name = "WITNESS", help_heading = COST)]
    witness: Option<WitnessChoice>,
}

/// What else than counters of each CPU can be a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WitnessChoice {
    /// Misses of the caches of AMD's core complexes, or of Arm's clusters
    Ports,
}

impl Default for WitnessArgs {
    fn default() -> Self {
        Self { witness_budget: BUDGET, witness: None }
    }
}

impl WitnessArgs {
    /// The budget in percent, if the method may leave witnesses out.
    pub(super) fn budget_percent(&self, method: MethodChoice) -> Option<f64> {
        (method == MethodChoice::Auto).then_some(self.witness_budget)
    }

    /// The plan for a request. If its witnesses may be too expensive on the running machine,
    /// measures the rate of context switches and plans again with it.
    pub(super) fn plan_request(
        &self,
        machine: &Machine,
        catalog: &Catalog,
        request: PlanRequest,
        method: MethodChoice,
    ) -> Result<Plan> {
        if self.witness == Some(WitnessChoice::Ports) {
            ensure!(
                method == MethodChoice::Auto,
                "--witness ports is for --method auto, not {}: leave one of them out",
                method.name()
            );
            return plan::plan(machine, catalog, &PlanRequest { ports: true, ..request });
        }
        let request = PlanRequest { misses: self.wanted_misses(method, None), ..request };
        let plan = plan::plan(machine, catalog, &request)?;
        let is_here = machine.root == Path::new("/");
        if !is_here
            || self.budget_percent(method).is_none()
            || plan.only_witnesses().next().is_none()
        {
            return Ok(plan);
        }
        let switches = record::switches_per_cpu(machine.cpus.online.len());
        plan::plan(
            machine,
            catalog,
            &PlanRequest { misses: self.wanted_misses(method, switches), ..request },
        )
    }

    /// Whether the method needs witnesses, at this number of context switches per second and CPU.
    fn wanted_misses(&self, method: MethodChoice, switches: Option<f64>) -> WitnessDemand {
        match method {
            MethodChoice::Auto => {
                WitnessDemand::Within(WitnessAllowance { percent: self.witness_budget, switches })
            }
            MethodChoice::Misses => WitnessDemand::Surely,
            MethodChoice::Residency | MethodChoice::Io | MethodChoice::Regression => {
                WitnessDemand::No
            }
        }
    }
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("expected a number from 0 to 100, in percent".to_owned()),
    }
}
