//! A trace for Perfetto (<https://ui.perfetto.dev>): rates over time by link and tenant, who ran on
//! each CPU, and what was lost.
//!
//! ```text
//! Marks                   instants that were named while it was recorded
//!   spans                 and spans
//! memory 0                a link, or a PMU instance
//!   in                    a direction of it, or an event
//!     total               bytes/s
//!     /tenant-a           its part of that, bytes/s
//!     (other tenants)
//!     (unattributed)
//!     not known           slices in which the lines above are not known
//! Who ran
//!   CPU 0                 a slice for each time a task ran, named by its thread
//! CPUs                    those that are offline
//! Losses                  rows of the table loss
//! ```
//!
//! Guarantees: times are `CLOCK_MONOTONIC`, with the offset to the wall clock; at any time the
//! parts sum to their total, unless they are not known; a value holds from the begin of its window,
//! and an unknown one is left out, never written as 0. All events are on tracks of their own, and
//! text in them is not interpreted: no name can be taken for a kernel event.

mod changes;
mod marks;
mod packets;
mod proto;
mod rates;
mod slices;

use std::io::Write;

use anyhow::{Context as _, Result};

use self::packets::TracePackets;
use super::SelectedRows;
use super::counts::ExportNames;
use crate::clock::Snapshot;
use crate::schema::metadata;
use crate::tables::reader::{OpenTable, Recording};
use crate::view::grouping::GroupBy;
use crate::view::span::SelectedTime;

/// Numbers for the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfettoSummary {
    /// Number of tracks.
    pub tracks: u64,
    /// Number of events on them.
    pub events: u64,
    /// Whether the recording has the table `slices`.
    pub has_slices: bool,
}

/// Writes the time of `span`, with the rows of `fabric`. Tenants are what `grouping` says; the
/// `top` largest of each quantity have tracks of their own.
///
/// # Errors
///
/// A table cannot be read, or `output` cannot be written.
pub fn write_perfetto(
    recording: &Recording,
    fabric: &OpenTable,
    span: &SelectedTime,
    grouping: GroupBy,
    top: usize,
    output: impl Write,
) -> Result<PerfettoSummary> {
    let mut packets = TracePackets::new(output, clocks_at_begin(fabric, span)?)?;
    marks::write_marks(recording, span, &mut packets)?;
    let names = ExportNames::new(fabric, grouping, recording)?;
    rates::write_rates(&SelectedRows::new(fabric, span), names, top, &mut packets)?;
    let has_slices = slices::write_slices(recording, span, &mut packets)?;
    changes::write_cpu_changes(recording, span, &mut packets)?;
    changes::write_losses(recording, span, &mut packets)?;
    let (tracks, events) = packets.end_trace();
    Ok(PerfettoSummary { tracks, events, has_slices })
}

/// Both clocks at the begin of the recording, from its metadata, or else from its rows.
fn clocks_at_begin(fabric: &OpenTable, span: &SelectedTime) -> Result<Snapshot> {
    let Some(text) = fabric.metadata_pairs().get(metadata::CLOCKS) else {
        let (mono_ns, wall_ns) = (span.begin_ns, span.begin_ns.saturating_add(span.wall_ns));
        return Ok(Snapshot { mono_ns, wall_ns });
    };
    let clocks: Vec<Snapshot> = serde_json::from_str(text)
        .with_context(|| format!("{} in the metadata is malformed", metadata::CLOCKS))?;
    clocks.first().copied().with_context(|| format!("{} is an empty list", metadata::CLOCKS))
}

#[cfg(test)]
mod tests;
