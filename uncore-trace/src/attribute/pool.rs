//! Counters of the same devices: which of them counts which device is not known.
//!
//! What owners moved is compared with the sum of such counters, and each counter gets its part of
//! it. The sum is divided as one counter would be; of one counter a share is right as far as the
//! traffic of all went through it, so that its confidence is multiplied by that part.

use std::collections::HashMap;

use super::Method;
use super::counter::{Ended, Track};

/// The pool of each counter.
#[derive(Debug)]
pub(super) struct Pools {
    /// Index of the first counter of its pool, for each counter; `None` for one that is alone.
    first: Vec<Option<usize>>,
}

impl Pools {
    /// The pools of the counters.
    pub(super) fn new(tracks: &[Track]) -> Self {
        let pooled = |track: &&Track| track.kind == Method::Io;
        let first = |track: &Track| {
            let io = track.counter.io.as_ref().filter(|io| io.is_shared)?;
            let same = |other: &Track| {
                other.counter.socket == track.counter.socket
                    && other.counter.family == track.counter.family
                    && other.counter.io.as_ref().is_some_and(|other| other.shares_with(io))
            };
            tracks.iter().position(|other| pooled(&other) && same(other))
        };
        Self {
            first: tracks.iter().map(|track| Some(track).filter(pooled).and_then(first)).collect(),
        }
    }

    /// Leaves each counter its part of what was moved on the devices of its pool.
    pub(super) fn divide(&self, tracks: &[Track], ended: &mut [Ended]) {
        let mut sums: HashMap<(usize, u64), f64> = HashMap::new();
        let members = || self.first.iter().zip(tracks);
        for ((first, track), end) in members().zip(ended.iter()) {
            if let (Some(first), Ended::Read(span)) = (first, end) {
                let total = track.total(span).unwrap_or_default();
                *sums.entry((*first, span.from)).or_default() += total;
            }
        }
        for ((first, track), end) in members().zip(ended.iter_mut()) {
            if let (Some(first), Ended::Read(span)) = (first, end) {
                let total = track.total(span).unwrap_or_default();
                let sum = sums.get(&(*first, span.from)).copied().unwrap_or_default();
                if sum > 0.0 {
                    span.keep_part(total / sum);
                }
            }
        }
    }
}
