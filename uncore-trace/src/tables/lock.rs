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
use super::mode::Mode;
use super::segment::partial_dir;
use crate::bounds;

/// The command that has locked an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Act {
    /// `record`.
    #[default]
    Record,
    /// `attribute`.
    Attribute,
    /// `cut`.
    Cut,
    /// `repair`.
    Repair,
    /// `rollup`, or the agent.
    Rollup,
    /// `upload`.
    Upload,
}

impl Act {
    const ALL: [Act; 6] =
        [Act::Record, Act::Attribute, Act::Cut, Act::Repair, Act::Rollup, Act::Upload];

    const fn name(self) -> &'static str {
        match self {
            Act::Record => "record",
            Act::Attribute => "attribute",
            Act::Cut => "cut",
            Act::Repair => "repair",
            Act::Rollup => "rollup",
            Act::Upload => "upload",
        }
    }
}

/// The process that holds a lock, as the lock file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its pid in its own pid namespace.
    pid: Option<u32>,
    act: Act,
}

impl Holder {
    /// Whether it is a recorder.
    pub fn records(self) -> bool {
        self.act == Act::Record
    }

    fn parse(text: &str) -> Holder {
        let mut words = text.split_whitespace();
        let pid = words.next().and_then(|word| word.parse().ok());
        let act = words.next().and_then(|word| Act::ALL.into_iter().find(|act| act.name() == word));
        Holder { pid, act: act.unwrap_or_default() }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            Act::Record => "is being recorded now",
            Act::Attribute => "is being written now by `uncore-trace attribute`",
            Act::Repair => "is being repaired now",
            Act::Cut => "is being written now by `uncore-trace cut`",
            Act::Rollup => "is being written now as a roll-up",
            Act::Upload => "is being uploaded now",
        };
        match self.pid {
            Some(pid) => write!(f, "{act} (process {pid})"),
            None => f.write_str(act),
        }
    }
}

fn path_of(fabric_target: &Path) -> PathBuf {
    partial_dir(fabric_target).join("lock")
}

/// A lock that is held.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Releases it. Closing the file is not enough: a child that another thread has forked holds a
    /// copy of the descriptor until it executes its program, and the lock lasts as long as the last
    /// copy (flock(2)).
    pub fn release(&self) {
        // If this fails, the lock is released when the process ends.
        if let Err(error) = self.0.unlock() {
            log::warn!("cannot release the lock of the output: {error}");
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.release();
    }
}

/// Locks `output`, whose table `fabric` will be `fabric_target`.
pub fn acquire(output: &Path, fabric_target: &Path, mode: Mode, act: Act) -> Result<Lock> {
    acquire_file(output, &path_of(fabric_target), mode, act)
}

/// Locks `output` with the file `path`, which is created if missing.
pub fn acquire_file(output: &Path, path: &Path, mode: Mode, act: Act) -> Result<Lock> {
    let mut file = disk::with_action("create", path, mode.open_or_create(path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(in_use(output, read(&mut file)));
        }
        Err(TryLockError::Error(error)) => return Err(disk::action_error("lock", path, &error)),
    }
    let noted = note(&mut file, path, act.name());
    // An upload frees space on a full disk, so it may lock without writing its name.
    if act != Act::Upload {
        noted?;
    }
    Ok(Lock(file))
}

/// Locks a directory for the agent.
///
/// # Errors
///
/// Another agent uses the directory; the error names its process.
pub fn directory(dir: &Path, mode: Mode) -> Result<Lock> {
    let path = dir.join(".agent.lock");
    let mut file = disk::with_action("create", &path, mode.open_or_create(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let Holder { pid, .. } = read(&mut file);
            let pid = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
            return Err(anyhow!(
                "another agent{pid} uses {}: end that process first, or choose another directory",
                dir.display()
            ));
        }
        Err(TryLockError::Error(error)) => return Err(disk::action_error("lock", &path, &error)),
    }
    note(&mut file, &path, "agent")?;
    Ok(Lock(file))
}

/// Writes the holder into the lock file.
fn note(file: &mut File, path: &Path, act: &str) -> Result<()> {
    let holder = format!("{} {act}\n", std::process::id());
    let written = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
    disk::with_action("write", path, written)
}

/// The process that is writing the output, if any.
pub fn holder(fabric_target: &Path) -> Option<Holder> {
    let mut file = bounds::open(&path_of(fabric_target)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read(&mut file)),
        Ok(()) => {
            drop(Lock(file));
            None
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// The content of the lock file, which may be incomplete.
fn read(file: &mut File) -> Holder {
    let mut text = String::new();
    let taken = file.rewind().and_then(|()| file.take(64).read_to_string(&mut text));
    Holder::parse(if taken.is_ok() { &text } else { "" })
}

/// The error for an output that another process is writing.
pub fn in_use(output: &Path, holder: Holder) -> anyhow::Error {
    let way_out = match holder.act {
        Act::Upload => "end that process first",
        _ => "choose another name, or end that process first",
    };
    anyhow!("{} {holder}; {way_out}", output.display())
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
        let lock = acquire(&target, &target, Mode::default(), Act::Record).unwrap();
        let _copy = lock.0.try_clone().unwrap();
        let own = Holder { pid: Some(std::process::id()), act: Act::Record };
        assert_eq!(holder(&target), Some(own));
        drop(lock);
        assert_eq!(holder(&target), None);
    }

    #[test]
    fn a_holder_is_what_the_file_says_of_it() {
        for (text, said) in [
            ("4711 record\n", "is being recorded now (process 4711)"),
            ("12 repair\n", "is being repaired now (process 12)"),
            ("7 upload\n", "is being uploaded now (process 7)"),
            ("", "is being recorded now"),
            ("x\u{1b}[2J y", "is being recorded now"),
        ] {
            assert_eq!(Holder::parse(text).to_string(), said, "{text:?}");
        }
    }
}
