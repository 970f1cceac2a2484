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

use super::{Condition, WatchedRate};
use crate::count::{Count, CounterTimes};
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
struct LastReading {
    mono_ns: i64,
    count: Count,
}

/// A tick that still waits for readings.
#[derive(Debug, Clone, Copy)]
struct PendingTick {
    /// Known part of the rate, in the unit of the level.
    rate: f64,
    /// Number of counters read.
    read: usize,
    /// Whether a counter was read that did not run.
    has_stopped_counter: bool,
    /// Begin of the time covered, `CLOCK_MONOTONIC`, ns.
    begin_ns: i64,
    end_ns: i64,
}

/// State of one meter.
#[derive(Debug, Default)]
struct RateState {
    ticks: BTreeMap<i64, PendingTick>,
    /// Number of counters that each tick waits for.
    awaited: usize,
    /// Begin of the time for which the rate has been above the level, `CLOCK_MONOTONIC`, ns.
    above_since: Option<i64>,
    /// End of the last tick that was decided, `CLOCK_MONOTONIC`, ns.
    decided_until_ns: i64,
    /// Whether the current time above the level was already reported.
    is_reported: bool,
    /// The largest number of unread counters that was logged.
    logged_unread: usize,
}

impl RateState {
    /// Applies a tick. Returns the time at which the condition came true, if it did.
    fn apply_tick(
        &mut self,
        tick: PendingTick,
        is_whole: bool,
        level: f64,
        lasting_ns: i64,
    ) -> Option<i64> {
        let is_above = tick.rate > level;
        let is_known = is_above || is_whole && !tick.has_stopped_counter;
        if tick.begin_ns.saturating_sub(self.decided_until_ns) > UNDECIDED_NS
            || is_known && !is_above
        {
            (self.above_since, self.is_reported) = (None, false);
        }
        if is_known {
            self.decided_until_ns = tick.end_ns;
        }
        if !is_above {
            return None;
        }
        // The first count covers the time since the previous reading.
        let since = *self.above_since.get_or_insert(tick.begin_ns);
        if self.is_reported || tick.end_ns - since < lasting_ns {
            return None;
        }
        self.is_reported = true;
        Some(tick.end_ns)
    }
}

/// A counter of the plan; it may belong to no meter.
#[derive(Debug, Default)]
struct WatchedCounter {
    /// The meters that it belongs to, and the scale of its counts there.
    meters: Vec<(usize, f64)>,
    last_reading: Option<LastReading>,
    times: CounterTimes,
    /// The last tick in which it was read; `None` before the first.
    tick: Option<i64>,
    /// Whether it is not waited for.
    is_absent: bool,
}

/// Evaluates one condition.
#[derive(Debug)]
pub struct ConditionWatch {
    condition: Condition,
    states: Vec<RateState>,
    /// Indexed by counter id: looked up at every reading, and a plan has few ids.
    watched_counters: Vec<WatchedCounter>,
    /// The first tick with a reading.
    first_tick: Option<i64>,
}

impl ConditionWatch {
    /// No reading seen yet.
    pub fn new(condition: Condition) -> Self {
        let mut watched_counters: Vec<WatchedCounter> = Vec::new();
        for (meter, watched_rate) in condition.meters.iter().enumerate() {
            for (counter, scale) in &watched_rate.counters {
                let counter = *counter as usize;
                if watched_counters.len() <= counter {
                    watched_counters.resize_with(counter + 1, WatchedCounter::default);
                }
                watched_counters[counter].meters.push((meter, *scale));
            }
        }
        let state = |meter: &WatchedRate| RateState {
            awaited: meter.counters.len(),
            ..RateState::default()
        };
        let states = condition.meters.iter().map(state);
        Self { states: states.collect(), condition, watched_counters, first_tick: None }
    }

