//! `exact`: a per-CPU counter that is read at every context switch. The count between two readings
//! belongs to the task that ran between them. Nothing is estimated.
//!
//! # Confidence
//!
//! The part of the window in which the counter ran: 1 unless it was multiplexed.

use super::{Attribution, CountedWindow, Method, Share};
use crate::entries::Owner;

/// The method. It learns nothing.
#[derive(Debug)]
pub(super) struct Exact;

impl Attribution for Exact {
    fn divide(&mut self, window: &CountedWindow<'_>) -> (Method, Vec<Share>) {
        (Method::Exact, exact(window.counts, window.factor, window.running))
    }
}

/// Turns raw counts by owner into shares. `factor` converts a raw count to the unit, including the
/// correction for multiplexing.
fn exact(counts: &[(Owner, u64)], factor: f64, running: f32) -> Vec<Share> {
    counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|&(who, count)| {
            let confidence = if who == Owner::Unattributed { 0.0 } else { running };
            Share { who, value: count as f64 * factor, confidence }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_and_zeros_left_out() {
        let shares = exact(&[(Owner::Idle, 0), (Owner::Irq(3), 4)], 2.5, 1.0);
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].value.to_bits(), 10f64.to_bits());
    }

    #[test]
    fn nobody_is_told_with_confidence_but_those_who_were_seen() {
        let shares = exact(&[(Owner::Idle, 1), (Owner::Unattributed, 1)], 1.0, 0.5);
        let told = shares.iter().map(|share| (share.who, share.confidence));
        assert_eq!(told.collect::<Vec<_>>(), [(Owner::Idle, 0.5), (Owner::Unattributed, 0.0)]);
    }
}
