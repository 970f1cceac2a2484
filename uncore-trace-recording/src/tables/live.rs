//! What is on the disk of a recording that goes on.
//!
//! Guarantees: nothing is changed; a table is opened once, so that what is asked of it twice is of
//! the same rows; segments that the recorder merges or removes later are still read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};

use super::disk;
use super::file::TableFile;
use super::lock::LockHolder;
use super::sealed::{partial_dir, sealed_files};
use super::table::OpenTable;
use crate::schema::{TableDef, fabric};

/// How often a table is opened that changes meanwhile: once for each size of segments that may be
/// merged, and for its end.
const TRIES: usize = 5;

/// The tables of a live recording that were opened.
#[derive(Debug)]
pub(super) struct LiveTables {
    /// The process that records it.
    pub holder: LockHolder,
    /// The metadata of `fabric`: segments of other tables do not have all.
    pairs: BTreeMap<String, String>,
    opened: Mutex<BTreeMap<&'static str, OpenTable>>,
}

impl LiveTables {
    /// The recording at `path`, which `holder` records; its `fabric` will be `target`.
    ///
    /// # Errors
    ///
    /// Nothing of it is on the disk yet, or it cannot be read.
    pub(super) fn open(path: &Path, holder: LockHolder, target: &Path) -> Result<Arc<LiveTables>> {
        let fabric = open_or_retry(&fabric::TABLE, target)?;
        if fabric.row_count() == 0 {
            bail!(
                "{} {holder}, and no data is on the disk yet: try again in some seconds",
                path.display()
            );
        }
        let pairs = fabric.metadata_pairs().clone();
        let opened = Mutex::new([(fabric::TABLE.name, fabric)].into());
        Ok(Arc::new(LiveTables { holder, pairs, opened }))
    }

    /// Opens what there is of a table whose file will be `target`.
    pub(super) fn open_table(&self, def: &'static TableDef, target: &Path) -> Result<OpenTable> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = opened.get(def.name) {
            return Ok(table.clone());
        }
        let table = open_or_retry(def, target)?.with_metadata(self.pairs.clone());
        opened.insert(def.name, table.clone());
        Ok(table)
    }
}

/// A table that is finished, or the segments of it.
fn open_or_retry(def: &'static TableDef, target: &Path) -> Result<OpenTable> {
    for _ in 1..TRIES {
        if let Ok(table) = try_open(def, target) {
            return Ok(table);
        }
    }
    try_open(def, target)
}

fn try_open(def: &'static TableDef, target: &Path) -> Result<OpenTable> {
    let dir = partial_dir(target);
    let open_segments =
        |paths: Vec<PathBuf>| paths.iter().map(|path| TableFile::open_segment(def, path)).collect();
    let segments: Result<Vec<TableFile>> = sealed_files(&dir).and_then(open_segments);
    // Only after that: the segments go once the file is there.
    if disk::is_occupied(target)? {
        OpenTable::open(def, target)
    } else {
        Ok(OpenTable::from_files(def, &dir, segments?))
    }
}
