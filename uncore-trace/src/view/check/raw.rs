//! Computes the totals of `fabric` again from `readings`, and compares them.
//!
//! A window ends with the timer's reading of its last tick. Its total is the sum of the raw
//! differences between the timer's readings in it, times the sum of the times enabled / the sum of
//! the times running, times the counter's scale. Readings with other triggers lie between these and
//! change nothing. Guarantee: memory holds only the windows between the positions in the two
//! tables, which a flush interval bounds.

use std::collections::{HashMap, VecDeque};

use anyhow::{Context as _, Result, anyhow};
use arrow::array::RecordBatch;

use super::window::{CheckedCounter, CheckedWindow, WindowReader};
use super::{CheckOutcome, FaultTally};
use crate::schema::columns::{self, word_column};
use crate::schema::{counters, metadata, readings};
use crate::tables::reader::Recording;

/// Relative error of the sums.
const RELATIVE: f64 = 1e-9;
/// Largest distance between the positions in the two tables, ns: more than any flush interval.
/// Within a flush, readings are sorted by counter, not by time.
const APART_NS: i64 = 60_000_000_000;

/// Compares every window that has both a total and readings.
pub(super) fn verify_totals(recording: &Recording) -> CheckOutcome {
    if !recording.is_dataset() {
        return CheckOutcome::NotVerifiable("there is no readings table".to_owned());
    }
    FaultTally::scan_outcome(compare_windows(recording), "windows with readings")
}

/// A reading; the times are `None` if they were equal.
#[derive(Debug, Clone, Copy)]
struct TimerReading {
    mono_ns: i64,
    value: u64,
    times: Option<(u64, u64)>,
}

/// State of one counter in both tables.
#[derive(Debug, Default)]
struct CounterTrack {
    scale: f64,
    name: String,
    last_reading: Option<TimerReading>,
    windows: VecDeque<CheckedWindow>,
    sum: ReadingSums,
}

/// Sums over the readings of the oldest open window.
#[derive(Debug, Default, Clone, Copy)]
struct ReadingSums {
    count: f64,
    enabled: f64,
    running: f64,
    deltas: u64,
    broken: bool,
}

fn compare_windows(recording: &Recording) -> Result<FaultTally> {
    let (mut tracks, ids) = load_counters(recording)?;
    let mut fabric = WindowReader::open(recording)?;
    let mut tally = FaultTally::default();
    let mut newest = i64::MIN;
    let readings = recording.open_table(&readings::TABLE)?;
    let tick_ns =
        readings.metadata_pairs().get(metadata::TICK_NS).and_then(|text| text.parse().ok());
    let tick_ns: i64 = tick_ns.context("the metadata has no tick length")?;
    let wanted = ["tick", "counter", "value", "enabled", "running", "trigger"];
    for batch in readings.scan_columns(&wanted)? {
        for (counter, mono_ns, reading) in decode_readings(&batch?, tick_ns)? {
            while !fabric.is_over
                && tracks.get(&counter).is_some_and(|track| track.windows.is_empty())
            {
                read_windows(&mut fabric, &mut tracks, &ids)?;
            }
            if let Some(track) = tracks.get_mut(&counter) {
                track.add_reading(mono_ns, reading, &mut tally);
            }
            newest = newest.max(mono_ns);
        }
        // The windows of a counter without readings must not accumulate.
        let behind = newest.saturating_sub(APART_NS);
        for track in tracks.values_mut() {
            track.close_through(behind, &mut tally);
        }
    }
    for track in tracks.values_mut() {
        track.close_through(i64::MAX, &mut tally);
    }
    Ok(tally)
}

type DecodedReading = (i32, i64, Option<TimerReading>);

/// The timer's readings, with the end times of their ticks, by which windows refer to them.
fn decode_readings(batch: &RecordBatch, tick_ns: i64) -> Result<Vec<DecodedReading>> {
    let tick = columns::i64_column(batch, "tick")?;
    let trigger = word_column(batch, "trigger")?;
    let counter = columns::i32_column(batch, "counter")?;
    let value = columns::bits_column(batch, "value")?;
    let enabled = columns::bits_column(batch, "enabled")?;
    let running = columns::bits_column(batch, "running")?;
    let mono_ns = |row| tick.value(row).saturating_mul(tick_ns);
    let reading = |row| {
        let value = value.get(row)?;
        let times = enabled.get(row).zip(running.get(row));
        Some(TimerReading { mono_ns: mono_ns(row), value, times })
    };
    Ok((0..batch.num_rows())
        .filter(|&row| trigger.get(row) == Some("timer"))
        .map(|row| (counter.value(row), mono_ns(row), reading(row)))
        .collect())
}

type TracksAndIds = (HashMap<i32, CounterTrack>, HashMap<CheckedCounter, i32>);

