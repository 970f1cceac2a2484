//! Makes the final file of a table from its segments, at the end of a recording and for `repair`.
//!
//! Guarantees: the final file is complete before it gets its name, and the segments are removed
//! only after that. The table `run` always has the pairs of the metadata. If the process
//! is killed at any point, calling the same function again has the same result.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::files::RecordingSize;
use super::segment::Partial;
use super::{disk, encode, sound};
use crate::schema::run;

/// Temporary name of the final file in the partial directory: it is on the same file system, and
/// `*.parquet` does not match it.
const TEMPORARY: &str = "final.tmp";

/// A finished table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assembled {
    /// Rows and bytes of its file.
    pub size: RecordingSize,
    /// The digest of its file, see [`super::digest`].
    pub digest: String,
}

/// Makes the final file of `partial` with the metadata `pairs`.
pub(super) fn assemble_table(
    partial: &mut Partial,
    pairs: &BTreeMap<String, String>,
) -> Result<Assembled> {
    if partial.def.name == run::TABLE.name && partial.segments.is_empty() {
        partial.write_next_segment(&[run::metadata_rows(pairs)], pairs)?;
    }
    merge_small(partial, pairs)?;
    partial.require_unchanged()?;
    let temporary = partial.dir.join(TEMPORARY);
    let paths: Vec<PathBuf> =
        partial.segments.iter().map(|range| partial.segment_path(*range)).collect();
    let written = encode::concatenate_files(&temporary, &partial.file_properties(pairs), &paths)
        .and_then(|(rows, digest)| {
            let size = RecordingSize { rows, bytes: disk::file_size(&temporary)? };
            disk::rename_durably(&temporary, &partial.target)?;
            Ok(Assembled { size, digest })
        });
    if written.is_err() {
        // The error of the write counts; the next attempt overwrites a leftover.
        fs::remove_file(&temporary).ok();
    }
    let done = written?;
    disk::remove_tree(&partial.dir)?;
    Ok(done)
}

/// Merges each run of small segments into one, so that the final row groups are large.
fn merge_small(partial: &mut Partial, pairs: &BTreeMap<String, String>) -> Result<()> {
    let mut large = Vec::new();
    for range in &partial.segments {
        let (_, footer) = sound::read_footer(&partial.segment_path(*range))?;
        large.push(encode::is_large(partial.def, &footer));
    }
    // Backwards, so that a merge does not change earlier indices.
    let mut end = large.len();
    while end > 0 {
        let begin = large[..end].iter().rposition(|large| *large).map_or(0, |index| index + 1);
        partial.merge_segments(begin..end, pairs)?;
        end = begin.saturating_sub(1);
    }
    Ok(())
}
