//! Makes a new recording from a time span of a recording, or from the parts of a rotated recording.
//!
//! Rows are copied unchanged. Guarantees: the new recording begins and ends at the end of a window
//! at which every counter was read, so no count is in part outside, and has every row in between.
//! States that hold at its begin (names, states of CPUs, counters that could not be opened) are
//! included even if their rows are older. Where two parts meet, no row is missing or doubled.
//! Losses and CPU times are those of the new recording. Memory is a few batches and the state of
//! each live task, whatever the length of the recording.

mod cpu_times;
mod cut_source;
mod losses;
mod marks;
mod rows;
mod states;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use arrow::array::RecordBatch;
use serde::Serialize;

use self::cpu_times::CopiedCpuTimes;
use self::cut_source::PartToCut;
use self::rows::{ReadingsCopier, RowCopier};
use self::states::{HeldColumns, HeldStates};
use crate::clock::{Snapshot, TimeSpan};
use crate::schema::canary::{self, CanarySummary};
use crate::schema::loss::Losses;
use crate::schema::row_time::RowTime;
use crate::schema::{ALL, metadata, run};
use crate::tables::names::parts_of;
use crate::tables::output_path;
use crate::tables::reader::Recording;
use crate::tables::writer::{CreateOptions, RecordingSize, RecordingTarget, Writer};

/// Opens the recording at `path`, or all parts of a rotated recording, in order.
///
/// # Errors
///
/// There is no recording, or one of them is not finished.
pub fn open_parts(path: &Path) -> Result<Vec<Recording>> {
    let part_paths = parts_of(path);
    if part_paths.is_empty() {
        return Ok(vec![Recording::open(path)?]);
    }
    part_paths.iter().map(|part_path| Recording::open(part_path)).collect()
}

/// The time that a cut is asked for, `CLOCK_MONOTONIC`, ns.
#[derive(Debug, Clone, Copy, Default)]
pub struct WantedTime {
    /// `None`: the begin of the recordings.
    pub from_ns: Option<i64>,
    /// `None`: the end of the recordings.
    pub to_ns: Option<i64>,
}

/// Copies a time of consecutive recordings to the new recording `target`. Whole windows are copied, so up to one
/// window more at each end; and more where a counter was not read at the end of that window.
///
/// # Errors
///
/// A recording has no raw tables or is damaged, the recordings are not consecutive, they have no
/// rows of that time, or `target` cannot be written.
pub fn cut_recordings(
    recordings: &[Recording],
    wanted: WantedTime,
    target: &Path,
    create: CreateOptions,
) -> Result<RecordingSize> {
    let WantedTime { from_ns, to_ns } = wanted;
    let (mut chosen, mut covered) = (Vec::new(), None::<TimeSpan<i64>>);
    for recording in recordings {
        let opened = PartToCut::open_part(recording)?;
        let span = TimeSpan::new(opened.begin_ns, opened.end_ns);
        covered = Some(covered.map_or(span, |covered| covered.hull(span)));
        if from_ns.is_none_or(|from_time| from_time < opened.end_ns)
            && to_ns.is_none_or(|to_time| opened.begin_ns < to_time)
        {
            chosen.push(opened);
        }
    }
    for (earlier, later) in chosen.iter().zip(chosen.iter().skip(1)) {
        earlier.require_next(later)?;
    }
    let (Some(first_part), Some(last_part)) = (chosen.first(), chosen.last()) else {
        let seconds = covered.map_or(0.0, |covered| covered.len_ns() as f64 / 1e9);
        bail!("nothing was recorded in that time: the recording covers {seconds:.3} s");
    };
    let begin_ns = from_ns
        .map_or(Ok(first_part.begin_ns), |begin_time| first_part.window_begin(begin_time))?;
    let end_ns = to_ns.map_or(Ok(last_part.end_ns), |end_time| last_part.window_end(end_time))?;
    for part_to_copy in &chosen {
        output_path::require_apart(part_to_copy.recording.recording_path(), target)?;
    }
    // Asked before anything is written: only a directory that this call makes is removed on
    // failure.
    let is_new = !target.exists();
    let finished = copy_parts(&chosen, TimeSpan { begin_ns, end_ns }, target, create);
    if finished.is_err() && is_new {
        // Only the first error is reported.
        fs::remove_dir_all(target).ok();
    }
    finished.with_context(|| format!("cannot make {}", target.display()))
}

