//! Random numbers that are the same in every run.

/// A generator of random numbers: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators" (2014).
pub(in crate::attribute) struct SplitMix(pub u64);

impl SplitMix {
    pub(in crate::attribute) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(in crate::attribute) fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(in crate::attribute) fn next_below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(in crate::attribute) fn next_exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next_unit()).ln()
    }

    pub(in crate::attribute) fn next_normal(&mut self) -> f64 {
        (0..12).map(|_| self.next_unit()).sum::<f64>() - 6.0
    }
}
