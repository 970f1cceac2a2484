//! Reads all groups once, and says what each moved since the reading before.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::groups::{OwnGroups, Worth, is_in};
use super::lost_readings::LossRuns;
use super::tree::ResctrlTree;
use crate::assemble::MonitorReading;
use crate::confine::{RECORDER, ThreadNeeds};
use crate::discover::resctrl::{
    CacheDomain, MbmCount, MbmEvent, Resctrl, ResctrlGroup, domains, find_tenant,
};
use crate::discover::{CgroupView, Machine};
use crate::entries::{ALL_SOCKETS, Monitored};

/// Time between two looks for groups and their tasks, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// The counts of a group in a domain, in the order of [`MbmEvent::ALL`].
type DomainCounts = [MbmCount; MbmEvent::ALL.len()];

/// An event is the index of its count.
const _: () = assert!(matches!(MbmEvent::ALL, [MbmEvent::Total, MbmEvent::Local]));

/// Why it is not known what a group moved.
#[derive(Clone, Debug)]
enum MissingBytes {
    /// There is no reading before.
    Begin,
    /// A count is missing, or less than before.
    Lost(String),
}

/// A group that is read.
#[derive(Debug)]
struct WatchedGroup {
    group: ResctrlGroup,
    /// Path of the cgroup that has its tasks, and no others.
    cgroup: Option<Arc<str>>,
    /// Whether this recorder made it.
    is_made: bool,
}

/// Reads the groups of a machine.
#[derive(Debug)]
pub(super) struct MonitorReader {
    root: PathBuf,
    cgroups: PathBuf,
    view: CgroupView,
    /// The file system that is read.
    pub(super) resctrl: Resctrl,
    domains: Vec<CacheDomain>,
    sockets: Vec<i16>,
    groups: Vec<WatchedGroup>,
    /// Groups that this recorder makes, if it makes any.
    own_groups: Option<OwnGroups>,
    loss_runs: LossRuns,
    /// The last counts, by inode of the group and domain.
    last_counts: HashMap<(u64, u32), DomainCounts>,
    /// Time of the last reading, and of the last look for groups.
    read_ns: Option<u64>,
    listed_ns: Option<u64>,
}

