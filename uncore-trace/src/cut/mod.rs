//! Makes a new recording from a time span of a recording, or from the parts of a rotated recording.
//!
//! Rows are copied unchanged. Guarantees: the new recording begins and ends at the end of a window
//! at which every counter was read, so no count is in part outside, and has every row in between.
//! States that hold at its begin (names, states of CPUs, counters that could not be opened) are
//! included even if their rows are older. Where two parts meet, no row is missing or doubled. Losses
//! and CPU times are those of the new recording. Memory is a few batches and the state of each live
//! task, whatever the length of the recording.

mod held;
mod losses;
mod marks;
mod part;
mod rows;
mod time;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use self::held::Held;
use self::part::Part;
use self::rows::{Readings, between, during, ended};
use self::time::Times;
use crate::clock::Snapshot;
use crate::schema::canary::{self, Canary};
use crate::schema::loss::Losses;
use crate::schema::when::When;
use crate::schema::{ALL, metadata, run};
use crate::tables::names::parts_of;
use crate::tables::place;
use crate::tables::reader::Recording;
use crate::tables::writer::{CreateOptions, RecordingSize, Target, Writer};

/// Opens the recording at `path`, or all parts of a rotated recording, in order.
///
/// # Errors
///
/// There is no recording, or one of them is not finished.
pub fn open(path: &Path) -> Result<Vec<Recording>> {
    let parts = parts_of(path);
    if parts.is_empty() {
        return Ok(vec![Recording::open(path)?]);
    }
    parts.iter().map(|part| Recording::open(part)).collect()
}

/// Copies the time from `from` to `to` (`CLOCK_MONOTONIC`, ns; `None`: begin, end) of consecutive
/// recordings to the new recording `target`. Whole windows are copied, so up to one window more at
/// each end; and more where a counter was not read at the end of that window.
///
/// # Errors
///
/// A recording has no raw tables or is damaged, the recordings are not consecutive, they have no
/// rows of that time, or `target` cannot be written.
pub fn cut(
    recordings: &[Recording],
    (from, to): (Option<i64>, Option<i64>),
    target: &Path,
    create: CreateOptions,
) -> Result<RecordingSize> {
    let (mut parts, mut all) = (Vec::new(), None);
    for recording in recordings {
        let part = Part::open(recording)?;
        let (begin, end) = all.unwrap_or((part.begin, part.end));
        all = Some((part.begin.min(begin), part.end.max(end)));
        if from.is_none_or(|from| from < part.end) && to.is_none_or(|to| part.begin < to) {
            parts.push(part);
        }
    }
    for (one, next) in parts.iter().zip(parts.iter().skip(1)) {
        one.require_next(next)?;
    }
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        let seconds = all.map_or(0.0, |(begin, end)| (end - begin) as f64 / 1e9);
        bail!("nothing was recorded in that time: the recording covers {seconds:.3} s");
    };
    let begin = from.map_or(Ok(first.begin), |from| first.window_begin(from))?;
    let end = to.map_or(Ok(last.end), |to| last.window_end(to))?;
    for part in &parts {
        place::require_apart(&part.recording, target)?;
    }
    // Asked before anything is written: only a directory that this call makes is removed on failure.
    let is_new = !target.exists();
    let made = make(&parts, begin, end, target, create);
    if made.is_err() && is_new {
        // Only the first error is reported.
        fs::remove_dir_all(target).ok();
    }
    made.with_context(|| format!("cannot make {}", target.display()))
}

