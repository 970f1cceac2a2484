//! Events of the recording: CPUs that went offline or online, and losses, as instants.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::{Context as _, Result};
use arrow::array::Array as _;

use super::packets::{EventDetail, SliceEvent, TracePackets, TrackId};
use crate::schema::columns::{i32_column, i64_column, nullable_value, text_column, word_column};
use crate::schema::{counters, cpus, loss};
use crate::tables::reader::Recording;
use crate::text::printable;
use crate::view::span::SelectedTime;

/// Writes the CPUs that are offline at the begin of `span`, and the changes in it.
///
/// # Errors
///
/// The table cannot be read, or the trace cannot be written.
pub(super) fn write_cpu_changes<W: Write>(
    recording: &Recording,
    span: &SelectedTime,
    packets: &mut TracePackets<W>,
) -> Result<()> {
    let Some(table) = recording.find_table(&cpus::TABLE)? else { return Ok(()) };
    let mut states: BTreeMap<i32, String> = BTreeMap::new();
    // The table has a row for each CPU and each change: fewer than a batch of `fabric`.
    let mut changes: Vec<(i64, i32, String)> = Vec::new();
    for batch in table.scan_columns(&["mono_ns", "cpu", "state"])? {
        let batch = batch?;
        let (times, cpus) = (i64_column(&batch, "mono_ns")?, i32_column(&batch, "cpu")?);
        let words = word_column(&batch, "state")?;
        for row in 0..batch.num_rows() {
            let (ns, cpu) = (times.value(row), cpus.value(row));
            let state = words.get(row).unwrap_or_default();
            let previous = states.insert(cpu, state.to_owned());
            if previous.as_deref().unwrap_or(cpus::ONLINE) != state {
                changes.push((ns, cpu, state.to_owned()));
            }
        }
    }
    let before = changes.iter().filter(|(ns, ..)| *ns <= span.begin_ns);
    let at_begin: BTreeMap<i32, &str> =
        before.map(|(_, cpu, state)| (*cpu, state.as_str())).collect();
    let begin = at_begin.into_iter().filter(|(_, state)| *state != cpus::ONLINE);
    let begin = begin.map(|(cpu, state)| (span.begin_ns, cpu, state));
    let within = changes.iter().filter(|(ns, ..)| span.begin_ns < *ns && *ns <= span.end_ns);
    let within = within.map(|(ns, cpu, state)| (*ns, *cpu, state.as_str()));
    let mut track = None;
    for (ns, cpu, state) in begin.chain(within) {
        let track = track_or_new(&mut track, "CPUs", packets)?;
        let name = format!("CPU {cpu} {}", printable(state));
        packets.write_named_event(SliceEvent::Instant, track, ns, &name, Vec::new())?;
    }
    Ok(())
}

/// Writes losses, and on another track notes, which reduced the precision only.
///
/// # Errors
///
/// A table cannot be read, or the trace cannot be written.
pub(super) fn write_losses<W: Write>(
    recording: &Recording,
    span: &SelectedTime,
    packets: &mut TracePackets<W>,
) -> Result<()> {
    let Some(table) = recording.find_table(&loss::TABLE)? else { return Ok(()) };
    let names = counter_names(recording)?;
    let (mut lost, mut noted) = (None, None);
    let columns = ["mono_ns", "span_ns", "cause", "cpu", "counter", "count", "detail"];
    for batch in table.scan_within(&columns, "mono_ns", span.wanted.clone())? {
        let batch = batch?;
        let (times, spans) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "span_ns")?);
        let (cpus, counters) = (i32_column(&batch, "cpu")?, i32_column(&batch, "counter")?);
        let (causes, counts) = (word_column(&batch, "cause")?, i64_column(&batch, "count")?);
        let texts = text_column(&batch, "detail")?;
        for row in (0..batch.num_rows()).filter(|row| span.wanted.contains(&times.value(*row))) {
            let cause = causes.get(row).context("a loss row without a cause")?;
            let mut details = vec![
                ("count", EventDetail::Number(counts.value(row))),
                ("span_ns", EventDetail::Number(spans.value(row))),
            ];
            let cpu = nullable_value(cpus, row);
            details.extend(cpu.map(|cpu| ("cpu", EventDetail::Number(cpu.into()))));
            details.extend(nullable_value(counters, row).map(|counter| {
                let unnamed = || format!("counter {counter}");
                let name = names.get(&counter).cloned().unwrap_or_else(unnamed);
                ("counter", EventDetail::Text(name))
            }));
            details.extend(
                texts.is_valid(row).then(|| {
                    ("detail", EventDetail::Text(printable(texts.value(row)).into_owned()))
                }),
            );
            let track = if loss::is_precision(cause) {
                track_or_new(&mut noted, "Notes", packets)?
            } else {
                track_or_new(&mut lost, "Losses", packets)?
            };
            let (ns, name) = (times.value(row), printable(cause));
            packets.write_named_event(SliceEvent::Instant, track, ns, &name, details)?;
        }
    }
    Ok(())
}

/// The name of each counter.
fn counter_names(recording: &Recording) -> Result<HashMap<i32, String>> {
    let mut names = HashMap::new();
    let Some(table) = recording.find_table(&counters::TABLE)? else { return Ok(names) };
    for batch in table.scan_columns(&["counter", "pmu", "event", "filter"])? {
        let batch = batch?;
        let ids = i32_column(&batch, "counter")?;
        let [pmus, events, filters] = [
            word_column(&batch, "pmu")?,
            word_column(&batch, "event")?,
            word_column(&batch, "filter")?,
        ];
        for row in 0..batch.num_rows() {
            let name_words = [pmus.get(row), events.get(row), filters.get(row)];
            let present_words: Vec<&str> =
                name_words.into_iter().flatten().filter(|word| !word.is_empty()).collect();
            names.insert(ids.value(row), printable(&present_words.join(" ")).into_owned());
        }
    }
    Ok(names)
}

/// The track, created at its first use.
fn track_or_new<W: Write>(
    track: &mut Option<TrackId>,
    name: &str,
    packets: &mut TracePackets<W>,
) -> Result<TrackId> {
    match track {
        Some(track) => Ok(*track),
        None => Ok(*track.insert(packets.add_track(name, None, None)?)),
    }
}
