//! Makes a file of what a killed recorder left: `uncore-trace repair`.
//!
//! Guarantees: nothing sealed is lost except segments that cannot be read (a power cut can leave
//! those), which are named; a good recording is not changed; run again after being killed itself,
//! it goes on where it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::reader::Recording;
use super::segment::{self, Partial, partial_dir};
use super::writer::{Finished, lock, table_path};
use super::{ALL, SCHEMA_VERSION, TableDef, disk, fabric, finish, metadata};

/// What `repair` found and did.
#[derive(Debug)]
pub enum Repaired {
    /// The recording was good; nothing was changed.
    Good,
    /// A file was made.
    Made {
        /// What it is now.
        path: PathBuf,
        /// Its size, over all tables.
        finished: Finished,
        /// Segments that could not be read and are left out, with the reason.
        unreadable: Vec<String>,
    },
}

/// Finishes the recording at `path`: the final file's name, its `.partial` directory, or a dataset.
pub fn repair(path: &Path) -> Result<Repaired> {
    let path = without_partial(path);
    let tables: Vec<(&'static TableDef, PathBuf)> = if path.is_dir() {
        ALL.iter().map(|def| (*def, table_path(&path, def))).collect()
    } else {
        vec![(&fabric::TABLE, path.clone())]
    };
    let mut left = Vec::new();
    for (def, target) in &tables {
        if disk::occupied(&partial_dir(target))? {
            left.push((*def, target.clone()));
        }
    }
    if left.is_empty() {
        return match Recording::open(&path) {
            Ok(_) => Ok(Repaired::Good),
            Err(error) => bail!("nothing to repair: {error:#}"),
        };
    }
    let lock = match left.last() {
        Some((def, target)) if def.name == fabric::TABLE.name => Some(lock(target)?),
        _ => None,
    };
    let mut unreadable = Vec::new();
    let mut partials = Vec::new();
    for (def, target) in left {
        let mut partial = Partial::open(def, &target)?;
        drop_unreadable(&mut partial, &mut unreadable);
        partials.push((target, partial));
    }
    let mut pairs = newest_metadata(&partials)?;
    if !unreadable.is_empty() {
        pairs.insert(metadata::LEFT_OUT.to_owned(), unreadable.len().to_string());
    }
    let mut finished = Finished::default();
    for (target, partial) in partials {
        let (rows, bytes) = finish::assemble(partial, &target, &pairs)?;
        finished.rows += rows;
        finished.bytes += bytes;
    }
    drop(lock);
    Ok(Repaired::Made { path, finished, unreadable })
}

/// The final file's path, also when the partial directory was named.
fn without_partial(path: &Path) -> PathBuf {
    let named = path.file_name().and_then(|name| name.to_str());
    match named.and_then(|name| name.strip_suffix(".partial")) {
        Some(stem) if path.is_dir() => path.with_file_name(stem),
        _ => path.to_owned(),
    }
}

/// Takes segments whose footer cannot be read out of the list, and says so.
fn drop_unreadable(partial: &mut Partial, unreadable: &mut Vec<String>) {
    let dir = partial.dir.clone();
    let mut kept = Vec::new();
    for range in std::mem::take(&mut partial.segments) {
        let path = dir.join(format!("{:06}-{:06}.parquet", range.first, range.last));
        match segment::footer(&path) {
            Ok(_) => kept.push(range),
            Err(error) => unreadable.push(format!("{error:#}")),
        }
    }
    partial.segments = kept;
}

/// The metadata of fabric's newest segment, marked as of a recording that did not end.
fn newest_metadata(partials: &[(PathBuf, Partial)]) -> Result<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    // Fabric is the last of the list; where it is finished already its file has the metadata.
    if let Some((target, partial)) = partials.last() {
        let from = match partial.segments.last() {
            Some(range) if partial.def.name == fabric::TABLE.name => Some(partial.path(*range)),
            _ => {
                let file = table_path(disk::parent(target), &fabric::TABLE);
                fs::exists(&file).unwrap_or(false).then_some(file)
            }
        };
        if let Some(from) = from {
            let footer = segment::footer(&from)?;
            pairs = metadata::from_key_values(footer.file_metadata().key_value_metadata());
        }
    }
    pairs.entry(metadata::SCHEMA_VERSION.to_owned()).or_insert_with(|| SCHEMA_VERSION.to_string());
    pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned());
    pairs.insert(metadata::REPAIRED.to_owned(), "true".to_owned());
    Ok(pairs)
}
