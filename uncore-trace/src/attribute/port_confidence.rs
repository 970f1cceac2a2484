//! How sure the ports of a set of CPUs are of each owner.

use foldhash::HashMap;

use super::share::Share;
use crate::entries::Owner;

/// How sure the ports of a set of CPUs are of each owner in a window.
#[derive(Clone, Debug, Default)]
pub struct PortConfidence(HashMap<Owner, ConfidenceSums>);

/// Sums of an owner over the ports.
#[derive(Clone, Copy, Debug, Default)]
struct ConfidenceSums {
    bytes: f64,
    /// Of bytes x confidence, and of bytes x lasting confidence.
    weighted_confidence: f64,
    weighted_lasting: f64,
}

impl PortConfidence {
    /// Adds the share of an owner in a port's window, which is so many bytes.
    pub(super) fn add_share(&mut self, share: &Share, bytes: f64) {
        let sum = self.0.entry(share.owner).or_default();
        sum.bytes += bytes;
        sum.weighted_confidence += bytes * f64::from(share.confidence);
        sum.weighted_lasting += bytes * f64::from(share.lasting);
    }

    /// The mean confidence of an owner's shares, and of its sums over a longer time.
    pub(super) fn mean_of_owner(&self, owner: Owner) -> (f64, f64) {
        let sums = self.0.get(&owner).filter(|sums| sums.bytes > 0.0);
        sums.map_or((0.0, 0.0), |sums| {
            (sums.weighted_confidence / sums.bytes, sums.weighted_lasting / sums.bytes)
        })
    }
}
