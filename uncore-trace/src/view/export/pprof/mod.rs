//! A profile for `go tool pprof`, speedscope, Parca and Pyroscope: a flame graph of who used the
//! links.
//!
//! ```text
//! memory 0 in         a link with its direction, or an event that is on no link
//!   /kubepods.slice   the components of the path of a cgroup; the file is the path so far
//!     /pod7
//!       train         the name of a process; processes with the same name are one frame
//!   (irq)             an owner that is no task
//!     irq:nvme0q1
//! ```
//!
//! Guarantees: a sample has the value of one sample type, which is an event with its unit. The
//! samples of a type sum to what `report` has for the event: what rounding takes from one sample, a
//! later one gets. A sample of 0 is left out. A sample that is larger than the format can hold has the
//! largest number. An event without any known value has no sample type, and a comment tells how many
//! rows have no value. Text is escaped.

mod encode;
mod proto;
mod share_profile;

use std::io::Write;
use std::ops::RangeInclusive;

use anyhow::{Result, ensure};

pub use self::encode::ProfileFacts;
pub use self::share_profile::{ProfileLimits, ShareProfile};
use crate::schema::{fabric, metadata};
use crate::tables::reader::{OpenTable, Recording};
use crate::text::count_noun;
use crate::view::incomplete::Incomplete;
use crate::view::links::Links;
use crate::view::selected::ReportSelection;
use crate::view::span::SelectedTime;
use crate::view::summed_time::SummedTime;

/// Limits for a recording: more than any viewer shows.
const LIMITS: ProfileLimits = ProfileLimits { samples: 1 << 20, text_bytes: 1 << 30 };

/// Writes the selected events in the time of `span`. Returns a summary.
///
/// # Errors
///
/// A table cannot be read, no window of the events ends in the time, or `output` cannot be written.
pub fn write_pprof(
    recording: &Recording,
    span: &SelectedTime,
    selected: &ReportSelection,
    output: impl Write,
) -> Result<String> {
    let table = recording.open_table(&fabric::TABLE)?;
    let profile = sum_profile(recording, &table, span, selected)?;
    let pairs = table.metadata_pairs();
    let incomplete = Incomplete::from_recording(recording)?;
    let mut comments: Vec<String> =
        incomplete.map(|incomplete| incomplete.summary_line(span.start_ns)).into_iter().collect();
    comments.extend(Incomplete::unnamed_cgroups(recording)?);
    comments.extend(metadata::misfits(pairs)?);
    let window_ns = pairs.get(metadata::INTERVAL_NS).and_then(|text| text.parse().ok());
    let facts = ProfileFacts { wall_ns: span.wall_ns, window_ns, comments };
    let summary = format!(
        "{}, {}",
        count_noun(profile.sample_types.names.len(), "sample type"),
        count_noun(profile.samples.len(), "sample")
    );
    profile.write_gzip(facts, output)?;
    Ok(summary)
}

/// Sums the selected events in the time of `span`.
fn sum_profile(
    recording: &Recording,
    table: &OpenTable,
    span: &SelectedTime,
    selected: &ReportSelection,
) -> Result<ShareProfile> {
    let mut profile = ShareProfile::new(Links::from_recording(recording)?, LIMITS);
    let columns = ShareProfile::columns_to_read();
    let mut add_rows = |table: &OpenTable, ends: RangeInclusive<i64>| -> Result<()> {
        for batch in table.scan_within(&columns, "mono_ns", ends.clone())? {
            profile.add_rows(&batch?, &ends, selected)?;
        }
        Ok(())
    };
    match SummedTime::find_seconds(recording, &span.wanted)? {
        None => add_rows(table, span.wanted.clone())?,
        Some(summed) => {
            for ends in summed.other_ends(&span.wanted) {
                add_rows(table, ends)?;
            }
            add_rows(&summed.table, summed.ends.clone())?;
        }
    }
    ensure!(!profile.is_empty(), "no window of these events ends in the selected time");
    Ok(profile)
}

#[cfg(test)]
pub(crate) mod tests;
