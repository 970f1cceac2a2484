//! What the witness of each CPU counted in each tick, by owner.
//!
//! A witness is read at every context switch and once a tick. Where it was not read at the end of a tick,
//! what it counted comes with the next reading, and the ticks before are not whole.

use std::collections::{BTreeMap, HashMap};

use super::counter::Track;
use super::history::Source;
use super::usage::CpuSet;
use crate::entries::Owner;

/// Misses by owner, scaled for multiplexing; `None` where they are not known yet.
type Missed = Option<Vec<(Owner, u64)>>;

/// The witnesses of a recording.
#[derive(Debug)]
pub(super) struct Witnesses {
    /// The places of their counters.
    places: Vec<usize>,
    /// Of the last tick that was taken, by CPU.
    missed: HashMap<u32, Missed>,
}

impl Witnesses {
    /// Those among the counters, where anything learns from them.
    pub(super) fn of(tracks: &mut [Track], are_used: bool) -> Self {
        let weighs = |(_, track): &(usize, &mut Track)| are_used && track.counter.role.weighs();
        let witnesses = tracks.iter_mut().enumerate().filter(weighs);
        let places = witnesses.map(|(place, track)| {
            track.series.keep_ticks();
            place
        });
        Self { places: places.collect(), missed: HashMap::new() }
    }

    /// Takes what they counted in a tick. Ticks are taken one after the other.
    pub(super) fn take(&mut self, tick: u64, tracks: &mut [Track]) {
        for place in &self.places {
            let Some(track) = tracks.get_mut(*place) else { continue };
            let missed = track.by_owner(tick).map(|(counts, factor)| {
                let scaled = |(who, count)| (who, (count as f64 * factor).round() as u64);
                counts.into_iter().map(scaled).collect()
            });
            self.missed.insert(track.counter.cpu, missed);
        }
    }

    /// The misses of the tick on a set of CPUs, sorted, and whether those of all of them are known.
    pub(super) fn of_set(&self, set: &CpuSet) -> (Vec<(Source, u64)>, bool) {
        let mut sum: BTreeMap<Source, u64> = BTreeMap::new();
        let mut is_whole = true;
        for cpu in &set.cpus {
            let Some(missed) = self.missed.get(cpu).and_then(Option::as_ref) else {
                is_whole = false;
                continue;
            };
            let is_far = set.is_far(*cpu).unwrap_or(false);
            for &(owner, count) in missed {
                *sum.entry(Source { owner, is_far }).or_default() += count;
            }
        }
        (sum.into_iter().collect(), is_whole)
    }
}
