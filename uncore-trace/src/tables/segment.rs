//! The sealed segments of a table during a recording.
//!
//! `T.parquet.partial/` contains segments that are named by the range of their sequence numbers:
//! `000000-000000.parquet`. Guarantees: every `*.parquet` in it is at every instant a complete
//! Parquet file (temporary names end in `.tmp`). Read in the order of their names, they are the
//! table so far, except between the rename of a merged segment and the removal of its parts;
//! [`Partial::open`] resolves that state by the ranges. The number of segments grows
//! logarithmically with the length of the recording for two levels of merges, then by one for each
//! `FAN * FAN` seals.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use arrow::array::RecordBatch;

use super::disk;
use super::encode::{self, FileProperties};
use super::mode::FileMode;
use crate::schema::TableDef;

/// Number of segments of one level that are merged into one of the next level.
pub(super) const FAN: u32 = 32;
/// The sequence numbers of the seals in a segment, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SealRange {
    /// Of the oldest seal.
    pub first_seal: u32,
    /// Of the newest seal.
    pub last_seal: u32,
}

impl SealRange {
    fn seal_count(self) -> u32 {
        self.last_seal - self.first_seal + 1
    }

    fn file_name(self) -> String {
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

/// The partial directory of a table.
#[derive(Debug)]
pub(super) struct Partial {
    /// The table.
    pub def: &'static TableDef,
    /// The directory.
    pub dir: PathBuf,
    /// Its segments in order; a merged segment replaces its parts.
    pub segments: Vec<SealRange>,
    /// Size of its segments in bytes.
    pub bytes: u64,
    next_seal: u32,
    mode: FileMode,
    /// The open directory, whatever exists at its path by now. While it is open, the kernel does
    /// not reuse its inode number.
    opened: File,
}

/// The partial directory of the final file `target`.
pub(super) fn partial_dir(target: &Path) -> PathBuf {
    disk::with_suffix(target, ".partial")
}

/// The segments in a partial directory that are the table so far, in order, and those that were
/// merged into one of them.
fn list_segments(dir: &Path) -> Result<(Vec<SealRange>, Vec<SealRange>)> {
    let mut segments = Vec::new();
    for entry in disk::with_action("read", dir, fs::read_dir(dir))? {
        let entry = disk::with_action("read", dir, entry)?;
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

impl Partial {
    /// Creates the empty directory of a table that will be `target`.
    pub(super) fn create(def: &'static TableDef, target: &Path, mode: FileMode) -> Result<Partial> {
        let dir = partial_dir(target);
        disk::with_action("create", &dir, mode.create_directory(&dir))?;
        let opened = disk::with_action("open", &dir, File::open(&dir))?;
        Ok(Partial { def, dir, segments: Vec::new(), bytes: 0, next_seal: 0, mode, opened })
    }

    /// Opens the directory that a recorder left, and completes an interrupted merge.
    pub(super) fn open(def: &'static TableDef, target: &Path) -> Result<Partial> {
        let dir = partial_dir(target);
        let (kept, merged) = list_segments(&dir)?;
        for range in merged {
            let path = dir.join(range.file_name());
            disk::with_action("remove", &path, fs::remove_file(&path))?;
        }
        let next_number = kept.last().map_or(0, |range| range.last_seal + 1);
        let opened = disk::with_action("open", &dir, File::open(&dir))?;
        let mode = FileMode::from_path(&dir)?;
        let mut partial =
            Partial { def, dir, segments: kept, bytes: 0, next_seal: next_number, mode, opened };
        partial.bytes = partial.size_of(&partial.segments);
        Ok(partial)
    }

    /// Whether the directory at the path is still the one that was created or opened.
    pub(super) fn is_unchanged(&self) -> bool {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let opened = self.opened.metadata().map(identity);
        fs::metadata(&self.dir)
            .map(identity)
            .is_ok_and(|current| opened.is_ok_and(|original| original == current))
    }

    /// Checks that the directory is still the same: another one must be neither written nor
    /// removed.
    pub(super) fn require_unchanged(&self) -> Result<()> {
        if !self.is_unchanged() {
            bail!("{} was removed or replaced while it was in use", self.dir.display());
        }
        Ok(())
    }

    /// Number of the table's segments that are no longer on disk.
    pub(super) fn missing_count(&self) -> usize {
        let dir_is_unchanged = self.is_unchanged();
        self.segments
            .iter()
            .filter(|range| !dir_is_unchanged || !self.segment_path(**range).is_file())
            .count()
    }

    /// The path of a segment.
    pub(super) fn segment_path(&self, range: SealRange) -> PathBuf {
        self.dir.join(range.file_name())
    }

    /// Writes the batches as the next segment, then merges segments if a level is full.
    pub(super) fn write_next_segment(
        &mut self,
        batches: &[RecordBatch],
        pairs: &BTreeMap<String, String>,
    ) -> Result<()> {
        let range = SealRange { first_seal: self.next_seal, last_seal: self.next_seal };
        self.write_segment(range, pairs, |path, form| {
            encode::write_rows(path, form, batches).map(|_| ())
        })?;
        self.segments.push(range);
        self.bytes += self.size_of(&[range]);
        self.next_seal += 1;
        for size in [1, FAN] {
            let level_count =
                self.segments.iter().rev().take_while(|range| range.seal_count() == size).count();
            if level_count >= FAN as usize {
                self.merge_segments(self.segments.len() - level_count..self.segments.len(), pairs)?;
            }
        }
        Ok(())
    }

    /// Merges the segments of `indices` (indices into `segments`) into one, compressed as a final
    /// file.
    pub(super) fn merge_segments(
        &mut self,
        indices: std::ops::Range<usize>,
        pairs: &BTreeMap<String, String>,
    ) -> Result<()> {
        let inputs = self.segments[indices.clone()].to_vec();
        let (Some(oldest), Some(newest)) = (inputs.first(), inputs.last()) else { return Ok(()) };
        let merged = SealRange { first_seal: oldest.first_seal, last_seal: newest.last_seal };
        let input_bytes = self.size_of(&inputs);
        if inputs.len() == 1
            && encode::is_kept(self.def, &encode::read_footer(&self.segment_path(*oldest))?.1)
        {
            return Ok(());
        }
        let paths: Vec<PathBuf> = inputs.iter().map(|range| self.segment_path(*range)).collect();
        self.write_segment(merged, pairs, |path, form| encode::merge_files(path, form, &paths))?;
        for path in paths.iter().filter(|path| **path != self.segment_path(merged)) {
            let removed = disk::with_action("remove", path, fs::remove_file(path));
            if removed.is_err() {
                // As for a new segment: if the directory was removed, that is the cause to report.
                self.require_unchanged()?;
            }
            removed?;
        }
        self.segments.splice(indices, [merged]);
        self.bytes = self.bytes.saturating_sub(input_bytes) + self.size_of(&[merged]);
        Ok(())
    }

    /// Size of these segments in bytes. Unreadable ones count as 0.
    fn size_of(&self, segments: &[SealRange]) -> u64 {
        let size = |range: &SealRange| {
            fs::metadata(self.segment_path(*range)).map_or(0, |metadata| metadata.len())
        };
        segments.iter().map(size).sum()
    }

    /// The properties of the segments' files.
    pub(super) fn file_properties<'a>(
        &self,
        pairs: &'a BTreeMap<String, String>,
    ) -> FileProperties<'a> {
        FileProperties { def: self.def, pairs, mode: self.mode }
    }

    fn write_segment(
        &self,
        range: SealRange,
        pairs: &BTreeMap<String, String>,
        write: impl FnOnce(&Path, &FileProperties<'_>) -> Result<()>,
    ) -> Result<()> {
        self.require_unchanged()?;
        let target = self.segment_path(range);
        let temporary = disk::with_suffix(&target, ".tmp");
        let written = write(&temporary, &self.file_properties(pairs))
            .and_then(|()| disk::with_action("write", &target, fs::rename(&temporary, &target)));
        if written.is_err() {
            // If the directory was removed meanwhile, that is the cause to report.
            self.require_unchanged()?;
            // The error of the write counts.
            fs::remove_file(&temporary).ok();
        }
        written
    }
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
