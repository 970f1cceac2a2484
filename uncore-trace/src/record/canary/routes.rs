//! Which links count what the canary moves, and therefore what it may move.
//!
//! Guarantees: the canary moves nothing that no counter of the plan counts. A burst is said to be
//! on a link only if a counter of the link surely counts it: the counter sees the CPU that reads
//! memory, and the socket is that of the memory; or the device is surely below the counter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{major, minor};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::orders::{CanaryNode, DiskOrders, MemoryOrders, Orders};
use crate::bounds;
use crate::discover::Machine;
use crate::plan::{Counter, IoDirection as Io, Plan};
use crate::schema::canary::{Burst, CanaryKind, LinkDirection, Skipped};
use crate::schema::link::{Direction, Link};

/// Largest part of a link's peak that a burst takes.
const PART_OF_PEAK: f64 = 0.005;

/// Peak of memory if none is known, bytes/s: one channel of DDR4-2133 (JESD79-4), the least that a
/// server has.
const LEAST_MEMORY: f64 = 17.0e9;

/// Peak of a disk, bytes/s: what hard disks read. The peak of the PCIe link is never that of a
/// disk.
const LEAST_DISK: f64 = 200.0e6;

/// Peak of the loopback interface, which has no line rate, bytes/s: 10 Gb/s.
const LEAST_NETWORK: f64 = 1.25e9;

/// Size of the last-level cache if it is unknown, bytes.
const CACHE: u64 = 64 << 20;

/// Arrays have this many times the size of the last-level cache: with the replacement of the least
/// recently used line, an array that is read again and again leaves nothing in a smaller cache.
const TIMES_CACHE: u64 = 2;

/// The kinds of links in the catalog that count reads of memory: of the socket's own, and of that
/// of other sockets.
const OWN_MEMORY: &str = "memory";
const FAR_MEMORY: &str = "memory of other sockets";

/// The interface of a host to itself.
const LOOPBACK: &str = "lo";

/// One direction of a link, and what its counters can see.
#[derive(Debug)]
struct Lane {
    link_way: LinkDirection,
    link_kind: String,
    socket: Option<i16>,
    /// CPUs that all its counters see.
    sees: BTreeSet<u32>,
    /// Devices that its counters surely count, as the direction says.
    devices: BTreeSet<String>,
}

/// How bursts are counted.
#[derive(Debug)]
pub(super) struct Routes {
    lanes: Vec<Lane>,
    /// The socket of each CPU and node; `None` if the machine does not say.
    sockets: BTreeMap<u32, Option<i16>>,
    nodes: BTreeMap<u32, Option<i16>>,
    /// Whether all CPUs are of one socket.
    has_one_socket: bool,
    /// The names under which the disk of the file is counted: its own, then those that it is on.
    disks: Vec<String>,
}

impl Routes {
    /// The routes that the counters of `plan` count, and the canary's orders. Its file is in
    /// `directory`; `None`: the output is no file.
    ///
    /// # Errors
    ///
    /// There is nothing to move, or no cgroup v2.
    pub(super) fn find_routes(
        machine: &Machine,
        plan: &Plan,
        directory: Option<&Path>,
    ) -> Result<(Self, Orders)> {
        let mount = machine.cgroups.v2.clone().context(
            "the canary needs a cgroup of its own, and no cgroup v2 hierarchy is mounted: mount \
             one, or leave out the canary",
        )?;
        let mut routes = Self::new(machine, plan);
        let cpus: Vec<u32> = allowed_cpus(machine);
        let mut skipped = Vec::new();
        let mut or_skip = |kind, why: String| skipped.push(Skipped { kind, why });
        let memory = routes.memory_orders(machine, plan, &cpus);
        if memory.is_none() {
            or_skip(CanaryKind::Memory, "no counter of this recording counts it".to_owned());
        }
        let disk = directory.map(|directory| routes.disk_orders(machine, directory));
        let no_directory = || Err("the output is not in a directory of a disk".to_owned());
        let disk =
            disk.unwrap_or_else(no_directory).map_err(|why| or_skip(CanaryKind::Disk, why)).ok();
        let has_loopback = !routes.links_of_device(&[LOOPBACK.to_owned()]).is_empty();
        let network = has_loopback.then_some(PART_OF_PEAK * LEAST_NETWORK);
        if network.is_none() {
            or_skip(CanaryKind::Network, "no counter of this recording counts it".to_owned());
        }
        let reasons: Vec<_> = skipped
            .iter()
            .map(|entry| format!("{}: {}", entry.kind.kind_name(), entry.why))
            .collect();
        ensure!(
            memory.is_some() || disk.is_some() || network.is_some(),
            "the canary has nothing to move ({}): also record -p mem or -p io, or leave out the \
             canary",
            reasons.join("; ")
        );
        let view = machine.cgroups.view.clone();
        let orders = Orders { mount, view, cpus, memory, disk, network, skipped };
        Ok((routes, orders))
    }

