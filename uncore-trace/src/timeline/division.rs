//! All counters of a recording, and the ticks that methods learn from: what a stream and the tables
//! of a recording are both given to, so that they cannot come to different answers.

use std::collections::HashMap;

use super::{
    counter::{Close, Ended, Track},
    loss::Ledger,
    misses::Misses,
    sink::Labels,
    window::{self, TickUse, Times},
};
use crate::{
    align::who::Who,
    attribute::{Design, Method, Methods},
    drain::Reading,
    plan::Plan,
    tables::fabric,
};

/// Methods learn from ticks this often in windows that are longer, ns.
const LESSON_NS: u64 = 100_000_000;

/// What a boundary tick says of each counter: its reading, and raw counts by owner since the last.
pub type Boundaries = HashMap<usize, (Reading, HashMap<Who, u64>)>;

/// The counters, in the order of their rows.
#[derive(Debug)]
pub struct Division {
    /// Each with what it had counted so far.
    pub tracks: Vec<Track>,
    /// The sets of CPUs that they see.
    sets: Vec<Vec<u32>>,
    misses: Misses,
    /// The ticks of each set of CPUs, where a counter that sees it learns from them.
    designs: Vec<Option<Design>>,
    tick_ns: u64,
}

impl Division {
    /// The counters with these ids, before the reading of `start_tick`.
    pub fn new(plan: &Plan, ids: &[u32], start_tick: u64, methods: Methods) -> Self {
        let sets = window::sets(plan);
        let track = |id: &u32| {
            let counter = plan.counters.iter().find(|counter| counter.id == *id)?.clone();
            let seen: Vec<u32> = counter.sees.iter().collect();
            let set = sets.iter().position(|set| *set == seen)?;
            Some(Track::new(plan, counter, set, start_tick, methods))
        };
        let learnt = window::learnt(plan, methods).into_iter();
        Self {
            tracks: ids.iter().filter_map(track).collect(),
            misses: Misses::default(),
            designs: learnt.map(|learnt| learnt.then(|| Design::new(plan.tick_ns))).collect(),
            sets,
            tick_ns: plan.tick_ns,
        }
    }

    /// Whether methods are told of the ticks so far at `end`, beside the ends of windows: so memory
    /// does not grow with the window.
    pub fn ends_lesson(&self, end: u64) -> bool {
        self.learns() && end.is_multiple_of(LESSON_NS.next_multiple_of(self.tick_ns))
    }

    /// Whether a method learns from ticks.
    pub fn learns(&self) -> bool {
        self.designs.iter().any(Option::is_some)
    }

    /// Tells the methods of the ticks since they were last told: who ran, and what was counted.
    pub fn learn(&mut self, ticks: &[TickUse]) {
        for TickUse { tick, times } in ticks {
            for (design, times) in self.designs.iter_mut().zip(times) {
                if let Some(design) = design {
                    design.push(times);
                }
            }
            for track in self.tracks.iter_mut().filter(|track| track.learns) {
                if let Some(Some(design)) = self.designs.get(track.set) {
                    track.learn(*tick, design);
                }
            }
        }
    }

    /// Closes a window: the readings of its last tick, and who used the CPUs.
    pub fn close(
        &mut self,
        window: &Close,
        mut found: Boundaries,
        times: &Times,
        labels: &mut Labels<'_>,
        fabric: &mut fabric::Builder,
        ledger: &mut Ledger,
    ) {
        let mut ended = Vec::with_capacity(self.tracks.len());
        for (index, track) in self.tracks.iter_mut().enumerate() {
            let time = times.get(track.set).map(Vec::as_slice).unwrap_or_default();
            let (reading, counts) = match found.remove(&index) {
                Some((reading, counts)) => (Some(reading), counts),
                None => (None, HashMap::new()),
            };
            let end = track.close(window, reading, time, counts, ledger);
            if let Ended::Read(span) = &end
                && track.counter.role.weighs()
                && let Some(factor) = span.factor()
            {
                let factor = factor / track.counter.scale;
                self.misses.add(track.counter.cpu, (span.from, window.tick), &span.counts, factor);
            }
            ended.push(end);
        }
        for (track, end) in self.tracks.iter_mut().zip(ended) {
            match end {
                _ if !track.counter.role.counts() => {}
                Ended::No => {}
                Ended::Unread => track.unread(window, labels, fabric),
                Ended::Read(span) => {
                    let design = self.designs.get(track.set).and_then(Option::as_ref);
                    let cpus = self.sets.get(track.set).filter(|_| track.kind == Method::Misses);
                    let misses =
                        cpus.and_then(|cpus| self.misses.of(cpus, (span.from, window.tick)));
                    track.divide(window, &span, misses.as_deref(), design, labels, fabric);
                }
            }
        }
    }
}