fn make(parts: &[Part], begin: i64, end: i64, target: &Path, create: CreateOptions) -> Result<RecordingSize> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        bail!("there is no recording to copy from");
    };
    let mut pairs = first.pairs.clone();
    // Its sums are those of the rows that are copied.
    let mut moved = Canary::of(&pairs)?.map(|all| Canary { moved: Vec::new(), ..all });
    for key in OF_THE_END {
        pairs.remove(key);
    }
    pairs.insert(metadata::CLOCKS.to_owned(), json(&clocks(parts, begin, end)?)?);
    // Until the last table is written: a copy that is interrupted must not look complete.
    pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned());
    let mut writer = Writer::create(Target::Dataset(PathBuf::from(target)), create, &pairs)?;
    let mut times = Times::default();
    for &def in ALL {
        let columns: Vec<&str> = def.encodings.iter().map(|(name, _)| *name).collect();
        let mut held = Held::default();
        let mut readings = Readings::default();
        for (at, part) in parts.iter().enumerate() {
            let Some(table) = part.table(def)? else { continue };
            let span = (begin.max(part.begin), end.min(part.end));
            let mut write = |batch| writer.write(def, &batch);
            match def.when {
                When::Ends(time) => ended(&table, &columns, time, span, &mut |batch| {
                    times.add(def, &batch)?;
                    write(batch)
                })?,
                When::Tick(tick) => {
                    let is_cut = (begin > part.begin, end < part.end);
                    readings.copy(&table, &columns, tick, part.ticks(span), is_cut, &mut write)?;
                }
                When::Between(from, to) => {
                    between(&table, &columns, (from, to), span, &mut |batch| {
                        if let Some(moved) =
                            moved.as_mut().filter(|_| def.name == canary::TABLE.name)
                        {
                            moved.add_rows(&batch)?;
                        }
                        write(batch)
                    })?;
                }
                When::During(from, to) => {
                    during(&table, &columns, (from, to), span, &mut write)?;
                }
                When::Holds { since, key, last } => {
                    // Only the first part can begin before `begin`; the states of later parts are compared
                    // with those that were already written.
                    let before = if at == 0 { begin } else { i64::MIN };
                    held.copy(&table, &columns, (since, key, last), (before, span.1), &mut write)?;
                }
                When::Own => {}
            }
        }
    }
    let found = losses::copy(parts, begin, end, &mut writer)?;
    let listed = marks::copy(parts, begin, end, &mut writer)?;
    if let Some(moved) = moved {
        moved.note(&mut pairs)?;
    }
    let mut set = |key: &str, value: String| pairs.insert(key.to_owned(), value);
    if !listed.marks.is_empty() {
        set(metadata::MARKS, json(&listed)?);
    }
    set(metadata::LOSS, json(&found.totals)?);
    set(metadata::LOSS_FIRST, json(&found.first)?);
    set(metadata::CPU_TIME, json(&times.all(parts)?)?);
    let is_complete = Losses::sort(found.totals).is_complete();
    if last.is_whole || end < last.end {
        set(metadata::STOP_TICK, (end / last.tick_ns).to_string());
        set(metadata::COMPLETE, is_complete.to_string());
    } else {
        // The recorder was killed: losses at its end are not known.
        set(metadata::REPAIRED, "true".to_owned());
    }
    // Last, because its rows are the final metadata.
    writer.write(&run::TABLE, &run::of(&pairs))?;
    writer.finish(&pairs)
}

/// Metadata that differ in the new recording, or are not known for a part of the time, such as the
/// recorder's own CPU time.
const OF_THE_END: [&str; 9] = [
    metadata::LOSS,
    metadata::LOSS_FIRST,
    metadata::MARKS,
    metadata::CPU_TIME,
    metadata::OWN,
    metadata::STOP_TICK,
    metadata::REPAIRED,
    metadata::LEFT_OUT,
    metadata::TABLES,
];

/// Clock snapshots at the begin and the end, and those in between, where parts begin or end.
fn clocks(parts: &[Part], begin: i64, end: i64) -> Result<Vec<Snapshot>> {
    let all: Vec<Snapshot> = parts.iter().flat_map(|part| part.clocks.iter().copied()).collect();
    let (first, last) = all.first().zip(all.last()).context("the metadata has no clocks")?;
    let at = |clock: &Snapshot, time| Snapshot { mono_ns: time, wall_ns: clock.wall(time) };
    let within = all.iter().filter(|clock| begin < clock.mono_ns && clock.mono_ns < end);
    Ok([at(first, begin)].into_iter().chain(within.copied()).chain([at(last, end)]).collect())
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).context("cannot write the recording's metadata as JSON")
}

/// The positive number under a key of the metadata that all recordings have.
fn number(pairs: &BTreeMap<String, String>, key: &str) -> Result<i64> {
    let text = pairs.get(key).with_context(|| format!("the metadata has no {key}"))?;
    let number = text.parse().ok().filter(|number| *number > 0);
    number.with_context(|| format!("the metadata has no number for {key}"))
}
