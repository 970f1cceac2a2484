//! The device files that processes have open, from `proc/PID/fd`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use super::nodes::Number;

/// Calls `each` with the number and the directory of each process, and with the device files below
/// `/dev` that it has open. `false` if the files of some processes may not be read.
///
/// Other links are not followed: a file may be on a file system that does not answer.
pub fn each(root: &Path, mut each: impl FnMut(u32, &Path, BTreeSet<Number>)) -> bool {
    let Ok(processes) = fs::read_dir(root.join("proc")) else { return false };
    let mut is_whole = true;
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let dir = process.path();
        let Ok(files) = fs::read_dir(dir.join("fd")) else {
            // It may have ended.
            is_whole &= !dir.exists();
            continue;
        };
        let open = files.flatten().filter_map(|file| number(&file.path())).collect();
        each(pid, &dir, open);
    }
    is_whole
}

/// The numbers of an open file, if it is a device below `/dev`.
fn number(link: &Path) -> Option<Number> {
    fs::read_link(link).ok().filter(|to| to.starts_with("/dev"))?;
    let found = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let is_block = match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => true,
        FileType::CharacterDevice => false,
        _ => return None,
    };
    Some(Number { is_block, major: found.stx_rdev_major, minor: found.stx_rdev_minor })
}
