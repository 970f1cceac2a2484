//! Marks: instants, and spans as slices.
//!
//! Slices of one track must be nested or apart, but spans may overlap: each span goes to the first
//! track that is free when it begins.

use std::io::Write;

use anyhow::Result;

use super::packets::{EventDetail, SliceEvent, TracePackets, TrackId};
use crate::schema::marks::{Mark, MarkKind};
use crate::tables::reader::Recording;
use crate::text::printable;
use crate::view::marks::RecordedMarks;
use crate::view::span::SelectedTime;

/// Writes the marks in `span`. A span without an end stays open.
///
/// # Errors
///
/// The marks cannot be read, or the trace cannot be written.
pub(super) fn write_marks<W: Write>(
    recording: &Recording,
    span: &SelectedTime,
    packets: &mut TracePackets<W>,
) -> Result<()> {
    let from_ns = if *span.wanted.start() == i64::MIN { i64::MIN } else { span.begin_ns };
    let to_ns = if *span.wanted.end() == i64::MAX { i64::MAX } else { span.end_ns };
    let marks = RecordedMarks::read_list(recording)?;
    let marks: Vec<Mark> =
        marks.into_iter().filter(|mark| mark.is_within(from_ns, to_ns)).collect();
    if marks.is_empty() {
        return Ok(());
    }
    let parent = packets.add_track("Marks", None, None)?;
    // The tracks, each with the end of its last span.
    let mut lanes: Vec<(TrackId, i64)> = Vec::new();
    for mark in marks {
        let begin_ns = mark.mono_ns.max(from_ns);
        let name = printable(&mark.text).into_owned();
        let mut details = vec![("source", EventDetail::Text(printable(&mark.source).into_owned()))];
        details.extend(mark.pid.map(|pid| ("pid", EventDetail::Number(pid.into()))));
        if mark.kind == MarkKind::Instant {
            packets.write_named_event(SliceEvent::Instant, parent, begin_ns, &name, details)?;
            continue;
        }
        let end_ns = mark.last_ns().min(to_ns);
        let lane = lanes.iter().position(|(_, end)| *end <= begin_ns).unwrap_or(lanes.len());
        if lane == lanes.len() {
            let name = if lane == 0 { "spans".to_owned() } else { format!("spans {}", lane + 1) };
            lanes.push((packets.add_track(&name, Some(parent), None)?, i64::MIN));
        }
        lanes[lane].1 = end_ns;
        let track = lanes[lane].0;
        packets.write_named_event(SliceEvent::SliceBegin, track, begin_ns, &name, details)?;
        if end_ns < i64::MAX {
            packets.end_slice(track, end_ns)?;
        }
    }
    Ok(())
}
