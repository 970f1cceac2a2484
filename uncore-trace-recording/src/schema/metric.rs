//! Metrics, in the form of the plan in the metadata of a recording.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the values of several PMUs and CPUs are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Across {
    /// The values are added: bandwidths, rates.
    Sum,
    /// The inputs and times are added, then the formula is applied: latencies, ratios, frequencies,
    /// utilisations.
    Pool,
}

/// An event that a metric is computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its name in the formula.
    pub name: String,
    /// The counter in the plan; `None` if this kernel or machine has no such event.
    pub counter: Option<u32>,
}

/// One metric on one PMU and one of its CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedMetric {
    /// The metric's name.
    pub name: String,
    /// Description.
    pub about: String,
    /// Unit of its value.
    pub unit: String,
    /// A formula of the inputs, the constants and `duration_ns`, the time counted.
    pub formula: String,
    /// How the values of instances are combined.
    pub across: Across,
    /// Family of the PMU.
    pub family: String,
    /// The PMU instance.
    pub pmu: String,
    /// The terms that narrow its inputs, values in hex; empty if there are none, or if they differ.
    pub filter: String,
    /// The CPU on which its inputs are read.
    pub cpu: u32,
    /// Package of that CPU, if known.
    pub socket: Option<i16>,
    /// Whether it describes that CPU only.
    pub per_cpu: bool,
    /// The events of the formula, in the order of first use.
    pub inputs: Vec<Input>,
    /// The constants of the formula.
    pub constants: BTreeMap<String, f64>,
}

impl PlannedMetric {
    /// The inputs that this kernel or machine does not have.
    pub fn missing_inputs(&self) -> Vec<&str> {
        let missing = self.inputs.iter().filter(|input| input.counter.is_none());
        missing.map(|input| input.name.as_str()).collect()
    }
}
