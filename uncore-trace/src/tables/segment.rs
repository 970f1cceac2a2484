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
use super::encode::{self, Form};
use super::mode::Mode;
use crate::schema::TableDef;

/// Number of segments of one level that are merged into one of the next level.
pub(super) const FAN: u32 = 32;
/// The sequence numbers of the seals in a segment, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    /// First.
    pub first: u32,
    /// Last.
    pub last: u32,
}

impl Range {
    fn span(self) -> u32 {
        self.last - self.first + 1
    }

    fn file(self) -> String {
        format!("{:06}-{:06}.parquet", self.first, self.last)
    }

    /// The range in a file name; `None` for other files.
    fn parse(name: &str) -> Option<Range> {
        let (first, last) = name.strip_suffix(".parquet")?.split_once('-')?;
        let range = Range { first: first.parse().ok()?, last: last.parse().ok()? };
        (range.first <= range.last && range.file() == name).then_some(range)
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
    pub segments: Vec<Range>,
    /// Size of its segments in bytes.
    pub bytes: u64,
    next: u32,
    mode: Mode,
    /// The open directory, whatever exists at its path by now. While it is open, the kernel does
    /// not reuse its inode number.
    opened: File,
}

/// The partial directory of the final file `target`.
pub(super) fn partial_dir(target: &Path) -> PathBuf {
    disk::with_suffix(target, ".partial")
}

/// The segments in a partial directory that are the table so far, in order, and those that were merged into
/// one of them.
fn ranges(dir: &Path) -> Result<(Vec<Range>, Vec<Range>)> {
    let mut segments = Vec::new();
    for entry in disk::doing("read", dir, fs::read_dir(dir))? {
        let entry = disk::doing("read", dir, entry)?;
        segments.extend(entry.file_name().to_str().and_then(Range::parse));
    }
    // Widest first among those that begin together, so that parts follow what they went into.
    segments.sort_by_key(|range| (range.first, u32::MAX - range.last));
    let (mut kept, mut merged): (Vec<Range>, Vec<Range>) = (Vec::new(), Vec::new());
    for range in segments {
        match kept.last() {
            Some(last) if range.last <= last.last => merged.push(range),
            Some(last) if range.first <= last.last => {
                bail!(
                    "segments {} and {} in {} overlap; move one of them away",
                    last.file(),
                    range.file(),
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
/// The directory cannot be read, or segments are missing: a merge removed them while they were listed.
pub(super) fn sealed(dir: &Path) -> Result<Vec<PathBuf>> {
    let (kept, _) = ranges(dir)?;
    let mut next = 0;
    for range in &kept {
        if range.first != next {
            bail!("{} has no segment {next:06}: try again", dir.display());
        }
        next = range.last + 1;
    }
    Ok(kept.into_iter().map(|range| dir.join(range.file())).collect())
}

impl Partial {
    /// Creates the empty directory of a table that will be `target`.
    pub(super) fn create(def: &'static TableDef, target: &Path, mode: Mode) -> Result<Partial> {
        let dir = partial_dir(target);
        disk::doing("create", &dir, mode.create_directory(&dir))?;
        let opened = disk::doing("open", &dir, File::open(&dir))?;
        Ok(Partial { def, dir, segments: Vec::new(), bytes: 0, next: 0, mode, opened })
    }

    /// Opens the directory that a recorder left, and completes an interrupted merge.
    pub(super) fn open(def: &'static TableDef, target: &Path) -> Result<Partial> {
        let dir = partial_dir(target);
        let (kept, merged) = ranges(&dir)?;
        for range in merged {
            let part = dir.join(range.file());
            disk::doing("remove", &part, fs::remove_file(&part))?;
        }
        let next = kept.last().map_or(0, |range| range.last + 1);
        let opened = disk::doing("open", &dir, File::open(&dir))?;
        let mode = Mode::of(&dir)?;
        let mut partial = Partial { def, dir, segments: kept, bytes: 0, next, mode, opened };
        partial.bytes = partial.size_of(&partial.segments);
        Ok(partial)
    }

    /// Whether the directory is still the one that was created or opened.
    pub(super) fn is_there(&self) -> bool {
        let identity = |found: Metadata| (found.dev(), found.ino());
        let opened = self.opened.metadata().map(identity);
        fs::metadata(&self.dir)
            .map(identity)
            .is_ok_and(|there| opened.is_ok_and(|own| own == there))
    }

    /// Checks that the directory is still the same: another one must be neither written nor
    /// removed.
    pub(super) fn require(&self) -> Result<()> {
        if !self.is_there() {
            bail!("{} was removed or replaced while it was in use", self.dir.display());
        }
        Ok(())
    }

    /// Number of its segments that are no longer on disk.
    pub(super) fn missing(&self) -> usize {
        let there = self.is_there();
        self.segments.iter().filter(|range| !there || !self.path(**range).is_file()).count()
    }

    /// The path of a segment.
    pub(super) fn path(&self, range: Range) -> PathBuf {
        self.dir.join(range.file())
    }

    /// Writes the batches as the next segment, then merges segments if a level is full.
    pub(super) fn seal(
        &mut self,
        batches: &[RecordBatch],
        pairs: &BTreeMap<String, String>,
    ) -> Result<()> {
        let range = Range { first: self.next, last: self.next };
        self.write_segment(range, pairs, |path, form| {
            encode::rows(path, form, batches).map(|_| ())
        })?;
        self.segments.push(range);
        self.bytes += self.size_of(&[range]);
        self.next += 1;
        for size in [1, FAN] {
            let same = self.segments.iter().rev().take_while(|range| range.span() == size).count();
            if same >= FAN as usize {
                self.merge(self.segments.len() - same..self.segments.len(), pairs)?;
            }
        }
        Ok(())
    }

    /// Merges the segments of `which` (indices into `segments`) into one, compressed as a final
    /// file.
    pub(super) fn merge(
        &mut self,
        which: std::ops::Range<usize>,
        pairs: &BTreeMap<String, String>,
    ) -> Result<()> {
        let parts = self.segments[which.clone()].to_vec();
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(()) };
        let merged = Range { first: first.first, last: last.last };
        let before = self.size_of(&parts);
        if parts.len() == 1 && encode::is_kept(self.def, &encode::footer(&self.path(*first))?.1) {
            return Ok(());
        }
        let paths: Vec<PathBuf> = parts.iter().map(|range| self.path(*range)).collect();
        self.write_segment(merged, pairs, |path, form| encode::merged(path, form, &paths))?;
        for path in paths.iter().filter(|path| **path != self.path(merged)) {
            let removed = disk::doing("remove", path, fs::remove_file(path));
            if removed.is_err() {
                // As for a new segment: if the directory was removed, that is the cause to report.
                self.require()?;
            }
            removed?;
        }
        self.segments.splice(which, [merged]);
        self.bytes = self.bytes.saturating_sub(before) + self.size_of(&[merged]);
        Ok(())
    }

    /// Size of these segments in bytes. Unreadable ones count as 0.
    fn size_of(&self, segments: &[Range]) -> u64 {
        let size = |range: &Range| fs::metadata(self.path(*range)).map_or(0, |found| found.len());
        segments.iter().map(size).sum()
    }

    /// The properties of its files.
    pub(super) fn form<'a>(&self, pairs: &'a BTreeMap<String, String>) -> Form<'a> {
        Form { def: self.def, pairs, mode: self.mode }
    }

    fn write_segment(
        &self,
        range: Range,
        pairs: &BTreeMap<String, String>,
        write: impl FnOnce(&Path, &Form<'_>) -> Result<()>,
    ) -> Result<()> {
        self.require()?;
        let target = self.path(range);
        let temporary = disk::with_suffix(&target, ".tmp");
        let written = write(&temporary, &self.form(pairs))
            .and_then(|()| disk::doing("write", &target, fs::rename(&temporary, &target)));
        if written.is_err() {
            // If the directory was removed meanwhile, that is the cause to report.
            self.require()?;
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
        fn a_range_is_found_again_in_its_file_name(first in 0_u32..5_000_000, span in 0_u32..2000) {
            let range = Range { first, last: first + span };
            prop_assert_eq!(Range::parse(&range.file()), Some(range));
        }

        #[test]
        fn other_names_are_no_segments(name in "\\PC*") {
            if let Some(range) = Range::parse(&name) {
                prop_assert_eq!(range.file(), name);
            }
        }
    }

    #[test]
    fn temporary_and_backward_names_are_no_segments() {
        assert_eq!(Range::parse("000000-000000.parquet.tmp"), None);
        assert_eq!(Range::parse("000002-000001.parquet"), None);
        assert_eq!(Range::parse("0-1.parquet"), None);
    }
}
