//! The disk that a file is on.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The disk that a file is on, by its folder in sysfs. The table of mounts does not say it in a
/// chroot: the mount of its root is not in there.
pub(crate) fn find_disk(path: &Path) -> Result<PathBuf, String> {
    let device = fs::metadata(path).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = format!("/sys/dev/block/{major}:{minor}");
    let device_dir = fs::canonicalize(&link)
        .map_err(|error| format!("{} is on no disk ({link}: {error})", path.display()))?;
    if device_dir.join("partition").exists() {
        return Ok(device_dir.parent().unwrap().to_owned());
    }
    Ok(device_dir)
}
