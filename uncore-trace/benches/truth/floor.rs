//! The floor: what a method that knew all rates would say.
//!
//! The true bytes of each process by its time on near and on far CPUs, within [`HALF`] ticks before
//! and after, times its time in each tick, and the mean of devices; in proportion to what was
//! counted. No model of rates that is learnt from counts can be expected to do better.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::scores::Scores;
use super::ticks::{Part, Tick, Who};

const HALF: usize = 50;

/// Counter, who, and whether on far CPUs.
type Key = (usize, Who, bool);

#[derive(Debug, Default)]
pub(crate) struct Floor {
    /// The ticks around the one that is divided, and their sums: ns and bytes.
    ticks: VecDeque<Tick>,
    sums: HashMap<Key, (u64, f64), FixedState>,
    device: Vec<f64>,
    /// The tick that is divided next, and its place in `ticks`.
    next: usize,
    place: usize,
}

fn key(part: &Part) -> Key {
    (part.counter, part.who, part.is_far)
}

impl Floor {
    /// Takes the next tick.
    pub(crate) fn take(&mut self, tick: Tick, scores: &mut Scores) {
        self.device.resize(tick.device.len(), 0.0);
        for part in &tick.parts {
            let sum = self.sums.entry(key(part)).or_default();
            *sum = (sum.0 + part.ns, sum.1 + part.bytes);
        }
        self.device.iter_mut().zip(&tick.device).for_each(|(sum, bytes)| *sum += bytes);
        self.ticks.push_back(tick);
        if self.ticks.len() > self.place + HALF {
            self.divide(scores);
        }
    }

    /// Divides the ticks that are left.
    pub(crate) fn finish(&mut self, scores: &mut Scores) {
        while self.place < self.ticks.len() {
            self.divide(scores);
        }
    }

    fn divide(&mut self, scores: &mut Scores) {
        let Some(tick) = self.ticks.get(self.place) else { return };
        let expected = |part: &Part| {
            let (ns, bytes) = self.sums.get(&key(part)).copied().unwrap_or_default();
            bytes / ns.max(1) as f64 * part.ns as f64
        };
        let device = |counter: usize| self.device[counter] / self.ticks.len() as f64;
        let mut counted = tick.device.clone();
        let mut sums: Vec<f64> = (0..counted.len()).map(device).collect();
        for part in &tick.parts {
            counted[part.counter] += part.bytes;
            sums[part.counter] += expected(part);
        }
        let scale = |counter: usize| counted[counter] / sums[counter].max(1e-9);
        for part in &tick.parts {
            let value = expected(part) * scale(part.counter);
            scores.give(self.next, part.counter, part.who, value, None);
        }
        for counter in 0..sums.len() {
            scores.give(self.next, counter, Who::Nobody, device(counter) * scale(counter), None);
        }
        self.next += 1;
        self.place += 1;
        if self.place > HALF {
            self.place -= 1;
            let Some(gone) = self.ticks.pop_front() else { return };
            for part in &gone.parts {
                let sum = self.sums.entry(key(part)).or_default();
                *sum = (sum.0 - part.ns, sum.1 - part.bytes);
            }
            self.sums.retain(|_, (ns, _)| *ns > 0);
            self.device.iter_mut().zip(&gone.device).for_each(|(sum, bytes)| *sum -= bytes);
        }
    }
}
