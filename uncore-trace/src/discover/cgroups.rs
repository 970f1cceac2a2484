//! The mounts of the cgroup hierarchies: v2, v1, or both; and what the v2 mount shows.
//!
//! A task's cgroup id in BPF is its id in the v2 hierarchy, so names come from the v2 mount. On a
//! host with v1 only there are no names, and every task has the same id.
//!
//! Paths of one cgroup come from three places that begin at different roots: directories below the
//! mount point at the mount's root, `/proc/PID/cgroup` at the root of the reader's cgroup namespace
//! (`cgroup_path_ns`, kernel/cgroup/cgroup.c, Linux 7.2), and records of the kernel at the root of
//! the hierarchy. The tables have the first: it exists for every cgroup that is named, and it is
//! what a user sees. [`CgroupView::path_of`] and
//! [`crate::identity::cgroups::Cgroups::learn_from_kernel`] convert the others.

use std::cmp::Reverse;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::mounts::{Mount, MountTable};
use super::read::{self, Problems};
use crate::bounds;

/// The inode number, and so the id, of the root of the v2 hierarchy (`kernfs_create_root`,
/// `fs/kernfs/dir.c`, Linux 7.2: numbers begin at 1).
const ROOT_ID: u64 = 1;

/// The link that names the cgroup namespace of a process, and its target for the initial one
/// (`PROC_CGROUP_INIT_INO`, `include/linux/proc_ns.h`, Linux 7.2).
const NAMESPACE: &str = "proc/self/ns/cgroup";
const INITIAL_NAMESPACE: &str = "cgroup:[4026531835]";

/// A mounted v1 hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct V1Mount {
    /// Its mount point.
    pub path: PathBuf,
    /// Its controllers, and `name=X` of a named hierarchy.
    pub controllers: Vec<String>,
}

/// Which cgroups have a path below the mount point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupReach {
    /// All.
    #[default]
    Whole,
    /// Those at and below the root of this process's cgroup namespace, or of one above it.
    Namespace,
    /// Those of a part of the hierarchy that is mounted without the rest.
    Part,
}

/// How the mounted v2 tree lies in the hierarchy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupView {
    /// Which cgroups it has.
    pub reach: CgroupReach,
    /// The mount's root as seen from the root of the cgroup namespace, e.g. `/..` or `/part`.
    root: PathBuf,
    /// The root of the cgroup namespace as seen from the mount's root, if that is above it.
    namespace: Option<PathBuf>,
}

/// The cgroup mounts of the machine. Paths do not include the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CgroupMounts {
    /// The v2 hierarchy, if it is mounted.
    pub v2: Option<PathBuf>,
    /// The v1 hierarchies.
    pub v1: Vec<V1Mount>,
    /// How the tree at `v2` lies in the hierarchy.
    #[serde(skip)]
    pub view: CgroupView,
}

