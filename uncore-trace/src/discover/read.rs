//! Reads small text files of sysfs and procfs below a root.
//!
//! A missing file is `None`. A file that cannot be read or parsed is `None` with a line in
//! [`Problems`], so that one broken file does not affect the rest.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::bounds;
use crate::text::printable;

/// Longest line of a problem, bytes. A file may hold anything.
const LONGEST_LINE: usize = 300;

/// The names among the first `most` entries of a directory, sorted; none if it cannot be read.
pub(super) fn dir_names(dir: &Path, most: usize) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().take(most);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The directories in a directory; none if it cannot be read.
pub(crate) fn subdirectories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|file_type| file_type.is_dir()));
    dirs.map(|entry| entry.path())
}

/// What could not be read, one printable line each.
#[derive(Debug, Default)]
pub(super) struct Problems(pub Vec<String>);

impl Problems {
    /// Notes that `path` could not be used, and why.
    pub(super) fn note_problem(&mut self, path: &Path, why: &impl Display) {
        let line = format!("{}: {why:#}", path.display());
        let mut line = printable(&line).into_owned();
        if line.len() > LONGEST_LINE {
            line.truncate(line.floor_char_boundary(LONGEST_LINE));
            line.push_str("...");
        }
        self.0.push(line);
    }

    /// What was read from `path`; `None`, with a problem, if it could not be used.
    pub(super) fn keep_read<T, E: Display>(
        &mut self,
        path: &Path,
        read: Result<T, E>,
    ) -> Option<T> {
        read.inspect_err(|error| self.note_problem(path, error)).ok()
    }

    /// The whole attribute of sysfs as text.
    pub(super) fn read_text(&mut self, path: &Path) -> Option<String> {
        self.text_up_to(path, bounds::ATTRIBUTE)
    }

    /// The whole file as text, if it has at most `max_bytes` bytes.
    pub(super) fn text_up_to(&mut self, path: &Path, max_bytes: u64) -> Option<String> {
        match bounds::read_text(path, max_bytes) {
            Err(error) if is_absent(&error) => None,
            read => self.keep_read(path, read),
        }
    }

    /// The file's text without surrounding white space.
    pub(super) fn read_line(&mut self, path: &Path) -> Option<String> {
        self.read_text(path).map(|text| text.trim().to_owned())
    }

    /// The file parsed as a `T`.
    pub(super) fn read_parsed<T>(&mut self, path: &Path) -> Option<T>
    where
        T: FromStr<Err: Display>,
    {
        let parsed = self.read_line(path)?.parse();
        self.keep_read(path, parsed)
    }

    /// The file's line as `parse` parses it; a problem says that it is not `noun`.
    pub(super) fn read_as<T>(
        &mut self,
        path: &Path,
        noun: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.read_line(path)?;
        let value = parse(&text);
        if value.is_none() {
            self.note_problem(path, &format!("{text:?} is not {noun}"));
        }
        value
    }

    /// The names in a directory in ascending order; empty if it does not exist.
    pub(super) fn read_names(&mut self, dir: &Path) -> Vec<String> {
        let entries = match fs::read_dir(dir) {
            Err(error) if is_absent(&error) => None,
            read => self.keep_read(dir, read),
        };
        let mut names = Vec::new();
        for entry in entries.into_iter().flatten() {
            match entry.map(|entry| entry.file_name().into_string()) {
                Ok(Ok(name)) => names.push(name),
                Ok(Err(name)) => self.note_problem(&dir.join(name), &"its name is not UTF-8"),
                Err(error) => self.note_problem(dir, &error),
            }
        }
        names.sort_unstable();
        names
    }
}

/// The file's bytes.
pub(super) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    bounds::system_bytes(path)
}

/// Bytes at this offset; `None` behind the end.
pub(crate) fn read_array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
