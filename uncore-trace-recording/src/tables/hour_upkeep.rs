//! Upkeep of the files of a roll-up: finishing those that killed processes left, and removing old
//! ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;

use super::hour_tree::{PARTIAL, list_files, list_host_dirs};
use super::layout::FILE;
use super::repair::repair_table;
use super::upload_journal::{self, Stamp};
use super::{disk, lock};
use crate::schema::rollup;

/// After this time without a change nothing is about to be written into the directory of a host's
/// hour.
pub(super) const UNUSED: Duration = Duration::from_hours(2);

/// Finishes the files that killed processes left below `root`, and returns them. Files that another
/// process is writing are skipped. For a file that cannot be finished a warning is given.
///
/// # Errors
///
/// A directory cannot be read.
pub fn repair_hours(root: &Path) -> Result<Vec<PathBuf>> {
    let mut repaired = Vec::new();
    for target in list_files(root, PARTIAL)? {
        let name = target.to_string_lossy();
        let target = PathBuf::from(name.strip_suffix(".partial").unwrap_or(&name));
        if lock::find_holder(&target).is_some() {
            continue;
        }
        match repair_table(&rollup::TABLE, &target) {
            Ok(_) => repaired.push(target),
            Err(error) => log::warn!(
                "cannot finish an earlier hour, which stays as it is: \
                                      {error:#}"
            ),
        }
    }
    Ok(repaired)
}

/// Removes finished files below `root` that are older than `age`, and empty directories.
/// Returns the number of files. With an object store, files that it has not confirmed are kept
/// until they exceed `max_unsent` bytes; then the oldest are removed. A warning is given for a file
/// that cannot be removed.
///
/// # Errors
///
/// A directory cannot be read.
pub fn trim_hours(root: &Path, age: Duration, max_unsent: Option<u64>) -> Result<usize> {
    let current_time = SystemTime::now();
    let is_older = |path: &Path, age| {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        modified
            .is_ok_and(|time| current_time.duration_since(time).is_ok_and(|elapsed| elapsed > age))
    };
    let mut old = list_files(root, FILE)?;
    old.retain(|path| is_older(path, age));
    let mut waiting = Vec::new();
    if max_unsent.is_some() {
        (old, waiting) = split_by_sent(root, old);
    }
    // Newest first: as many are kept as there is room for.
    let mut bytes = 0;
    for path in waiting.into_iter().rev() {
        bytes += fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
        if max_unsent.is_some_and(|max_bytes| bytes > max_bytes) {
            log::warn!(
                "removing {}, which was not sent: it is older than rollup.keep, and the unsent \
                 files exceed upload.queue",
                path.display()
            );
            old.push(path);
        }
    }
    let mut emptied = list_host_dirs(root)?;
    emptied.retain(|host| is_older(host, UNUSED));
    let mut removed = 0;
    for path in old {
        match fs::remove_file(&path) {
            Ok(()) => removed += 1,
            Err(error) => log::warn!("{:#}", disk::action_error("remove", &path, &error)),
        }
        emptied.extend(path.parent().map(Path::to_owned));
    }
    // Directories that are not empty stay.
    for host in emptied {
        // Its own, that of the hour, and that of the day.
        host.ancestors().take(3).take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
    }
    Ok(removed)
}

/// Files below `root` that the object store has confirmed, and the others, of these.
fn split_by_sent(root: &Path, files: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let sent = upload_journal::read_journal(root).unwrap_or_else(|error| {
        let path = root.join(upload_journal::JOURNAL);
        log::warn!("{:#}; all files count as unsent", disk::action_error("read", &path, &error));
        BTreeMap::new()
    });
    let is_sent = |path: &PathBuf| {
        let name = path.strip_prefix(root).ok().and_then(Path::to_str);
        let stamp = fs::symlink_metadata(path).map(|metadata| Stamp::from_metadata(&metadata));
        name.zip(stamp.ok()).is_some_and(|(name, stamp)| sent.get(name) == Some(&stamp))
    };
    files.into_iter().partition(is_sent)
}

/// The finished files below `root` that the object store has not confirmed.
///
/// # Errors
///
/// A directory cannot be read.
pub fn unsent(root: &Path) -> Result<Vec<fs::Metadata>> {
    let (_, waiting) = split_by_sent(root, list_files(root, FILE)?);
    Ok(waiting.iter().filter_map(|path| fs::symlink_metadata(path).ok()).collect())
}
