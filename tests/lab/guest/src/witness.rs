//! The count of a core PMU for the traffic of its CPU: proportional to the moves, with noise.
//!
//! Guarantees: the same work file gives the same factors in the same order, and rounding loses no
//! count.

use fastrand::Rng;
use uncore_trace_lab::spec::{Move, Witness};

/// The misses that the moves of one thread cause.
#[derive(Debug)]
pub(crate) struct Misses<'a> {
    witness: &'a Witness,
    rng: Rng,
    /// The fraction of a count that was not counted yet.
    owed: f64,
}

impl<'a> Misses<'a> {
    /// For a thread that has moved nothing yet. Each thread has its own sequence of factors.
    pub(crate) fn new(witness: &'a Witness, thread: u32) -> Self {
        Self { witness, rng: thread_rng(witness.seed, thread), owed: 0.0 }
    }

    /// The count for these moves, in the order of the flows; none if it is below 1.
    pub(crate) fn count_misses(&mut self, moved: &[Option<Move>]) -> Option<Move> {
        let pairs = moved.iter().zip(&self.witness.per_count);
        let expected_count: f64 = pairs
            .map(|(moved, per_count)| moved.map_or(0.0, |moved| moved.amount as f64 * per_count))
            .sum();
        // A uniform distribution: its standard deviation is its width / √12.
        let factor = 1.0 + self.witness.noise * 12.0_f64.sqrt() * (self.rng.f64() - 0.5);
        self.owed += expected_count * factor.max(0.0);
        let amount = self.owed.floor();
        self.owed -= amount;
        let Witness { device, event, .. } = *self.witness;
        // An integer that is not below 0.
        let amount = amount as u64;
        (amount > 0).then_some(Move { device, event, source: 0, target: 0, amount })
    }
}

/// The random numbers of a thread.
pub(crate) fn thread_rng(seed: u64, thread: u32) -> Rng {
    // Far apart, for seeds of tenants follow one another.
    Rng::with_seed(seed ^ u64::from(thread).wrapping_mul(0xbf58_476d_1ce4_e5b9))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(noise: f64) -> Witness {
        Witness { device: 7, event: 0x37, per_count: vec![0.5, 0.25], noise, seed: 3 }
    }

    fn of(amount: u64) -> Move {
        Move { device: 0, event: 0, source: 1, target: 2, amount }
    }

    #[test]
    fn each_flow_has_its_counts_and_none_is_lost() {
        let witness = witness(0.0);
        let mut misses = Misses::new(&witness, 0);
        let taken = (0..1000).filter_map(|_| misses.count_misses(&[Some(of(1)), Some(of(1))]));
        let sum: u64 = taken.map(|missed| missed.amount).sum();
        assert_eq!(sum, 750);
        assert_eq!(misses.count_misses(&[None, None]), None);
        let one = misses.count_misses(&[Some(of(8)), None]).unwrap();
        assert_eq!(one, Move { device: 7, event: 0x37, source: 0, target: 0, amount: 4 });
    }

    #[test]
    fn the_noise_is_as_wide_as_asked_and_adds_nothing() {
        let witness = witness(0.2);
        let mut misses = Misses::new(&witness, 1);
        let factors: Vec<f64> = (0..10_000)
            .map(|_| misses.count_misses(&[Some(of(2_000_000)), None]).unwrap().amount as f64 / 1e6)
            .collect();
        let mean = factors.iter().sum::<f64>() / 1e4;
        let variance = factors.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / 1e4;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() - 0.2).abs() < 0.01, "{}", variance.sqrt());
    }

    #[test]
    fn threads_differ_and_a_seed_decides() {
        let witness = witness(0.2);
        let first =
            |thread| Misses::new(&witness, thread).count_misses(&[Some(of(2_000_000)), None]);
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
