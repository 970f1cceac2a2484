//! Random numbers that are the same in every run of a seed.

use std::f64::consts::TAU;

/// `SplitMix64`, Steele, Lea and Flood 2014.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// Random numbers of a place: equal places have equal numbers, in whatever order they are asked
    /// for.
    pub(crate) fn at(what: u64, first: u64, second: u64) -> Self {
        let hashed = mixed(what.wrapping_mul(STEP) ^ first);
        Self(mixed(hashed.wrapping_add(STEP) ^ second))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.unit() * limit as f64) as usize
    }

    pub(crate) fn chance(&mut self, part: f64) -> bool {
        self.unit() < part
    }

    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    pub(crate) fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        mean + deviation * radius * (TAU * self.unit()).cos()
    }

    /// The exponential of a normal number.
    pub(crate) fn log_normal(&mut self, mean: f64, deviation: f64) -> f64 {
        self.normal(mean, deviation).exp()
    }

    /// A factor with a mean of 1.
    pub(crate) fn factor(&mut self, deviation: f64) -> f64 {
        self.log_normal(-deviation * deviation / 2.0, deviation)
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// An index, by weights.
    pub(crate) fn by_weight(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        let is_there = |weight: &f64| {
            left -= weight;
            left < 0.0
        };
        weights.iter().position(is_there).unwrap_or(weights.len() - 1)
    }

    /// The numbers below `count` in any order.
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            all.swap(last, self.below(last + 1));
        }
        all
    }
}
