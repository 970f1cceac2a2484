//! Writes /out as a tar stream to the guest's first virtio disk.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::wait::wait_within;

const DISK: &str = "/dev/vda";
/// The disk appears a moment after its driver was loaded. Emulated machines are slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes a directory to the disk and overwrites what is on it.
pub(crate) fn write_results(from: &Path) -> Result<()> {
    wait_within(PATIENCE, || Path::new(DISK).exists().then_some(())).with_context(|| {
        format!("no {DISK} for the results (is virtio_blk.ko among the guest's modules?)")
    })?;
    pack_directory(from)
        .with_context(|| format!("write {} to {DISK} (is it large enough?)", from.display()))
}

fn pack_directory(from: &Path) -> Result<()> {
    let disk = OpenOptions::new().write(true).open(DISK)?;
    let mut archive = tar::Builder::new(BufWriter::with_capacity(1 << 20, disk));
    archive.follow_symlinks(false);
    // Not every reader knows the extension for holes, and it would save little space.
    archive.sparse(false);
    archive.append_dir_all(".", from)?;
    let mut disk = archive.into_inner()?;
    disk.flush()?;
    disk.get_ref().sync_all()?;
    Ok(())
}
