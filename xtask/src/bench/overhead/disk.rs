//! A block device whose only cost is the kernel's block layer.
//!
//! `null_blk` is best: it completes requests without work. On kernels without it, a loop device on
//! a file in memory is used: a worker of the kernel copies its pages, so a request takes longer and
//! the relative cost of a recorder is smaller. `fio --ioengine=null` never reaches the block layer,
//! and zram has no requests (it is `bio`-based).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use crate::command::run_quietly;

/// A device of `null_blk`.
const NULL: &str = "/dev/nullb0";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Bytes of the file behind a loop device.
const BYTES: u64 = 256 << 20;

/// A device, gone when dropped.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    origin: DiskOrigin,
}

/// How the device was made.
#[derive(Debug)]
enum DiskOrigin {
    /// It was there.
    Nothing,
    /// The module was loaded.
    Module,
    /// A loop device, of this file.
    Loop { _file: NamedTempFile },
}

impl Disk {
    /// Finds or makes a device.
    ///
    /// # Errors
    ///
    /// There is neither `null_blk` nor a loop device.
    pub(super) fn new() -> Result<Self> {
        let null = Path::new(NULL);
        if null.exists() {
            return Ok(Self { path: null.to_owned(), origin: DiskOrigin::Nothing });
        }
        let no_module =
            match run_quietly(Command::new("modprobe").args(["null_blk", "nr_devices=1"])) {
                Ok(_) if null.exists() => {
                    return Ok(Self { path: null.to_owned(), origin: DiskOrigin::Module });
                }
                Ok(_) => format!("null_blk made no {NULL}"),
                Err(_) => "the kernel has no null_blk".to_owned(),
            };
        Self::in_memory().with_context(|| format!("{no_module}, and no loop device can be made"))
    }

    fn in_memory() -> Result<Self> {
        let file = NamedTempFile::new_in(MEMORY)
            .with_context(|| format!("cannot make a file in {MEMORY}"))?;
        // Written completely: a hole has no pages to copy.
        let zeros = vec![0; 1 << 20];
        let mut writer = file.as_file();
        for _ in 0..BYTES / zeros.len() as u64 {
            std::io::Write::write_all(&mut writer, &zeros)
                .with_context(|| format!("cannot fill a file in {MEMORY}"))?;
        }
        let mut command = Command::new("losetup");
        let name = run_quietly(command.args(["--find", "--show", "--read-only"]).arg(file.path()))?;
        Ok(Self { path: name.trim().into(), origin: DiskOrigin::Loop { _file: file } })
    }

    /// The device.
    pub(super) fn device_path(&self) -> &PathBuf {
        &self.path
    }

    /// A short description.
    pub(super) fn description(&self) -> &'static str {
        match self.origin {
            DiskOrigin::Nothing | DiskOrigin::Module => "a device of null_blk",
            DiskOrigin::Loop { .. } => {
                "a loop device on a file in memory, since the kernel has no null_blk"
            }
        }
    }
}

impl Drop for Disk {
    #[expect(clippy::print_stderr, reason = "drop has no other way to say so")]
    fn drop(&mut self) {
        let removed = match self.origin {
            DiskOrigin::Nothing => return,
            DiskOrigin::Module => run_quietly(Command::new("modprobe").args(["-r", "null_blk"])),
            DiskOrigin::Loop { .. } => {
                run_quietly(Command::new("losetup").arg("-d").arg(&self.path))
            }
        };
        if let Err(error) = removed {
            eprintln!("cannot remove {}: {error:#}", self.path.display());
        }
    }
}
