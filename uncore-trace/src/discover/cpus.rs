//! The CPUs of the machine and their location: package, die, NUMA node.
//!
//! An unknown location is `None`, never 0: arm64 firmware without a PPTT has the package id -1, and
//! kernels without NUMA have no nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::OnceLock;

use serde::Serialize;

use super::cpulist::CpuList;
use super::read::Problems;

/// The location of a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CpuLocation {
    /// Physical package, the socket.
    pub package: Option<i16>,
    /// Die within the package: the kernel's number, or else its first CPU.
    pub die: Option<i16>,
    /// NUMA node.
    pub node: Option<u32>,
    /// Core within the package: hardware threads of one core have the same number.
    #[serde(skip)]
    pub core: Option<i32>,
    /// Cluster of cores within the die.
    #[serde(skip)]
    pub cluster: Option<i32>,
    /// Its last-level cache.
    #[serde(skip)]
    pub cache: Option<CpuCache>,
}

/// A cache of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuCache {
    /// Its level.
    pub level: u32,
    /// First online CPU among those that share it, which identifies it.
    pub first_cpu: u32,
}

/// A level of the topology: what a set of CPUs at the same location has in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyLevel {
    /// A package.
    Package,
    /// A die of a package.
    Die,
    /// A NUMA node.
    Node,
    /// A last-level cache of a package.
    PackageCache,
    /// A core of a package.
    Core,
    /// A last-level cache, whatever its package.
    Cache,
}

/// Number of the levels.
const LEVELS: usize = TopologyLevel::Cache as usize + 1;

/// What distinguishes the sets of CPUs of one level.
pub type TopologyKey = (Option<i16>, Option<i16>, Option<u32>);

impl TopologyLevel {
    /// The key of this level at a location; `None` if that is not known.
    pub fn topology_key(self, location: CpuLocation) -> Option<TopologyKey> {
        Some(match self {
            Self::Package => (Some(location.package?), None, None),
            Self::Die => (Some(location.package?), Some(location.die?), None),
            Self::Node => (None, None, Some(location.node?)),
            Self::PackageCache => (Some(location.package?), None, Some(location.cache?.first_cpu)),
            Self::Core => {
                (Some(location.package?), location.die, Some(u32::try_from(location.core?).ok()?))
            }
            Self::Cache => {
                let CpuCache { level, first_cpu: cache_cpu } = location.cache?;
                (None, i16::try_from(level).ok(), Some(cache_cpu))
            }
        })
    }
}

/// All CPUs of the machine.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cpus {
    /// CPUs that are online.
    pub online: CpuList,
    /// CPUs that could come online.
    pub possible: CpuList,
    /// Location of each possible CPU. Topology files exist only for online CPUs.
    places: BTreeMap<u32, CpuLocation>,
    #[serde(skip)]
    topology: Topology,
}

/// What follows from the locations of the CPUs, made when it is first asked for: it is asked for
/// each of thousands of counters.
#[derive(Debug, Clone, Default)]
struct Topology {
    /// The CPUs of each set, for each level.
    cpus_by_key: [OnceLock<HashMap<TopologyKey, CpuList>>; LEVELS],
    /// The CPUs of all dies in the order of their numbers.
    dies: OnceLock<BTreeMap<(i16, i16), u32>>,
    /// The first CPU of each NUMA node.
    first_of_node: OnceLock<BTreeMap<u32, u32>>,
    has_one_package: OnceLock<bool>,
}

impl Cpus {
    /// CPUs at known locations.
    pub fn new(online: CpuList, possible: CpuList, locations: BTreeMap<u32, CpuLocation>) -> Self {
        Self { online, possible, places: locations, topology: Topology::default() }
    }

    /// The locations of all possible CPUs.
    pub const fn cpu_locations(&self) -> &BTreeMap<u32, CpuLocation> {
        &self.places
    }

