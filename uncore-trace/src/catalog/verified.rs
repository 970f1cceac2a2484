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

impl Verification {
    /// All values with their meaning, one line each.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Silicon, "counted on the hardware and compared with known traffic"),
        (Self::Lab, "the unmodified driver records known traffic of modelled registers in the lab"),
        (Self::Captured, "planned on the files of the unmodified driver; no traffic was counted"),
        (Self::Source, "written from the source of the driver and documents; nothing was run"),
    ];

    /// Its name in catalog files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Silicon => "silicon",
            Self::Lab => "lab",
            Self::Captured => "captured",
            Self::Source => "source",
        }
    }
}
