//! File operations of the writer, and the wording of their errors.
//!
//! Guarantees: an error is one line that names the action, the path and the cause (a full disk, a
//! missing directory, a refused permission). A file that [`rename_durably`] replaces is at every
//! instant either the old or the complete new one.

use std::error::Error;
use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

use crate::bounds;

/// The wording of an I/O error in the chain; otherwise the error's own text.
///
/// The Parquet writer sometimes passes on only the text of an I/O error, so the text is searched
/// too.
pub(super) fn explain_error(error: &(dyn Error + 'static)) -> String {
    if let Some(io) = io_error(error) {
        return explain_kind(io.kind()).map_or_else(|| one_line(&io.to_string()), str::to_owned);
    }
    let text = one_line(&error.to_string());
    let known =
        [("os error 28", io::ErrorKind::StorageFull), ("os error 27", io::ErrorKind::FileTooLarge)];
    let known = known.iter().find(|(number, _)| text.contains(number));
    let worded = known.and_then(|(_, error_kind)| explain_kind(*error_kind));
    worded.map_or(text, str::to_owned)
}

/// The I/O error in the chain.
pub(super) fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = current.source();
    }
    None
}

/// The wording for the kinds of I/O errors that a user can fix.
fn explain_kind(error_kind: io::ErrorKind) -> Option<&'static str> {
    Some(match error_kind {
        io::ErrorKind::StorageFull => "no space left on the disk",
        io::ErrorKind::FileTooLarge => {
            "the file would be larger than the limit of this session (see ulimit -f)"
        }
        io::ErrorKind::QuotaExceeded => "the disk quota is used up",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only; choose another",
        io::ErrorKind::NotFound => "no such file or directory",
        _ => return None,
    })
}

/// The text on one line: line breaks and runs of blanks become one blank.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An error that names the action, the path and the cause.
///
/// If permission is denied, it names the remedy: another directory for writing, another user or
/// mode for reading.
pub(super) fn action_error(
    action: &str,
    path: &Path,
    error: &(dyn Error + 'static),
) -> anyhow::Error {
    let denied = io_error(error).is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied);
    let remedy = match action {
        _ if !denied => "",
        "open" | "read" | "look at" => {
            "; only the user who recorded it may read it, unless it is recorded with --mode"
        }
        _ => "; choose a directory you may write",
    };
    anyhow!("cannot {action} {}: {}{remedy}", path.display(), explain_error(error))
}

/// Turns an error of `result` into one that names the action and the path.
pub(super) fn with_action<T, E: Error + 'static>(
    action: &str,
    path: &Path,
    result: std::result::Result<T, E>,
) -> Result<T> {
    result.map_err(|error| action_error(action, path, &error))
}

/// Opens a regular file to read it.
pub(super) fn open_file(path: &Path) -> Result<File> {
    with_action("open", path, bounds::open_regular(path))
}

/// The directory that contains `path`.
pub(super) fn parent_dir(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// `path` with `suffix` appended to its last component, which need not be UTF-8.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Renames the finished file `temporary` to `target` durably: first the data, then the name is
/// synced.
pub(super) fn rename_durably(temporary: &Path, target: &Path) -> Result<()> {
    let sync = File::open(temporary).and_then(|file| file.sync_all());
    with_action("sync", temporary, sync)?;
    with_action("write", target, fs::rename(temporary, target))?;
    // Some file systems refuse fsync on a directory; the rename is done anyway.
    if let Ok(directory) = File::open(parent_dir(target)) {
        directory.sync_all().ok();
    }
    Ok(())
}

/// The entries of a directory.
pub(super) fn list_entries(dir: &Path) -> Result<Vec<DirEntry>> {
    with_action("read", dir, fs::read_dir(dir).and_then(Iterator::collect))
}

/// Whether anything exists at `path`, including a dangling symbolic link.
pub(super) fn is_occupied(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(action_error("look at", path, &error)),
    }
}

/// Removes a directory and its content, if it exists.
pub(super) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(action_error("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// Size of a file in bytes.
pub(super) fn file_size(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot size {}", path.display()))?;
    Ok(metadata.len())
}
