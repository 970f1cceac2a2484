//! The mounts of the cgroup hierarchies: v2, v1, or both.
//!
//! A task's cgroup id in BPF is its id in the v2 hierarchy, so names come from the v2 mount. On a
//! host with v1 only there are no names, and every task has the same id.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::read::{self, Problems};

/// A mounted v1 hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct V1Mount {
    /// Its mount point.
    pub path: PathBuf,
    /// Its controllers, and `name=X` of a named hierarchy.
    pub controllers: Vec<String>,
}

/// The cgroup mounts of the machine. Paths do not include the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CgroupMounts {
    /// The v2 hierarchy, if it is mounted.
    pub v2: Option<PathBuf>,
    /// The v1 hierarchies.
    pub v1: Vec<V1Mount>,
}

impl CgroupMounts {
    /// Reads `proc/self/mountinfo` below `root`.
    pub(super) fn read(root: &Path, problems: &mut Problems) -> Self {
        let path = root.join("proc/self/mountinfo");
        match read::bytes(&path) {
            // A mount point that is not UTF-8 belongs to something else, and must not hide the
            // cgroups.
            Ok(bytes) => Self::parse(&String::from_utf8_lossy(&bytes)),
            Err(error) => {
                problems.note(&path, &error);
                Self::default()
            }
        }
    }

    /// Parses the mount table of proc(5): fields 4 and 5 are the root and the mount point; after
    /// the lone `-` come type, source and super options. Lines in another format are skipped.
    ///
    /// If v2 is mounted several times, a mount of the whole hierarchy takes precedence over a bind
    /// mount of a part.
    pub fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        let mut v2_is_whole = false;
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut left = left.split(' ').skip(3);
            let (Some(top), Some(path)) = (left.next(), left.next()) else { continue };
            let mut right = right.split(' ');
            let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
            match kind {
                Some("cgroup2") if mounts.v2.is_none() || (top == "/" && !v2_is_whole) => {
                    mounts.v2 = Some(unescape(path));
                    v2_is_whole = top == "/";
                }
                Some("cgroup") => {
                    let path = unescape(path);
                    let controllers = options.split(',').filter(|o| is_controller(o));
                    let controllers = controllers.map(str::to_owned).collect();
                    mounts.v1.push(V1Mount { path, controllers });
                }
                _ => {}
            }
        }
        mounts
    }
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

/// Reverts the `\040` escapes of the mount table (`mangle` in `fs/seq_file.c`).
pub(super) fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_side_by_side() {
        let mounts = CgroupMounts::parse(
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 master:3 - cgroup cgroup rw,cpu,cpuacct\n\
             40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/a,name=systemd\n\
             41 31 0:38 /part /mnt/part rw - cgroup2 cgroup2 rw\n\
             42 31 0:38 / /sys/fs/my\\040groups rw - cgroup2 cgroup2 rw,nsdelegate\n\
             43 31 0:38 / /mnt/second rw - cgroup2 cgroup2 rw\n\
             nonsense\n",
        );
        assert_eq!(mounts.v2, Some(PathBuf::from("/sys/fs/my groups")));
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

    #[test]
    fn only_octal_escapes_are_undone() {
        for (field, path) in [
            ("/a\\040b\\134c", "/a b\\c"),
            ("/a\\9", "/a\\9"),
            ("/a\\777", "/a\\777"),
            ("\\", "\\"),
        ] {
            assert_eq!(unescape(field), PathBuf::from(path));
        }
    }

    proptest! {
        #[test]
        fn no_table_panics(text in "[ -~é\n]{0,200}") {
            CgroupMounts::parse(&text);
        }
    }
}
