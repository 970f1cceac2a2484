//! Reads all groups once, and says what each moved since the reading before.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::groups::{Groups, Worth};
use super::lost::Runs;
use super::tree::Tree;
use crate::assemble::Measured;
use crate::confine::{Needs, RECORDER};
use crate::discover::resctrl::{Domain, Event, Group, Resctrl, Value, domains, tenant};
use crate::discover::{CgroupView, Machine};
use crate::entries::{ALL_SOCKETS, Monitored};

/// Time between two looks for groups and their tasks, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// The counts of a group in a domain.
#[derive(Clone, Copy, Debug)]
struct Counts {
    total: Value,
    local: Value,
}

/// Why it is not known what a group moved.
#[derive(Clone, Debug)]
enum Lack {
    /// There is no reading before.
    Begin,
    /// A count is missing, or less than before.
    Lost(String),
}

/// A group that is read.
#[derive(Debug)]
struct Watched {
    group: Group,
    /// Path of the cgroup that has its tasks, and no others.
    cgroup: Option<Arc<str>>,
    /// Whether this recorder made it.
    is_made: bool,
}

/// Reads the groups of a machine.
#[derive(Debug)]
pub(super) struct Reader {
    root: PathBuf,
    cgroups: PathBuf,
    view: CgroupView,
    resctrl: Resctrl,
    domains: Vec<Domain>,
    sockets: Vec<i16>,
    groups: Vec<Watched>,
    /// Groups that this recorder makes, if it makes any.
    own: Option<Groups>,
    runs: Runs,
    /// The last counts, by inode of the group and domain.
    last: HashMap<(u64, u32), Counts>,
    /// Time of the last reading, and of the last look for groups.
    read: Option<u64>,
    looked: Option<u64>,
}

impl Reader {
    /// A reader that has read nothing.
    ///
    /// # Errors
    ///
    /// Nothing can be read, and why: resctrl is not mounted, there is no v2 hierarchy of cgroups, or
    /// the bytes do not tell the memory: with more than two sockets, or with two that have several
    /// NUMA nodes each. Where totals alone are counted, they are of the memory of all sockets.
    pub(super) fn new(machine: &Machine) -> Result<Self, String> {
        let resctrl = Resctrl::find(&machine.root).ok_or(
            "resctrl is not mounted: `mount -t resctrl resctrl /sys/fs/resctrl`, where the CPU \
             has monitors of bandwidth",
        )?;
        let mut domains = domains(&machine.root, &machine.cpus);
        if !resctrl.counts_local() && domains.iter().any(|its| its.socket != domains[0].socket) {
            for domain in &mut domains {
                domain.socket = ALL_SOCKETS;
            }
        }
        let sockets: BTreeSet<i16> = domains.iter().map(|domain| domain.socket).collect();
        let places = machine.cpus.places().values();
        let nodes: BTreeSet<u32> = places.filter_map(|place| place.node).collect();
        let tells = match sockets.len() {
            0 => false,
            1 => true,
            // A count of the local part is needed: see `moved`.
            sockets => sockets == 2 && nodes.len() == 2,
        };
        if !tells {
            return Err(format!(
                "resctrl does not say to which memory its bytes go on a machine with {} sockets \
                 and {} NUMA nodes",
                sockets.len(),
                nodes.len()
            ));
        }
        let cgroups = machine.cgroups.v2.clone();
        Ok(Self {
            root: machine.root.clone(),
            cgroups: cgroups.ok_or("there is no v2 hierarchy of cgroups")?,
            view: machine.cgroups.view.clone(),
            resctrl,
            domains,
            sockets: sockets.into_iter().collect(),
            groups: Vec::new(),
            own: None,
            runs: Runs::default(),
            last: HashMap::new(),
            read: None,
            looked: None,
        })
    }

    /// The file system that is read.
    pub(super) const fn resctrl(&self) -> &Resctrl {
        &self.resctrl
    }

