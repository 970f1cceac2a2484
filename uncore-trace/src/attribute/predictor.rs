//! What a learner takes for the use of a source.

/// The predictor of counts: what is taken for the use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    /// CPU time, in ticks of one CPU. The rate of an owner is not known in advance.
    Time,
    /// Counts of witnesses, such as last-level cache misses. The rates of owners are expected to be
    /// similar.
    Misses,
    /// Bytes at ports, which [`super::ports`] divides among owners. The rates of owners are
    /// expected to be nearly the same.
    Ports,
}
