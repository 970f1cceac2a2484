//! The journal of sent files: a text file in the roll-up directory with one line per file.
//!
//! Guarantees: a line is written after the store has confirmed the file. An incomplete line is
//! ignored, and so is the journal of another store. Lines that cannot be written, for example on a
//! full disk, are kept in memory and written later; if the process is killed before, their files
//! are sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use uncore_trace_recording::bounds;
use uncore_trace_recording::tables::mode::FileMode;
use uncore_trace_recording::tables::upload_journal::{JOURNAL, Stamp, line, parse_journal};

use crate::tree::CompleteFile;

/// Name of a new journal until it is complete.
const TEMPORARY: &str = ".uploaded.tmp";

/// Number of lines of removed files after which the journal is rewritten.
const MOST_DEAD: usize = 1000;

/// The journal of a directory for one store.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    /// The first line, which names the store.
    head: String,
    /// `None` if the last write failed.
    file: Option<File>,
    sent: BTreeMap<String, Stamp>,
    lines: usize,
}

impl Journal {
    /// Reads the journal, and rewrites it with the files that still exist.
    ///
    /// # Errors
    ///
    /// It cannot be read, or cannot be written for another reason than a full disk.
    pub(crate) fn open(
        directory: &Path,
        store: &str,
        complete_files: &[CompleteFile],
    ) -> Result<Self> {
        let path = directory.join(JOURNAL);
        let text = match bounds::read_bytes(&path, bounds::JOURNAL) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let head = format!("uploaded to {store}\n");
        let lines_of_store = text.strip_prefix(&head);
        if lines_of_store.is_none() && text.lines().count() > 1 {
            log::warn!(
                "{} belongs to another store: all files are sent to {store} again",
                path.display()
            );
        }
        let sent = lines_of_store.map(parse_journal).unwrap_or_default();
        let directory = directory.to_owned();
        let mut journal = Self { directory, head, file: None, sent, lines: 0 };
        journal.forget_removed(complete_files);
        match journal.write_new() {
            Err(error) if !is_full(&error) => {
                let path = path.display();
                Err(error).with_context(|| {
                    format!("cannot write {path}: run the upload as a user who may write there")
                })
            }
            written => {
                journal.warn_of_failure(written);
                Ok(journal)
            }
        }
    }

    /// Whether this file was sent. A file with the same name and another stamp was not.
    pub(crate) fn has_sent(&self, complete_file: &CompleteFile) -> bool {
        self.sent.get(&complete_file.name) == Some(&complete_file.stamp)
    }

    /// Adds a file that the store has confirmed.
    pub(crate) fn add_sent(&mut self, complete_file: &CompleteFile) {
        self.sent.insert(complete_file.name.clone(), complete_file.stamp);
        let written = match &mut self.file {
            Some(file) => file.write_all(line(&complete_file.name, complete_file.stamp).as_bytes()),
            None => self.write_new(),
        };
        let written = written.and_then(|()| match &self.file {
            Some(file) => file.sync_data(),
            None => Ok(()),
        });
        self.lines += 1;
        self.warn_of_failure(written);
    }

    /// Rewrites the journal without removed files, if there are many or the last write failed.
    pub(crate) fn rewrite_if_needed(&mut self, complete_files: &[CompleteFile]) {
        if self.file.is_none() || self.lines > complete_files.len() + MOST_DEAD {
            self.forget_removed(complete_files);
            let written = self.write_new();
            self.warn_of_failure(written);
        }
    }

    fn forget_removed(&mut self, complete_files: &[CompleteFile]) {
        let names: BTreeSet<&str> =
            complete_files.iter().map(|complete_file| complete_file.name.as_str()).collect();
        self.sent.retain(|name, _| names.contains(name.as_str()));
    }

