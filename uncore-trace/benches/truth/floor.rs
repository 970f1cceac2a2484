//! The floor: what a method that knew all rates would say.
//!
//! The true bytes of each process by its time on near and on far CPUs, within [`HALF`] ticks before
//! and after, times its time in each tick, and the mean of devices; in proportion to what was
//! counted. No model of rates that is learnt from counts can be expected to do better.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::scores::{GivenValue, Scores};
use super::ticks::{ByteMover, DrawnTick, MovedPart};

const HALF: usize = 50;

/// Counter, who, and whether on far CPUs.
type FloorKey = (usize, ByteMover, bool);

#[derive(Debug, Default)]
pub(crate) struct Floor {
    /// The ticks around the one that is divided, and their sums: ns and bytes.
    ticks: VecDeque<DrawnTick>,
    sums: HashMap<FloorKey, (u64, f64), FixedState>,
    device: Vec<f64>,
    /// The tick that is divided next, and its place in `ticks`.
    next_tick: usize,
    divided_index: usize,
}

fn floor_key(moved: &MovedPart) -> FloorKey {
    (moved.counter, moved.mover, moved.is_far)
}

impl Floor {
    /// Takes the next tick.
    pub(crate) fn add_tick(&mut self, tick: DrawnTick, scores: &mut Scores) {
        self.device.resize(tick.device.len(), 0.0);
        for moved in &tick.moved_parts {
            let sum = self.sums.entry(floor_key(moved)).or_default();
            *sum = (sum.0 + moved.ns, sum.1 + moved.bytes);
        }
        self.device.iter_mut().zip(&tick.device).for_each(|(sum, bytes)| *sum += bytes);
        self.ticks.push_back(tick);
        if self.ticks.len() > self.divided_index + HALF {
            self.divide_next(scores);
        }
    }

    /// Divides the ticks that are left.
    pub(crate) fn divide_rest(&mut self, scores: &mut Scores) {
        while self.divided_index < self.ticks.len() {
            self.divide_next(scores);
        }
    }

    fn divide_next(&mut self, scores: &mut Scores) {
        let Some(tick) = self.ticks.get(self.divided_index) else { return };
        let expected = |moved: &MovedPart| {
            let (ns, bytes) = self.sums.get(&floor_key(moved)).copied().unwrap_or_default();
            bytes / ns.max(1) as f64 * moved.ns as f64
        };
        let device = |counter: usize| self.device[counter] / self.ticks.len() as f64;
        let mut counted = tick.device.clone();
        let mut sums: Vec<f64> = (0..counted.len()).map(device).collect();
        for moved in &tick.moved_parts {
            counted[moved.counter] += moved.bytes;
            sums[moved.counter] += expected(moved);
        }
        let scale = |counter: usize| counted[counter] / sums[counter].max(1e-9);
        let given = |counter, mover, value| GivenValue {
            counter,
            mover,
            value: value * scale(counter),
            total: counted[counter],
            confidence: None,
        };
        for moved in &tick.moved_parts {
            let value = given(moved.counter, moved.mover, expected(moved));
            scores.add_value(self.next_tick, value);
        }
        for counter in 0..sums.len() {
            let value = given(counter, ByteMover::Nobody, device(counter));
            scores.add_value(self.next_tick, value);
        }
        self.next_tick += 1;
        self.divided_index += 1;
        if self.divided_index > HALF {
            self.divided_index -= 1;
            let Some(dropped) = self.ticks.pop_front() else { return };
            for moved in &dropped.moved_parts {
                let sum = self.sums.entry(floor_key(moved)).or_default();
                *sum = (sum.0 - moved.ns, sum.1 - moved.bytes);
            }
            // Bytes may come without time.
            self.sums.retain(|_, (ns, bytes)| *ns > 0 || *bytes > 1.0);
            self.device.iter_mut().zip(&dropped.device).for_each(|(sum, bytes)| *sum -= bytes);
        }
    }
}
