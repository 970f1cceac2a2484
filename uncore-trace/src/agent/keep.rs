//! What a trigger keeps: the parts of the ring around a time, as recordings of their own.
//!
//! Files are linked, not copied, so that nothing is read or written while the machine is in trouble; the
//! ring removes its names of them later. Guarantees: a directory has its name only when all parts are in
//! it; the quota holds; a name that a user typed cannot lead out of the directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use crate::tables::mode::Mode;
use crate::tables::{hours, series};

/// Keeps the parts of the ring at `ring` that have anything between two times of `CLOCK_MONOTONIC`, ns.
/// Returns the directory, and removes older ones beyond `quota` bytes.
///
/// # Errors
///
/// No part has anything of that time, the parts exceed the quota by themselves, or they cannot be linked.
pub(super) fn keep(
    ring: &Path,
    kept: &Path,
    name: &str,
    (from, to): (i64, i64),
    mode: Mode,
    quota: u64,
) -> Result<PathBuf> {
    let parts = series::within(ring, from, to)?;
    ensure!(!parts.is_empty(), "no finished part of the ring is of that time");
    let bytes: u64 = parts.iter().map(|part| series::tree_size(part)).sum();
    ensure!(
        bytes <= quota,
        "what is to be kept has {bytes} bytes, more than kept.quota: choose a larger quota or shorter parts"
    );
    hours::make(kept, mode)?;
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let target = vacant(kept, &format!("{time}-{name}"));
    let hidden = kept.join(format!(".{time}-{name}.tmp"));
    let linked = link(&parts, &hidden, mode).and_then(|()| {
        fs::rename(&hidden, &target).with_context(|| format!("cannot name {}", target.display()))
    });
    if linked.is_err() {
        // The error that counts is why it failed.
        fs::remove_dir_all(&hidden).ok();
    }
    linked?;
    trim(kept, quota)?;
    Ok(target)
}

fn link(parts: &[PathBuf], dir: &Path, mode: Mode) -> Result<()> {
    for part in parts {
        let name = part.file_name().with_context(|| format!("{} has no name", part.display()))?;
        let to = dir.join(name);
        hours::make(&to, mode)?;
        let entries =
            fs::read_dir(part).with_context(|| format!("cannot read {}", part.display()))?;
        for entry in entries {
            let from = entry.with_context(|| format!("cannot read {}", part.display()))?.path();
            let file = to.join(from.file_name().unwrap_or_default());
            // Another file system has no links.
            let linked = fs::hard_link(&from, &file).or_else(|_| fs::copy(&from, &file).map(drop));
            linked.with_context(|| format!("cannot keep {}", from.display()))?;
        }
    }
    Ok(())
}

/// Removes the oldest until the rest has at most `quota` bytes. Names begin with the time.
fn trim(kept: &Path, quota: u64) -> Result<()> {
    let entries = fs::read_dir(kept).with_context(|| format!("cannot read {}", kept.display()))?;
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.retain(|dir| dir.is_dir());
    dirs.sort();
    let mut bytes: u64 = dirs.iter().map(|dir| series::tree_size(dir)).sum();
    for dir in dirs {
        if bytes <= quota {
            break;
        }
        bytes = bytes.saturating_sub(series::tree_size(&dir));
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

/// The name, with a number where it is taken.
fn vacant(dir: &Path, name: &str) -> PathBuf {
    let numbered = (1..).map(|number| dir.join(format!("{name}.{number}")));
    let mut names = std::iter::once(dir.join(name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| dir.join(name))
}
