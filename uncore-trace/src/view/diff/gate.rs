//! Whether something grew by more than is allowed: what makes a comparison fail.
//!
//! Something counts if its growth is larger than the error ([`super::rate`]), and if there is enough of it:
//! of a tenant, its part of the link's or event's total afterwards; of a total, the part of the link's
//! peak, where that is known. A tenant that is new grew by any part. What cannot be judged does not fail,
//! and is counted, so that it can be said.

use super::{Diff, Tenant, Way};

/// What is allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// Growth above this part of the rate before fails; 0.1 is 10 %.
    pub above: f64,
    /// What is less than this part of its link does not count.
    pub min_share: f64,
}

/// What grew by more: a tenant, or all of them together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grown<'a> {
    /// Where.
    pub way: &'a Way,
    /// Who; none: the total.
    pub tenant: Option<&'a Tenant>,
    /// By which part of the rate before; none where that was nothing.
    pub growth: Option<f64>,
}

/// What the gate says.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged<'a> {
    /// What grew by more, in the order of the comparison.
    pub grown: Vec<Grown<'a>>,
    /// Of how many it is not known.
    pub unknown: usize,
}

impl Gate {
    /// Judges a comparison.
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