fn copy_parts(
    source_parts: &[PartToCut],
    whole_span: TimeSpan<i64>,
    target: &Path,
    create: CreateOptions,
) -> Result<RecordingSize> {
    let (Some(first_part), Some(last_part)) = (source_parts.first(), source_parts.last()) else {
        bail!("there is no recording to copy from");
    };
    let mut pairs = first_part.pairs.clone();
    // Its sums are those of the rows that are copied.
    let mut moved = CanarySummary::from_metadata(&pairs)?
        .map(|canary| CanarySummary { moved: Vec::new(), ..canary });
    for key in OF_THE_END {
        pairs.remove(key);
    }
    pairs.insert(metadata::CLOCKS.to_owned(), to_json(&cut_clocks(source_parts, whole_span)?)?);
    // Until the last table is written: a copy that is interrupted must not look complete.
    pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned());
    let mut writer =
        Writer::create(RecordingTarget::Dataset(PathBuf::from(target)), create, &pairs)?;
    let mut cpu_times = CopiedCpuTimes::default();
    for &def in ALL {
        let columns = def.column_names();
        let mut held_states = HeldStates::default();
        let mut readings = ReadingsCopier::default();
        for (part_number, source_part) in source_parts.iter().enumerate() {
            let Some(table) = source_part.recording.find_table(def)? else { continue };
            let span = source_part.overlap(whole_span);
            let mut write = |batch: RecordBatch| {
                cpu_times.add_rows(def, &batch)?;
                if let Some(moved) = moved.as_mut().filter(|_| def.name == canary::TABLE.name) {
                    moved.add_rows(&batch)?;
                }
                writer.write(def, &batch)
            };
            let mut copier = RowCopier { table: &table, columns: &columns, write: &mut write };
            match def.when {
                RowTime::Ends(time) => copier.copy_ended(time, span)?,
                RowTime::Second(time) => {
                    copier.copy_ended(time, source_part.seconds_within(whole_span))?;
                }
                RowTime::Tick(tick) => {
                    let ticks = source_part.ticks_within(whole_span);
                    readings.copy_ticks(&mut copier, tick, &ticks)?;
                }
                RowTime::Between(begin, end) => copier.copy_between(begin, end, span)?,
                RowTime::During(begin, end) => copier.copy_during(begin, end, span)?,
                RowTime::Holds { since, key, last_row } => {
                    // Only the first part can begin before the span; the states of later parts
                    // are compared with those that were already written.
                    let is_first = part_number == 0;
                    let begin_ns = if is_first { whole_span.begin_ns } else { i64::MIN };
                    let held_columns = HeldColumns { since, key, last_row };
                    held_states.copy_table(
                        &mut copier,
                        held_columns,
                        TimeSpan { begin_ns, ..span },
                    )?;
                }
                RowTime::Own => {}
            }
        }
    }
    let loss_totals = losses::copy_losses(source_parts, whole_span, &mut writer)?;
    let marks_listed = marks::copy_marks(source_parts, whole_span, &mut writer)?;
    if let Some(moved) = moved {
        moved.write_metadata(&mut pairs)?;
    }
    let mut set = |key: &str, value: String| pairs.insert(key.to_owned(), value);
    if !marks_listed.marks.is_empty() {
        set(metadata::MARKS, to_json(&marks_listed)?);
    }
    set(metadata::LOSS, to_json(&loss_totals.totals)?);
    set(metadata::LOSS_FIRST, to_json(&loss_totals.first_ns)?);
    set(metadata::CPU_TIME, to_json(&cpu_times.into_cpu_times(source_parts)?)?);
    let is_complete = Losses::from_totals(loss_totals.totals).is_complete();
    if last_part.is_whole || whole_span.end_ns < last_part.end_ns {
        set(metadata::STOP_TICK, (whole_span.end_ns / last_part.tick_ns).to_string());
        set(metadata::COMPLETE, is_complete.to_string());
    } else {
        // The recorder was killed: losses at its end are not known.
        set(metadata::REPAIRED, "true".to_owned());
    }
    // Last, because its rows are the final metadata.
    writer.write(&run::TABLE, &run::metadata_rows(&pairs))?;
    writer.finish(&pairs)
}

/// Metadata that differ in the new recording, or are not known for a part of the time, such as the
/// recorder's own CPU time.
const OF_THE_END: [&str; 10] = [
    metadata::LOSS,
    metadata::LOSS_FIRST,
    metadata::MARKS,
    metadata::MISFITS,
    metadata::CPU_TIME,
    metadata::OWN,
    metadata::STOP_TICK,
    metadata::REPAIRED,
    metadata::LEFT_OUT,
    metadata::TABLES,
];

/// Clock snapshots at the begin and the end, and those in between, where parts begin or end.
fn cut_clocks(source_parts: &[PartToCut], span: TimeSpan<i64>) -> Result<Vec<Snapshot>> {
    let snapshots: Vec<Snapshot> =
        source_parts.iter().flat_map(|source_part| source_part.clocks.iter().copied()).collect();
    let (first_snapshot, last_snapshot) =
        snapshots.first().zip(snapshots.last()).context("the metadata has no clocks")?;
    let snapshot_at = |clock: &Snapshot, moment_ns| Snapshot {
        mono_ns: moment_ns,
        wall_ns: clock.wall_at(moment_ns),
    };
    let within = snapshots
        .iter()
        .filter(|clock| span.begin_ns < clock.mono_ns && clock.mono_ns < span.end_ns);
    Ok([snapshot_at(first_snapshot, span.begin_ns)]
        .into_iter()
        .chain(within.copied())
        .chain([snapshot_at(last_snapshot, span.end_ns)])
        .collect())
}

fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).context("cannot write the recording's metadata as JSON")
}
