//! What a counter is for.

use serde::{Deserialize, Serialize};

use crate::schema::counters;

/// The purpose of a counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CounterRole {
    /// Its counts are divided.
    #[default]
    Counted,
    /// Its counts serve to divide others; it has no rows.
    Weight,
    /// Both.
    Both,
}

impl CounterRole {
    /// The value in the column `role`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Weight => counters::WEIGHT,
            Self::Both => "both",
        }
    }

    /// Whether its counts serve to divide others.
    pub const fn is_weight(self) -> bool {
        !matches!(self, Self::Counted)
    }

    /// Whether its counts are divided.
    pub const fn is_divided(self) -> bool {
        !matches!(self, Self::Weight)
    }

    /// Whether it has the default role.
    pub const fn is_counted(&self) -> bool {
        matches!(self, Self::Counted)
    }
}
