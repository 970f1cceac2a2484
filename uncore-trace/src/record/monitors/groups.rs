//! Monitoring groups for the largest tenants (`--monitor`).
//!
//! A group is made below the control group that has all threads of a cgroup, takes these threads,
//! and is removed when this is dropped. The kernel puts a thread that is forked in the group of its
//! parent; threads that come to the cgroup otherwise are moved some times a second. Guarantees: no
//! group of somebody else is changed, no thread is taken out of one, and no thread changes its
//! control group, so that its part of the cache and of the bandwidth stays the same.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use rustix::io::Errno;

use super::tenant_choice::{GroupTurns, GroupedTenant};
use super::tree::{PREFIX, ResctrlTree, lock_dir};
use crate::discover::CgroupView;
use crate::discover::resctrl::{MONITORING, Resctrl, ResctrlGroup, cgroup_of, threads_of};

/// Time between two looks for threads that came to a cgroup, ns.
const FOLLOW_NS: u64 = 100_000_000;

/// How often threads are listed again, because others were forked meanwhile.
const ROUNDS: usize = 8;

/// A cgroup with threads in a group of somebody else is not tried again for this time, ns.
const REFUSED_NS: u64 = 60_000_000_000;

/// What the next reading of a group is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// All bytes of the cgroup since the reading before.
    Whole,
    /// Threads were moved since the reading before: it is only the begin of the next window.
    Begin,
    /// The group is new: the hardware's counter may not have begun.
    Nothing,
}

/// A group that this recorder made.
#[derive(Debug)]
struct OwnGroup {
    group: ResctrlGroup,
    cgroup: Arc<str>,
    /// Directory of the cgroup.
    dir: PathBuf,
    made_ns: u64,
    /// The threads of the cgroup at the last look.
    threads: BTreeSet<u32>,
    worth: Worth,
    /// Says that the group is in use.
    _lock: File,
}

/// The groups that this recorder made.
#[derive(Debug)]
pub(super) struct OwnGroups {
    root: PathBuf,
    /// The cgroup v2 hierarchy, with the root.
    cgroups: PathBuf,
    view: CgroupView,
    resctrl: Resctrl,
    tree: Box<dyn ResctrlTree>,
    max_groups: usize,
    /// Paths of cgroups, the largest first.
    tenants: Vec<Arc<str>>,
    turns: GroupTurns,
    made_groups: Vec<OwnGroup>,
    /// Until when cgroups are left out.
    refused: HashMap<Arc<str>, u64>,
    groups_made: u32,
    followed_ns: u64,
    has_failed: bool,
}

/// Why a cgroup has no group.
#[derive(Debug)]
enum GroupRefusal {
    /// It is gone, or has threads in a group of somebody else.
    Cgroup,
    /// There is no RMID at this time: the kernel does not reuse one while the caches have many
    /// lines of it.
    Full,
    Failed(io::Error),
}

impl OwnGroups {
    /// None yet. `cgroups` is the mount point of the cgroup v2 hierarchy below `root` with what it
    /// shows, and `max_groups` the number of groups.
    pub(super) fn new(
        root: &Path,
        cgroups: &Path,
        view: &CgroupView,
        resctrl: Resctrl,
        max_groups: usize,
        tree: Box<dyn ResctrlTree>,
    ) -> Self {
        Self {
            root: root.to_owned(),
            cgroups: root.join(cgroups.strip_prefix("/").unwrap_or(cgroups)),
            view: view.clone(),
            resctrl,
            tree,
            max_groups,
            tenants: Vec::new(),
            turns: GroupTurns::default(),
            made_groups: Vec::new(),
            refused: HashMap::new(),
            groups_made: 0,
            followed_ns: 0,
            has_failed: false,
        }
    }

    /// Takes the paths of cgroups, the largest first.
    pub(super) fn rank_tenants(&mut self, tenants: Vec<Arc<str>>) {
        self.tenants = tenants;
    }