    fn new(machine: &Machine, plan: &Plan) -> Self {
        let cpu_locations = machine.cpus.cpu_locations();
        let sockets: BTreeMap<_, _> =
            cpu_locations.iter().map(|(cpu, cpu_location)| (*cpu, cpu_location.package)).collect();
        let nodes = cpu_locations
            .values()
            .filter_map(|cpu_location| Some((cpu_location.node?, cpu_location.package)))
            .collect();
        let different: BTreeSet<_> = sockets.values().flatten().collect();
        let has_one_socket = different.len() <= 1;
        Self { lanes: find_lanes(plan), sockets, nodes, has_one_socket, disks: Vec::new() }
    }

    /// The disk or interface that moved the bytes of a burst, `None` for memory, and the links
    /// whose counters count them.
    pub(super) fn route_burst(&self, burst: &Burst) -> (Option<String>, Vec<LinkDirection>) {
        match burst.kind {
            CanaryKind::Memory => (None, self.links_of_memory(burst.cpu, burst.node)),
            CanaryKind::Disk => (self.disks.first().cloned(), self.links_of_device(&self.disks)),
            CanaryKind::Network => {
                let device = LOOPBACK.to_owned();
                let links = self.links_of_device(std::slice::from_ref(&device));
                (Some(device), links)
            }
        }
    }

    /// The links that count reads by `cpu` of memory of `node`.
    fn links_of_memory(&self, cpu: u32, node: Option<u32>) -> Vec<LinkDirection> {
        let near = self.sockets.get(&cpu).copied().flatten();
        let far = node.and_then(|node| self.nodes.get(&node).copied().flatten()).or(near);
        let counts = |lane: &&Lane| {
            let is_there = |socket: Option<i16>| match lane.socket {
                Some(lane_socket) => socket == Some(lane_socket),
                None => self.has_one_socket,
            };
            // A read is towards the CPU.
            lane.link_way.direction != Direction::Out
                && lane.sees.contains(&cpu)
                && match lane.link_kind.as_str() {
                    OWN_MEMORY => is_there(far),
                    FAR_MEMORY => near != far && is_there(near),
                    _ => false,
                }
        };
        self.lanes.iter().filter(counts).map(|lane| lane.link_way.clone()).collect()
    }

    /// The links that count what is read from one of these devices.
    fn links_of_device(&self, names: &[String]) -> Vec<LinkDirection> {
        // What is sent over the loopback interface is also received; a disk is only read.
        let is_sent = names == [LOOPBACK.to_owned()];
        let counts = |lane: &&Lane| {
            names.iter().any(|name| lane.devices.contains(name))
                && (is_sent || lane.link_way.direction != Direction::Out)
        };
        self.lanes.iter().filter(counts).map(|lane| lane.link_way.clone()).collect()
    }

    fn memory_orders(&self, machine: &Machine, plan: &Plan, cpus: &[u32]) -> Option<MemoryOrders> {
        let kinds = [OWN_MEMORY, FAR_MEMORY];
        let links: Vec<&Link> =
            plan.links.iter().filter(|link| kinds.contains(&link.kind.as_str())).collect();
        let nodes = choose_nodes(machine, cpus);
        let routes = nodes.iter().flat_map(|near| nodes.iter().map(move |far| (near, far)));
        let is_counted = |(near, far): (&CanaryNode, &CanaryNode)| {
            near.cpus.iter().any(|cpu| !self.links_of_memory(*cpu, far.node).is_empty())
        };
        if !routes.into_iter().any(is_counted) {
            return None;
        }
        let peaks = links.iter().flat_map(|link| link.peaks_of(Direction::In));
        let peak = peaks.map(|peak| peak.bytes_per_s).reduce(f64::min).unwrap_or(LEAST_MEMORY);
        let array_bytes = TIMES_CACHE * last_level_cache(&machine.root).unwrap_or(CACHE);
        Some(MemoryOrders { nodes, array_bytes, bytes_per_s: PART_OF_PEAK * peak })
    }

