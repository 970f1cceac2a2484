//! The monitoring groups of resctrl: Intel RDT, AMD `QoS`, Arm MPAM.
//!
//! The hardware counts the traffic of the tasks of a group between a last-level cache, a domain,
//! and the memory. The format is that of Documentation/filesystems/resctrl.rst, Linux 7.1. Nothing
//! is made or changed here.
//!
//! A control group has the tasks and the bytes of its monitoring groups too. So the default group,
//! the root of the file system, and the other control groups have all traffic of CPUs.
//!
//! Not tried with hardware: the tests read directories with the names and texts of the
//! documentation.

mod domain;
mod tenant;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub use self::domain::{CacheDomain, domains};
pub use self::tenant::{cgroup_of, find_tenant, threads_of};
use super::mounts::MountTable;
use super::read;
use crate::bounds;

/// The directory in a control group that has its monitoring groups.
pub const MONITORING: &str = "mon_groups";

/// Directories at the top of the file system that are no control groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", MONITORING];

/// A mounted resctrl file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resctrl {
    /// Its mount point, with the root.
    dir: PathBuf,
}

/// A control group or a monitoring group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResctrlGroup {
    /// Its path in the file system: empty for the default group, `CONTROL`, `mon_groups/GROUP` or
    /// `CONTROL/mon_groups/GROUP`.
    pub name: String,
    /// Whether it is a control group.
    pub is_control: bool,
    /// Inode number of its directory: a group that is made again has another one, and its counts
    /// begin anew.
    pub inode: u64,
    dir: PathBuf,
}

/// What a group's bytes are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbmEvent {
    /// All traffic between the cache and the memories.
    Total,
    /// The part of it that goes to the memory of the cache's own NUMA node.
    Local,
}

impl MbmEvent {
    /// All events.
    pub const ALL: [Self; 2] = [Self::Total, Self::Local];

    /// The file in the directory of a domain.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Total => "mbm_total_bytes",
            Self::Local => "mbm_local_bytes",
        }
    }
}

/// The count of a group in a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbmCount {
    /// Bytes since the group was made. The kernel extends hardware counters, of 24 to 44 bits, to
    /// 64 bits.
    Bytes(u64),
    /// The hardware has no valid count at this time: no counter for it, or it has just begun.
    Unavailable,
    /// No counter is assigned to the group (AMD ABMC, MPAM).
    Unassigned,
    /// The file does not exist or could not be read.
    Failed,
}

impl MbmCount {
    /// Parses the text of a file.
    fn parse(text: &str) -> Self {
        match text.trim() {
            "Unavailable" => Self::Unavailable,
            "Unassigned" => Self::Unassigned,
            text => text.parse().map_or(Self::Failed, Self::Bytes),
        }
    }

    /// The bytes, if there is a count.
    pub const fn known_bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Unavailable | Self::Unassigned | Self::Failed => None,
        }
    }
}

impl Resctrl {
    /// The first one in `proc/self/mountinfo` below `root`; `None` if none is mounted.
    pub fn find_mounted(root: &Path) -> Option<Self> {
        let mounts = read::read_bytes(&root.join("proc/self/mountinfo")).ok()?;
        let mounts = MountTable::parse(&String::from_utf8_lossy(&mounts));
        let path = &mounts.of_type("resctrl").next()?.point;
        Some(Self { dir: root.join(path.strip_prefix("/").unwrap_or(path)) })
    }

    /// All groups, the default one first, then in the order of their names. Those that cannot be
    /// read, or whose names are not UTF-8, are left out.
    ///
    /// # Errors
    ///
    /// The file system cannot be listed.
    pub fn read_groups(&self) -> io::Result<Vec<ResctrlGroup>> {
        let mut groups: Vec<ResctrlGroup> =
            ResctrlGroup::read(String::new(), &self.dir, true).into_iter().collect();
        groups.extend(monitoring_groups(&self.dir, ""));
        for name in subdirectories(&self.dir)? {
            if NO_GROUPS.contains(&name.as_str()) {
                continue;
            }
            let dir = self.dir.join(&name);
            groups.extend(ResctrlGroup::read(name.clone(), &dir, true));
            groups.extend(monitoring_groups(&dir, &name));
        }
        Ok(groups)
    }

    /// Its mount point, with the root.
    pub fn mount_dir(&self) -> &Path {
        &self.dir
    }

    /// How many groups there can be, the default one included; `None` if nothing is monitored.
    pub fn max_groups(&self) -> Option<usize> {
        bounds::system_text(self.dir.join("info/L3_MON/num_rmids")).ok()?.trim().parse().ok()
    }

    /// Whether the local part of the bytes is counted. Arm MPAM counts totals only.
    pub fn counts_local(&self) -> bool {
        bounds::system_text(self.dir.join("info/L3_MON/mon_features")).map_or(true, |text| {
            text.lines().any(|line| line.trim() == MbmEvent::Local.file_name())
        })
    }

    /// For how many more groups there are counters, where groups are assigned counters (AMD ABMC,
    /// MPAM); `None` where each group has its own.
    pub fn assignable_groups(&self) -> Option<usize> {
        let text = bounds::system_text(self.dir.join("info/L3_MON/available_mbm_cntrs")).ok()?;
        // `0=30;1=30`: of each domain. A group has one for each event.
        let counters =
            |domain_text: &str| domain_text.rsplit('=').next()?.trim().parse::<usize>().ok();
        Some(text.trim().split(';').filter_map(counters).min()? / MbmEvent::ALL.len())
    }
}