impl MonitorReader {
    /// A reader that has read nothing.
    ///
    /// # Errors
    ///
    /// Nothing can be read, and why: resctrl is not mounted, there is no v2 hierarchy of cgroups,
    /// or the bytes do not tell the memory: with more than two sockets, or with two that have
    /// several NUMA nodes each. Where totals alone are counted, they are of the memory of all
    /// sockets.
    pub(super) fn new(machine: &Machine) -> Result<Self, String> {
        let resctrl = Resctrl::find_mounted(&machine.root).ok_or(
            "resctrl is not mounted: `mount -t resctrl resctrl /sys/fs/resctrl`, where the CPU \
             has monitors of bandwidth",
        )?;
        let mut domains = domains(&machine.root, &machine.cpus);
        if !resctrl.counts_local()
            && domains.iter().any(|any_domain| any_domain.socket != domains[0].socket)
        {
            for domain in &mut domains {
                domain.socket = ALL_SOCKETS;
            }
        }
        let sockets: BTreeSet<i16> = domains.iter().map(|domain| domain.socket).collect();
        let cpu_locations = machine.cpus.cpu_locations().values();
        let nodes: BTreeSet<u32> =
            cpu_locations.filter_map(|cpu_location| cpu_location.node).collect();
        let tells_memory = match sockets.len() {
            0 => false,
            1 => true,
            // A count of the local part is needed: see `read_moved_bytes`.
            sockets => sockets == 2 && nodes.len() == 2,
        };
        if !tells_memory {
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
            own_groups: None,
            loss_runs: LossRuns::default(),
            last_counts: HashMap::new(),
            read_ns: None,
            listed_ns: None,
        })
    }

    /// Makes up to `max_groups` groups for the largest tenants from now on.
    pub(super) fn make_groups(&mut self, max_groups: usize, tree: Box<dyn ResctrlTree>) {
        self.own_groups = Some(OwnGroups::new(
            &self.root,
            &self.cgroups,
            &self.view,
            self.resctrl.clone(),
            max_groups,
            tree,
        ));
    }

    /// Takes the paths of cgroups, the largest first.
    pub(super) fn rank_tenants(&mut self, tenants: Vec<Arc<str>>) {
        if let Some(own_groups) = &mut self.own_groups {
            own_groups.rank_tenants(tenants);
        }
    }

    /// Reads all groups at `now_ns`. `None` the first time, and if no cgroup has a group of its
    /// own, unless something was lost.
    pub(super) fn read_groups(&mut self, now_ns: u64) -> Option<MonitorReading> {
        let is_torn =
            self.own_groups.as_mut().is_some_and(|own_groups| own_groups.follow_threads(now_ns));
        if is_torn || self.listed_ns.is_none_or(|looked| now_ns >= looked + LOOK_NS) {
            self.find_groups(now_ns);
            self.listed_ns = Some(now_ns);
        }
        if self.groups.iter().all(|watched| watched.cgroup.is_none()) {
            self.last_counts.clear();
            self.read_ns = None;
            return self.take_losses(now_ns);
        }
        let mut new_counts = HashMap::new();
        let groups = std::mem::take(&mut self.groups);
        let previous_ns = self.read_ns.replace(now_ns);
        let mut bytes_by_group = Vec::with_capacity(groups.len());
        for WatchedGroup { group, .. } in &groups {
            let moved_bytes = self.read_moved_bytes(group, &mut new_counts);
            match &moved_bytes {
                Ok(_) => self.loss_runs.end_run(group.inode, now_ns),
                Err(MissingBytes::Begin) => self.loss_runs.note_begin(group.inode),
                Err(MissingBytes::Lost(why)) => {
                    self.loss_runs.note_missing(
                        group.inode,
                        &group.name,
                        why.clone(),
                        previous_ns.unwrap_or(now_ns),
                        now_ns,
                    );
                }
            }
            bytes_by_group.push(moved_bytes.ok());
        }
        self.groups = groups;
        self.last_counts = new_counts;
        let Some(since_ns) = previous_ns else { return self.take_losses(now_ns) };
        let (span_ns, bytes) = (now_ns.saturating_sub(since_ns), self.sum_bytes(&bytes_by_group));
        Some(MonitorReading { time_ns: now_ns, span_ns, bytes, lost: self.loss_runs.take_losses() })
    }

    /// Enters a reading that did not reach the recorder as a loss.
    pub(super) fn note_dropped(&mut self, measured: MonitorReading) {
        self.loss_runs.note_dropped(measured);
    }

    /// What the thread needs: to read cgroups and groups, and to change these if any are made.
    pub(super) fn thread_needs(&self) -> ThreadNeeds {
        let trees = ["proc", "sys"].map(|tree| self.root.join(tree));
        let writes = self.own_groups.iter().map(|_| self.resctrl.mount_dir().to_owned());
        ThreadNeeds {
            capabilities: RECORDER,
            reads: trees.into_iter().chain([self.cgroups.clone()]).collect(),
            writes: writes.collect(),
            ..ThreadNeeds::default()
        }
    }

    /// Removes what was made, and tells what was lost until `now_ns`.
    pub(super) fn end_reading(mut self, now_ns: u64) -> Option<MonitorReading> {
        self.own_groups = None;
        self.loss_runs.end_all_runs(now_ns);
        self.take_losses(now_ns)
    }

    /// The losses since the last call, if there are any.
    fn take_losses(&mut self, now_ns: u64) -> Option<MonitorReading> {
        let lost = self.loss_runs.take_losses();
        let measured = MonitorReading { time_ns: now_ns, span_ns: 0, bytes: Vec::new(), lost };
        (!measured.lost.is_empty()).then_some(measured)
    }

    /// Finds the groups and the cgroups of their tasks. Only groups that have a cgroup and control
    /// groups are kept.
    fn find_groups(&mut self, now_ns: u64) {
        let groups = self.resctrl.read_groups().unwrap_or_else(|error| {
            log::debug!("cannot list the groups of resctrl: {error}");
            Vec::new()
        });
        let own_groups = self.own_groups.as_ref();
        let is_own_group =
            |inode: u64| own_groups.is_some_and(|made_groups| made_groups.is_own_group(inode));
        let mut watched: Vec<WatchedGroup> = Vec::new();
        for group in groups.iter().filter(|group| !is_own_group(group.inode)) {
            // The default group has the tasks that nobody put elsewhere.
            let is_own = !group.name.is_empty() && !group.has_cpus();
            let find = || find_tenant(&self.root, &self.cgroups, &self.view, &group.read_tasks());
            let cgroup = is_own.then(find).flatten().map(Arc::<str>::from);
            // A monitoring group with all the tasks of its control group says nothing more.
            let is_repeated = cgroup.is_some()
                && watched.iter().any(|watched_group| watched_group.cgroup == cgroup);
            if group.is_control || (cgroup.is_some() && !is_repeated) {
                let cgroup = cgroup.filter(|_| !is_repeated);
                watched.push(WatchedGroup { group: group.clone(), cgroup, is_made: false });
            }
        }
        for known_group in &self.groups {
            let inode = known_group.group.inode;
            let is_gone = !groups.iter().any(|group| group.inode == inode);
            // Those that this recorder removes are not lost.
            if is_gone
                && known_group.cgroup.is_some()
                && (!known_group.is_made || is_own_group(inode))
            {
                self.loss_runs.note_removed(
                    inode,
                    &known_group.group.name,
                    self.read_ns.unwrap_or(now_ns),
                    now_ns,
                );
            }
        }
        if let Some(own_groups) = &mut self.own_groups {
            let measured =
                watched.iter().filter_map(|watched_group| watched_group.cgroup.clone()).collect();
            own_groups.update_groups(now_ns, &groups, &measured);
            watched.extend(own_groups.groups_with_cgroups().map(|(group, cgroup)| WatchedGroup {
                group: group.clone(),
                cgroup: Some(Arc::clone(cgroup)),
                is_made: true,
            }));
        }
        self.groups = watched;
    }

    /// What a group moved to and from the memory of each socket since the last reading. The counts
    /// go to `new_counts`.
    fn read_moved_bytes(
        &mut self,
        group: &ResctrlGroup,
        new_counts: &mut HashMap<(u64, u32), DomainCounts>,
    ) -> Result<Vec<u64>, MissingBytes> {
        let worth = self
            .own_groups
            .as_mut()
            .map_or(Worth::Whole, |own_groups| own_groups.take_worth(group.inode));
        if worth == Worth::Nothing {
            return Err(MissingBytes::Begin);
        }
        let mut moved = vec![0_u64; self.sockets.len()];
        let mut lack = None;
        for domain in &self.domains {
            let counts = MbmEvent::ALL.map(|event| group.read_count(domain.id, event));
            let key = (group.inode, domain.id);
            let previous = self.last_counts.get(&key).copied();
            new_counts.insert(key, counts);
            let since = |event: MbmEvent| {
                let missing = |problem| {
                    MissingBytes::Lost(format!("{} {problem}", count_file(*domain, event)))
                };
                let count = match counts[event as usize] {
                    MbmCount::Bytes(now_bytes) => now_bytes,
                    MbmCount::Unavailable => return Err(missing("is Unavailable")),
                    MbmCount::Unassigned => return Err(missing("is Unassigned")),
                    MbmCount::Failed => return Err(missing("cannot be read")),
                };
                let previous_bytes = previous
                    .and_then(|earlier| earlier[event as usize].known_bytes())
                    .ok_or(MissingBytes::Begin)?;
                count.checked_sub(previous_bytes).ok_or_else(|| missing("decreases"))
            };
            let (total, local) = (since(MbmEvent::Total), since(MbmEvent::Local));
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
                    Err(MissingBytes::Begin) => lack = lack.or(Some(MissingBytes::Begin)),
                    Err(why) => lack = Some(why.clone()),
                }
            }
        }
        if worth == Worth::Begin {
            lack = lack.or(Some(MissingBytes::Begin));
        }
        lack.map_or(Ok(moved), Err)
    }

    /// The bytes of each cgroup, without those of groups of cgroups below it, and of all groups.
    fn sum_bytes(&self, moved: &[Option<Vec<u64>>]) -> Vec<Monitored> {
        let control = self.groups.iter().zip(moved).filter(|(watched, _)| watched.group.is_control);
        let all_groups: Option<Vec<&Vec<u64>>> = control.map(|(_, moved)| moved.as_ref()).collect();
        let mut bytes = Vec::new();
        for (index, socket) in self.sockets.iter().enumerate() {
            let socket_bytes = |moved: &Vec<u64>| moved.get(index).copied().unwrap_or_default();
            if let Some(control_bytes) = &all_groups {
                let sum = control_bytes
                    .iter()
                    .fold(0_u64, |sum, moved| sum.saturating_add(socket_bytes(moved)));
                bytes.push(Monitored { cgroup: None, socket: *socket, bytes: sum });
            }
            let tenants = || {
                let groups = self.groups.iter().zip(moved);
                groups
                    .filter_map(|(watched, moved)| Some((watched.cgroup.as_ref()?, moved.as_ref())))
            };
            for (cgroup, tenant_bytes) in tenants() {
                let below = tenants().filter(|(path, _)| *path != cgroup && is_in(path, cgroup));
                // If a group below cannot be read, it is not known what is left.
                let mut below_bytes = below.map(|(_, moved)| moved.map(socket_bytes));
                let below_sum = below_bytes
                    .try_fold(0_u64, |sum, group_bytes| Some(sum.saturating_add(group_bytes?)));
                if let Some((own_bytes, below)) = tenant_bytes.map(socket_bytes).zip(below_sum) {
                    let (cgroup, bytes_left) =
                        (Some(Arc::clone(cgroup)), own_bytes.saturating_sub(below));
                    bytes.push(Monitored { cgroup, socket: *socket, bytes: bytes_left });
                }
            }
        }
        bytes
    }
}

/// Where a count is.
fn count_file(domain: CacheDomain, event: MbmEvent) -> String {
    format!("{} of domain {}", event.file_name(), domain.id)
}

#[cfg(test)]
pub(super) mod tests;
