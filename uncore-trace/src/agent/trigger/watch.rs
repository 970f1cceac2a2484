//! Watches a condition, reading by reading.
//!
//! Guarantees: a count of a multiplexed counter is scaled as everywhere. What is seen of a tick is never more than
//! there was, so a tick of which a part is missing may be above the level; that it is not above is decided only by
//! a tick of which nothing is missing. Such a part is missing where a read failed, or a multiplexed counter did not
//! run. A counter that is not read at all, because its CPU is offline or it was not opened, is not waited for, and
//! the log says so.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::Condition;
use crate::count::{Count, Times};
use crate::schema::columns;

/// Ticks that wait for the readings of other CPUs. A counter that was not read in so many is not waited for.
const WAITING: usize = 64;

/// What lasts ends when nothing is decided for so long. The kernel changes which multiplexed counters run every
/// 4 ms (`perf_cpu_hrtimer`, kernel/events/core.c, Linux 6.18), so a counter has its turn by then.
const UNDECIDED_NS: i64 = 100_000_000;

/// The last reading of a counter.
#[derive(Debug, Clone, Copy)]
struct Last {
    mono_ns: i64,
    count: Count,
}

/// A tick whose counters were not all read yet.
#[derive(Debug, Clone, Copy)]
struct Tick {
    /// What is known of the rate, in the unit of the level.
    rate: f64,
    /// How many counters were read.
    read: usize,
    /// Whether a counter that was read did not run.
    stood: bool,
    /// The time it is of, `CLOCK_MONOTONIC`, ns.
    from: i64,
    to: i64,
}

/// A meter while it is watched.
#[derive(Debug)]
struct State {
    ticks: BTreeMap<i64, Tick>,
    /// Counters that are waited for in each tick.
    awaited: usize,
    /// Since when the rate is above the level, ns.
    since: Option<i64>,
    /// Until when it is decided whether it is, ns.
    until: i64,
    /// Whether that was told.
    told: bool,
    /// The most counters that were said not to be read.
    said: usize,
}

impl State {
    /// What a tick says of the condition.
    fn decide(&mut self, tick: Tick, is_whole: bool, level: f64, lasting_ns: i64) -> Option<i64> {
        let is_above = tick.rate > level;
        let is_known = is_above || is_whole && !tick.stood;
        if tick.from.saturating_sub(self.until) > UNDECIDED_NS || is_known && !is_above {
            (self.since, self.told) = (None, false);
        }
        if is_known {
            self.until = tick.to;
        }
        if !is_above {
            return None;
        }
        // The count is of the time since the last reading.
        let since = *self.since.get_or_insert(tick.from);
        if self.told || tick.to - since < lasting_ns {
            return None;
        }
        self.told = true;
        Some(tick.to)
    }
}

/// A counter of a plan, which may be of no meter.
#[derive(Debug)]
struct Watched {
    /// The meters that it is of, and the scale of its counts there.
    meters: Vec<(usize, f64)>,
    last: Option<Last>,
    times: Times,
    /// The last tick that it was read in.
    tick: i64,
    /// Whether it is not waited for.
    is_absent: bool,
}

impl Default for Watched {
    fn default() -> Self {
        let (last, times) = (None, Times::default());
        Self { meters: Vec::new(), last, times, tick: i64::MIN, is_absent: false }
    }
}

/// Watches one condition.
#[derive(Debug)]
pub struct Watch {
    condition: Condition,
    states: Vec<State>,
    /// By counter: a table of the few ids of a plan is read with every reading.
    of: Vec<Watched>,
    /// The first tick that anything was read in.
    first: Option<i64>,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(condition: Condition) -> Self {
        let mut of: Vec<Watched> = Vec::new();
        for (meter, its) in condition.meters.iter().enumerate() {
            for (counter, scale) in &its.counters {
                let counter = *counter as usize;
                if of.len() <= counter {
                    of.resize_with(counter + 1, Watched::default);
                }
                of[counter].meters.push((meter, *scale));
            }
        }
        let states = condition.meters.iter().map(|meter| State {
            ticks: BTreeMap::new(),
            awaited: meter.counters.len(),
            since: None,
            until: 0,
            told: false,
            said: 0,
        });
        Self { states: states.collect(), condition, of, first: None }
    }