    /// The groups, with the cgroup of each.
    pub(super) fn groups_with_cgroups(&self) -> impl Iterator<Item = (&ResctrlGroup, &Arc<str>)> {
        self.made_groups.iter().map(|own_group| (&own_group.group, &own_group.cgroup))
    }

    /// Whether this recorder made the group with this inode. The group may be gone.
    pub(super) fn is_own_group(&self, inode: u64) -> bool {
        self.made_groups.iter().any(|own_group| own_group.group.inode == inode)
    }

    /// What a reading at this time is worth.
    pub(super) fn take_worth(&mut self, inode: u64) -> Worth {
        let own_group =
            self.made_groups.iter_mut().find(|candidate| candidate.group.inode == inode);
        own_group
            .map_or(Worth::Whole, |own_group| std::mem::replace(&mut own_group.worth, Worth::Whole))
    }

    /// Removes and makes groups. `groups` are all that exist, and `measured` the cgroups that have
    /// a group of somebody else.
    pub(super) fn update_groups(
        &mut self,
        now_ns: u64,
        groups: &[ResctrlGroup],
        measured: &BTreeSet<Arc<str>>,
    ) {
        self.made_groups
            .retain(|made_group| groups.iter().any(|group| group.inode == made_group.group.inode));
        self.gather_threads(groups);
        self.expel_threads();
        self.followed_ns = now_ns;
        if self.tenants.is_empty() {
            // Nothing is known yet, or a part of the recording has just begun.
            return;
        }
        self.refused.retain(|_, until| now_ns < *until);
        let grouped: Vec<GroupedTenant> =
            self.made_groups.iter().map(OwnGroup::grouped_tenant).collect();
        let room = self.resctrl.max_groups().unwrap_or_default().saturating_sub(groups.len());
        let room = room.min(self.resctrl.assignable_groups().unwrap_or(usize::MAX));
        let max_groups = self.max_groups.min(grouped.len() + room);
        let change =
            self.turns.choose_groups(&grouped, &self.find_candidates(measured), max_groups, now_ns);
        if change.remove.is_empty() && change.add.is_empty() {
            return;
        }
        // Whoever holds the lock expects the groups to stay as they are: the next look is soon.
        let Some(_changes) = lock_dir(self.resctrl.mount_dir()) else { return };
        for index in change.remove.into_iter().rev() {
            self.tree.remove_group(self.made_groups.remove(index).group.group_dir()).ok();
        }
        for cgroup in change.add {
            match self.make_group(&cgroup, now_ns, groups) {
                Ok(own_group) => self.made_groups.push(own_group),
                Err(GroupRefusal::Cgroup) => drop(self.refused.insert(cgroup, now_ns + REFUSED_NS)),
                Err(GroupRefusal::Full) => break,
                Err(GroupRefusal::Failed(error)) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        log::warn!("cannot make a monitoring group for {cgroup}: {error}");
                    }
                    break;
                }
            }
        }
    }

    /// Moves threads that came to cgroups. `true` if a group had to be removed.
    pub(super) fn follow_threads(&mut self, now_ns: u64) -> bool {
        if self.made_groups.is_empty() || now_ns < self.followed_ns + FOLLOW_NS {
            return false;
        }
        self.followed_ns = now_ns;
        let count_before = self.made_groups.len();
        // Listed anew where they matter: see `OwnGroup::gather_threads`.
        self.gather_threads(&[]);
        self.made_groups.len() < count_before
    }

    /// The cgroups that may have a group, the largest first, none of them below another.
    fn find_candidates(&self, measured: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        let mut candidates: Vec<Arc<str>> = Vec::new();
        for cgroup in &self.tenants {
            // The root is nobody's, and a path that begins with `/..` is above all that this
            // process sees.
            let is_out = &**cgroup == "/"
                || !cgroup.starts_with('/')
                || cgroup.starts_with("/..")
                || measured.contains(cgroup)
                || self.refused.contains_key(cgroup)
                || candidates
                    .iter()
                    .any(|candidate| is_in(candidate, cgroup) || is_in(cgroup, candidate));
            if !is_out {
                candidates.push(Arc::clone(cgroup));
            }
        }
        candidates
    }

    fn make_group(
        &mut self,
        cgroup: &Arc<str>,
        now_ns: u64,
        groups: &[ResctrlGroup],
    ) -> Result<OwnGroup, GroupRefusal> {
        let dir = self.cgroups.join(cgroup.trim_start_matches('/'));
        let threads = threads_of(&dir).filter(|threads| !threads.is_empty());
        let threads = threads.ok_or(GroupRefusal::Cgroup)?;
        let thread_groups = ThreadGroups::new(groups, |group| self.is_own_group(group.inode));
        let control = thread_groups.common_control(&threads).ok_or(GroupRefusal::Cgroup)?;
        let above = Path::new(control).join(MONITORING);
        loop {
            let path = above.join(format!("{PREFIX}{}-{}", process::id(), self.groups_made));
            self.groups_made += 1;
            let full = self.resctrl.mount_dir().join(&path);
            match self.tree.make_group(&full) {
                Ok(()) => {}
                // By a process with the same id in another namespace.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => {
                    return Err(GroupRefusal::Full);
                }
                Err(error) => return Err(GroupRefusal::Failed(error)),
            }
            let group = ResctrlGroup::read(path.to_string_lossy().into_owned(), &full, false);
            let Some((group, lock)) = group.zip(lock_dir(&full)) else {
                self.tree.remove_group(&full).ok();
                return Err(GroupRefusal::Failed(Errno::BUSY.into()));
            };
            let (cgroup, worth) = (Arc::clone(cgroup), Worth::Nothing);
            let threads = BTreeSet::new();
            let mut own_group =
                OwnGroup { group, cgroup, dir, made_ns: now_ns, threads, worth, _lock: lock };
            let moved_threads = own_group.gather_threads(
                &self.resctrl,
                self.tree.as_mut(),
                groups,
                &self.made_groups,
            );
            if moved_threads.is_err() {
                self.tree.remove_group(&full).ok();
            }
            moved_threads?;
            return Ok(own_group);
        }
    }

    /// Moves threads that came to the cgroups, and removes groups that cannot have all threads.
    fn gather_threads(&mut self, groups: &[ResctrlGroup]) {
        let mut index = 0;
        while index < self.made_groups.len() {
            let mut own_group = self.made_groups.remove(index);
            match own_group.gather_threads(
                &self.resctrl,
                self.tree.as_mut(),
                groups,
                &self.made_groups,
            ) {
                Ok(()) => {
                    self.made_groups.insert(index, own_group);
                    index += 1;
                }
                Err(why) => {
                    log::debug!("the monitoring group of {} is removed: {why:?}", own_group.cgroup);
                    self.tree.remove_group(own_group.group.group_dir()).ok();
                }
            }
        }
    }

    /// Gives threads that have left a cgroup back to the control group.
    fn expel_threads(&mut self) {
        for own_group in &self.made_groups {
            let control = self.resctrl.mount_dir().join(own_group.group.control_name());
            for thread in own_group.group.read_tasks() {
                // One that was forked meanwhile is not among the threads, but in the cgroup.
                let has_left = !own_group.threads.contains(&thread)
                    && cgroup_of(&self.root, &self.view, thread)
                        .is_some_and(|path| !is_in(&path.to_string_lossy(), &own_group.cgroup));
                if has_left {
                    self.tree.move_thread(thread, &control).ok();
                }
            }
        }
    }
}