    /// Makes up to `most` groups for the largest tenants from now on.
    pub(super) fn make(&mut self, most: usize, tree: Box<dyn Tree>) {
        let resctrl = self.resctrl.clone();
        self.own = Some(Groups::new(&self.root, (&self.cgroups, &self.view), resctrl, most, tree));
    }

    /// Takes the paths of cgroups, the largest first.
    pub(super) fn rank(&mut self, tenants: Vec<Arc<str>>) {
        if let Some(own) = &mut self.own {
            own.rank(tenants);
        }
    }

    /// Reads all groups at `now`. `None` the first time, and if no cgroup has a group of its own,
    /// unless something was lost.
    pub(super) fn read(&mut self, now: u64) -> Option<Measured> {
        let is_torn = self.own.as_mut().is_some_and(|own| own.follow(now));
        if is_torn || self.looked.is_none_or(|looked| now >= looked + LOOK_NS) {
            self.look(now);
            self.looked = Some(now);
        }
        if self.groups.iter().all(|its| its.cgroup.is_none()) {
            self.last.clear();
            self.read = None;
            return self.lost(now);
        }
        let mut last = HashMap::new();
        let groups = std::mem::take(&mut self.groups);
        let before = self.read.replace(now);
        let mut moved = Vec::with_capacity(groups.len());
        for Watched { group, .. } in &groups {
            let its = self.moved(group, &mut last);
            match &its {
                Ok(_) => self.runs.end(group.inode, now),
                Err(Lack::Begin) => self.runs.begins(group.inode),
                Err(Lack::Lost(why)) => {
                    let before = before.unwrap_or(now);
                    self.runs.missing(group.inode, &group.name, why.clone(), before, now);
                }
            }
            moved.push(its.ok());
        }
        self.groups = groups;
        self.last = last;
        let Some(before) = before else { return self.lost(now) };
        let (span_ns, bytes) = (now.saturating_sub(before), self.bytes(&moved));
        Some(Measured { time: now, span_ns, bytes, lost: self.runs.take() })
    }

    /// Tells of a reading that did not reach the recorder.
    pub(super) fn dropped(&mut self, measured: Measured) {
        self.runs.dropped(measured);
    }

    /// What its thread needs: to read cgroups and groups, and to change these if any are made.
    pub(super) fn needs(&self) -> Needs {
        let trees = ["proc", "sys"].map(|tree| self.root.join(tree));
        let writes = self.own.iter().map(|_| self.resctrl.dir().to_owned());
        Needs {
            capabilities: RECORDER,
            reads: trees.into_iter().chain([self.cgroups.clone()]).collect(),
            writes: writes.collect(),
            ..Needs::default()
        }
    }

    /// Removes what was made, and tells what was lost until `now`.
    pub(super) fn end(mut self, now: u64) -> Option<Measured> {
        self.own = None;
        self.runs.end_all(now);
        self.lost(now)
    }

    /// The losses since the last call, if there are any.
    fn lost(&mut self, now: u64) -> Option<Measured> {
        let lost = self.runs.take();
        let measured = Measured { time: now, span_ns: 0, bytes: Vec::new(), lost };
        (!measured.lost.is_empty()).then_some(measured)
    }

