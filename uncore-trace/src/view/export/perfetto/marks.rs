//! Marks: instants, and spans as slices.
//!
//! Slices of one track must be nested or apart, but spans may overlap: each span goes to the first
//! track that is free when it begins.

use std::io::Write;

use anyhow::Result;

use super::packets::{Detail, Packets, Track};
use crate::schema::marks::Kind;
use crate::tables::reader::Recording;
use crate::text::printable;
use crate::view::marks::{Mark, Marks};
use crate::view::span::Span;

/// Writes the marks in `span`. A span without an end stays open.
///
/// # Errors
///
/// The marks cannot be read, or the trace cannot be written.
pub(super) fn write<W: Write>(
    recording: &Recording,
    span: &Span,
    packets: &mut Packets<W>,
) -> Result<()> {
    let from = if *span.wanted.start() == i64::MIN { i64::MIN } else { span.begin_ns };
    let to = if *span.wanted.end() == i64::MAX { i64::MAX } else { span.end_ns };
    let marks = Marks::of(recording)?;
    let marks: Vec<Mark> = marks.into_iter().filter(|mark| mark.is_within(from, to)).collect();
    if marks.is_empty() {
        return Ok(());
    }
    let parent = packets.track("Marks", None, None)?;
    // The tracks, each with the end of its last span.
    let mut lanes: Vec<(Track, i64)> = Vec::new();
    for mark in marks {
        let begin_ns = mark.begin_ns.max(from);
        let name = printable(&mark.text).into_owned();
        let mut details = vec![("source", Detail::Text(printable(&mark.source).into_owned()))];
        details.extend(mark.pid.map(|pid| ("pid", Detail::Number(pid.into()))));
        if mark.kind == Kind::Instant {
            packets.instant(parent, begin_ns, &name, details)?;
            continue;
        }
        let end_ns = mark.last_ns().min(to);
        let at = lanes.iter().position(|(_, end)| *end <= begin_ns).unwrap_or(lanes.len());
        if at == lanes.len() {
            let name = if at == 0 { "spans".to_owned() } else { format!("spans {}", at + 1) };
            lanes.push((packets.track(&name, Some(parent), None)?, i64::MIN));
        }
        lanes[at].1 = end_ns;
        packets.begin(lanes[at].0, begin_ns, &name, details)?;
        if end_ns < i64::MAX {
            packets.end(lanes[at].0, end_ns)?;
        }
    }
    Ok(())
}
