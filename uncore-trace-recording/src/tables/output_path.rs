//! Where an output may be written: its kind by its name, and what it must not replace.
//!
//! Guarantees: only a regular file is ever replaced, and only if requested. The tables of a
//! recording are not replaced by what is made from them, whatever path leads to them.

use std::fs::{self, FileType, Metadata};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::process::geteuid;

use super::disk;
use super::names::{table_path, without_slash};
use super::writer::RecordingTarget;
use crate::schema::{ALL, fabric};

/// Parses the target that a user named: `-` is a stream, `FILE.parquet` a file, a directory (or a
/// name that ends with `/`) a dataset.
pub fn parse_target(output: &Path) -> Result<RecordingTarget> {
    let text = output.as_os_str().to_string_lossy();
    if text == "-" {
        if io::stdout().is_terminal() {
            bail!(
                "standard output is a terminal and the stream is binary: redirect it to a file or \
                 a program, e.g. -o - > run.arrows"
            );
        }
        return Ok(RecordingTarget::Stream(Box::new(io::stdout())));
    }
    if output.extension().is_some_and(|extension| extension == "parquet") && !text.ends_with('/') {
        return Ok(RecordingTarget::File(output.to_owned()));
    }
    if text.ends_with('/') || output.is_dir() {
        return Ok(RecordingTarget::Dataset(output.to_owned()));
    }
    if let Ok(metadata) = fs::metadata(output)
        && !metadata.is_file()
    {
        let description = describe_file_type(metadata.file_type());
        bail!(
            "cannot record into {text}, which is {description}: name a file or a directory, or \
             stream the timeline into it with -o - > {text}"
        );
    }
    bail!(
        "cannot tell whether {text} is a file or a directory: name it {text}.parquet for one \
         file, or {text}/ for a directory with the raw tables too"
    )
}

/// A name in the working directory for a recording whose place was not given, that sorts by time:
/// `uncore-trace-20261126T105500.parquet`, with `-2` and so on behind the time if it exists.
pub fn unused_name() -> PathBuf {
    let time = jiff::Zoned::now().strftime("%Y%m%dT%H%M%S").to_string();
    let name = |suffix: &str| PathBuf::from(format!("uncore-trace-{time}{suffix}.parquet"));
    let names = std::iter::once(name("")).chain((2..100).map(|number| name(&format!("-{number}"))));
    let mut free = names.filter(|name| fs::symlink_metadata(name).is_err());
    free.next().unwrap_or_else(|| name(""))
}

/// The kind of a file that is not a regular one.
fn describe_file_type(file_type: FileType) -> &'static str {
    if file_type.is_dir() {
        "a directory"
    } else if file_type.is_symlink() {
        "a symbolic link"
    } else if file_type.is_fifo() {
        "a FIFO"
    } else if file_type.is_char_device() {
        "a character device"
    } else if file_type.is_block_device() {
        "a block device"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "not a regular file"
    }
}

/// Checks that a file can be created at `path`: nothing exists there or, with `overwrite`, a
/// regular file.
pub(crate) fn require_vacant(path: &Path, overwrite: bool) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(disk::action_error("look at", path, &error)),
    };
    let path_shown = path.display();
    if metadata.is_dir() {
        bail!("{path_shown} is a directory; end the name with / to record into it");
    }
    if !metadata.is_file() {
        let description = describe_file_type(metadata.file_type());
        bail!(
            "cannot write {path_shown}: it is {description}, and only a regular file can be \
             replaced"
        );
    }
    if !overwrite {
        bail!("{path_shown} exists; use --force to replace it");
    }
    Ok(())
}

/// Checks that the directory of an output exists: a missing one is usually a typing error.
pub(crate) fn require_parent(output: &Path) -> Result<()> {
    let parent = disk::parent_dir(output);
    if !parent.exists() {
        bail!(
            "cannot write {}: there is no directory {}; make it first",
            output.display(),
            parent.display()
        );
    }
    Ok(())
}

/// Checks that the directory `path` is not a symbolic link, whose owner could redirect the
/// recording.
pub fn refuse_link(path: &Path) -> Result<()> {
    let path = without_slash(path);
    if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
        bail!(
            "cannot record into {}: it is a symbolic link; name the directory that it leads to",
            path.display()
        );
    }
    Ok(())
}

/// Warns root of a directory in which every user can replace files.
pub(crate) fn warn_of_open_dir(dir: &Path) {
    // Others may write, and without the sticky bit they can replace files of other users: inode(7).
    let is_open = fs::metadata(dir).is_ok_and(|metadata| metadata.mode() & 0o1002 == 0o002);
    if is_open && geteuid().is_root() {
        log::warn!(
            "every user may write to the directory {0} and replace what is recorded there: choose \
             another, or set its sticky bit (chmod +t {0})",
            dir.display()
        );
    }
}

/// Checks that writing `output` replaces nothing of the recording at `dataset` but its `fabric`
/// table.
pub fn require_only_fabric(dataset: &Path, output: &Path) -> Result<()> {
    let root = disk::with_action("look at", dataset, fs::metadata(dataset))?;
    let is_fabric = output.file_name() == table_path(dataset, &fabric::TABLE).file_name();
    if is_fabric && is_same(disk::parent_dir(output), &root) {
        return Ok(());
    }
    require_outside_dataset(dataset, output, ", of which only fabric.parquet can be replaced")
}

/// Checks that `output` replaces nothing of the recording at this path.
pub fn require_apart(recording: &Path, output: &Path) -> Result<()> {
    if recording.is_dir() {
        return require_outside_dataset(recording, output, "");
    }
    if fs::metadata(output).is_ok_and(|existing| is_same(recording, &existing)) {
        bail!("cannot write {}: it is the recording itself; choose another name", output.display());
    }
    Ok(())
}

/// Checks that `output` is not in the directory of a rotated recording, where `*/fabric.parquet`
/// matches its parts.
pub fn require_outside_series(dir: &Path, output: &Path) -> Result<()> {
    require_outside(dir, output, "")
}

/// Checks that `output` is not below a directory, of which the error says `but`.
fn require_outside(dir: &Path, output: &Path, but: &str) -> Result<()> {
    let root = disk::with_action("look at", dir, fs::metadata(dir))?;
    // A missing parent is refused elsewhere, and cannot contain anything.
    let parent = fs::canonicalize(disk::parent_dir(output)).unwrap_or_default();
    if parent.ancestors().any(|ancestor| is_same(ancestor, &root)) {
        bail!(
            "cannot write {}: it is inside the recording {}{but}; choose a name elsewhere",
            output.display(),
            dir.display()
        );
    }
    Ok(())
}

/// Checks that `output` is neither in the directory of the dataset nor one of its tables.
///
/// Files are compared by device and inode, because many paths can lead to one file.
fn require_outside_dataset(dataset: &Path, output: &Path, but: &str) -> Result<()> {
    require_outside(dataset, output, but)?;
    let Ok(existing) = fs::metadata(output) else { return Ok(()) };
    for def in ALL {
        let table = table_path(dataset, def);
        if is_same(&table, &existing) {
            bail!(
                "cannot write {}: it is the same file as {}, a table of the recording; choose \
                 another name",
                output.display(),
                table.display()
            );
        }
    }
    Ok(())
}

/// Whether `path` is the file or directory of this metadata, after following links.
fn is_same(path: &Path, expected: &Metadata) -> bool {
    fs::metadata(path)
        .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (expected.dev(), expected.ino()))
}
