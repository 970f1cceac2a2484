//! Events that can be witnesses: of a CPU if the PMU is a core's, else of the CPUs near the PMU.
//!
//! Data only: planning decides whether one is opened, and which.

use serde::Deserialize;

use super::family::{non_empty_list, positive_number};
use super::rules::is_of;
use crate::discover::Pmu;

/// An event whose counts are proportional to the fabric traffic of its CPUs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// Its name.
    pub event: String,
    /// Bytes of traffic per count; positive.
    #[serde(deserialize_with = "positive_number")]
    pub bytes: f64,
    /// Names of the traffic that it does not count.
    #[serde(deserialize_with = "non_empty_list")]
    pub unseen: Vec<String>,
    /// Processors, in the form of [`Pmu::processor`], with the patterns of names. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
}

impl Witness {
    /// Whether it applies to the processor of `pmu`.
    pub fn applies_to_pmu(&self, pmu: &Pmu) -> bool {
        is_of(&self.processors, pmu)
    }
}