    /// Writes a new journal to a temporary file, and renames it.
    fn write_new(&mut self) -> io::Result<()> {
        self.file = None;
        let (path, temporary) = (self.directory.join(JOURNAL), self.directory.join(TEMPORARY));
        let mut file = FileMode::default().create_file(&temporary)?;
        let mut text = self.head.clone();
        text.extend(self.sent.iter().map(|(name, stamp)| line(name, *stamp)));
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        // Some file systems refuse fsync on a directory; the rename is done anyway.
        if let Ok(directory) = File::open(&self.directory) {
            directory.sync_all().ok();
        }
        self.file = Some(file);
        self.lines = self.sent.len();
        Ok(())
    }

    /// Warns about a failed write; the next write then rewrites the whole journal.
    fn warn_of_failure(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            let path = self.directory.join(JOURNAL);
            log::warn!(
                "cannot write {}: {error}; if this process is killed now, files that were already \
                 sent are sent again",
                path.display()
            );
            self.file = None;
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete_file(name: &str, size: u64) -> CompleteFile {
        CompleteFile {
            name: name.to_owned(),
            stamp: Stamp { size, modified_ns: 1_700_000_000_000_000_001 },
        }
    }

    #[test]
    fn the_journal_forgets_files_that_are_gone_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let all = [complete_file("a", 1), complete_file("b", 2), complete_file("c", 3)];
        let mut journal = Journal::open(dir.path(), "s3://one", &all).unwrap();
        journal.add_sent(&all[0]);
        journal.add_sent(&all[1]);
        drop(journal);
        let journal = Journal::open(dir.path(), "s3://one", &all[1..]).unwrap();
        assert!(
            !journal.has_sent(&all[0]) && journal.has_sent(&all[1]) && !journal.has_sent(&all[2])
        );
        // Another file of the same name.
        assert!(!journal.has_sent(&complete_file("b", 4)));
        let text = fs::read_to_string(dir.path().join(JOURNAL)).unwrap();
        assert_eq!(text, "uploaded to s3://one\n2 1700000000000000001 b\n");
        drop(journal);
        let journal = Journal::open(dir.path(), "s3://two", &all).unwrap();
        assert!(!journal.has_sent(&all[1]));
    }

    #[test]
    fn a_line_that_was_cut_does_not_count_nor_spoil_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let all = [complete_file("cluster=a/1", 10), complete_file("cluster=a/12", 20)];
        let mut journal = Journal::open(dir.path(), "s3://one", &all).unwrap();
        journal.add_sent(&all[0]);
        journal.add_sent(&all[1]);
        let text = fs::read_to_string(dir.path().join(JOURNAL)).unwrap();
        for cut in 0..text.len() {
            fs::write(dir.path().join(JOURNAL), &text[..cut]).unwrap();
            let mut journal = Journal::open(dir.path(), "s3://one", &all).unwrap();
            assert!(!journal.has_sent(&all[1]), "{cut}");
            journal.add_sent(&all[1]);
            drop(journal);
            let journal = Journal::open(dir.path(), "s3://one", &all).unwrap();
            assert!(journal.has_sent(&all[1]), "{cut}");
            assert_eq!(journal.has_sent(&all[0]), cut >= text.find("20 ").unwrap(), "{cut}");
        }
    }

    /// A directory with the journal's name makes writes fail.
    #[test]
    fn an_entry_that_cannot_be_written_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let all = [complete_file("a", 1), complete_file("b", 2)];
        let mut journal = Journal::open(dir.path(), "s3://one", &all).unwrap();
        fs::remove_file(dir.path().join(JOURNAL)).unwrap();
        fs::create_dir(dir.path().join(JOURNAL)).unwrap();
        journal.file = None;
        journal.add_sent(&all[0]);
        assert!(journal.has_sent(&all[0]) && journal.file.is_none());
        fs::remove_dir(dir.path().join(JOURNAL)).unwrap();
        journal.add_sent(&all[1]);
        drop(journal);
        let journal = Journal::open(dir.path(), "s3://one", &all).unwrap();
        assert!(journal.has_sent(&all[0]) && journal.has_sent(&all[1]));
    }
}
