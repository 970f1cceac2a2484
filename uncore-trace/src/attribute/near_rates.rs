//! What a counter has learnt of CPU time near to it.

use std::collections::BTreeMap;

use super::columns::ColumnSubject;

/// What a counter has learnt of a rate on near CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NearRate {
    /// Logarithm of the rate.
    pub log_rate: f64,
    /// Posterior variance of that.
    pub variance: f64,
}

/// Rates on near CPUs, by what their columns stand for.
#[derive(Clone, Debug, Default)]
pub struct NearRates(pub(super) BTreeMap<ColumnSubject, NearRate>);

/// What is known best of a rate by several counters.
pub(super) fn find_surest(counters: &[&NearRates], subject: &ColumnSubject) -> Option<NearRate> {
    let rates = counters.iter().filter_map(|rates| rates.0.get(subject));
    rates.min_by(|rate, other| rate.variance.total_cmp(&other.variance)).copied()
}
