//! The answer at the end of `record`, read from the finished recording.

use std::path::Path;

use super::STDOUT;
use crate::confine::ThreadNeeds;
use crate::record::RecordOptions;
use crate::tables::reader::Recording;
use crate::terminal;
use crate::text::printable;
use crate::view::brief::brief_of_recording;

/// Width of the lines if it is not known.
const COLUMNS: usize = 100;

/// Cells before each line, `uncore-trace: `.
const PREFIX: usize = 14;

/// What reading the recording again needs: its directory, since a file is not there yet, or is
/// replaced.
pub(super) fn answer_needs(options: &RecordOptions) -> ThreadNeeds {
    let mut needs = ThreadNeeds::default();
    if has_answer(options) {
        needs.reads = ThreadNeeds::to_write(&options.output).writes;
    }
    needs
}

/// Who had most of what. Nothing for a stream, which is gone, and for parts, each of which is a
/// recording of its own.
pub(super) fn answer_lines(options: &RecordOptions) -> Vec<String> {
    if !has_answer(options) {
        return Vec::new();
    }
    let width = terminal::columns().unwrap_or(COLUMNS).saturating_sub(PREFIX);
    let recording = Recording::open(&options.output);
    recording.and_then(|recording| brief_of_recording(&recording, width)).unwrap_or_else(|error| {
        log::warn!("cannot read the recording for the summary: {error:#}");
        Vec::new()
    })
}

/// The commands that show more; `None` for a stream.
pub(super) fn next_commands(options: &RecordOptions) -> Option<String> {
    if is_stream(options) {
        return None;
    }
    let shown = options.output.display().to_string();
    let shown = printable(&shown);
    if options.rotate.is_some() {
        return Some(
            "next: uncore-trace report PART, where each part is a recording; uncore-trace cut \
             joins them"
                .to_owned(),
        );
    }
    Some(format!("next: uncore-trace report {shown}, also with --html; or uncore-trace top"))
}

fn has_answer(options: &RecordOptions) -> bool {
    !is_stream(options) && options.rotate.is_none()
}

fn is_stream(options: &RecordOptions) -> bool {
    options.output == Path::new(STDOUT)
}
