//! The names of the segments in a partial directory, and which of them are the table so far.
//!
//! `T.parquet.partial/` contains segments that are named by the range of their sequence numbers:
//! `000000-000000.parquet`. How they are written says [`super::segment`].

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::disk;

/// The sequence numbers of the seals in a segment, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SealRange {
    /// Of the oldest seal.
    pub first_seal: u32,
    /// Of the newest seal.
    pub last_seal: u32,
}

impl SealRange {
    /// Number of seals in it.
    pub(super) fn seal_count(self) -> u32 {
        self.last_seal - self.first_seal + 1
    }

    /// The name of its file.
    pub(super) fn file_name(self) -> String {
        format!("{:06}-{:06}.parquet", self.first_seal, self.last_seal)
    }

    /// The range in a file name; `None` for other files.
    fn parse(name: &str) -> Option<SealRange> {
        let (first_text, last_text) = name.strip_suffix(".parquet")?.split_once('-')?;
        let range =
            SealRange { first_seal: first_text.parse().ok()?, last_seal: last_text.parse().ok()? };
        (range.first_seal <= range.last_seal && range.file_name() == name).then_some(range)
    }
}

/// The partial directory of the final file `target`.
pub(super) fn partial_dir(target: &Path) -> PathBuf {
    disk::with_suffix(target, ".partial")
}

/// The segments in a partial directory that are the table so far, in order, and those that were
/// merged into one of them.
pub(super) fn list_segments(dir: &Path) -> Result<(Vec<SealRange>, Vec<SealRange>)> {
    let mut segments = Vec::new();
    for entry in disk::list_entries(dir)? {
        segments.extend(entry.file_name().to_str().and_then(SealRange::parse));
    }
    // Widest first among those that begin together, so that parts follow what they went into.
    segments.sort_by_key(|range| (range.first_seal, u32::MAX - range.last_seal));
    let (mut kept, mut merged): (Vec<SealRange>, Vec<SealRange>) = (Vec::new(), Vec::new());
    for range in segments {
        match kept.last() {
            Some(previous) if range.last_seal <= previous.last_seal => merged.push(range),
            Some(previous) if range.first_seal <= previous.last_seal => {
                bail!(
                    "segments {} and {} in {} overlap; move one of them away",
                    previous.file_name(),
                    range.file_name(),
                    dir.display()
                );
            }
            _ => kept.push(range),
        }
    }
    Ok((kept, merged))
}

/// The files of the segments that are sealed, in order, of a table that may be written now.
///
/// # Errors
///
/// The directory cannot be read, or segments are missing: a merge removed them while they were
/// listed.
pub(super) fn sealed_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let (kept, _) = list_segments(dir)?;
    let mut expected_seal = 0;
    for range in &kept {
        if range.first_seal != expected_seal {
            bail!("{} has no segment {expected_seal:06}: try again", dir.display());
        }
        expected_seal = range.last_seal + 1;
    }
    Ok(kept.into_iter().map(|range| dir.join(range.file_name())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_is_found_again_in_its_file_name(first_seal in 0_u32..5_000_000, span in 0_u32..2000) {
            let range = SealRange { first_seal, last_seal: first_seal + span };
            prop_assert_eq!(SealRange::parse(&range.file_name()), Some(range));
        }

        #[test]
        fn other_names_are_no_segments(name in "\\PC*") {
            if let Some(range) = SealRange::parse(&name) {
                prop_assert_eq!(range.file_name(), name);
            }
        }
    }

    #[test]
    fn temporary_and_backward_names_are_no_segments() {
        assert_eq!(SealRange::parse("000000-000000.parquet.tmp"), None);
        assert_eq!(SealRange::parse("000002-000001.parquet"), None);
        assert_eq!(SealRange::parse("0-1.parquet"), None);
    }
}
