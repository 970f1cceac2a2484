//! How the description of a family was verified.

use serde::Deserialize;

/// The best test of a family's events, units and filters, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verification {
    /// The hardware: counts were compared with known traffic.
    Silicon,
    /// The unmodified driver in the lab, on a model of the registers with known traffic.
    Lab,
    /// The files that the unmodified driver creates in `/sys`, captured; no traffic.
    Captured,
    /// The source of the driver and the vendor's documents; nothing was run.
    Source,
}
