//! Random numbers that are the same in every run of a seed.

use std::f64::consts::TAU;

/// `SplitMix64`, Steele, Lea and Flood 2014.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix_bits(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// Random numbers of a place: equal places have equal numbers, in whatever order they are asked
    /// for.
    pub(crate) fn for_place(purpose: u64, first_key: u64, second_key: u64) -> Self {
        let hashed = mix_bits(purpose.wrapping_mul(STEP) ^ first_key);
        Self(mix_bits(hashed.wrapping_add(STEP) ^ second_key))
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix_bits(self.0)
    }

    /// 0 to 1, without 1.
    pub(crate) fn unit_interval(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn index_below(&mut self, limit: usize) -> usize {
        (self.unit_interval() * limit as f64) as usize
    }

    pub(crate) fn draw_bool(&mut self, probability: f64) -> bool {
        self.unit_interval() < probability
    }

    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit_interval()
    }

    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    pub(crate) fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit_interval()).ln()).sqrt();
        mean + deviation * radius * (TAU * self.unit_interval()).cos()
    }

    /// The exponential of a normal number.
    pub(crate) fn log_normal(&mut self, mean: f64, deviation: f64) -> f64 {
        self.normal(mean, deviation).exp()
    }

    /// A factor with a mean of 1.
    pub(crate) fn mean_one_factor(&mut self, deviation: f64) -> f64 {
        self.log_normal(-deviation * deviation / 2.0, deviation)
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit_interval()).ln()
    }

    /// An index, by weights.
    pub(crate) fn by_weight(&mut self, weights: &[f64]) -> usize {
        let mut remaining = self.unit_interval() * weights.iter().sum::<f64>();
        let is_reached = |weight: &f64| {
            remaining -= weight;
            remaining < 0.0
        };
        weights.iter().position(is_reached).unwrap_or(weights.len() - 1)
    }

    /// The numbers below `count` in any order.
    pub(crate) fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut indices: Vec<usize> = (0..count).collect();
        for end in (1..count).rev() {
            indices.swap(end, self.index_below(end + 1));
        }
        indices
    }
}
