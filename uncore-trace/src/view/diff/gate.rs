//! `--fail-above`: whether something grew by more than is allowed.
//!
//! A total or a tenant is judged if its growth is larger than its error ([`super::rate`]), and if
//! it is large enough: a tenant by its fraction of the total afterwards, a total by its fraction of
//! the link's peak, if that is known. A new tenant exceeds any limit. What cannot be judged does
//! not fail; it is counted, so that it can be reported.

use super::{ComparedTenant, Diff, DiffSubject};

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// Growth above this fraction of the rate before fails; 0.1 is 10 %.
    pub above: f64,
    /// Tenants below this fraction of the total, and links below this fraction of their peak, are
    /// ignored.
    pub min_share: f64,
}

/// A total or a tenant that grew by more than the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExcessGrowth<'a> {
    /// The link or event.
    pub subject: &'a DiffSubject,
    /// The tenant; `None`: the total.
    pub tenant: Option<&'a ComparedTenant>,
    /// Growth as a fraction of the rate before; `None` if that was 0.
    pub growth: Option<f64>,
}

/// The result of judging a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct GateResult<'a> {
    /// What grew by more than the limit, in the order of the comparison.
    pub grown: Vec<ExcessGrowth<'a>>,
    /// Number of totals and tenants that cannot be judged.
    pub unknown: usize,
}

impl Gate {
    /// Applies the limits to a comparison.
    pub fn judge_diff<'a>(&self, diff: &'a Diff) -> GateResult<'a> {
        let mut judged = GateResult { grown: Vec::new(), unknown: 0 };
        for subject in &diff.subjects {
            let peak_fraction = subject
                .total
                .after_rate
                .per_s()
                .zip(subject.peak)
                .map(|(per_s, peak)| per_s / peak);
            self.judge_change(&mut judged, subject, None, peak_fraction);
            for tenant in &subject.tenants {
                let share = tenant.change.after_rate.known_rate().and_then(|rate| rate.share);
                self.judge_change(&mut judged, subject, Some(tenant), share);
            }
        }
        judged
    }

    fn judge_change<'a>(
        &self,
        judged: &mut GateResult<'a>,
        subject: &'a DiffSubject,
        tenant: Option<&'a ComparedTenant>,
        share: Option<f64>,
    ) {
        let change = tenant.map_or(&subject.total, |tenant| &tenant.change);
        if share.is_some_and(|share| share < self.min_share) || !change.says_something() {
            return;
        }
        let growth = match (change.difference_per_s(), change.before_rate.per_s()) {
            (Some(difference), Some(before_per_s)) if before_per_s > 0.0 => {
                Some(difference / before_per_s)
            }
            (Some(difference), _) if difference <= 0.0 => Some(0.0),
            _ => None,
        };
        if growth.is_some_and(|growth| growth <= self.above) {
            return;
        }
        match change.is_beyond_error() {
            Some(true) => judged.grown.push(ExcessGrowth { subject, tenant, growth }),
            Some(false) => {}
            None => judged.unknown += 1,
        }
    }
}
