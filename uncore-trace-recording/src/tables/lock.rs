//! The lock of an output: a file in the partial directory of `fabric`, which is locked while a
//! process writes there and contains its pid.
//!
//! Guarantees: two recorders cannot use one output, and `repair` cannot use a live one. The kernel
//! releases the lock when the process ends in any way. Dropping a [`Lock`] releases it at once.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::disk;
use super::mode::FileMode;
use super::sealed::partial_dir;
use crate::bounds;
use crate::named_values::named_values;

named_values! {
    /// The command that has locked an output.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum LockingCommand;
    fn command_name;
    /// `record`.
    #[default]
    Record = "record",
    /// `attribute`.
    Attribute = "attribute",
    /// `cut`.
    Cut = "cut",
    /// `repair`.
    Repair = "repair",
    /// `rollup`, or the agent.
    Rollup = "rollup",
    /// `upload`.
    Upload = "upload",
}

/// The process that holds a lock, as the lock file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHolder {
    /// Its pid in its own pid namespace.
    pid: Option<u32>,
    command: LockingCommand,
}

impl LockHolder {
    /// Whether the process is a recorder.
    pub(crate) fn is_recorder(self) -> bool {
        self.command == LockingCommand::Record
    }

    fn parse(text: &str) -> LockHolder {
        let mut words = text.split_whitespace();
        let pid = words.next().and_then(|word| word.parse().ok());
        let act = words.next().and_then(LockingCommand::from_name);
        LockHolder { pid, command: act.unwrap_or_default() }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.command {
            LockingCommand::Record => "is being recorded now",
            LockingCommand::Attribute => "is being written now by `uncore-trace attribute`",
            LockingCommand::Repair => "is being repaired now",
            LockingCommand::Cut => "is being written now by `uncore-trace cut`",
            LockingCommand::Rollup => "is being written now as a roll-up",
            LockingCommand::Upload => "is being uploaded now",
        };
        match self.pid {
            Some(pid) => write!(f, "{act} (process {pid})"),
            None => f.write_str(act),
        }
    }
}

fn lock_path(fabric_target: &Path) -> PathBuf {
    partial_dir(fabric_target).join("lock")
}

/// A lock that is held.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Releases it. Closing the file is not enough: a child that another thread has forked holds a
    /// copy of the descriptor until it executes its program, and the lock lasts as long as the last
    /// copy (flock(2)).
    pub(crate) fn release_lock(&self) {
        // If this fails, the lock is released when the process ends.
        if let Err(error) = self.0.unlock() {
            log::warn!("cannot release the lock of the output: {error}");
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.release_lock();
    }
}

/// Locks `output`, whose table `fabric` will be `fabric_target`.
pub(crate) fn lock_output(
    output: &Path,
    fabric_target: &Path,
    mode: FileMode,
    act: LockingCommand,
) -> Result<Lock> {
    acquire_file(output, &lock_path(fabric_target), mode, act)
}

/// Locks `output` with the file `path`, which is created if missing.
pub fn acquire_file(
    output: &Path,
    path: &Path,
    mode: FileMode,
    act: LockingCommand,
) -> Result<Lock> {
    let mut file = lock_file(path, mode, |holder| in_use(output, holder))?;
    let noted = write_holder(&mut file, path, act.command_name());
    // An upload frees space on a full disk, so it may lock without writing its name.
    if act != LockingCommand::Upload {
        noted?;
    }
    Ok(Lock(file))
}

/// Locks a directory for the agent.
///
/// # Errors
///
/// Another agent uses the directory; the error names its process.
pub fn lock_directory(dir: &Path, mode: FileMode) -> Result<Lock> {
    let path = dir.join(".agent.lock");
    let mut file = lock_file(&path, mode, |LockHolder { pid, .. }| {
        let pid = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        anyhow!(
            "another agent{pid} uses {}: end that process first, or choose another directory",
            dir.display()
        )
    })?;
    write_holder(&mut file, &path, "agent")?;
    Ok(Lock(file))
}

/// Opens a file, which is created if missing, and locks it. `conflict` is the error if another
/// process holds the lock.
fn lock_file(
    path: &Path,
    mode: FileMode,
    conflict: impl FnOnce(LockHolder) -> anyhow::Error,
) -> Result<File> {
    let mut file = disk::with_action("create", path, mode.open_or_create(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(conflict(read_holder(&mut file))),
        Err(TryLockError::Error(error)) => Err(disk::action_error("lock", path, &error)),
    }
}

/// Writes the holder into the lock file.
fn write_holder(file: &mut File, path: &Path, act: &str) -> Result<()> {
    let holder = format!("{} {act}\n", std::process::id());
    let written = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
    disk::with_action("write", path, written)
}

/// The process that is writing the output, if any.
pub(crate) fn find_holder(fabric_target: &Path) -> Option<LockHolder> {
    let mut file = bounds::open_regular(&lock_path(fabric_target)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read_holder(&mut file)),
        Ok(()) => {
            drop(Lock(file));
            None
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// The content of the lock file, which may be incomplete.
fn read_holder(file: &mut File) -> LockHolder {
    let mut text = String::new();
    let outcome = file.rewind().and_then(|()| file.take(64).read_to_string(&mut text));
    LockHolder::parse(if outcome.is_ok() { &text } else { "" })
}

/// The error for an output that another process is writing.
pub(crate) fn in_use(output: &Path, holder: LockHolder) -> anyhow::Error {
    let remedy = match holder.command {
        LockingCommand::Upload => "end that process first",
        _ => "choose another name, or end that process first",
    };
    anyhow!("{} {holder}; {remedy}", output.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forked child has such a copy until it executes its program.
    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("run.parquet");
        std::fs::create_dir(partial_dir(&target)).unwrap();
        let lock =
            lock_output(&target, &target, FileMode::default(), LockingCommand::Record).unwrap();
        let _copy = lock.0.try_clone().unwrap();
        let expected =
            LockHolder { pid: Some(std::process::id()), command: LockingCommand::Record };
        assert_eq!(find_holder(&target), Some(expected));
        drop(lock);
        assert_eq!(find_holder(&target), None);
    }

    #[test]
    fn a_holder_is_what_the_file_says_of_it() {
        for (text, words) in [
            ("4711 record\n", "is being recorded now (process 4711)"),
            ("12 repair\n", "is being repaired now (process 12)"),
            ("7 upload\n", "is being uploaded now (process 7)"),
            ("", "is being recorded now"),
            ("x\u{1b}[2J y", "is being recorded now"),
        ] {
            assert_eq!(LockHolder::parse(text).to_string(), words, "{text:?}");
        }
    }
}