    /// Reads `sys/devices/system/{cpu,node}` below `root`.
    pub(super) fn read(root: &Path, problems: &mut Problems) -> Self {
        let system = root.join("sys/devices/system");
        let online: CpuList = problems.read_parsed(&system.join("cpu/online")).unwrap_or_default();
        let possible: CpuList =
            problems.read_parsed(&system.join("cpu/possible")).unwrap_or_default();
        let mut locations = BTreeMap::new();
        let mut packages = BTreeMap::new();
        for cpu in possible.union_with(&online).iter() {
            let topology = system.join(format!("cpu/cpu{cpu}/topology"));
            let mut id = |file| {
                let id: Option<i32> = problems.read_parsed(&topology.join(file));
                id.filter(|&id| id >= 0)
            };
            packages.extend(id("physical_package_id").map(|id| (cpu, id)));
            let (die, core, cluster) = (id("die_id"), id("core_id"), id("cluster_id"));
            let die = die.or_else(|| {
                let first_cpu = problems
                    .read_parsed::<CpuList>(&topology.join("die_cpus_list"))?
                    .first_cpu()?;
                i32::try_from(first_cpu).ok()
            });
            let die = die.and_then(|id| i16::try_from(id).ok());
            locations.insert(cpu, CpuLocation { die, core, cluster, ..CpuLocation::default() });
        }
        for cpu in online.iter() {
            if locations.get(&cpu).is_some_and(|location| location.cache.is_some()) {
                continue;
            }
            let dir = system.join(format!("cpu/cpu{cpu}/cache"));
            let Some((level, sharing)) = last_level_cache(&dir, problems) else { continue };
            for sharer in sharing.iter() {
                locations.entry(sharer).or_default().cache =
                    Some(CpuCache { level, first_cpu: cpu });
            }
        }
        for (cpu, package) in number_packages(&packages) {
            locations.entry(cpu).or_default().package = Some(package);
        }
        let nodes = system.join("node");
        for name in problems.read_names(&nodes) {
            let Some(Ok(node)) = name.strip_prefix("node").map(str::parse::<u32>) else { continue };
            let cpus: CpuList =
                problems.read_parsed(&nodes.join(&name).join("cpulist")).unwrap_or_default();
            for cpu in cpus.iter() {
                locations.entry(cpu).or_default().node = Some(node);
            }
        }
        Self::new(online, possible, locations)
    }

    /// The location of `cpu`; all fields are `None` for a CPU that does not exist.
    pub fn cpu_location(&self, cpu: u32) -> CpuLocation {
        self.places.get(&cpu).copied().unwrap_or_default()
    }

    /// The online CPUs that share this level with `cpu`; `None` if it is unknown for `cpu`.
    pub fn cpus_sharing(&self, cpu: u32, level: TopologyLevel) -> Option<CpuList> {
        let key = level.topology_key(self.cpu_location(cpu))?;
        let cpus_by_key = self.topology.cpus_by_key[level as usize].get_or_init(|| {
            let mut cpus_by_key: HashMap<TopologyKey, Vec<u32>> = HashMap::new();
            for (cpu, location) in &self.places {
                if let Some(key) = level.topology_key(*location) {
                    cpus_by_key.entry(key).or_default().push(*cpu);
                }
            }
            cpus_by_key.into_iter().map(|(key, cpus)| (key, cpus.into_iter().collect())).collect()
        });
        Some(
            cpus_by_key
                .get(&key)
                .map(|cpus: &CpuList| cpus.intersection(&self.online))
                .unwrap_or_default(),
        )
    }

    /// The number of a CPU's die, counted over all packages in order, as the kernel numbers them
    /// (`topology_logical_die_id`, arch/x86/kernel/cpu/topology.c, Linux 7.2); `None` if its
    /// package is not known.
    pub fn die_number(&self, cpu: u32) -> Option<u32> {
        self.die_numbers().get(&die_key(self.cpu_location(cpu))?).copied()
    }

    /// The number of the only die of the machine; `None` if there are several, or the package of a
    /// CPU is not known.
    pub fn only_die(&self) -> Option<u32> {
        let are_known = self.places.values().all(|location| location.package.is_some());
        let mut numbers = self.die_numbers().values();
        numbers.next().copied().filter(|_| are_known && numbers.next().is_none())
    }

    fn die_numbers(&self) -> &BTreeMap<(i16, i16), u32> {
        self.topology.dies.get_or_init(|| {
            let dies: BTreeSet<_> =
                self.places.values().filter_map(|location| die_key(*location)).collect();
            dies.into_iter().zip(0..).collect()
        })
    }

    /// The first CPU of a NUMA node.
    pub fn first_of_node(&self, node: u32) -> Option<u32> {
        let first_cpus = self.topology.first_of_node.get_or_init(|| {
            // The first of a node comes last, and replaces the others.
            let cpus = self.places.iter().rev();
            cpus.filter_map(|(cpu, location)| Some((location.node?, *cpu))).collect()
        });
        first_cpus.get(&node).copied()
    }

    /// Whether no two CPUs are in different packages.
    pub fn has_one_package(&self) -> bool {
        *self.topology.has_one_package.get_or_init(|| {
            let packages: BTreeSet<_> =
                self.places.values().map(|location| location.package).collect();
            packages.len() <= 1
        })
    }
}

/// The package and the die in it.
fn die_key(location: CpuLocation) -> Option<(i16, i16)> {
    Some((location.package?, location.die.unwrap_or_default()))
}

