//! Makes files from the segments of a killed recorder: `uncore-trace repair`.
//!
//! Guarantees: nothing that was sealed is lost, except damaged segments (a power cut can cause
//! these), which are reported. A finished recording is not changed. If the repair itself is killed,
//! it can be run again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::lock::{self, LockingCommand};
use super::manifest::Manifest;
use super::mode::FileMode;
use super::names::table_path;
use super::reader::{OpenTable, Recording};
use super::sealed::partial_dir;
use super::segment::Partial;
use super::writer::RecordingSize;
use super::{disk, finish, open_spans, output_path, sound};
use crate::schema::{ALL, SCHEMA_VERSION, TableDef, fabric, marks, metadata};

/// The result of a repair.
#[derive(Debug)]
pub enum Repaired {
    /// The recording was finished; nothing was changed.
    Good,
    /// Files were made.
    Done {
        /// The path of the recording.
        path: PathBuf,
        /// Its size, over all tables.
        finished: RecordingSize,
        /// Segments that could not be read and were left out, with the reason.
        unreadable: Vec<String>,
    },
}

/// Finishes the recording at `path`: the name of the final file, of its `.partial` directory, or of
/// a dataset.
pub fn repair_path(path: &Path) -> Result<Repaired> {
    let path = without_partial(path);
    let tables: Vec<(&'static TableDef, PathBuf)> = if path.is_dir() {
        ALL.iter().map(|def| (*def, table_path(&path, def))).collect()
    } else {
        vec![(&fabric::TABLE, path.clone())]
    };
    let mut unfinished = Vec::new();
    for (def, target) in &tables {
        if disk::is_occupied(&partial_dir(target))? {
            output_path::require_vacant(target, true)?;
            unfinished.push((*def, target.clone()));
        }
    }
    if unfinished.is_empty() {
        return match Recording::open(&path) {
            Ok(_) => Ok(Repaired::Good),
            Err(error) => bail!("nothing to repair: {error:#}"),
        };
    }
    let lock = match unfinished.last() {
        Some((def, target)) if def.name == fabric::TABLE.name => {
            let mode = FileMode::from_path(&partial_dir(target))?;
            Some(lock::lock_output(&path, target, mode, LockingCommand::Repair)?)
        }
        _ => None,
    };
    let mut unreadable = Vec::new();
    let mut partials = Vec::new();
    for (def, target) in unfinished {
        let mut partial = Partial::open(def, &target)?;
        drop_unreadable(&mut partial, &mut unreadable);
        partials.push(partial);
    }
    let mut pairs = newest_metadata(&partials)?;
    metadata::require_version(&path, &pairs)?;
    if !unreadable.is_empty() {
        pairs.insert(metadata::LEFT_OUT.to_owned(), unreadable.len().to_string());
    }
    // Only `fabric` has the list; it gets the digests as the other tables are finished.
    let mut manifest = Manifest::from_metadata(&pairs)?;
    pairs.remove(metadata::TABLES);
    if let Some(manifest) = &mut manifest {
        list_finished(manifest, &tables);
    }
    let mut finished = RecordingSize::default();
    for mut partial in partials {
        let def = partial.def;
        if def.name == marks::TABLE.name {
            open_spans::add_open_spans(&mut partial, &pairs)?;
        }
        if let Some(manifest) = manifest.as_ref().filter(|_| def.name == fabric::TABLE.name) {
            pairs = manifest.added_to(&pairs)?;
        }
        let assembled = finish::assemble_table(&mut partial, &pairs)?;
        finished += assembled.size;
        if let Some(manifest) = &mut manifest {
            manifest.set_digest(def, assembled.digest);
        }
    }
    drop(lock);
    Ok(Repaired::Done { path, finished, unreadable })
}

/// Finishes the file of a table outside a recording that a killed process left. Segments that
/// cannot be read are left out with a warning.
///
/// # Errors
///
/// Another process is writing the file, or it cannot be written.
pub(crate) fn repair_table(def: &'static TableDef, target: &Path) -> Result<RecordingSize> {
    let mode = FileMode::from_path(&partial_dir(target))?;
    let lock = lock::lock_output(target, target, mode, LockingCommand::Repair)?;
    let mut partial = Partial::open(def, target)?;
    let mut unreadable = Vec::new();
    drop_unreadable(&mut partial, &mut unreadable);
    for error in unreadable {
        log::warn!("{}: left out: {error}", target.display());
    }
    let newest = partial.segments.last().map(|range| partial.segment_path(*range));
    let mut pairs = newest.as_deref().map(sound::read_metadata).transpose()?.unwrap_or_default();
    pairs.insert(metadata::REPAIRED.to_owned(), "true".to_owned());
    let assembled = finish::assemble_table(&mut partial, &pairs)?;
    drop(lock);
    Ok(assembled.size)
}

/// Adds the tables that were finished before the recorder, or an earlier repair, was killed.
fn list_finished(manifest: &mut Manifest, tables: &[(&'static TableDef, PathBuf)]) {
    for (def, target) in tables.iter().filter(|(def, _)| def.name != fabric::TABLE.name) {
        let is_unfinished = disk::is_occupied(&partial_dir(target)).unwrap_or(true);
        if let (false, Ok(table)) = (is_unfinished, OpenTable::open(def, target)) {
            manifest.set_digest(def, table.file_digest().to_owned());
        }
    }
}

/// The path of the final file, also if `path` is its partial directory.
fn without_partial(path: &Path) -> PathBuf {
    let named = path.file_name().and_then(|name| name.to_str());
    match named.and_then(|name| name.strip_suffix(".partial")) {
        Some(stem) if path.is_dir() => path.with_file_name(stem),
        _ => path.to_owned(),
    }
}

/// Removes damaged segments from the list, and adds them to `unreadable`.
fn drop_unreadable(partial: &mut Partial, unreadable: &mut Vec<String>) {
    let mut kept = Vec::new();
    for range in std::mem::take(&mut partial.segments) {
        match sound::open_sound(&partial.segment_path(range)) {
            Ok(_) => kept.push(range),
            Err(error) => unreadable.push(format!("{error:#}")),
        }
    }
    partial.segments = kept;
}

/// The metadata of the newest segment of `fabric`, marked as repaired.
fn newest_metadata(partials: &[Partial]) -> Result<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    // `fabric` is last in the list. If it is already finished, its file has the metadata.
    if let Some(partial) = partials.last() {
        let from = if partial.def.name == fabric::TABLE.name {
            partial.segments.last().map(|range| partial.segment_path(*range))
        } else {
            let file = table_path(disk::parent_dir(&partial.target), &fabric::TABLE);
            fs::exists(&file).unwrap_or(false).then_some(file)
        };
        if let Some(from) = from {
            pairs = sound::read_metadata(&from)?;
        }
    }
    pairs.entry(metadata::SCHEMA_VERSION.to_owned()).or_insert_with(|| SCHEMA_VERSION.to_string());
    pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned());
    pairs.insert(metadata::REPAIRED.to_owned(), "true".to_owned());
    Ok(pairs)
}