    /// Finds the groups and the cgroups of their tasks. Only groups that have a cgroup and control
    /// groups are kept.
    fn look(&mut self, now: u64) {
        let groups = self.resctrl.groups().unwrap_or_else(|error| {
            log::debug!("cannot list the groups of resctrl: {error}");
            Vec::new()
        });
        let own = self.own.as_ref();
        let made = |inode: u64| own.is_some_and(|own| own.made(inode));
        let mut watched: Vec<Watched> = Vec::new();
        for group in groups.iter().filter(|group| !made(group.inode)) {
            // The default group has the tasks that nobody put elsewhere.
            let is_own = !group.name.is_empty() && !group.has_cpus();
            let find = || tenant(&self.root, &self.cgroups, &self.view, &group.tasks());
            let cgroup = is_own.then(find).flatten().map(Arc::<str>::from);
            // A monitoring group with all the tasks of its control group says nothing more.
            let again = cgroup.is_some() && watched.iter().any(|its| its.cgroup == cgroup);
            if group.is_control || (cgroup.is_some() && !again) {
                let cgroup = cgroup.filter(|_| !again);
                watched.push(Watched { group: group.clone(), cgroup, is_made: false });
            }
        }
        for its in &self.groups {
            let inode = its.group.inode;
            let is_gone = !groups.iter().any(|group| group.inode == inode);
            // Those that this recorder removes are not lost.
            if is_gone && its.cgroup.is_some() && (!its.is_made || made(inode)) {
                self.runs.removed(inode, &its.group.name, self.read.unwrap_or(now), now);
            }
        }
        if let Some(own) = &mut self.own {
            let measured = watched.iter().filter_map(|its| its.cgroup.clone()).collect();
            own.look(now, &groups, &measured);
            watched.extend(own.all().map(|(group, cgroup)| Watched {
                group: group.clone(),
                cgroup: Some(Arc::clone(cgroup)),
                is_made: true,
            }));
        }
        self.groups = watched;
    }

    /// What a group moved to and from the memory of each socket since the last reading. The counts
    /// go to `last`.
    fn moved(
        &mut self,
        group: &Group,
        last: &mut HashMap<(u64, u32), Counts>,
    ) -> Result<Vec<u64>, Lack> {
        let worth = self.own.as_mut().map_or(Worth::Whole, |own| own.take_worth(group.inode));
        if worth == Worth::Nothing {
            return Err(Lack::Begin);
        }
        let mut moved = vec![0_u64; self.sockets.len()];
        let mut lack = None;
        for domain in &self.domains {
            let value = |event| group.value(domain.id, event);
            let counts = Counts { total: value(Event::Total), local: value(Event::Local) };
            let key = (group.inode, domain.id);
            let before = self.last.get(&key).copied();
            last.insert(key, counts);
            let since = |event: Event, of: fn(&Counts) -> Value| {
                let missing = |what| Lack::Lost(format!("{} {what}", file(*domain, event)));
                let after = match of(&counts) {
                    Value::Bytes(after) => after,
                    Value::Unavailable => return Err(missing("is Unavailable")),
                    Value::Unassigned => return Err(missing("is Unassigned")),
                    Value::Failed => return Err(missing("cannot be read")),
                };
                let before = before.and_then(|before| of(&before).bytes()).ok_or(Lack::Begin)?;
                after.checked_sub(before).ok_or_else(|| missing("decreases"))
            };
            let total = since(Event::Total, |counts| counts.total);
            let local = since(Event::Local, |counts| counts.local);
            let near = match (&total, &local) {
                (Err(_), Ok(bytes)) if self.sockets.len() == 1 => Ok(*bytes),
                _ if self.sockets.len() == 1 => total.clone(),
                _ => local.clone(),
            };
            let far = total.and_then(|total| Ok(total.saturating_sub(local?)));
            for (sum, socket) in moved.iter_mut().zip(&self.sockets) {
                match if *socket == domain.socket { &near } else { &far } {
                    Ok(bytes) => *sum = sum.saturating_add(*bytes),
                    // A count that is missing says more than one that begins.
                    Err(Lack::Begin) => lack = lack.or(Some(Lack::Begin)),
                    Err(why) => lack = Some(why.clone()),
                }
            }
        }
        if worth == Worth::Begin {
            lack = lack.or(Some(Lack::Begin));
        }
        lack.map_or(Ok(moved), Err)
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

/// Where a count is.
fn file(domain: Domain, event: Event) -> String {
    format!("{} of domain {}", event.file(), domain.id)
}

#[cfg(test)]
pub(super) mod tests;