    /// What is read from the disk of this directory.
    fn disk_orders(&mut self, machine: &Machine, directory: &Path) -> Result<DiskOrders, String> {
        let shown = directory.display();
        let directory = fs::canonicalize(directory).map_err(|error| format!("{shown}: {error}"))?;
        let number = fs::metadata(&directory).map_err(|error| format!("{shown}: {error}"))?.dev();
        self.disks = disk_names(&machine.root, number);
        if self.disks.is_empty() {
            return Err(format!("the file system of {shown} is on no disk"));
        }
        if self.links_of_device(&self.disks).is_empty() {
            let name = &self.disks[0];
            return Err(format!("no counter of this recording counts the disk {name}"));
        }
        Ok(DiskOrders { directory, bytes_per_s: PART_OF_PEAK * LEAST_DISK })
    }
}

fn find_lanes(plan: &Plan) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for link in &plan.links {
        for direction in [Direction::In, Direction::Out, Direction::Both] {
            let counted =
                link.counters.iter().filter(|link_counter| link_counter.direction == direction);
            let counters: Vec<&Counter> = counted
                .filter_map(|link_counter| plan.counters.get(link_counter.counter as usize))
                .collect();
            let Some(first_counter) = counters.first() else { continue };
            let seen_by_all =
                |cpu: &u32| counters.iter().all(|counter| counter.sees.contains(*cpu));
            let scopes = counters.iter().filter_map(|counter_of_link| counter_of_link.io.as_ref());
            let sure = scopes.filter(|io| !io.is_shared).filter(|io| match direction {
                Direction::In => io.direction == Io::Read,
                Direction::Out => io.direction == Io::Write,
                Direction::Both => false,
            });
            lanes.push(Lane {
                link_way: LinkDirection { link: link.name.clone(), direction },
                link_kind: link.kind.clone(),
                socket: link.socket,
                sees: first_counter.sees.iter().filter(seen_by_all).collect(),
                devices: sure.flat_map(|io| io.devices.iter().cloned()).collect(),
            });
        }
    }
    lanes
}

/// The online CPUs on which this process may run: not those that are isolated.
fn allowed_cpus(machine: &Machine) -> Vec<u32> {
    let affinity = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let online = machine.cpus.online.iter();
    online
        .filter(|cpu| (*cpu as usize) < CpuSet::MAX_CPU && affinity.is_set(*cpu as usize))
        .collect()
}

/// Up to two nodes with CPUs, of different sockets if there are several: the first and the last.
fn choose_nodes(machine: &Machine, cpus: &[u32]) -> Vec<CanaryNode> {
    let mut cpus_by_node: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        cpus_by_node.entry(machine.cpus.cpu_location(*cpu).node).or_default().push(*cpu);
    }
    let mut nodes: Vec<CanaryNode> =
        cpus_by_node.into_iter().map(|(node, cpus)| CanaryNode { node, cpus }).collect();
    if nodes.len() > 2 {
        nodes.drain(1..nodes.len() - 1);
    }
    nodes
}

/// Size of the last-level cache of the first CPU, bytes.
fn last_level_cache(root: &Path) -> Option<u64> {
    let caches = root.join("sys/devices/system/cpu/cpu0/cache");
    let size = |dir: PathBuf| {
        let attribute = |name| bounds::read_text(&dir.join(name), bounds::ATTRIBUTE).ok();
        let level: u32 = attribute("level")?.trim().parse().ok()?;
        Some((level, attribute("size")?.trim().strip_suffix('K')?.parse::<u64>().ok()? << 10))
    };
    let entries = fs::read_dir(caches).ok()?.flatten();
    entries.filter_map(|entry| size(entry.path())).max().map(|(_, bytes)| bytes)
}

