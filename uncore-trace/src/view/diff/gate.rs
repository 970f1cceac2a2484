//! `--fail-above`: whether something grew by more than is allowed.
//!
//! A total or a tenant is judged if its growth is larger than its error ([`super::rate`]), and if
//! it is large enough: a tenant by its fraction of the total afterwards, a total by its fraction of
//! the link's peak, if that is known. A new tenant exceeds any limit. What cannot be judged does
//! not fail; it is counted, so that it can be reported.

use super::{Diff, Tenant, Way};

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
pub struct Grown<'a> {
    /// The link or event.
    pub way: &'a Way,
    /// The tenant; `None`: the total.
    pub tenant: Option<&'a Tenant>,
    /// Growth as a fraction of the rate before; `None` if that was 0.
    pub growth: Option<f64>,
}

/// The result.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged<'a> {
    /// What grew by more than the limit, in the order of the comparison.
    pub grown: Vec<Grown<'a>>,
    /// Number of totals and tenants that cannot be judged.
    pub unknown: usize,
}

impl Gate {
    /// Applies the limits to a comparison.
    pub fn judge<'a>(&self, diff: &'a Diff) -> Judged<'a> {
        let mut judged = Judged { grown: Vec::new(), unknown: 0 };
        for way in &diff.ways {
            let of_peak = way.total.after.per_s().zip(way.peak).map(|(per_s, peak)| per_s / peak);
            self.add(&mut judged, way, None, of_peak);
            for tenant in &way.tenants {
                let share = tenant.change.after.rate().and_then(|rate| rate.share);
                self.add(&mut judged, way, Some(tenant), share);
            }
        }
        judged
    }

    fn add<'a>(
        &self,
        judged: &mut Judged<'a>,
        way: &'a Way,
        tenant: Option<&'a Tenant>,
        share: Option<f64>,
    ) {
        let change = tenant.map_or(&way.total, |tenant| &tenant.change);
        if share.is_some_and(|share| share < self.min_share) || !change.says_something() {
            return;
        }
        let growth = match (change.difference(), change.before.per_s()) {
            (Some(difference), Some(before)) if before > 0.0 => Some(difference / before),
            (Some(difference), _) if difference <= 0.0 => Some(0.0),
            _ => None,
        };
        if growth.is_some_and(|growth| growth <= self.above) {
            return;
        }
        match change.is_beyond_error() {
            Some(true) => judged.grown.push(Grown { way, tenant, growth }),
            Some(false) => {}
            None => judged.unknown += 1,
        }
    }
}
