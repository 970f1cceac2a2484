//! What is left out while a live recording cannot keep up (load shedding).

/// How much is left out. Each step leaves out what those before it do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relief {
    /// Nothing.
    #[default]
    None,
    /// Rates are learnt less often.
    Seldom,
    /// Windows are divided by the last rates, which are not corrected.
    LastRates,
    /// Windows are divided by CPU time.
    Residency,
    /// Windows are longer, so there are fewer rows.
    LongWindows,
}

impl Relief {
    /// All steps, the one that leaves out nothing first.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Seldom, Self::LastRates, Self::Residency, Self::LongWindows];

    /// What is done instead, in words.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::None => "windows are divided as usual",
            Self::Seldom => "rates are learnt less often",
            Self::LastRates => "windows are divided by the last rates",
            Self::Residency => "windows are divided by residency",
            Self::LongWindows => "windows are longer and divided by residency",
        }
    }
}