/// The level of the highest-level cache in `dir`, the `cache` directory of a CPU, and the CPUs that
/// share it (Documentation/ABI/testing/sysfs-devices-system-cpu, Linux 7.2).
fn last_level_cache(dir: &Path, problems: &mut Problems) -> Option<(u32, CpuList)> {
    let caches = problems.read_names(dir).into_iter().filter(|name| name.starts_with("index"));
    let caches: Vec<_> = caches.map(|name| dir.join(name)).collect();
    let level = |index: &Path, problems: &mut Problems| {
        problems.read_parsed::<u32>(&index.join("level")).unwrap_or_default()
    };
    let caches = caches.into_iter().map(|index| (level(&index, problems), index));
    let (level, last_index) = caches.max_by_key(|(level, _)| *level)?;
    Some((level, problems.read_parsed(&last_index.join("shared_cpu_list"))?))
}

/// Smallest package id that is not a socket number. If Arm firmware does not number sockets, the
/// kernel uses the offset of the package in the ACPI table PPTT (`find_acpi_cpu_topology_tag`,
/// drivers/acpi/pptt.c, Linux 7.2), which begins with a header of 36 bytes.
const FIRST_OFFSET: i32 = 36;

/// The package of each CPU: the kernel's id, or the rank of the package if ids are offsets.
fn number_packages(packages: &BTreeMap<u32, i32>) -> BTreeMap<u32, i16> {
    let ids: BTreeSet<i32> = packages.values().copied().collect();
    let offsets = ids.iter().all(|&id| id >= FIRST_OFFSET);
    let number = |id: &i32| {
        let number = if offsets { ids.range(..id).count() as i32 } else { *id };
        i16::try_from(number).ok()
    };
    packages.iter().filter_map(|(cpu, id)| Some((*cpu, number(id)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn packages_without_a_number_are_numbered_in_their_order() {
        let of = |ids: [i32; 3]| {
            let packages = ids.iter().enumerate().map(|(cpu, id)| (cpu as u32, *id)).collect();
            number_packages(&packages).into_values().collect::<Vec<_>>()
        };
        assert_eq!(of([0, 0, 1]), [0, 0, 1]);
        assert_eq!(of([2, 0, 40]), [2, 0, 40]);
        assert_eq!(of([3180, 36, 36]), [1, 0, 0]);
        assert_eq!(of([200_000, 36, 200_000]), [1, 0, 1]);
    }

    #[test]
    fn an_unknown_package_or_node_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "sys/devices/system/cpu/online", "0-1\n");
        write(root, "sys/devices/system/cpu/possible", "0-2\n");
        write(root, "sys/devices/system/cpu/cpu0/topology/physical_package_id", "1\n");
        write(root, "sys/devices/system/cpu/cpu1/topology/physical_package_id", "-1\n");
        write(root, "sys/devices/system/node/node3/cpulist", "1\n");
        write(root, "sys/devices/system/node/has_cpu", "3\n");
        let mut problems = Problems::default();
        let cpus = Cpus::read(root, &mut problems);
        assert!(problems.0.is_empty(), "{problems:?}");
        assert_eq!(
            cpus.cpu_location(0),
            CpuLocation { package: Some(1), ..CpuLocation::default() }
        );
        assert_eq!(cpus.cpu_location(1), CpuLocation { node: Some(3), ..CpuLocation::default() });
        assert_eq!(cpus.cpu_location(2), CpuLocation::default());
        assert_eq!(cpus.cpus_sharing(0, TopologyLevel::Package).unwrap().to_string(), "0");
        assert_eq!(cpus.cpus_sharing(1, TopologyLevel::Package), None);
    }

    #[test]
    fn a_cpu_is_at_the_cache_of_its_highest_level() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "sys/devices/system/cpu/online", "0-3\n");
        for cpu in 0..3 {
            let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache");
            for (index, level, sharing) in [(0, 1, cpu.to_string()), (3, 3, "0,2".to_owned())] {
                write(root, &format!("{cache}/index{index}/level"), &format!("{level}\n"));
                let sharing = if cpu == 1 { "1\n".to_owned() } else { sharing };
                write(root, &format!("{cache}/index{index}/shared_cpu_list"), &sharing);
            }
        }
        let cpus = Cpus::read(root, &mut Problems::default());
        let caches: Vec<_> = (0..4).map(|cpu| cpus.cpu_location(cpu).cache).collect();
        let at = |first| Some(CpuCache { level: 3, first_cpu: first });
        assert_eq!(caches, [at(0), at(1), at(0), None]);
    }
}