impl Drop for OwnGroups {
    fn drop(&mut self) {
        // Also if somebody has locked the file system: nothing may be left.
        for own_group in &self.made_groups {
            if let Err(error) = self.tree.remove_group(own_group.group.group_dir()) {
                log::warn!("cannot remove the monitoring group {}: {error}", own_group.group.name);
            }
        }
    }
}

impl OwnGroup {
    fn grouped_tenant(&self) -> GroupedTenant {
        GroupedTenant { cgroup: Arc::clone(&self.cgroup), made_ns: self.made_ns }
    }

    /// Moves the threads of the cgroup that are not in the group, until there are none. `groups` is
    /// a list of all groups, or empty, and `other_groups` are made by this recorder too.
    fn gather_threads(
        &mut self,
        resctrl: &Resctrl,
        tree: &mut dyn ResctrlTree,
        groups: &[ResctrlGroup],
        other_groups: &[Self],
    ) -> Result<(), GroupRefusal> {
        for _ in 0..ROUNDS {
            let threads = threads_of(&self.dir).ok_or(GroupRefusal::Cgroup)?;
            let has_new = !threads.is_subset(&self.threads);
            self.threads = threads;
            if !has_new {
                break;
            }
            let inside: BTreeSet<u32> = self.group.read_tasks().into_iter().collect();
            let outside: BTreeSet<u32> = self.threads.difference(&inside).copied().collect();
            if outside.is_empty() {
                break;
            }
            let listed;
            let groups = if groups.is_empty() {
                listed = resctrl.read_groups().map_err(GroupRefusal::Failed)?;
                &listed
            } else {
                groups
            };
            let is_own = |group: &ResctrlGroup| {
                let mut made_groups = other_groups.iter().chain([&*self]);
                made_groups.any(|own_group| own_group.group.inode == group.inode)
            };
            let thread_groups = ThreadGroups::new(groups, is_own);
            if thread_groups.common_control(&outside) != Some(self.group.control_name()) {
                return Err(GroupRefusal::Cgroup);
            }
            for thread in outside {
                match tree.move_thread(thread, self.group.group_dir()) {
                    Ok(()) => {}
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {}
                    Err(error) => return Err(GroupRefusal::Failed(error)),
                }
            }
            if self.worth == Worth::Whole {
                self.worth = Worth::Begin;
            }
        }
        Ok(())
    }
}

