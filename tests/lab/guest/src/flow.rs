//! The amount that a thread moves for the CPU time it used.
//!
//! Guarantees that rounding loses nothing: for all periods together, the sum of the amounts is the
//! integer part of rate × scale × time. For this the scale is rounded to an integer first.

use uncore_trace_lab::spec::{Burst, Move, Phase};

const NS_PER_MS: u64 = 1_000_000;
/// Unit of scales: millionths.
const WHOLE: u64 = 1_000_000;
const DIVISOR: u128 = NS_PER_MS as u128 * WHOLE as u128;

/// One flow of one thread, and the fraction of a count that was not moved yet.
#[derive(Debug)]
pub(crate) struct ThreadFlow {
    flow: Move,
    owed: u128,
}

impl ThreadFlow {
    /// A flow that has moved nothing yet.
    pub(crate) fn new(flow: Move) -> Self {
        Self { flow, owed: 0 }
    }

    /// The move for this CPU time; none if the amount is below 1. The remainder is added to the
    /// next one.
    pub(crate) fn take_move(&mut self, used_ns: u64, millionths: u64) -> Option<Move> {
        self.owed += u128::from(self.flow.amount) * u128::from(used_ns) * u128::from(millionths);
        let amount = u64::try_from(self.owed / DIVISOR).unwrap_or(u64::MAX);
        self.owed -= u128::from(amount) * DIVISOR;
        (amount > 0).then_some(Move { amount, ..self.flow })
    }
}

/// The scale, in millionths, at a time since the start and for a period. Periods count from 1.
pub(crate) fn flow_scale(
    phases: &[Phase],
    burst: Option<Burst>,
    since_ns: u64,
    period: u64,
) -> u64 {
    let phase = phase_scale(phases, since_ns / NS_PER_MS);
    let burst = burst
        .filter(|burst| period.is_multiple_of(u64::from(burst.every)))
        .map_or(1.0, |b| b.factor);
    (phase * burst * WHOLE as f64).round() as u64
}

/// The scale of the phase at a time.
fn phase_scale(phases: &[Phase], since_ms: u64) -> f64 {
    let index = phase_index(phases.iter().map(|phase| u64::from(phase.ms)), since_ms);
    index.and_then(|place| phases.get(place)).map_or(1.0, |phase| phase.scale)
}

/// The index of the phase at a time, where phases of these lengths repeat forever; none without
/// phases.
pub(crate) fn phase_index(
    lengths: impl Iterator<Item = u64> + Clone,
    since_ms: u64,
) -> Option<usize> {
    let mut remaining = since_ms.checked_rem(lengths.clone().sum())?;
    lengths.into_iter().position(|length| {
        let is_inside = remaining < length;
        remaining = remaining.saturating_sub(length);
        is_inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(amount: u64) -> ThreadFlow {
        ThreadFlow::new(Move { device: 0, event: 0, source: 0, target: 0, amount })
    }

    #[test]
    fn rounding_loses_nothing() {
        let mut flow = flow(7);
        let times = [1_000_003, 999_999, 17, 333_333, 5_000_001].repeat(1000);
        let moved: u64 = times
            .iter()
            .filter_map(|&used| flow.take_move(used, WHOLE))
            .map(|part| part.amount)
            .sum();
        assert_eq!(moved, times.iter().sum::<u64>() * 7 / NS_PER_MS);
    }

    #[test]
    fn a_scale_is_applied_and_nothing_is_not_moved() {
        let mut flow = flow(1000);
        assert_eq!(flow.take_move(NS_PER_MS, 0), None);
        assert_eq!(flow.take_move(NS_PER_MS, WHOLE / 2).unwrap().amount, 500);
        assert_eq!(flow.take_move(NS_PER_MS / 1000, WHOLE / 2), None);
        assert_eq!(flow.take_move(NS_PER_MS / 1000, WHOLE / 2).unwrap().amount, 1);
    }

    #[test]
    fn the_largest_amounts_fit() {
        let mut flow = flow(u64::MAX / (1000 * 1000));
        let moved = flow.take_move(1000 * NS_PER_MS, 1000 * WHOLE).unwrap().amount;
        assert_eq!(moved, u64::MAX / (1000 * 1000) * 1000 * 1000);
    }

    #[test]
    fn phases_come_again() {
        let phases = [Phase { ms: 200, scale: 1.0 }, Phase { ms: 100, scale: 0.25 }];
        let at = |ms: u64| flow_scale(&phases, None, ms * NS_PER_MS, 1);
        assert_eq!([at(0), at(199), at(200), at(299), at(300), at(500)], {
            let quarter = WHOLE / 4;
            [WHOLE, WHOLE, quarter, quarter, WHOLE, quarter]
        });
        assert_eq!(flow_scale(&[], None, 12, 1), WHOLE);
    }

    #[test]
    fn turns_come_again() {
        let at = |ms| phase_index([200, 100].into_iter(), ms);
        assert_eq!([at(0), at(199), at(200), at(299), at(300)], [0, 0, 1, 1, 0].map(Some));
        assert_eq!(phase_index([].into_iter(), 5), None);
    }

    #[test]
    fn a_burst_is_one_period_of_many() {
        let burst = Some(Burst { every: 3, factor: 5.0 });
        let scales: Vec<u64> =
            (1..=6).map(|period| flow_scale(&[], burst, 0, period) / WHOLE).collect();
        assert_eq!(scales, [1, 1, 5, 1, 1, 5]);
    }
}