impl CgroupMounts {
    /// Reads `proc/self/mountinfo` below `root`.
    pub(super) fn read(root: &Path, problems: &mut Problems) -> Self {
        let path = root.join("proc/self/mountinfo");
        let Some(bytes) = problems.keep_read(&path, read::read_bytes(&path)) else {
            return Self::default();
        };
        // A mount point that is not UTF-8 belongs to something else, and must not hide the cgroups.
        Self::from_mounts(root, &MountTable::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// The mounts in this table of the machine at `root`.
    ///
    /// If v2 is mounted several times, the mount that reaches highest takes precedence: one of the
    /// host's tree over that of a container's namespace, and both over a bind mount of a part.
    pub fn from_mounts(root: &Path, table: &MountTable) -> Self {
        let complete = |mount: &&Mount| {
            let (ups, below) = above_and_below(&mount.root);
            Reverse((below.as_os_str().is_empty(), ups))
        };
        let v2 = table.of_type("cgroup2").min_by_key(complete);
        let v1 = |mount: &Mount| {
            let controllers = mount.options.split(',').filter(|option| is_controller(option));
            let controllers = controllers.map(str::to_owned).collect();
            V1Mount { path: mount.point.clone(), controllers }
        };
        Self {
            v2: v2.map(|mount| mount.point.clone()),
            v1: table.of_type("cgroup").map(v1).collect(),
            view: v2.map(|mount| CgroupView::from_mount(root, mount)).unwrap_or_default(),
        }
    }

    /// The mount point of the v2 hierarchy.
    ///
    /// # Errors
    ///
    /// It is not mounted, so that no cgroup has a path; the message has the way out.
    pub fn v2_mount(&self) -> Result<&Path> {
        // Beside v1 hierarchies, a tmpfs is mounted at `/sys/fs/cgroup`.
        let beside = if self.v1.is_empty() { "" } else { "/unified" };
        self.v2.as_deref().with_context(|| {
            format!(
                "no cgroup v2 hierarchy is mounted, so cgroups have no names: mount one (mount -t \
                 cgroup2 none /sys/fs/cgroup{beside})"
            )
        })
    }

    /// Why some or all cgroups have no path, and the way out; `None` if all have one.
    pub fn unnamed_reason(&self) -> Option<String> {
        let mount = match self.v2_mount() {
            Ok(mount) => mount.display(),
            Err(error) => return Some(error.to_string()),
        };
        match self.view.reach {
            CgroupReach::Whole => None,
            CgroupReach::Namespace => Some(format!(
                "paths begin at the root of a cgroup namespace, which is / at {mount}, and cgroups \
                 outside of it have no path: start the container with --cgroupns=host, or with the \
                 host's /sys/fs/cgroup mounted at any path"
            )),
            CgroupReach::Part => Some(format!(
                "{mount} has only a part of the cgroup v2 hierarchy, and cgroups outside of it \
                 have no path: mount all of it (mount -t cgroup2 none DIR)"
            )),
        }
    }
}

impl CgroupView {
    fn from_mount(root: &Path, mount: &Mount) -> Self {
        let (ups, below) = above_and_below(&mount.root);
        let point = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        let is_initial = fs::read_link(root.join(NAMESPACE))
            .map_or(true, |target| target == Path::new(INITIAL_NAMESPACE));
        let is_part = !below.as_os_str().is_empty();
        // In a copy of a machine, inodes say nothing.
        let is_root = fs::metadata(&point).is_ok_and(|metadata| metadata.ino() == ROOT_ID);
        let reach = if is_root || is_initial && !is_part && ups == 0 {
            CgroupReach::Whole
        } else if is_part {
            CgroupReach::Part
        } else {
            CgroupReach::Namespace
        };
        let namespace = match ups {
            1.. if !is_part => namespace_below(root, &point, ups),
            _ => None,
        };
        Self { reach, root: mount.root.clone(), namespace }
    }

    /// The path below the mount point of a cgroup that `/proc/PID/cgroup` has; `None` if it is not
    /// there, or unknown.
    pub fn path_of(&self, membership: &Path) -> Option<PathBuf> {
        let (ups, below) = above_and_below(membership);
        let (root_ups, root_below) = above_and_below(&self.root);
        // `below` is in the directory that is `ups` above the namespace's root.
        let path = match root_ups.checked_sub(ups)? {
            0 => below.strip_prefix(root_below).ok()?.to_owned(),
            // The kernel shows the shortest path: one that is not as high is in another directory.
            _ if !root_below.as_os_str().is_empty() => return None,
            deeper => {
                let namespace: PathBuf = self.namespace.iter().flatten().take(deeper).collect();
                (namespace.components().count() == deeper).then(|| namespace.join(below))?
            }
        };
        // Without a slash at its end.
        Some(Path::new("/").components().chain(path.components()).collect())
    }
}

/// How many directories a path goes up from the root, and its components after these.
fn above_and_below(path: &Path) -> (usize, &Path) {
    let path = path.strip_prefix("/").unwrap_or(path);
    let ups = path.components().take_while(|component| *component == Component::ParentDir).count();
    let mut components = path.components();
    components.by_ref().take(ups).for_each(drop);
    (ups, components.as_path())
}

/// The root of this process's cgroup namespace, as a path of `ups` components below `mount`: no
/// file has it, so this process is looked for, which knows its path from that root.
fn namespace_below(root: &Path, mount: &Path, ups: usize) -> Option<PathBuf> {
    let text = bounds::system_text(root.join("proc/self/cgroup")).ok()?;
    let own_path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own_pid = std::process::id().to_string();
    let has_this_process = |dir: &Path| {
        // A threaded cgroup has no processes.
        let members = bounds::system_text(dir.join("cgroup.procs"))
            .or_else(|_| bounds::system_text(dir.join("cgroup.threads")));
        members.is_ok_and(|members| members.lines().any(|pid| pid == own_pid))
    };
    let mut waiting = vec![mount.to_owned()];
    while let Some(dir) = waiting.pop() {
        if has_this_process(&dir) {
            let path = dir.strip_prefix(mount).ok()?.to_owned();
            let depth = Path::new(own_path).strip_prefix("/").ok()?.components().count();
            let namespace: PathBuf = path.iter().take(ups).collect();
            let is_found = path.components().count() == ups + depth
                && Path::new("/").join(path.strip_prefix(&namespace).ok()?) == Path::new(own_path);
            return is_found.then_some(namespace);
        }
        waiting.extend(read::subdirectories(&dir));
    }
    None
}

/// Whether a super option of a v1 mount names a controller. The other options are those of
/// `cgroup1_show_options` (`kernel/cgroup/cgroup-v1.c`, Linux 7.2) and of every file system.
fn is_controller(option: &str) -> bool {
    const OTHERS: [&str; 9] = [
        "",
        "rw",
        "ro",
        "noprefix",
        "xattr",
        "cpuset_v2_mode",
        "favordynmods",
        "clone_children",
        "seclabel",
    ];
    !OTHERS.contains(&option) && !option.starts_with("release_agent=")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn parse(mountinfo: &str) -> CgroupMounts {
        CgroupMounts::from_mounts(Path::new("/nonexistent"), &MountTable::parse(mountinfo))
    }

    #[test]
    fn a_v2_mount_is_found_beside_v1_mounts() {
        let mounts = parse(
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n32 31 0:29 / \
             /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 master:3 - cgroup cgroup \
             rw,cpu,cpuacct\n40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup \
             rw,xattr,release_agent=/a,name=systemd\n41 23 0:38 /part /mnt/part rw - cgroup2 \
             cgroup2 rw\n42 23 0:38 / /sys/fs/my\\040groups rw - cgroup2 cgroup2 \
             rw,nsdelegate\n43 23 0:38 / /mnt/second rw - cgroup2 cgroup2 rw\nnonsense\n",
        );
        assert_eq!(mounts.v2, Some(PathBuf::from("/sys/fs/my groups")));
        assert_eq!(mounts.unnamed_reason(), None);
        let v1: Vec<_> =
            mounts.v1.iter().map(|m| (m.path.to_str().unwrap(), m.controllers.join("+"))).collect();
        assert_eq!(
            v1,
            [
                ("/sys/fs/cgroup/cpu,cpuacct", "cpu+cpuacct".to_owned()),
                ("/sys/fs/cgroup/systemd", "name=systemd".to_owned())
            ]
        );
    }

    const OWN: &str = "30 20 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    const HOST: &str = "31 20 0:26 /../.. /mnt ro - cgroup2 cgroup rw\n";
    const ABOVE: &str = "32 20 0:26 /.. /above ro - cgroup2 cgroup rw\n";
    const BESIDE: &str = "33 20 0:26 /../x /beside ro - cgroup2 cgroup rw\n";
    const PART: &str = "34 20 0:26 /part /part ro - cgroup2 cgroup rw\n";

    #[test]
    fn the_mount_that_reaches_highest_is_used() {
        for (mounts, best) in [
            ([OWN, HOST, ABOVE], "/mnt"),
            ([HOST, ABOVE, OWN], "/mnt"),
            ([OWN, ABOVE, PART], "/above"),
            ([BESIDE, PART, OWN], "/sys/fs/cgroup"),
        ] {
            assert_eq!(parse(&mounts.concat()).v2, Some(PathBuf::from(best)), "{mounts:?}");
        }
    }

    /// A machine with these mounts, in another cgroup namespace than the initial one.
    fn namespaced(mountinfo: &str) -> (tempfile::TempDir, CgroupMounts) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/self/ns")).unwrap();
        symlink("cgroup:[4026532911]", dir.path().join(NAMESPACE)).unwrap();
        let mounts = CgroupMounts::from_mounts(dir.path(), &MountTable::parse(mountinfo));
        (dir, mounts)
    }

    #[test]
    fn cgroups_without_paths_are_reported_with_the_remedy() {
        let unnamed = |mounts: CgroupMounts| mounts.unnamed_reason().unwrap();
        assert!(unnamed(parse("")).contains("mount -t cgroup2 none /sys/fs/cgroup)"));
        let v1 = "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert!(unnamed(parse(v1)).contains("mount -t cgroup2 none /sys/fs/cgroup/unified)"));
        assert!(unnamed(parse(PART)).contains("/part has only a part"));
        for mounts in [OWN, ABOVE] {
            let said = unnamed(namespaced(mounts).1);
            assert!(said.contains("namespace") && said.contains("--cgroupns=host"), "{said}");
        }
    }

