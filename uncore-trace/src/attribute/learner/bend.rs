//! How a link that is nearly full counts less than its users' rates make expect.
//!
//! Near the capacity of a link all of its users are slowed down, so the count is a concave function
//! of the sum of rate x use. A linear model gives the difference to the baseline. So learners use
//! `count x (1 + factor x count / mean)`. The factor is found from a regression of the counts of
//! ticks on what is expected of them and its square. Shares are not affected: the count is divided
//! in proportion to rate x use.

/// Time constant of the memory, in ticks.
const MEMORY: f64 = 20_000.0;

/// Least expected count, relative to the mean: the errors of a quiet tick are not small in the same
/// proportion.
const MIN_EXPECTED: f64 = 0.1;

/// Gain of the mean, per tick.
const MEAN_GAIN: f64 = 1e-3;

/// Gain of the factor, per call.
const FACTOR_GAIN: f64 = 0.2;

/// Errors of neighbouring ticks are correlated: the variance of a sum is this many times larger.
const AUTOCORRELATION_FACTOR: f64 = 64.0;

/// Prior standard deviation of the factor, whose prior mean is 0.
const PRIOR_SD: f64 = 0.2;

/// Largest factor.
const MAX_FACTOR: f64 = 0.5;

/// A column's rate is well known after this number of ticks for each column: before, what is
/// expected follows the counts from which it was learnt.
pub(super) const TICKS_PER_COLUMN: u64 = 20;

/// Weighed sums of products of 1, the expected count (`u`), its square (`q`) and the count (`y`).
#[derive(Clone, Copy, Debug, Default)]
struct BendSums {
    n: f64,
    u: f64,
    q: f64,
    uq: f64,
    qq: f64,
    y: f64,
    uy: f64,
    qy: f64,
    yy: f64,
}

/// The bend of one counter.
#[derive(Debug, Default)]
pub(super) struct Bend {
    sums: BendSums,
    mean: f64,
    factor: f64,
}

impl Bend {
    /// The count of some ticks as it would be if the link had room.
    pub(super) fn straighten_count(&self, count: f64, ticks: u64) -> f64 {
        if self.mean <= 0.0 {
            return count;
        }
        count * (1.0 + self.factor * count / (ticks.max(1) as f64 * self.mean))
    }

    /// Adds a tick: its expected count, and its count.
    pub(super) fn add_tick(&mut self, expected: f64, count: f64) {
        if expected <= 0.0 || !expected.is_finite() {
            return;
        }
        if self.mean <= 0.0 {
            self.mean = expected;
        }
        let mean = self.mean + MEAN_GAIN * (expected - self.mean);
        // The bend is that of the link, whatever its load is.
        self.factor *= mean / self.mean;
        self.mean = mean;
        let (u, y) = (expected / self.mean, self.straighten_count(count, 1) / self.mean);
        let (q, weight) = (u * u, u.max(MIN_EXPECTED).powi(-2));
        let forgetting_factor = 1.0 - 1.0 / MEMORY;
        let BendSums { n, u: su, q: sq, uq, qq, y: sy, uy, qy, yy } = &mut self.sums;
        let products = [
            (n, 1.0),
            (su, u),
            (sq, q),
            (uq, u * q),
            (qq, q * q),
            (sy, y),
            (uy, u * y),
            (qy, q * y),
            (yy, y * y),
        ];
        for (sum, product) in products {
            *sum = forgetting_factor * *sum + weight * product;
        }
    }

    /// Improves the factor: `y = a + b u + c u^2` has the rest of the bend in `c`, which counts as
    /// far as its variance allows.
    pub(super) fn update_factor(&mut self) {
        let BendSums { n, u, q, uq, qq, y, uy, qy, yy } = self.sums;
        let determinant = |[a, b, c]: [[f64; 3]; 3]| {
            a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
                + a[2] * (b[0] * c[1] - b[1] * c[0])
        };
        let gram_determinant = determinant([[n, u, q], [u, q, uq], [q, uq, qq]]);
        let a = determinant([[y, u, q], [uy, q, uq], [qy, uq, qq]]) / gram_determinant;
        let b = determinant([[n, y, q], [u, uy, uq], [q, qy, qq]]) / gram_determinant;
        let c = determinant([[n, u, y], [u, q, uy], [q, uq, qy]]) / gram_determinant;
        let residual_variance = (yy - a * y - b * uy - c * qy).max(0.0) / n;
        let variance = AUTOCORRELATION_FACTOR * residual_variance * (n * q - u * u)
            / gram_determinant
            / (b * b);
        let shrinkage = PRIOR_SD * PRIOR_SD / (PRIOR_SD * PRIOR_SD + variance);
        let target_factor = (self.factor - c / b) * shrinkage;
        if target_factor.is_finite() && b > 0.1 {
            self.factor =
                (self.factor + FACTOR_GAIN * (target_factor - self.factor)).clamp(0.0, MAX_FACTOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::simulation::SplitMix;
    use super::*;

    /// The factor, from counts of ticks with a demand of 0.5 to 1.5.
    fn factor(count: impl Fn(f64) -> f64) -> f64 {
        let mut random = SplitMix(7);
        let mut bend = Bend::default();
        for tick in 0..40_000 {
            let demand = 0.5 + random.next_unit();
            bend.add_tick(demand, count(demand) * (1.0 + 0.05 * random.next_normal()));
            if tick % 1000 == 999 {
                bend.update_factor();
            }
        }
        bend.factor
    }

    #[test]
    fn what_a_full_link_does_not_count_is_found() {
        let full = |demand: f64| ((1.0 + 0.8 * demand).sqrt() - 1.0) / 0.4;
        let found = factor(full);
        assert!((found - 0.2).abs() < 0.04, "{found}");
        let straight = factor(|demand| demand);
        assert!(straight < 0.02, "{straight}");
    }
}