    /// Looks at rows of `readings`. Returns when the condition came true, `CLOCK_MONOTONIC` ns, if it
    /// did; again only after it was false.
    ///
    /// # Errors
    ///
    /// The batch has not the columns of the table.
    pub fn readings(&mut self, batch: &RecordBatch) -> Result<Option<i64>> {
        let times = columns::i64s(batch, "mono_ns")?;
        let ticks = columns::i64s(batch, "tick")?;
        let counters = columns::i32s(batch, "counter")?;
        let values = columns::bits(batch, "value")?;
        let (enabled, running) =
            (columns::bits(batch, "enabled")?, columns::bits(batch, "running")?);
        let mut came_true = None;
        for row in 0..batch.num_rows() {
            // No table is that long: a negative id is of no counter.
            let counter = counters.value(row).cast_unsigned() as usize;
            let watched = self.of.get_mut(counter).filter(|its| !its.meters.is_empty());
            let Some(watched) = watched else { continue };
            let (now, tick) = (times.value(row), ticks.value(row));
            let Some(value) = values.get(row) else {
                (watched.last, watched.times) = (None, Times::default());
                continue;
            };
            // A reading that came after its time is logged in a later tick, which has one of its own.
            if tick <= watched.tick || watched.last.is_some_and(|last| now <= last.mono_ns) {
                continue;
            }
            watched.tick = tick;
            let both = enabled.get(row).zip(running.get(row));
            let count = watched.times.count(now.max(0).cast_unsigned(), value, both);
            let count = watched.last.map_or(count, |last| count.not_below(last.count));
            let last = watched.last.replace(Last { mono_ns: now, count });
            if std::mem::take(&mut watched.is_absent) {
                watched.meters.iter().for_each(|&(meter, _)| self.states[meter].awaited += 1);
            }
            let Some(last) = last else { continue };
            let part = Part::new(count.since(last.count), last.mono_ns, now);
            for at in 0..self.of[counter].meters.len() {
                let (meter, scale) = self.of[counter].meters[at];
                let decided = self.add(meter, tick, part, scale);
                came_true = came_true.or(decided);
            }
        }
        let (first, last) = (ticks.values().first().copied(), ticks.values().last().copied());
        self.first = self.first.or(first);
        if self.first.zip(last).is_some_and(|(first, last)| last - first > WAITING as i64) {
            self.news().iter().for_each(|line| log::warn!("{line}"));
        }
        Ok(came_true)
    }

    /// Adds what a counter says of a tick to a meter. Returns when the condition came true, if it did.
    fn add(&mut self, meter: usize, number: i64, part: Part, scale: f64) -> Option<i64> {
        let Part { rate, from, to } = part;
        let (level, lasting_ns) = (self.condition.meters[meter].level, self.condition.lasting_ns);
        let state = &mut self.states[meter];
        let new = Tick { rate: 0.0, read: 0, stood: false, from, to };
        let tick = state.ticks.entry(number).or_insert(new);
        tick.rate += rate.unwrap_or_default() * scale;
        tick.read += 1;
        tick.stood |= rate.is_none();
        tick.from = tick.from.max(from);
        tick.to = tick.to.max(to);
        let mut came_true = None;
        if tick.read >= state.awaited {
            // Of the ticks before it no more comes: each counter is read in the order of time.
            while let Some((at, tick)) = state.ticks.pop_first() {
                let is_whole = at == number;
                came_true = came_true.or(state.decide(tick, is_whole, level, lasting_ns));
                if is_whole {
                    break;
                }
            }
        } else if state.ticks.len() > WAITING
            && let Some((at, tick)) = state.ticks.pop_first()
        {
            came_true = state.decide(tick, false, level, lasting_ns);
            self.forget(meter, at);
        }
        came_true
    }

    /// Waits no longer for counters of a meter that were last read before this tick.
    fn forget(&mut self, meter: usize, tick: i64) {
        for (counter, _) in &self.condition.meters[meter].counters {
            let watched = &mut self.of[*counter as usize];
            if watched.tick < tick && !std::mem::replace(&mut watched.is_absent, true) {
                watched.meters.iter().for_each(|&(meter, _)| self.states[meter].awaited -= 1);
            }
        }
    }

    /// A line for each meter of which more counters are not read than was ever said.
    fn news(&mut self) -> Vec<String> {
        let Self { condition, states, of, .. } = self;
        let mut lines = Vec::new();
        for (state, meter) in states.iter_mut().zip(&condition.meters) {
            let is_read = |counter: u32| {
                let its = &of[counter as usize];
                its.tick > i64::MIN && !its.is_absent
            };
            let (all, text) = (meter.counters.len(), &condition.text);
            let unread = meter.counters.iter().filter(|(counter, _)| !is_read(*counter)).count();
            if unread > state.said {
                state.said = unread;
                lines.push(format!(
                    "{unread} of {all} counters of the condition {text:?} are not read: it is decided by \
                     the others; see the table counters for what was not opened, and bring all CPUs online"
                ));
            }
        }
        lines
    }
}

/// What a counter says of a tick.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Counts a second; `None` where it did not run.
    rate: Option<f64>,
    from: i64,
    to: i64,
}

impl Part {
    fn new(count: Count, from: i64, to: i64) -> Self {
        let rate = count.factor().map(|factor| {
            let passed = to.saturating_sub(from).max(1) as f64;
            count.value as f64 * factor * 1e9 / passed
        });
        Self { rate, from, to }
    }
}

#[cfg(test)]
mod tests;
