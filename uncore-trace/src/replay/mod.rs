//! Computes `fabric` again from the raw tables of a recording, with the same or another method and
//! windows.
//!
//! The raw tables hold every entry of the log ([`crate::entries`]). This module reads them in the
//! order of the log and passes them to the attributor, as the recorder did. Nothing is read from
//! the machine. With the method and windows of the recording, the rows are equal to the recorded
//! ones. Memory is bounded by the row groups of `readings` around the current tick, not by the
//! length of the recording.

mod accounts;
mod cgroups;
mod facts;
mod held;
mod io;
mod monitors;
mod owners;
mod readings;
mod rows;
mod time;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use self::facts::RecordedFacts;
use self::readings::StoredReadings;
use self::rows::StoredEntries;
use self::time::StoredTimes;
use crate::attribute::{Attributor, Effort, RecordingFacts};
use crate::choice::MethodChoice;
use crate::entries::{EntryConsumer as _, LogEntry};
use crate::schema::row_limit::RowLimit;
use crate::schema::{Builders, fabric, metadata};
use crate::tables::output_path;
use crate::tables::reader::Recording;
use crate::tables::writer::{CreateOptions, RecordingSize, RecordingTarget, Writer};

/// Rows per batch for the writer.
const ROWS: usize = 8192;

/// Options that replace those of the recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
    /// Method of attribution.
    pub method: Option<MethodChoice>,
    /// Length of a window, ns.
    pub interval_ns: Option<u64>,
    /// Lag, ns: how long a window waits for later entries.
    pub lag_ns: Option<u64>,
    /// Effort of the solver.
    pub effort: Effort,
    /// Shares below this part of a window's total are united, 0 to 1.
    pub min_share: Option<f64>,
    /// Most rows of `fabric` in a second.
    pub rows: Option<RowLimit>,
}

/// Computes `fabric` of `recording` and writes it to `target`.
///
/// # Errors
///
/// The recording has no raw tables or is damaged, the interval is not a whole number of its ticks,
/// the target is one of the recording's raw tables, or it cannot be written.
pub fn attribute(
    recording: &Recording,
    overrides: Overrides,
    target: RecordingTarget,
    create: CreateOptions,
) -> Result<RecordingSize> {
    recording.require_dataset()?;
    if let RecordingTarget::File(output) = &target {
        output_path::require_only_fabric(recording.recording_path(), output)?;
    }
    // This finds a table of another recording, whose own digests are correct.
    recording.require_own_tables()?;
    // A table made from damaged ones could not be told from a good one.
    for def in recording.list_tables().into_iter().filter(|def| def.name != fabric::TABLE.name) {
        recording.open_table(def)?.require_sound()?;
    }
    let mut facts = RecordedFacts::read_facts(recording, overrides)?;
    if facts.settings.choice == MethodChoice::Misses && !facts.plan.has_misses() {
        bail!(
            "{} has no counts of misses: choose another --method, or record with --method misses",
            recording.recording_path().display()
        );
    }
    let mut writer = Writer::create(target, create, &facts.pairs)?;
    let (misfits, limited_windows) =
        replay_entries(recording, &facts, &mut writer).with_context(|| {
            format!("cannot attribute {} again", recording.recording_path().display())
        })?;
    metadata::set_misfits(&mut facts.pairs, &misfits)?;
    facts.pairs.insert(metadata::LIMITED_WINDOWS.to_owned(), limited_windows.to_string());
    writer.finish(&facts.pairs)
}

/// The attributor, and the rows that it has made.
struct ReplayLog {
    attributor: Attributor,
    tables: Builders,
}

impl ReplayLog {
    fn log_entry(&mut self, entry: LogEntry<'_>) -> Result<()> {
        self.attributor
            .take_entry(entry, &mut self.tables)
            .context("the raw tables are out of order")
    }
}

/// Divides the counts. Returns what they say against the model, and the number of windows in which
/// only the owners with the largest shares have rows.
fn replay_entries(
    recording: &Recording,
    facts: &RecordedFacts,
    writer: &mut Writer,
) -> Result<(Vec<String>, u64)> {
    let mut readings = StoredReadings::open_table(recording)?;
    let mut times = StoredTimes::open_tables(recording)?;
    let mut io = StoredEntries::open_if_there(recording, &io::FORM)?;
    let mut held = StoredEntries::open_if_there(recording, &held::FORM)?;
    let mut monitors = StoredEntries::open_if_there(recording, &monitors::FORM)?;
    let mut accounts = StoredEntries::open_if_there(recording, &accounts::FORM)?;
    let mut cgroups = StoredEntries::open_table(recording, &cgroups::FORM)?;
    let mut log = ReplayLog {
        attributor: Attributor::new(&RecordingFacts {
            plan: &facts.plan,
            counters: &facts.opened,
            settings: facts.settings,
            start_tick: facts.start_tick,
            clock: facts.clock,
            origin: &facts.origin,
            siblings: &facts.siblings,
            threads: crate::attribute::available_threads(),
            sums: false,
        }),
        tables: Builders::default(),
    };
    let mut tick = facts.start_tick;
    while facts.stop_tick.is_none_or(|stop| tick < stop) {
        if facts.stop_tick.is_none() && times.is_over()? {
            break;
        }
        tick += 1;
        let tick_end_ns = tick * facts.plan.tick_ns;
        let is_last = facts.stop_tick == Some(tick);
        // The last count may be logged in a tick after the last one. The order within a tick is
        // that of the recorder: readings, CPU time, I/O, devices held, monitors, accounts, names,
        // and last the end of the tick, which divides the windows that are complete then.
        readings.feed_until(if is_last { u64::MAX } else { tick }, &mut log)?;
        times.feed_tick(tick_end_ns, &mut log)?;
        io.feed_until(tick_end_ns, &mut log)?;
        held.feed_until(tick_end_ns, &mut log)?;
        monitors.feed_until(tick_end_ns, &mut log)?;
        accounts.feed_until(tick_end_ns, &mut log)?;
        cgroups.feed_until(tick_end_ns, &mut log)?;
        log.log_entry(LogEntry::EndOfTick { tick, is_last })?;
        loop {
            let has_all_rows = log.attributor.make_rows(&mut log.tables);
            if log.tables.fabric.len() >= ROWS {
                writer.write(&fabric::TABLE, &log.tables.fabric.finish())?;
            }
            if has_all_rows {
                break;
            }
        }
    }
    writer.write(&fabric::TABLE, &log.tables.fabric.finish())?;
    Ok((log.attributor.misfits(), log.attributor.limited_windows()))
}

/// The method of the recording; `residency` if the metadata have none.
fn recorded_method(pairs: &BTreeMap<String, String>) -> MethodChoice {
    let name = pairs.get(metadata::METHOD);
    name.and_then(|name| MethodChoice::from_name(name)).unwrap_or(MethodChoice::Residency)
}

#[cfg(test)]
mod tests;
