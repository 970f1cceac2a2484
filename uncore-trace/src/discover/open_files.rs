//! The device files that processes have open, from `proc/PID/fd`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use super::nodes::DeviceNumber;
use crate::bounds;

/// File systems whose files may not be looked at without asking another machine or process: by the
/// begin of their names in `/proc/PID/mountinfo`.
const REMOTE: [&str; 9] = ["nfs", "cifs", "smb", "9p", "fuse", "ceph", "lustre", "afs", "gfs"];

/// Calls `visit` with the number and the directory of each process, and with the device files that
/// it has open. `false` if the files of some processes may not be read.
///
/// Files of [`REMOTE`] file systems are not looked at: one that does not answer would be waited
/// for.
pub fn for_each_process(
    root: &Path,
    mut visit: impl FnMut(u32, &Path, BTreeSet<DeviceNumber>),
) -> bool {
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
        let mut remote = None;
        let mut is_near = |name: &str| {
            let remote = remote.get_or_insert_with(|| remote_mounts(&dir));
            remote.is_empty() || mount_id(&dir, name).is_some_and(|id| !remote.contains(&id))
        };
        let open =
            files.flatten().filter_map(|file| device_number(&file.path(), &mut is_near)).collect();
        visit(pid, &dir, open);
    }
    is_whole
}

/// The numbers of an open file, if it is a device.
fn device_number(link: &Path, is_near: &mut dyn FnMut(&str) -> bool) -> Option<DeviceNumber> {
    let target = fs::read_link(link).ok()?;
    // Others are sockets, pipes and the like.
    if !target.is_absolute() || !target.starts_with("/dev") && !is_near(link.file_name()?.to_str()?)
    {
        return None;
    }
    let status = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let is_block = match FileType::from_raw_mode(status.stx_mode.into()) {
        FileType::BlockDevice => true,
        FileType::CharacterDevice => false,
        _ => return None,
    };
    Some(DeviceNumber { is_block, major: status.stx_rdev_major, minor: status.stx_rdev_minor })
}

/// The mounts of a process that are [`REMOTE`] (`Documentation/filesystems/proc.rst`, Linux 7.2).
fn remote_mounts(process: &Path) -> BTreeSet<u64> {
    let text = bounds::system_text(process.join("mountinfo")).unwrap_or_default();
    let parse_mount = |line: &str| {
        let fs_type = line.split_once(" - ")?.1;
        let is_remote = REMOTE.iter().any(|name| fs_type.starts_with(name));
        is_remote.then(|| line.split(' ').next()?.parse().ok())?
    };
    text.lines().filter_map(parse_mount).collect()
}

/// The mount that an open file is on.
fn mount_id(process: &Path, name: &str) -> Option<u64> {
    let text = bounds::system_text(process.join("fdinfo").join(name)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}
