//! The parameters of a time line.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use crate::clock::Snapshot;
use crate::discover::CgroupMounts;
use crate::discover::cpus::CpuLocation;
use crate::open::Layout;
use crate::plan::Plan;

/// The parameters of a time line.
#[derive(Debug)]
pub struct TimelineSetup<'a> {
    /// The planned counters.
    pub plan: &'a Plan,
    /// What each reader CPU reads.
    pub layouts: &'a BTreeMap<u32, Layout>,
    /// The counters that were opened.
    pub opened: &'a HashSet<u32>,
    /// CPUs whose time is accounted.
    pub cpus: &'a [u32],
    /// Those of `cpus` that are offline.
    pub offline: &'a [u32],
    /// The location of each possible CPU.
    pub cpu_locations: &'a BTreeMap<u32, CpuLocation>,
    /// The first tick; earlier records are ignored.
    pub start_tick: u64,
    /// Converts times to wall-clock time.
    pub clock: Snapshot,
    /// Where procfs and sysfs are.
    pub root: &'a Path,
    /// The cgroup v2 hierarchy.
    pub cgroups: &'a CgroupMounts,
    /// Cgroups below which all names of containers, pods and jobs are believed.
    pub trusted_cgroups: Vec<String>,
    /// Cgroups with owners of their own; empty: all.
    pub only_cgroups: Vec<String>,
    /// Owners in deeper cgroups are replaced by their ancestor at this depth; 0 is the root.
    pub cgroup_depth: Option<usize>,
    /// Whether I/O is recorded.
    pub io: bool,
    /// Whether it is recorded who holds which device.
    pub holders: bool,
}
