//! Reads all groups once, and says what each moved since the reading before.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crate::assemble::Measured;
use crate::discover::Machine;
use crate::discover::resctrl::{Domain, Event, Group, Resctrl, domains, tenant};
use crate::entries::Monitored;

/// Time between two looks for groups and their tasks, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// The counts of a group in a domain; `None` if there is no valid count.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    total: Option<u64>,
    local: Option<u64>,
}

/// A group that is read.
#[derive(Debug)]
struct Watched {
    group: Group,
    /// Path of the cgroup that has its tasks, and no others.
    cgroup: Option<Arc<str>>,
}

/// Reads the groups of a machine.
#[derive(Debug)]
pub(super) struct Reader {
    root: PathBuf,
    cgroups: PathBuf,
    resctrl: Resctrl,
    domains: Vec<Domain>,
    sockets: Vec<i16>,
    groups: Vec<Watched>,
    /// The last counts, by inode of the group and domain.
    last: HashMap<(u64, u32), Counts>,
    /// Time of the last reading, and of the last look for groups.
    read: Option<u64>,
    looked: Option<u64>,
}

impl Reader {
    /// A reader that has read nothing; `None` if resctrl is not mounted, there is no v2 hierarchy
    /// of cgroups, or the bytes do not tell the memory: with more than two sockets, or with two
    /// that have several NUMA nodes each.
    pub(super) fn new(machine: &Machine) -> Option<Self> {
        let resctrl = Resctrl::find(&machine.root)?;
        let domains = domains(&machine.root, &machine.cpus);
        let sockets: BTreeSet<i16> = domains.iter().map(|domain| domain.socket).collect();
        let places = machine.cpus.places.values();
        let nodes: BTreeSet<u32> = places.filter_map(|place| place.node).collect();
        let tells = match sockets.len() {
            0 => false,
            1 => true,
            // A count of the local part is needed: see `moved`.
            sockets => sockets == 2 && nodes.len() == 2,
        };
        if !tells {
            log::info!(
                "resctrl is not read: it does not say to which memory its bytes go on a machine \
                 with {} sockets and {} NUMA nodes",
                sockets.len(),
                nodes.len()
            );
            return None;
        }
        Some(Self {
            root: machine.root.clone(),
            cgroups: machine.cgroups.v2.clone()?,
            resctrl,
            domains,
            sockets: sockets.into_iter().collect(),
            groups: Vec::new(),
            last: HashMap::new(),
            read: None,
            looked: None,
        })
    }

    /// Reads all groups at `now`. `None` the first time, and if no cgroup has a group of its own.
    pub(super) fn read(&mut self, now: u64) -> Option<Measured> {
        if self.looked.is_none_or(|looked| now >= looked + LOOK_NS) {
            self.look();
            self.looked = Some(now);
        }
        if self.groups.iter().all(|its| its.cgroup.is_none()) {
            self.last.clear();
            self.read = None;
            return None;
        }
        let mut last = HashMap::new();
        let groups = std::mem::take(&mut self.groups);
        let moved: Vec<Option<Vec<u64>>> =
            groups.iter().map(|its| self.moved(&its.group, &mut last)).collect();
        self.groups = groups;
        self.last = last;
        let before = self.read.replace(now)?;
        Some(Measured { time: now, span_ns: now.saturating_sub(before), bytes: self.bytes(&moved) })
    }

    /// Finds the groups and the cgroups of their tasks. Only groups that have a cgroup and control
    /// groups are kept.
    fn look(&mut self) {
        let groups = self.resctrl.groups().unwrap_or_else(|error| {
            log::debug!("cannot list the groups of resctrl: {error}");
            Vec::new()
        });
        self.groups.clear();
        for group in groups {
            // The default group has the tasks that nobody put elsewhere.
            let is_own = !group.name.is_empty() && !group.has_cpus();
            let found = is_own.then(|| tenant(&self.root, &self.cgroups, &group.tasks())).flatten();
            let cgroup = found.map(Arc::<str>::from);
            // A monitoring group with all the tasks of its control group says nothing more.
            let again = cgroup.is_some() && self.groups.iter().any(|its| its.cgroup == cgroup);
            if group.is_control || (cgroup.is_some() && !again) {
                self.groups.push(Watched { group, cgroup: cgroup.filter(|_| !again) });
            }
        }
    }

    /// What a group moved to and from the memory of each socket since the last reading; `None` if a
    /// count is missing, or begins anew. The counts go to `last`.
    fn moved(&self, group: &Group, last: &mut HashMap<(u64, u32), Counts>) -> Option<Vec<u64>> {
        let mut moved = vec![0_u64; self.sockets.len()];
        let mut is_known = true;
        for domain in &self.domains {
            let value = |event| group.value(domain.id, event).bytes();
            let counts = Counts { total: value(Event::Total), local: value(Event::Local) };
            let key = (group.inode, domain.id);
            let before = self.last.get(&key).copied().unwrap_or_default();
            last.insert(key, counts);
            let since = |after: Option<u64>, before: Option<u64>| after?.checked_sub(before?);
            let total = since(counts.total, before.total);
            let local = since(counts.local, before.local);
            let near = if self.sockets.len() == 1 { total.or(local) } else { local };
            let far = total.zip(local).map(|(total, local)| total.saturating_sub(local));
            for (sum, socket) in moved.iter_mut().zip(&self.sockets) {
                let bytes = if *socket == domain.socket { near } else { far };
                is_known &= bytes.is_some();
                *sum = sum.saturating_add(bytes.unwrap_or_default());
            }
        }
        is_known.then_some(moved)
    }

    /// The bytes of each cgroup, without those of groups of cgroups below it, and of all groups.
    fn bytes(&self, moved: &[Option<Vec<u64>>]) -> Vec<Monitored> {
        let control = self.groups.iter().zip(moved).filter(|(its, _)| its.group.is_control);
        let all: Option<Vec<&Vec<u64>>> = control.map(|(_, moved)| moved.as_ref()).collect();
        let mut bytes = Vec::new();
        for (at, socket) in self.sockets.iter().enumerate() {
            let of = |moved: &Vec<u64>| moved.get(at).copied().unwrap_or_default();
            if let Some(all) = &all {
                let sum = all.iter().fold(0_u64, |sum, moved| sum.saturating_add(of(moved)));
                bytes.push(Monitored { cgroup: None, socket: *socket, bytes: sum });
            }
            let tenants = || {
                let its = self.groups.iter().zip(moved);
                its.filter_map(|(its, moved)| Some((its.cgroup.as_ref()?, moved.as_ref())))
            };
            for (cgroup, its) in tenants() {
                let is_below = |other: &str| {
                    other.strip_prefix(&**cgroup).is_some_and(|rest| rest.starts_with('/'))
                };
                let below = tenants().filter(|(other, _)| is_below(other)).map(|(_, moved)| moved);
                // If a group below cannot be read, it is not known what is left.
                let mut below = below.map(|moved| moved.map(of));
                let below = below.try_fold(0_u64, |sum, its| Some(sum.saturating_add(its?)));
                if let Some((its, below)) = its.map(of).zip(below) {
                    let (cgroup, bytes_left) =
                        (Some(Arc::clone(cgroup)), its.saturating_sub(below));
                    bytes.push(Monitored { cgroup, socket: *socket, bytes: bytes_left });
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
pub(super) mod tests;
