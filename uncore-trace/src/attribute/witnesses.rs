//! The counts of each CPU's witness in each tick, by owner.
//!
//! A witness is read at every context switch and once a tick. If it was not read at the end of a
//! tick, its count comes with the next reading, and the ticks in between are incomplete.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};

use super::counter::TrackedCounter;
use super::traffic_source::{SourceUse, TickMisses, TrafficSource};
use super::usage::CpuSet;
use crate::entries::Owner;

/// Misses by owner, scaled for multiplexing; `None` if they are not known yet.
type Missed = Option<Vec<(Owner, u64)>>;

/// The witnesses of a recording.
#[derive(Debug)]
pub(super) struct Witnesses {
    /// The indexes of the witnesses among the counters.
    counter_indexes: Vec<usize>,
    /// The misses of the last tick that was taken, by CPU.
    missed: HashMap<u32, Missed>,
}

impl Witnesses {
    /// Finds the witnesses among the counters, if a method learns from them.
    pub(super) fn find_witnesses(tracks: &mut [TrackedCounter], are_used: bool) -> Self {
        let weighs =
            |(_, track): &(usize, &mut TrackedCounter)| are_used && track.counter.is_witness();
        let indexes = tracks.iter_mut().enumerate().filter(weighs).map(|(index, track)| {
            track.series.keep_ticks();
            index
        });
        Self { counter_indexes: indexes.collect(), missed: HashMap::new() }
    }

    /// Takes the witnesses' counts of a tick. Ticks come in order.
    pub(super) fn take_tick(&mut self, tick: u64, tracks: &mut [TrackedCounter]) {
        for index in &self.counter_indexes {
            let Some(track) = tracks.get_mut(*index) else { continue };
            let missed = track.take_owner_counts(tick).map(|(counts, factor)| {
                let scaled = |(owner, count)| (owner, (count as f64 * factor).round() as u64);
                counts.into_iter().map(scaled).collect()
            });
            self.missed.insert(track.counter.cpu, missed);
        }
    }

    /// The misses of the tick on a set of CPUs.
    pub(super) fn misses_of_set(&self, set: &CpuSet) -> TickMisses {
        let mut sum: BTreeMap<TrafficSource, u64> = BTreeMap::new();
        let mut is_complete = true;
        for cpu in set.cpus.iter() {
            let Some(missed) = self.missed.get(&cpu).and_then(Option::as_ref) else {
                is_complete = false;
                continue;
            };
            let is_far = set.is_far(cpu).unwrap_or(false);
            for &(owner, count) in missed {
                *sum.entry(TrafficSource::from_cpus(owner, is_far)).or_default() += count;
            }
        }
        let by_source = sum.into_iter().map(|(source, count)| SourceUse::new(source, count));
        TickMisses { by_source: by_source.collect(), is_complete }
    }
}
