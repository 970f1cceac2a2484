//! What the ticks of a counter say against the model by which it is divided.

/// A reason why the model does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    /// The link carries less than is asked for.
    LinkFull,
    /// Rates of many owners change at the same time.
    ChangeTogether,
    /// Bytes come some time after the CPU time that caused them.
    LateBytes,
    /// More is unattributed than devices and the kernel are expected to move.
    Unattributed,
}

impl Misfit {
    /// What to say of it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::LinkFull => {
                "a link is at its limit: what its users asked for beyond it was not counted"
            }
            Self::ChangeTogether => {
                "tenants change together: which of them changed how much is hardly known"
            }
            Self::Unattributed => {
                "much is unattributed: it may be of tenants whose devices move it, or that ran before"
            }
            Self::LateBytes => {
                "bytes come later than CPU time: some count for those who ran when they came"
            }
        }
    }
}
