//! From the segments of a table to its final file; recording's end and `repair` both come here.
//!
//! Guarantees: the final file is complete before it gets its name; the segments are removed only
//! after that; `run` has the metadata's pairs even if nobody wrote them; killed at any point, the same function run again comes to the same end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::segment::{self, Partial};
use super::{disk, run};

/// The temporary name of the final file, within the partial directory: the same file system, and
/// out of sight of `*.parquet`.
const TEMPORARY: &str = "final.tmp";

/// Assembles `target` from `partial` with the metadata `pairs`; returns its rows and bytes.
pub fn assemble(
    mut partial: Partial,
    target: &Path,
    pairs: &BTreeMap<String, String>,
) -> Result<(u64, u64)> {
    if partial.def.name == run::TABLE.name && partial.segments.is_empty() {
        partial.seal(&[run::of(pairs)], pairs)?;
    }
    merge_small(&mut partial, pairs)?;
    let temporary = partial.dir.join(TEMPORARY);
    let written = segment::concatenate(&partial, &temporary, pairs)
        .and_then(|rows| Ok((rows, disk::size(&temporary)?)))
        .and_then(|done| disk::publish(&temporary, target).map(|()| done));
    if written.is_err() {
        // The error that counts is the write's; a leftover is overwritten by the next attempt.
        fs::remove_file(&temporary).ok();
    }
    let done = written?;
    disk::remove_tree(&partial.dir)?;
    Ok(done)
}

/// Merges each stretch of small segments into one, so that the final row groups are large.
fn merge_small(partial: &mut Partial, pairs: &BTreeMap<String, String>) -> Result<()> {
    let mut large = Vec::new();
    for range in &partial.segments {
        large.push(segment::is_large(&*segment::footer(&partial.path(*range))?));
    }
    // From the end, so that a merge leaves the indices before it as they were.
    let mut end = large.len();
    while end > 0 {
        let begin = large[..end].iter().rposition(|large| *large).map_or(0, |at| at + 1);
        partial.merge(begin..end, pairs)?;
        end = begin.saturating_sub(1);
    }
    Ok(())
}
