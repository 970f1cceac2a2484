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

use super::encode::{self, FileProperties};
use super::mode::FileMode;
use super::sealed::{SealRange, list_segments, partial_dir};
use super::{disk, sound};
use crate::schema::TableDef;

/// Number of segments of one level that are merged into one of the next level.
pub(super) const FAN: u32 = 32;
/// The partial directory of a table.
#[derive(Debug)]
pub(super) struct Partial {
    /// The table.
    pub def: &'static TableDef,
    /// The final file.
    pub target: PathBuf,
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

impl Partial {
    /// Creates the empty directory of a table that will be `target`.
    pub(super) fn create(def: &'static TableDef, target: &Path, mode: FileMode) -> Result<Partial> {
        let dir = partial_dir(target);
        disk::with_action("create", &dir, mode.create_directory(&dir))?;
        let opened = disk::with_action("open", &dir, File::open(&dir))?;
        let (target, segments) = (target.to_owned(), Vec::new());
        Ok(Partial { def, target, dir, segments, bytes: 0, next_seal: 0, mode, opened })
    }

    /// Opens the directory that a recorder left, and completes an interrupted merge.
    pub(super) fn open(def: &'static TableDef, target: &Path) -> Result<Partial> {
        let dir = partial_dir(target);
        let (segments, merged) = list_segments(&dir)?;
        for range in merged {
            let path = dir.join(range.file_name());
            disk::with_action("remove", &path, fs::remove_file(&path))?;
        }
        let next_seal = segments.last().map_or(0, |range| range.last_seal + 1);
        let opened = disk::with_action("open", &dir, File::open(&dir))?;
        let mode = FileMode::from_path(&dir)?;
        let target = target.to_owned();
        let mut partial = Partial { def, target, dir, segments, bytes: 0, next_seal, mode, opened };
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
            && encode::is_kept(self.def, &sound::read_footer(&self.segment_path(*oldest))?.1)
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