    /// Adds rows of `readings`. Returns the time at which the condition came true,
    /// `CLOCK_MONOTONIC` ns. It is returned again only after the condition was false.
    ///
    /// # Errors
    ///
    /// The batch has not the columns of the table.
    pub fn add_readings(&mut self, batch: &RecordBatch) -> Result<Option<i64>> {
        let times = columns::i64_column(batch, "mono_ns")?;
        let ticks = columns::i64_column(batch, "tick")?;
        let counters = columns::i32_column(batch, "counter")?;
        let values = columns::bits_column(batch, "value")?;
        let (enabled, running) =
            (columns::bits_column(batch, "enabled")?, columns::bits_column(batch, "running")?);
        let mut came_true = None;
        for row in 0..batch.num_rows() {
            // A negative id becomes an index beyond the table, so it is no counter.
            let counter = counters.value(row).cast_unsigned() as usize;
            let watched = self
                .watched_counters
                .get_mut(counter)
                .filter(|watched_counter| !watched_counter.meters.is_empty());
            let Some(watched) = watched else { continue };
            let (read_ns, tick) = (times.value(row), ticks.value(row));
            let Some(value) = values.get(row) else {
                (watched.last_reading, watched.times) = (None, CounterTimes::default());
                continue;
            };
            // A reading that arrived late is logged with a later tick, which also has its own
            // reading.
            if watched.tick.is_some_and(|last_tick| tick <= last_tick)
                || watched.last_reading.is_some_and(|reading| read_ns <= reading.mono_ns)
            {
                continue;
            }
            watched.tick = Some(tick);
            let enabled_and_running = enabled.get(row).zip(running.get(row));
            let count =
                watched.times.count_at(read_ns.max(0).cast_unsigned(), value, enabled_and_running);
            let count =
                watched.last_reading.map_or(count, |reading| count.not_below(reading.count));
            let previous = watched.last_reading.replace(LastReading { mono_ns: read_ns, count });
            if std::mem::take(&mut watched.is_absent) {
                watched.meters.iter().for_each(|&(meter, _)| self.states[meter].awaited += 1);
            }
            let Some(earlier) = previous else { continue };
            let tick_rate =
                TickRate::new(count.count_since(earlier.count), earlier.mono_ns, read_ns);
            for index in 0..self.watched_counters[counter].meters.len() {
                let (meter, scale) = self.watched_counters[counter].meters[index];
                came_true = came_true.or(self.add_tick_rate(meter, tick, tick_rate, scale));
            }
        }
        self.first_tick = self.first_tick.or_else(|| ticks.values().first().copied());
        if let (Some(first_tick), Some(newest_tick)) = (self.first_tick, ticks.values().last())
            && newest_tick - first_tick > WAITING as i64
        {
            self.unread_warnings().iter().for_each(|line| log::warn!("{line}"));
        }
        Ok(came_true)
    }

    /// Adds a counter's part of a tick to a meter. Returns the time at which the condition came
    /// true, if it did.
    fn add_tick_rate(
        &mut self,
        meter: usize,
        tick_number: i64,
        tick_rate: TickRate,
        scale: f64,
    ) -> Option<i64> {
        let TickRate { rate, begin_ns, end_ns } = tick_rate;
        let (level, lasting_ns) = (self.condition.meters[meter].level, self.condition.lasting_ns);
        let state = &mut self.states[meter];
        let empty_tick =
            PendingTick { rate: 0.0, read: 0, has_stopped_counter: false, begin_ns, end_ns };
        let tick = state.ticks.entry(tick_number).or_insert(empty_tick);
        tick.rate += rate.unwrap_or_default() * scale;
        tick.read += 1;
        tick.has_stopped_counter |= rate.is_none();
        tick.begin_ns = tick.begin_ns.max(begin_ns);
        tick.end_ns = tick.end_ns.max(end_ns);
        let mut came_true = None;
        if tick.read >= state.awaited {
            // Earlier ticks are complete: the readings of each counter come in the order of time.
            while let Some((earliest, tick)) = state.ticks.pop_first() {
                let is_whole = earliest == tick_number;
                came_true = came_true.or(state.apply_tick(tick, is_whole, level, lasting_ns));
                if is_whole {
                    break;
                }
            }
        } else if state.ticks.len() > WAITING
            && let Some((earliest, tick)) = state.ticks.pop_first()
        {
            came_true = state.apply_tick(tick, false, level, lasting_ns);
            self.stop_waiting(meter, earliest);
        }
        came_true
    }

    /// Stops waiting for counters of a meter that were last read before this tick.
    fn stop_waiting(&mut self, meter: usize, tick: i64) {
        for (counter, _) in &self.condition.meters[meter].counters {
            let watched = &mut self.watched_counters[*counter as usize];
            if watched.tick < Some(tick) && !std::mem::replace(&mut watched.is_absent, true) {
                watched.meters.iter().for_each(|&(meter, _)| self.states[meter].awaited -= 1);
            }
        }
    }

    /// A line for each meter with more unread counters than were logged before.
    fn unread_warnings(&mut self) -> Vec<String> {
        let Self { condition, states, watched_counters, .. } = self;
        let mut lines = Vec::new();
        for (state, meter) in states.iter_mut().zip(&condition.meters) {
            let is_read = |counter: u32| {
                let counter_state = &watched_counters[counter as usize];
                counter_state.tick.is_some() && !counter_state.is_absent
            };
            let (counter_count, text) = (meter.counters.len(), &condition.text);
            let unread = meter.counters.iter().filter(|(counter, _)| !is_read(*counter)).count();
            if unread > state.logged_unread {
                state.logged_unread = unread;
                lines.push(format!(
                    "{unread} of {counter_count} counters of the condition {text:?} are not read, \
                     and only the others are compared with the level: see the table counters for \
                     counters that were not opened, and bring all CPUs online"
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
    begin_ns: i64,
    end_ns: i64,
}

impl TickRate {
    fn new(count: Count, begin_ns: i64, end_ns: i64) -> Self {
        let rate = count.scale_factor().map(|factor| {
            count.value as f64 * factor * 1e9 / (end_ns.saturating_sub(begin_ns).max(1) as f64)
        });
        Self { rate, begin_ns, end_ns }
    }
}

#[cfg(test)]
mod tests;
