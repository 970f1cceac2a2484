//! Which event of a core PMU tells best whose traffic it was.
//!
//! Data only: which of them is opened, and whether, is the plan's.

use serde::Deserialize;

use super::family::{positive, some};
use super::rules::is_of;
use crate::discover::Pmu;

/// An event whose counts are in proportion to the fabric traffic of the CPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// Its name.
    pub event: String,
    /// Bytes of traffic that one count stands for; positive.
    #[serde(deserialize_with = "positive")]
    pub bytes: f64,
    /// The traffic that it does not count, in words.
    #[serde(deserialize_with = "some")]
    pub unseen: Vec<String>,
    /// Processors it is for, as [`Pmu::processor`] has them, same patterns as names. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
}

impl Witness {
    /// Whether it is for the processor of `pmu`.
    pub fn is_for(&self, pmu: &Pmu) -> bool {
        is_of(&self.processors, pmu)
    }
}
