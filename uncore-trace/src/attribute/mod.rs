//! Stage 5b, ATTRIBUTE: whose part of a counter's count is how large. Pure functions.
//!
//! A method divides one window of one counter among owners. Whatever the method, the parts sum
//! to the whole: what cannot be given to anybody is given to [`Who::Unknown`].

mod exact;
mod residency;

pub use self::{exact::exact, residency::residency};

use crate::align::who::Who;

/// How a share was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read at every switch of the counter's own CPU.
    Exact,
    /// By time on the CPUs whose traffic the counter sees.
    Residency,
    /// Not divided: the counter did not run, or its count is 0.
    None,
}

impl Method {
    /// The word for the `method` column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Residency => "residency",
            Self::None => "none",
        }
    }
}

/// One owner's part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Whose.
    pub who: Who,
    /// How much of the count.
    pub value: f64,
    /// How far to trust it, 0 to 1.
    pub confidence: f32,
}
