//! How what a family says was verified.

use serde::Deserialize;

/// What the events, units and filters of a family were tried on, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verified {
    /// The hardware: what was counted there was compared with known traffic.
    Silicon,
    /// The unmodified driver, which runs in the lab on registers of a model with known traffic.
    Lab,
    /// The files that the unmodified driver makes below `/sys`, captured; no traffic.
    Captured,
    /// The source of the driver and the vendor's documents; nothing was run.
    Source,
}

impl Verified {
    /// All of them, with what each means, one line.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Silicon, "counted on the hardware and compared with known traffic"),
        (Self::Lab, "the unmodified driver records known traffic of modelled registers in the lab"),
        (Self::Captured, "planned on the files of the unmodified driver; no traffic was counted"),
        (Self::Source, "written from the source of the driver and documents; nothing was run"),
    ];

    /// Its name, as catalog files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Silicon => "silicon",
            Self::Lab => "lab",
            Self::Captured => "captured",
            Self::Source => "source",
        }
    }
}
