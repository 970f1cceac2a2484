//! Random numbers for processes beside the recorder.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Random numbers: `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// With the seed of this process's hash maps, which is random.
    pub(super) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    pub(super) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of these; `None` if there are none.
    pub(super) fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get((self.next() % of.len().max(1) as u64) as usize)
    }

    /// Puts them in a random order.
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_order_has_everything_once() {
        let mut random = Random::new();
        let mut list: Vec<u32> = (0..20).collect();
        random.shuffle(&mut list);
        list.sort_unstable();
        assert_eq!(list, (0..20).collect::<Vec<_>>());
        assert_eq!(random.one::<u8>(&[]), None);
    }
}
