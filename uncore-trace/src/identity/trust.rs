//! Which names in the path of a cgroup only root can have given.
//!
//! A cgroup is named by who makes it, and only who may write to a directory can make one in it. So
//! a name is believed if every directory above it, up to the root of the hierarchy, belongs to
//! root and can be written by nobody else. The owner of the named directory itself says nothing:
//! runtimes give the cgroup of a container with a user namespace to the container's root.
//!
//! Where the owner cannot tell, the marks of systemd do: it sets `trusted.delegate` and, since
//! version 251, `user.delegate` on the cgroup of a unit with `Delegate=yes` (`cgroup.c`,
//! `cg_is_delegated` in `cgroup-util.c`), and the root of a container without a user namespace owns
//! what it makes in such a unit. Names below one are believed only if the unit is of a runtime. The
//! first mark can only be read with `CAP_SYS_ADMIN`, which a recorder has given up.

use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::containers::is_id;
use crate::schema::cgroups::is_within;

/// Units with `Delegate=yes` below which their daemon, which is root's, names cgroups of
/// containers, pods, virtual machines or jobs (their unit files: docker 28, containerd 2.1, CRI-O
/// 1.33, k3s and RKE2 1.33, the snaps of `MicroK8s` and LXD, LXC 6, Incus 6, libvirt 11, Slurm
/// 24.11, whose `slurmstepd.scope` has a prefix where several daemons run).
pub(super) const RUNTIMES: [&str; 16] = [
    "containerd.service",
    "crio.service",
    "docker.service",
    "incus.service",
    "k3s-agent.service",
    "k3s.service",
    "kubelet.service",
    "libvirtd.service",
    "lxc.service",
    "rke2-agent.service",
    "rke2-server.service",
    "snap.lxd.daemon.service",
    "snap.microk8s.daemon-containerd.service",
    "snap.microk8s.daemon-kubelite.service",
    "virtqemud.service",
    "slurmstepd.scope",
];

/// Who may write to a file or directory that root has.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootUser {
    uid: u32,
    gid: u32,
}

impl RootUser {
    /// The owner of `dir`, the root of a file system: root on a running machine, and whoever made
    /// it in a copy of one.
    pub(super) fn of_dir(dir: &Path) -> Option<Self> {
        let metadata = fs::metadata(dir).ok()?;
        Some(Self { uid: metadata.uid(), gid: metadata.gid() })
    }

    /// Whether only root can write to it.
    pub(super) fn alone_writes(self, metadata: &Metadata) -> bool {
        let mode = metadata.mode();
        let is_open = mode & 0o002 != 0 || mode & 0o020 != 0 && metadata.gid() != self.gid;
        metadata.uid() == self.uid && !is_open
    }

    /// The content of a regular file of at most `limit` bytes to which only root can write.
    pub(super) fn read_file(self, file: File, limit: u64) -> Option<Vec<u8>> {
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > limit || !self.alone_writes(&metadata) {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// Who made the cgroups of a hierarchy.
#[derive(Debug)]
pub struct Trust {
    mount: Option<PathBuf>,
    root: Option<RootUser>,
    /// Cgroups at and below which all names are believed.
    trusted: Vec<String>,
}

impl Trust {
    /// The hierarchy at this mount point. Names at and below the cgroups `trusted` are believed
    /// whoever gave them.
    pub fn new(mount: Option<&Path>, trusted: Vec<String>) -> Self {
        Self { mount: mount.map(Path::to_owned), root: mount.and_then(RootUser::of_dir), trusted }
    }

    /// The components of the path of a cgroup that only root can have named. The rest begins with
    /// the first component that others may have named, or of which nothing is known: a directory
    /// above it is gone.
    ///
    /// The cgroup itself may be gone: a container can end before it is looked at.
    pub fn believed_path<'a>(&self, id: u64, path: &'a str) -> &'a str {
        if self.trusted.iter().any(|trusted| is_within(path, trusted)) {
            return path;
        }
        let Some((mount, root)) = self.mount.as_deref().zip(self.root) else { return "" };
        let (mut dir, mut unit) = (mount.to_owned(), "");
        let (mut end, mut youngest) = (0, 0);
        for component in path.split('/').skip(1).filter(|component| !component.is_empty()) {
            let Ok(above) = fs::symlink_metadata(&dir) else { break };
            let is_roots = above.is_dir() && root.alone_writes(&above);
            if !is_roots || !may_name(component, unit) && is_delegated(&dir) {
                break;
            }
            youngest = youngest.max(above.ino());
            // The path has nothing but one separator between two components.
            end += 1 + component.len();
            dir.push(component);
            unit = component;
        }
        // A cgroup cannot be renamed, nor be removed while it has others. So the directories that
        // were looked at are those in which this cgroup is, if it is still there.
        let is_there = fs::symlink_metadata(mount.join(path.trim_start_matches('/')))
            .is_ok_and(|metadata| metadata.ino() == id);
        // Otherwise root may have made them anew, with the names of those in which it was. Ids grow
        // (`__kernfs_new_node`, fs/kernfs/dir.c, Linux 7.2): what is older was there.
        if is_there || youngest < id { path.get(..end).unwrap_or("") } else { "" }
    }
}

/// Whether the daemon of a unit with `Delegate=yes`, and nobody else, gives its cgroups such names.
fn may_name(component: &str, unit: &str) -> bool {
    // podman with `--cgroups=split`, as a Quadlet has it, is the unit's own process. It moves
    // itself and the container's processes into cgroups of these names.
    let of_podman = component.strip_prefix("libpod-payload-").is_some_and(is_id);
    of_podman && unit.ends_with(".service")
        || RUNTIMES.contains(&unit)
        || unit.ends_with("_slurmstepd.scope")
}

/// Whether systemd has left a cgroup to the processes in it.
fn is_delegated(dir: &Path) -> bool {
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0_u8; 8];
        rustix::fs::getxattr(dir, *name, &mut value[..]).is_ok_and(|len| value[..len] == *b"1")
    })
}

#[cfg(test)]
mod tests;
