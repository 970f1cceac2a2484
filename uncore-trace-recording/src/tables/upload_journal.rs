//! Files of a roll-up that an object store has: the journal of `uncore-trace upload`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::bounds;

/// Name of the journal in the directory of the roll-up.
pub const JOURNAL: &str = ".uploaded";

/// Distinguishes a file from another one with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change, ns since 1970.
    pub modified_ns: i128,
}

impl Stamp {
    /// The stamp of a file.
    pub fn from_metadata(metadata: &fs::Metadata) -> Self {
        let ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self { size: metadata.size(), modified_ns: ns }
    }
}

/// The files that were sent, by their path below the directory; empty if there is no journal.
///
/// # Errors
///
/// The journal cannot be read.
pub(crate) fn read_journal(root: &Path) -> io::Result<BTreeMap<String, Stamp>> {
    match bounds::read_bytes(&root.join(JOURNAL), bounds::JOURNAL) {
        Ok(bytes) => Ok(parse_journal(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

/// The line for a file.
pub fn line(name: &str, stamp: Stamp) -> String {
    format!("{} {} {name}\n", stamp.size, stamp.modified_ns)
}

/// Parses the complete lines. The first line names the store, not a file.
pub fn parse_journal(text: &str) -> BTreeMap<String, Stamp> {
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let parse_line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let size = words.next()?.parse().ok()?;
        let modified_ns = words.next()?.parse().ok()?;
        Some((words.next()?.to_owned(), Stamp { size, modified_ns }))
    };
    whole.filter_map(parse_line).collect()
}