/// The counters by id, and their ids by their names in `fabric`.
fn load_counters(recording: &Recording) -> Result<TracksAndIds> {
    let (mut tracks, mut ids) = (HashMap::new(), HashMap::new());
    let wanted = ["counter", "pmu", "event", "filter", "cpu", "scale", "role"];
    for batch in recording.open_table(&counters::TABLE)?.scan_columns(&wanted)? {
        let batch = batch?;
        let counter = columns::i32_column(&batch, "counter")?;
        let words = |name| word_column(&batch, name);
        let name_words = [words("pmu")?, words("event")?, words("filter")?];
        let (cpu, scale) =
            (columns::i32_column(&batch, "cpu")?, columns::f64_column(&batch, "scale")?);
        let role = word_column(&batch, "role")?;
        for row in (0..batch.num_rows()).filter(|&row| role.get(row) != Some(counters::WEIGHT)) {
            let (id, cpu, scale) = (counter.value(row), cpu.value(row), scale.value(row));
            let [pmu, event, filter] = name_words.map(|words| words.get(row).unwrap_or_default());
            let name = format!("{pmu}/{event}/{filter} on CPU {cpu}");
            ids.insert((id, Some(cpu)), id);
            tracks.insert(id, CounterTrack { scale, name, ..CounterTrack::default() });
        }
    }
    Ok((tracks, ids))
}

/// Gives each counter its windows in the next batch.
fn read_windows(
    fabric: &mut WindowReader,
    tracks: &mut HashMap<i32, CounterTrack>,
    ids: &HashMap<CheckedCounter, i32>,
) -> Result<()> {
    let mut unknown = None;
    fabric.read_batch(|windows, window| {
        let id = ids.get(&windows.counter_name(window.counter));
        match id.and_then(|id| tracks.get_mut(id)) {
            Some(track) => track.windows.push_back(*window),
            None => unknown = Some(windows.describe_window(window)),
        }
    })?;
    match unknown {
        Some(name) => Err(anyhow!("{name}: no such counter in counters"))
            .context("cannot match readings to windows"),
        None => Ok(()),
    }
}

impl CounterTrack {
    /// Adds the reading of a tick; `None`: it is missing.
    fn add_reading(&mut self, mono_ns: i64, reading: Option<TimerReading>, tally: &mut FaultTally) {
        let previous = self.last_reading;
        if reading.is_some() {
            self.last_reading = reading;
        }
        self.close_through(mono_ns.saturating_sub(1), tally);
        let Some(window) = self.windows.front() else { return };
        if mono_ns <= window.begin_ns {
            return;
        }
        match previous.zip(reading) {
            Some((previous, reading)) if previous.mono_ns >= window.begin_ns => {
                self.sum.add_difference(&previous, &reading);
            }
            _ => self.sum.broken = true,
        }
        if mono_ns == window.end_ns {
            self.close_window(tally);
        }
    }

    /// Closes the windows that end at or before this time and have no reading at their own end.
    fn close_through(&mut self, mono_ns: i64, tally: &mut FaultTally) {
        while self.windows.front().is_some_and(|window| window.end_ns <= mono_ns) {
            self.sum.broken = true;
            self.close_window(tally);
        }
    }

    /// Compares the oldest open window.
    fn close_window(&mut self, tally: &mut FaultTally) {
        let sum = std::mem::take(&mut self.sum);
        let Some(window) = self.windows.pop_front() else { return };
        let Some(total) = window.total else { return };
        // Without a complete series of readings there is nothing to compare: that is a loss, which
        // another invariant covers.
        if sum.broken || sum.deltas == 0 || sum.running <= 0.0 {
            return;
        }
        let factor = sum.enabled / sum.running * self.scale;
        let total_of_readings = sum.count * factor;
        let allowed = RELATIVE * total.abs().max(total_of_readings.abs());
        tally.examine_item(|| {
            let near = (total_of_readings - total).abs() <= allowed;
            (!near).then(|| {
                let name = format!("{}, window ending at mono_ns {}", self.name, window.end_ns);
                format!("{name}: readings make {total_of_readings}, total is {total}")
            })
        });
    }
}

impl ReadingSums {
    fn add_difference(&mut self, previous: &TimerReading, reading: &TimerReading) {
        let count = reading.value.wrapping_sub(previous.value) as f64;
        self.count += count;
        self.deltas += 1;
        let passed = reading.mono_ns.saturating_sub(previous.mono_ns).max(0) as u64;
        let (enabled, running) = match (previous.times, reading.times) {
            (_, None) => (passed, passed),
            // First difference of the times: until then they were equal, and advanced with the
            // clock.
            (None, Some((enabled, running))) => {
                (passed, running.saturating_sub(enabled.saturating_sub(passed)))
            }
            (Some(previous_times), Some(current_times)) => (
                current_times.0.saturating_sub(previous_times.0),
                current_times.1.saturating_sub(previous_times.1),
            ),
        };
        self.enabled += enabled as f64;
        self.running += running as f64;
    }
}
