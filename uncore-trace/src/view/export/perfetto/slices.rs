//! Who ran on each CPU: the table `slices`, named by thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;

use anyhow::Result;

use super::packets::{EventDetail, SliceEvent, TracePackets, TrackId};
use crate::schema::columns::{bits_column, i32_column, i64_column, text_column, word_column};
use crate::schema::{cgroups, slices};
use crate::tables::reader::{OpenTable, Recording, TableScan};
use crate::text::printable;
use crate::view::key::unnamed_cgroup;
use crate::view::span::SelectedTime;

const COLUMNS: [&str; 8] =
    ["cpu", "begin_ns", "end_ns", "tid", "pid", "comm", "cgroup_id", "irq_ns"];

/// Writes the slices of tasks in `span`, cut at its ends. Returns whether the recording has any.
/// The track of a CPU is empty while it is idle.
///
/// # Errors
///
/// A table cannot be read, or the trace cannot be written.
pub(super) fn write_slices<W: Write>(
    recording: &Recording,
    span: &SelectedTime,
    packets: &mut TracePackets<W>,
) -> Result<bool> {
    let Some(table) = recording.find_table(&slices::TABLE)? else { return Ok(false) };
    if table.row_count() == 0 {
        return Ok(false);
    }
    let names = cgroup_paths(recording)?;
    let parent = packets.add_track("Who ran", None, None)?;
    let mut tracks: BTreeMap<i32, TrackId> = BTreeMap::new();
    for cpu in cpus_with_rows(&table, span)? {
        tracks.insert(cpu, packets.add_track(&format!("CPU {cpu}"), Some(parent), None)?);
    }
    for batch in scan_span(&table, &COLUMNS, span)? {
        let batch = batch?;
        let (cpus, tids, pids) =
            (i32_column(&batch, "cpu")?, i32_column(&batch, "tid")?, i32_column(&batch, "pid")?);
        let (begins, ends) = (i64_column(&batch, "begin_ns")?, i64_column(&batch, "end_ns")?);
        let (comms, ids) = (word_column(&batch, "comm")?, bits_column(&batch, "cgroup_id")?);
        let irqs = i64_column(&batch, "irq_ns")?;
        for row in 0..batch.num_rows() {
            let begin_ns = begins.value(row).max(span.begin_ns);
            let end_ns = ends.value(row).min(span.end_ns);
            let track = tracks.get(&cpus.value(row)).filter(|_| tids.value(row) != 0);
            let Some(track) = track.copied().filter(|_| begin_ns < end_ns) else { continue };
            let id = ids.value_or_zero(row);
            let cgroup = names.get(&id).cloned().unwrap_or_else(|| unnamed_cgroup(Some(id)));
            let thread = printable(comms.get(row).unwrap_or_default());
            let details = vec![
                ("cgroup", EventDetail::Text(cgroup)),
                ("tid", EventDetail::Number(tids.value(row).into())),
                ("pid", EventDetail::Number(pids.value(row).into())),
                ("interrupts_ns", EventDetail::Number(irqs.value(row))),
            ];
            packets.write_named_event(SliceEvent::SliceBegin, track, begin_ns, &thread, details)?;
            packets.end_slice(track, end_ns)?;
        }
    }
    Ok(true)
}

/// The rows that may overlap the span.
fn scan_span(table: &OpenTable, columns: &[&str], span: &SelectedTime) -> Result<TableScan> {
    table.scan_within(columns, "begin_ns", i64::MIN..=span.end_ns)
}

/// The CPUs that have rows.
fn cpus_with_rows(table: &OpenTable, span: &SelectedTime) -> Result<BTreeSet<i32>> {
    let mut cpus_found = BTreeSet::new();
    for batch in scan_span(table, &["cpu"], span)? {
        cpus_found.extend(i32_column(&batch?, "cpu")?.values());
    }
    Ok(cpus_found)
}

/// The path of each cgroup.
fn cgroup_paths(recording: &Recording) -> Result<HashMap<u64, String>> {
    let mut names = HashMap::new();
    for batch in recording.open_table(&cgroups::TABLE)?.scan_columns(&["id", "path"])? {
        let batch = batch?;
        let (ids, paths) = (bits_column(&batch, "id")?, text_column(&batch, "path")?);
        for row in 0..batch.num_rows() {
            names.entry(ids.value_or_zero(row)).or_insert(printable(paths.value(row)).into_owned());
        }
    }
    Ok(names)
}