/// The names of the block device with this number: its own, that of the whole disk if it is a
/// partition, and those that it is built on while that is one device each.
fn disk_names(root: &Path, number: u64) -> Vec<String> {
    let blocks = root.join("sys/dev/block");
    let link = blocks.join(format!("{}:{}", major(number), minor(number)));
    let Ok(mut dir) = fs::canonicalize(link) else { return Vec::new() };
    let mut names = Vec::new();
    // Real stacks have three or four layers.
    for _ in 0..8 {
        names.extend(dir.file_name().map(|name| name.to_string_lossy().into_owned()));
        let slaves = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
        let slaves: Vec<PathBuf> = slaves.map(|entry| entry.path()).collect();
        let lower = match (slaves.as_slice(), dir.parent()) {
            ([underlying], _) => fs::canonicalize(underlying).ok(),
            ([], Some(parent)) if dir.join("partition").exists() => Some(parent.to_owned()),
            _ => None,
        };
        match lower {
            Some(lower_dir) => dir = lower_dir,
            None => break,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::discover::captured_machine;
    use crate::plan::{PlanRequest, plan};

    /// The plan of these groups on a captured machine.
    fn planned(machine: &Machine, groups: &[&str]) -> Plan {
        let request = PlanRequest {
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
            ..PlanRequest::default()
        };
        plan(machine, &Catalog::load_embedded().unwrap(), &request).unwrap()
    }

    fn names(ways: Vec<LinkDirection>) -> Vec<String> {
        ways.into_iter()
            .map(|way| format!("{} {}", way.link, way.direction.direction_name()))
            .collect()
    }

    #[test]
    fn memory_is_counted_where_it_is_and_by_who_sees_the_reader() {
        let machine = captured_machine("grace-2s");
        let plan = planned(&machine, &["mem", "c2c"]);
        let routes = Routes::new(&machine, &plan);
        let node = |cpu| machine.cpus.cpu_location(cpu).node;
        let last = machine.cpus.online.iter().max().unwrap();
        let own = names(routes.links_of_memory(0, node(0)));
        assert_eq!(own, ["memory 0 in"]);
        let far = names(routes.links_of_memory(0, node(last)));
        assert!(far.contains(&"memory of other sockets 0 in".to_owned()), "{far:?}");
        assert!(!far.contains(&"memory 0 in".to_owned()), "{far:?}");
        let cpus: Vec<u32> = machine.cpus.online.iter().collect();
        let memory = routes.memory_orders(&machine, &plan, &cpus).unwrap();
        assert_eq!(memory.nodes.len(), 2);
        // Half a percent of the 512 GB/s of the data sheet.
        assert!((memory.bytes_per_s / 2.56e9 - 1.0).abs() < 1e-9, "{}", memory.bytes_per_s);
        assert!(memory.array_bytes >= 1 << 20);
    }

    #[test]
    fn what_no_counter_counts_is_not_moved() {
        let machine = captured_machine("bare");
        let plan = planned(&machine, &["host"]);
        let routes = Routes::new(&machine, &plan);
        assert!(routes.memory_orders(&machine, &plan, &[0]).is_none());
        assert!(routes.links_of_device(&[LOOPBACK.to_owned()]).is_empty());
        let error = Routes::find_routes(&machine, &plan, None).unwrap_err().to_string();
        assert!(error.contains("leave out the canary"), "{error}");
    }

    #[test]
    fn a_partition_of_a_stacked_disk_is_on_all_of_these() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for dir in ["sys/dev/block", "sys/devices/sda/sda2/slaves", "sys/devices/dm-0/slaves"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("sys/devices/sda/sda2/partition"), "2").unwrap();
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(at(to), at(from)).unwrap();
        link("sys/devices/dm-0", "sys/dev/block/252:0");
        link("sys/devices/sda/sda2", "sys/devices/dm-0/slaves/sda2");
        let number = rustix::fs::makedev(252, 0);
        assert_eq!(disk_names(root.path(), number), ["dm-0", "sda2", "sda"]);
        assert!(disk_names(root.path(), rustix::fs::makedev(0, 44)).is_empty());
    }
}