/// The groups that threads are in.
struct ThreadGroups<'a> {
    /// The control groups other than the default one.
    controls: Vec<(&'a str, BTreeSet<u32>)>,
    /// Threads in monitoring groups of somebody else.
    foreign: BTreeSet<u32>,
}

impl<'a> ThreadGroups<'a> {
    fn new(groups: &'a [ResctrlGroup], is_own: impl Fn(&ResctrlGroup) -> bool) -> Self {
        let mut thread_groups = Self { controls: Vec::new(), foreign: BTreeSet::new() };
        // The default group has all threads that are in no other control group.
        for group in groups.iter().filter(|group| !group.name.is_empty() && !is_own(group)) {
            let tasks = group.read_tasks().into_iter();
            if group.is_control {
                thread_groups.controls.push((&group.name, tasks.collect()));
            } else {
                thread_groups.foreign.extend(tasks);
            }
        }
        thread_groups
    }

    /// The control group that all of these threads are in; `None` if there are several, or if any
    /// thread is in a monitoring group of somebody else.
    fn common_control(&self, threads: &BTreeSet<u32>) -> Option<&'a str> {
        if !self.foreign.is_disjoint(threads) {
            return None;
        }
        let mut controls = self.controls.iter().filter(|(_, tasks)| !tasks.is_disjoint(threads));
        match (controls.next(), controls.next()) {
            (None, _) => Some(""),
            (Some((name, tasks)), None) => threads.is_subset(tasks).then_some(name),
            _ => None,
        }
    }
}

/// Whether a cgroup is `above`, or below it.
pub(super) fn is_in(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('/'))
}

#[cfg(test)]
mod tests;