impl ResctrlGroup {
    /// The group in the directory `dir`, by this name; `None` if it does not exist.
    pub fn read(name: String, dir: &Path, is_control: bool) -> Option<Self> {
        Some(Self { name, is_control, inode: fs::metadata(dir).ok()?.ino(), dir: dir.to_owned() })
    }

    /// Whether it counts what tasks of the default group do on some CPUs: then its bytes are not of
    /// its tasks alone.
    pub fn has_cpus(&self) -> bool {
        !bounds::system_text(self.dir.join("cpus_list")).unwrap_or_default().trim().is_empty()
    }

    /// Its directory, with the root.
    pub fn group_dir(&self) -> &Path {
        &self.dir
    }

    /// Name of its control group; its own if it is one.
    pub fn control_name(&self) -> &str {
        let above = self.name.rsplit_once('/').map_or("", |(above, _)| above);
        let control = above.strip_suffix(MONITORING).unwrap_or_default();
        if self.is_control { &self.name } else { control.trim_end_matches('/') }
    }

    /// Ids of its threads; empty if it has none or cannot be read.
    pub fn read_tasks(&self) -> Vec<u32> {
        String::from_utf8_lossy(&read::read_bytes(&self.dir.join("tasks")).unwrap_or_default())
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }

    /// Its count in a domain.
    pub fn read_count(&self, domain: u32, event: MbmEvent) -> MbmCount {
        // The kernel pads the number in the name with a zero to two digits.
        let file = self.dir.join(format!("mon_data/mon_L3_{domain:02}")).join(event.file_name());
        bounds::system_text(file).map_or(MbmCount::Failed, |text| MbmCount::parse(&text))
    }
}

/// The monitoring groups of a control group.
fn monitoring_groups(control: &Path, name: &str) -> Vec<ResctrlGroup> {
    let dir = control.join(MONITORING);
    let groups = subdirectories(&dir).unwrap_or_default().into_iter().filter_map(|group_name| {
        let path = Path::new(name).join(MONITORING).join(&group_name);
        ResctrlGroup::read(path.to_str()?.to_owned(), &dir.join(&group_name), false)
    });
    groups.collect()
}

/// The directories in a directory, in ascending order.
fn subdirectories(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
pub(crate) mod fake;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_their_counts_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let fake = fake::FakeResctrl::new(dir.path());
        fake.add_group("", &[1, 2, 3], "0-1");
        fake.add_group("mon_groups/b", &[2], "");
        fake.add_group("web", &[4], "");
        fake.add_group("web/mon_groups/c", &[4], "1");
        fake.write_file("info/L3_MON/num_rmids", "16\n");
        for (name, text) in
            [("", "700\n"), ("mon_groups/b", "Unavailable\n"), ("web", "Unassigned\n")]
        {
            fake.write_count(name, 0, "mbm_total_bytes", text);
        }
        fake.write_count("web/mon_groups/c", 0, "mbm_total_bytes", "Error\n");
        fake.write_count("web/mon_groups/c", 11, "mbm_local_bytes", "18446744073709551615\n");
        let resctrl = Resctrl::find_mounted(dir.path()).unwrap();
        let groups = resctrl.read_groups().unwrap();
        let names: Vec<_> =
            groups.iter().map(|group| (group.name.as_str(), group.is_control)).collect();
        let all = [("", true), ("mon_groups/b", false), ("web", true), ("web/mon_groups/c", false)];
        assert_eq!(names, all);
        let values: Vec<_> =
            groups.iter().map(|group| group.read_count(0, MbmEvent::Total)).collect();
        let right =
            [MbmCount::Bytes(700), MbmCount::Unavailable, MbmCount::Unassigned, MbmCount::Failed];
        assert_eq!(values, right);
        assert_eq!(groups[3].read_count(11, MbmEvent::Local), MbmCount::Bytes(u64::MAX));
        assert_eq!(groups[0].read_count(5, MbmEvent::Total), MbmCount::Failed);
        assert_eq!(groups[0].read_tasks(), [1, 2, 3]);
        let controls: Vec<_> = groups.iter().map(ResctrlGroup::control_name).collect();
        assert_eq!(controls, ["", "", "web", "web"]);
        assert_eq!((resctrl.max_groups(), resctrl.assignable_groups()), (Some(16), None));
        fake.write_file("info/L3_MON/available_mbm_cntrs", "0=30;1=7\n");
        assert_eq!(resctrl.assignable_groups(), Some(3));
        assert_eq!(
            groups.iter().map(ResctrlGroup::has_cpus).collect::<Vec<_>>(),
            [true, false, false, true]
        );
    }

    #[test]
    fn a_resctrl_group_that_is_made_again_is_a_new_group() {
        let dir = tempfile::tempdir().unwrap();
        let fake = fake::FakeResctrl::new(dir.path());
        fake.add_group("a", &[], "");
        let inode = || Resctrl::find_mounted(dir.path()).unwrap().read_groups().unwrap()[1].inode;
        let first = inode();
        // The new directory exists while the old one does, so that it has another inode.
        fake.add_group("b", &[], "");
        fs::remove_dir_all(fake.mount_dir().join("a")).unwrap();
        fs::rename(fake.mount_dir().join("b"), fake.mount_dir().join("a")).unwrap();
        assert_ne!(inode(), first);
    }

    #[test]
    fn without_a_resctrl_mount_there_are_no_groups() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Resctrl::find_mounted(dir.path()), None);
    }
}
