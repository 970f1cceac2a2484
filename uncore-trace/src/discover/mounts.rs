//! The mount table of a process (`/proc/PID/mountinfo`, proc(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    id: u64,
    parent: u64,
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type of the file system.
    pub fs_type: String,
    /// Options of the file system.
    pub options: String,
}

impl Mount {
    /// `id parent dev root POINT opts [tags..] - TYPE source SUPER_OPTS`. `None` for a line in
    /// another format, which must not hide the others.
    fn parse(line: &str) -> Option<Self> {
        let (mount_text, super_text) = line.split_once(" - ")?;
        let mut mount_fields = mount_text.split(' ');
        let mut super_fields = super_text.split(' ');
        Some(Self {
            id: mount_fields.next()?.parse().ok()?,
            parent: mount_fields.next()?.parse().ok()?,
            root: unescape_field(mount_fields.nth(1)?),
            point: unescape_field(mount_fields.next()?),
            fs_type: super_fields.next()?.to_owned(),
            options: super_fields.nth(1).unwrap_or_default().to_owned(),
        })
    }
}

/// All mounts of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable(Vec<Mount>);

impl MountTable {
    /// Parses the text of mountinfo.
    pub fn parse(mountinfo: &str) -> Self {
        Self(mountinfo.lines().filter_map(Mount::parse).collect())
    }

    /// The mounts of this type that can be reached by their mount point, in the order of the table.
    pub fn of_type(&self, fs_type: &str) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mount| mount.fs_type == fs_type && self.is_reached(mount))
    }

    /// Whether the mount point leads to this mount. Another one may lie on it, or on a directory
    /// above it: container runtimes mount their own `/sys/fs/cgroup` over that of the host.
    fn is_reached(&self, mount: &Mount) -> bool {
        let mut above: Vec<&Path> = mount.point.ancestors().collect();
        above.reverse();
        // The table lacks the mount that has the process's root, if that is in a mount.
        let mut current: Option<&Mount> = None;
        for point in above {
            // A table of a running kernel has no cycles.
            for _ in 0..self.0.len() {
                let parent = current.map(|mount| mount.id);
                let lies_on =
                    |mount: &&Mount| mount.point == point && self.listed_parent(mount) == parent;
                let Some(mount_on_top) = self.0.iter().rfind(lies_on) else { break };
                current = Some(mount_on_top);
            }
        }
        current == Some(mount)
    }

    /// The mount that this one lies on, if it is in the table.
    fn listed_parent(&self, mount: &Mount) -> Option<u64> {
        let is_listed = self.0.iter().any(|listed| listed.id == mount.parent);
        (is_listed && mount.parent != mount.id).then_some(mount.parent)
    }
}

/// Reverts the `\040` escapes of the mount table (`mangle` in `fs/seq_file.c`).
fn unescape_field(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let octal = bytes.get(index + 1..index + 4).filter(|_| bytes[index] == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(value.unwrap_or(bytes[index]));
        index += if value.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(mountinfo: &str) -> Vec<String> {
        let table = MountTable::parse(mountinfo);
        let show = |mount: &Mount| format!("{}{}", mount.point.display(), mount.root.display());
        table.of_type("cgroup2").map(show).collect()
    }

    #[test]
    fn mounts_survive_optional_tags_and_odd_lines() {
        let table = MountTable::parse(
            "22 1 0:20 / /sys rw - sysfs sysfs rw\ngarbage\n30 22 0:26 / /sys/fs/cgroup/a\\040b \
             rw,nosuid shared:9 master:1 - cgroup2 none rw,nsdelegate\n",
        );
        let mounts: Vec<_> = table.of_type("cgroup2").collect();
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].point, Path::new("/sys/fs/cgroup/a b"));
        assert_eq!(mounts[0].options, "rw,nsdelegate");
    }

    #[test]
    fn a_mount_that_others_hide_is_not_reached() {
        let root = "1 0 8:1 / / rw - ext4 a rw\n20 1 0:20 / /sys rw - sysfs sysfs rw\n";
        let host = "30 20 0:26 /.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let own = "31 30 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(points(&format!("{root}{host}")), ["/sys/fs/cgroup/.."]);
        assert_eq!(points(&format!("{root}{host}{own}")), ["/sys/fs/cgroup/"]);
        assert_eq!(points(&format!("{root}{own}{host}")), ["/sys/fs/cgroup/"]);
        let over = "32 20 0:27 / /sys/fs rw - tmpfs tmpfs rw\n";
        assert!(points(&format!("{root}{host}{own}{over}")).is_empty());
        // In a chroot whose root is in a mount, nothing is mounted at `/`.
        assert_eq!(points(host), ["/sys/fs/cgroup/.."]);
    }

    #[test]
    fn only_octal_escapes_are_undone() {
        for (field, path) in [
            ("/a\\040b\\134c", "/a b\\c"),
            ("/a\\9", "/a\\9"),
            ("/a\\777", "/a\\777"),
            ("\\", "\\"),
        ] {
            assert_eq!(unescape_field(field), PathBuf::from(path));
        }
    }

    proptest! {
        #[test]
        fn no_mountinfo_text_panics(text in "[ -~é\n]{0,200}") {
            MountTable::parse(&text).of_type("cgroup2").count();
        }

        #[test]
        fn no_mountinfo_with_cycles_hangs(lines in prop::collection::vec((0..4_u8, 0..4_u8, "[/a]{1,3}"), 0..9)) {
            let line = |(id, parent, point): &(u8, u8, String)| {
                format!("{id} {parent} 0:1 / /{point} rw - cgroup2 c rw\n")
            };
            points(&lines.iter().map(line).collect::<String>());
        }
    }
}
