//! Metrics, as the plan in the metadata of a recording has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the PMUs and CPUs of one metric make one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Across {
    /// The values add up: bandwidths, rates.
    Sum,
    /// The inputs and the time add up, then comes the formula: latencies, ratios, frequencies,
    /// utilisations.
    Pool,
}

/// An event that a metric is computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its name in the formula.
    pub name: String,
    /// The counter of the plan; `None` where this kernel or machine has no such event.
    pub counter: Option<u32>,
}

/// One metric on one PMU, and on one of its CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The metric's name.
    pub name: String,
    /// What it says.
    pub about: String,
    /// Unit of its value.
    pub unit: String,
    /// From the inputs, the constants and `duration_ns`, the time counted.
    pub formula: String,
    /// How instances make one value.
    pub across: Across,
    /// What the PMU is, whatever its index.
    pub family: String,
    /// The PMU instance.
    pub pmu: String,
    /// The terms that narrow its inputs, values in hex; empty if none, or if they differ.
    pub filter: String,
    /// The CPU its inputs are read on.
    pub cpu: u32,
    /// Package of that CPU, where the machine tells.
    pub socket: Option<i16>,
    /// Whether it is about that CPU and nothing else.
    pub per_cpu: bool,
    /// The events of the formula, in the order of first use.
    pub inputs: Vec<Input>,
    /// The constants of the formula.
    pub constants: BTreeMap<String, f64>,
}

impl Planned {
    /// The inputs that this kernel or machine does not have.
    pub fn missing(&self) -> Vec<&str> {
        let missing = self.inputs.iter().filter(|input| input.counter.is_none());
        missing.map(|input| input.name.as_str()).collect()
    }
}
