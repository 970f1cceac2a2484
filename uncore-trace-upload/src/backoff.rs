//! How long to wait after a failure: exponential backoff with jitter, so that hosts that failed at
//! the same time do not retry at the same time.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// The longest wait.
const MOST: Duration = Duration::from_mins(5);

/// The longest wait after the first failure.
const FIRST: Duration = Duration::from_secs(1);

/// Counts the failures since the last success.
#[derive(Debug)]
pub(crate) struct Backoff {
    first_wait: Duration,
    failures: u32,
}

impl Backoff {
    /// The first wait is at most `every`, the time between two scans without failures.
    pub(crate) fn new(every: Duration) -> Self {
        Self { first_wait: every.min(FIRST), failures: 0 }
    }

    /// Resets the wait after a confirmed file.
    pub(crate) const fn reset_wait(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure: a random time between half of the limit and the
    /// limit, which doubles with each failure.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let limit = self.first_wait.saturating_mul(2_u32.saturating_pow(self.failures)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        limit.mul_f64(0.5 + 0.5 * random_fraction())
    }
}

/// The time until the next scan of the directory: `every` ± 25 %, at random, so that hosts do not
/// upload at the same time.
pub(crate) fn spread_wait(every: Duration) -> Duration {
    every.mul_f64(0.75 + 0.5 * random_fraction())
}

/// A random number in [0, 1). The keys of hash maps are the standard library's only randomness.
fn random_fraction() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_differ() {
        let mut backoff = Backoff::new(Duration::from_secs(30));
        let waits: Vec<f64> = (0..40).map(|_| backoff.next_wait().as_secs_f64()).collect();
        for (at, wait) in waits.iter().enumerate() {
            let limit = 2_f64.powi(at.try_into().unwrap()).min(300.0);
            assert!((0.5 * limit..=limit).contains(wait), "{at}: {wait}");
        }
        let last = &waits[20..];
        assert!(last.iter().any(|wait| (wait - last[0]).abs() > 1.0), "{last:?}");
        backoff.reset_wait();
        assert!(backoff.next_wait() <= Duration::from_secs(1));
        assert!(Backoff::new(Duration::from_millis(100)).next_wait() <= Duration::from_millis(100));
    }

    #[test]
    fn waits_are_spread_by_a_quarter() {
        let looks: Vec<f64> =
            (0..100).map(|_| spread_wait(Duration::from_secs(100)).as_secs_f64()).collect();
        assert!(looks.iter().all(|look| (75.0..125.0).contains(look)), "{looks:?}");
        assert!(looks.iter().any(|look| *look < 90.0) && looks.iter().any(|look| *look > 110.0));
    }
}
