//! Evaluates a condition, reading by reading.
//!
//! Guarantees: counts of multiplexed counters are scaled. The known part of a tick's rate never
//! exceeds its true rate, so a tick with missing parts can be found above the level. A tick is
//! found not above it only if nothing is missing. A part is missing if a read failed, or if a
//! multiplexed counter did not run. A counter that is not read at all, because its CPU is offline
//! or it could not be opened, is not waited for, and the log says so.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::Condition;
use crate::count::{Count, Times};
use crate::schema::columns;

/// Ticks that wait for readings of other CPUs. A counter without a reading in this many ticks is no
/// longer waited for.
const WAITING: usize = 64;

/// The condition ends if no tick could be decided for this time. The kernel rotates multiplexed
/// counters every 4 ms (`perf_cpu_hrtimer`, kernel/events/core.c, Linux 6.18), so each counter runs
/// within it.
const UNDECIDED_NS: i64 = 100_000_000;

/// The last reading of a counter.
#[derive(Debug, Clone, Copy)]
struct Last {
    mono_ns: i64,
    count: Count,
}

/// A tick that still waits for readings.
#[derive(Debug, Clone, Copy)]
struct Tick {
    /// Known part of the rate, in the unit of the level.
    rate: f64,
    /// Number of counters read.
    read: usize,
    /// Whether a counter was read that did not run.
    stood: bool,
    /// Begin of the time covered, `CLOCK_MONOTONIC`, ns.
    from: i64,
    to: i64,
}

/// State of one meter.
#[derive(Debug)]
struct State {
    ticks: BTreeMap<i64, Tick>,
    /// Number of counters that each tick waits for.
    awaited: usize,
    /// Begin of the time for which the rate has been above the level, `CLOCK_MONOTONIC`, ns.
    since: Option<i64>,
    /// End of the last tick that was decided, `CLOCK_MONOTONIC`, ns.
    until: i64,
    /// Whether the current time above the level was already reported.
    told: bool,
    /// The largest number of unread counters that was logged.
    said: usize,
}

impl State {
    /// Applies a tick. Returns the time at which the condition came true, if it did.
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
        // The first count covers the time since the previous reading.
        let since = *self.since.get_or_insert(tick.from);
        if self.told || tick.to - since < lasting_ns {
            return None;
        }
        self.told = true;
        Some(tick.to)
    }
}

/// A counter of the plan; it may belong to no meter.
#[derive(Debug)]
struct Watched {
    /// The meters that it belongs to, and the scale of its counts there.
    meters: Vec<(usize, f64)>,
    last: Option<Last>,
    times: Times,
    /// The last tick in which it was read.
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

/// Evaluates one condition.
#[derive(Debug)]
pub struct Watch {
    condition: Condition,
    states: Vec<State>,
    /// Indexed by counter id: looked up at every reading, and a plan has few ids.
    of: Vec<Watched>,
    /// The first tick with a reading.
    first: Option<i64>,
}

impl Watch {
    /// No reading seen yet.
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

    /// Adds rows of `readings`. Returns the time at which the condition came true,
    /// `CLOCK_MONOTONIC` ns. It is returned again only after the condition was false.
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
            // A negative id becomes an index beyond the table, so it is no counter.
            let counter = counters.value(row).cast_unsigned() as usize;
            let watched = self.of.get_mut(counter).filter(|its| !its.meters.is_empty());
            let Some(watched) = watched else { continue };
            let (now, tick) = (times.value(row), ticks.value(row));
            let Some(value) = values.get(row) else {
                (watched.last, watched.times) = (None, Times::default());
                continue;
            };
            // A reading that arrived late is logged with a later tick, which also has its own
            // reading.
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
            let part = TickRate::new(count.since(last.count), last.mono_ns, now);
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

    /// Adds a counter's part of a tick to a meter. Returns the time at which the condition came
    /// true, if it did.
    fn add(&mut self, meter: usize, number: i64, part: TickRate, scale: f64) -> Option<i64> {
        let TickRate { rate, from, to } = part;
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
            // Earlier ticks are complete: the readings of each counter come in the order of time.
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

    /// Stops waiting for counters of a meter that were last read before this tick.
    fn forget(&mut self, meter: usize, tick: i64) {
        for (counter, _) in &self.condition.meters[meter].counters {
            let watched = &mut self.of[*counter as usize];
            if watched.tick < tick && !std::mem::replace(&mut watched.is_absent, true) {
                watched.meters.iter().for_each(|&(meter, _)| self.states[meter].awaited -= 1);
            }
        }
    }

    /// A line for each meter with more unread counters than were logged before.
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

/// A counter's part of a tick.
#[derive(Debug, Clone, Copy)]
struct TickRate {
    /// Counts per second; `None` if the counter did not run.
    rate: Option<f64>,
    from: i64,
    to: i64,
}

impl TickRate {
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