    #[test]
    fn memberships_are_paths_below_the_mount() {
        let view = |root: &str, namespace: Option<&str>| CgroupView {
            root: root.into(),
            namespace: namespace.map(PathBuf::from),
            ..CgroupView::default()
        };
        for (root, namespace, membership, path) in [
            ("/", None, "/a/b", Some("/a/b")),
            ("/", None, "/", Some("/")),
            ("/", None, "/../b", None),
            ("/part", None, "/part/a", Some("/a")),
            ("/part", None, "/partial", None),
            ("/../..", Some("pods/x"), "/", Some("/pods/x")),
            ("/../..", Some("pods/x"), "/in", Some("/pods/x/in")),
            ("/../..", Some("pods/x"), "/../y", Some("/pods/y")),
            ("/../..", Some("pods/x"), "/../../ssh", Some("/ssh")),
            ("/../..", None, "/../../ssh", Some("/ssh")),
            ("/../..", None, "/in", None),
            ("/..", Some("x"), "/../../ssh", None),
            ("/../y", None, "/../y/in", Some("/in")),
            ("/../y", None, "/in", None),
        ] {
            let found = view(root, namespace).path_of(Path::new(membership));
            assert_eq!(found.as_deref(), path.map(Path::new), "{root} {membership}");
        }
    }

    #[test]
    fn the_namespace_is_found_by_the_own_process() {
        let pid = std::process::id();
        for (own, dir) in [("/", "mnt/pods/x"), ("/in", "mnt/pods/x/in")] {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("mnt/ssh")).unwrap();
            fs::create_dir_all(root.path().join(dir)).unwrap();
            fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
            symlink("cgroup:[4026532911]", root.path().join(NAMESPACE)).unwrap();
            fs::write(root.path().join("proc/self/cgroup"), format!("1:cpu:/\n0::{own}\n"))
                .unwrap();
            fs::write(root.path().join(dir).join("cgroup.procs"), format!("1\n{pid}\n")).unwrap();
            let view = CgroupMounts::from_mounts(root.path(), &MountTable::parse(HOST)).view;
            assert_eq!(view.path_of(Path::new("/y")), Some("/pods/x/y".into()), "{own}");
        }
    }
}
