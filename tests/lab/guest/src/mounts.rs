//! The file systems of the guest, and its console.

use std::fs::{self, OpenOptions};
use std::io;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::cgroup;

const CONSOLE: &str = "/dev/console";

/// Type, target, and whether the mount is required.
const MOUNTS: [(&str, &str, bool); 9] = [
    ("proc", "/proc", true),
    ("sysfs", "/sys", true),
    ("devtmpfs", "/dev", true),
    ("tracefs", "/sys/kernel/tracing", false),
    ("debugfs", "/sys/kernel/debug", false),
    ("bpf", "/sys/fs/bpf", false),
    ("tmpfs", "/tmp", true),
    ("tmpfs", "/out", true),
    ("cgroup2", cgroup::ROOT, true),
];

/// Mounts everything, and enables the controllers below the root cgroup.
pub(crate) fn mount_all() -> Result<()> {
    for (fs_type, target, needed) in MOUNTS {
        // If a directory inside sysfs cannot be made, the mount fails too and reports it.
        let created = fs::create_dir_all(target);
        match created.and_then(|()| mount_one(fs_type, target)) {
            Err(error) if needed => {
                return Err(error).with_context(|| format!("mount {fs_type} on {target}"));
            }
            _ => {}
        }
    }
    cgroup::allow_controllers(cgroup::ROOT.as_ref())
}

fn mount_one(fs_type: &str, target: &str) -> io::Result<()> {
    match mount(fs_type, target, fs_type, MountFlags::empty(), None) {
        // The kernel has mounted it, e.g. with CONFIG_DEVTMPFS_MOUNT.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the console the standard streams, which children inherit.
pub(crate) fn open_console() -> Result<()> {
    let console = OpenOptions::new().read(true).write(true).open(CONSOLE);
    let console = console.with_context(|| format!("open {CONSOLE}"))?;
    rustix::stdio::dup2_stdin(&console)
        .and_then(|()| rustix::stdio::dup2_stdout(&console))
        .and_then(|()| rustix::stdio::dup2_stderr(&console))
        .with_context(|| format!("make {CONSOLE} the standard streams"))
}
