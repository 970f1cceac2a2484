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

use super::choose::{Held, Turns};
use super::tree::{PREFIX, Tree, lock};
use crate::discover::CgroupView;
use crate::discover::resctrl::{Group, MONITORING, Resctrl, cgroup_of, threads_of};

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
struct Own {
    group: Group,
    cgroup: Arc<str>,
    /// Directory of the cgroup.
    dir: PathBuf,
    since: u64,
    /// The threads of the cgroup at the last look.
    threads: BTreeSet<u32>,
    worth: Worth,
    /// Says that the group is in use.
    _lock: File,
}

/// The groups that this recorder made.
#[derive(Debug)]
pub(super) struct Groups {
    root: PathBuf,
    /// The cgroup v2 hierarchy, with the root.
    cgroups: PathBuf,
    view: CgroupView,
    resctrl: Resctrl,
    tree: Box<dyn Tree>,
    most: usize,
    /// Paths of cgroups, the largest first.
    tenants: Vec<Arc<str>>,
    turns: Turns,
    own: Vec<Own>,
    /// Until when cgroups are left out.
    refused: HashMap<Arc<str>, u64>,
    made: u32,
    followed: u64,
    has_failed: bool,
}

/// Why a cgroup has no group.
#[derive(Debug)]
enum Refusal {
    /// It is gone, or has threads in a group of somebody else.
    Cgroup,
    /// There is no RMID at this time: the kernel does not reuse one while the caches have many
    /// lines of it.
    Full,
    Failed(io::Error),
}

impl Groups {
    /// None yet. `cgroups` is the mount point of the cgroup v2 hierarchy below `root` with what it
    /// shows, and `most` the number of groups.
    pub(super) fn new(
        root: &Path,
        (cgroups, view): (&Path, &CgroupView),
        resctrl: Resctrl,
        most: usize,
        tree: Box<dyn Tree>,
    ) -> Self {
        Self {
            root: root.to_owned(),
            cgroups: root.join(cgroups.strip_prefix("/").unwrap_or(cgroups)),
            view: view.clone(),
            resctrl,
            tree,
            most,
            tenants: Vec::new(),
            turns: Turns::default(),
            own: Vec::new(),
            refused: HashMap::new(),
            made: 0,
            followed: 0,
            has_failed: false,
        }
    }

    /// Takes the paths of cgroups, the largest first.
    pub(super) fn rank(&mut self, tenants: Vec<Arc<str>>) {
        self.tenants = tenants;
    }

    /// The groups, with the cgroup of each.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Group, &Arc<str>)> {
        self.own.iter().map(|own| (&own.group, &own.cgroup))
    }

    /// Whether this recorder made a group, which may be gone.
    pub(super) fn made(&self, inode: u64) -> bool {
        self.own.iter().any(|own| own.group.inode == inode)
    }

    /// What a reading at this time is worth.
    pub(super) fn take_worth(&mut self, inode: u64) -> Worth {
        let own = self.own.iter_mut().find(|own| own.group.inode == inode);
        own.map_or(Worth::Whole, |own| std::mem::replace(&mut own.worth, Worth::Whole))
    }

    /// Removes and makes groups. `groups` are all that exist, and `measured` the cgroups that have
    /// a group of somebody else.
    pub(super) fn look(&mut self, now: u64, groups: &[Group], measured: &BTreeSet<Arc<str>>) {
        self.own.retain(|own| groups.iter().any(|group| group.inode == own.group.inode));
        self.gather(groups);
        self.expel();
        self.followed = now;
        if self.tenants.is_empty() {
            // Nothing is known yet, or a part of the recording has just begun.
            return;
        }
        self.refused.retain(|_, until| now < *until);
        let held: Vec<Held> = self.own.iter().map(Own::held).collect();
        let room = self.resctrl.rmids().unwrap_or_default().saturating_sub(groups.len());
        let room = room.min(self.resctrl.unassigned().unwrap_or(usize::MAX));
        let most = self.most.min(held.len() + room);
        let change = self.turns.choose(&held, &self.candidates(measured), most, now);
        if change.remove.is_empty() && change.make.is_empty() {
            return;
        }
        // Whoever holds the lock expects the groups to stay as they are: the next look is soon.
        let Some(_changes) = lock(self.resctrl.dir()) else { return };
        for at in change.remove.into_iter().rev() {
            let own = self.own.remove(at);
            self.tree.remove(own.group.dir()).ok();
        }
        for cgroup in change.make {
            match self.make(&cgroup, now, groups) {
                Ok(own) => self.own.push(own),
                Err(Refusal::Cgroup) => drop(self.refused.insert(cgroup, now + REFUSED_NS)),
                Err(Refusal::Full) => break,
                Err(Refusal::Failed(error)) => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        log::warn!("cannot make a monitoring group for {cgroup}: {error}");
                    }
                    break;
                }
            }
        }
    }

    /// Moves threads that came to cgroups. `true` if a group had to be removed.
    pub(super) fn follow(&mut self, now: u64) -> bool {
        if self.own.is_empty() || now < self.followed + FOLLOW_NS {
            return false;
        }
        self.followed = now;
        let before = self.own.len();
        // Listed anew where they matter: see `Own::gather`.
        self.gather(&[]);
        self.own.len() < before
    }

    /// The cgroups that may have a group, the largest first, none of them below another.
    fn candidates(&self, measured: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        let mut found: Vec<Arc<str>> = Vec::new();
        for cgroup in &self.tenants {
            // The root is nobody's, and a path that begins with `/..` is above all that this
            // process sees.
            let is_out = &**cgroup == "/"
                || !cgroup.starts_with('/')
                || cgroup.starts_with("/..")
                || measured.contains(cgroup)
                || self.refused.contains_key(cgroup)
                || found.iter().any(|other| is_in(other, cgroup) || is_in(cgroup, other));
            if !is_out {
                found.push(Arc::clone(cgroup));
            }
        }
        found
    }

    fn make(&mut self, cgroup: &Arc<str>, now: u64, groups: &[Group]) -> Result<Own, Refusal> {
        let dir = self.cgroups.join(cgroup.trim_start_matches('/'));
        let threads = threads_of(&dir).filter(|threads| !threads.is_empty());
        let threads = threads.ok_or(Refusal::Cgroup)?;
        let places = Places::new(groups, |group| self.made(group.inode));
        let control = places.control(&threads).ok_or(Refusal::Cgroup)?;
        let above = Path::new(control).join(MONITORING);
        loop {
            let path = above.join(format!("{PREFIX}{}-{}", process::id(), self.made));
            self.made += 1;
            let full = self.resctrl.dir().join(&path);
            match self.tree.make(&full) {
                Ok(()) => {}
                // By a process with the same id in another namespace.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) if is(&error, Errno::NOSPC) => return Err(Refusal::Full),
                Err(error) => return Err(Refusal::Failed(error)),
            }
            let group = Group::read(path.to_string_lossy().into_owned(), &full, false);
            let Some((group, lock)) = group.zip(lock(&full)) else {
                self.tree.remove(&full).ok();
                return Err(Refusal::Failed(Errno::BUSY.into()));
            };
            let (cgroup, worth) = (Arc::clone(cgroup), Worth::Nothing);
            let threads = BTreeSet::new();
            let mut own = Own { group, cgroup, dir, since: now, threads, worth, _lock: lock };
            let gathered = own.gather(&self.resctrl, self.tree.as_mut(), groups, &self.own);
            return match gathered {
                Ok(()) => Ok(own),
                Err(error) => {
                    self.tree.remove(&full).ok();
                    Err(error)
                }
            };
        }
    }

    /// Moves threads that came to the cgroups, and removes groups that cannot have all threads.
    fn gather(&mut self, groups: &[Group]) {
        let mut at = 0;
        while at < self.own.len() {
            let mut own = self.own.remove(at);
            match own.gather(&self.resctrl, self.tree.as_mut(), groups, &self.own) {
                Ok(()) => {
                    self.own.insert(at, own);
                    at += 1;
                }
                Err(why) => {
                    log::debug!("the monitoring group of {} is removed: {why:?}", own.cgroup);
                    self.tree.remove(own.group.dir()).ok();
                }
            }
        }
    }

    /// Gives threads that have left a cgroup back to the control group.
    fn expel(&mut self) {
        for own in &self.own {
            let control = self.resctrl.dir().join(own.group.control());
            for thread in own.group.tasks() {
                // One that was forked meanwhile is not among the threads, but in the cgroup.
                let has_left = !own.threads.contains(&thread)
                    && cgroup_of(&self.root, &self.view, thread)
                        .is_some_and(|path| !is_in(&path.to_string_lossy(), &own.cgroup));
                if has_left {
                    self.tree.put(thread, &control).ok();
                }
            }
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // Also if somebody has locked the file system: nothing may be left.
        for own in &self.own {
            if let Err(error) = self.tree.remove(own.group.dir()) {
                log::warn!("cannot remove the monitoring group {}: {error}", own.group.name);
            }
        }
    }
}

impl Own {
    fn held(&self) -> Held {
        Held { cgroup: Arc::clone(&self.cgroup), since: self.since }
    }

    /// Moves the threads of the cgroup that are not in the group, until there are none. `groups` is
    /// a list of all groups, or empty, and `others` are made by this recorder too.
    fn gather(
        &mut self,
        resctrl: &Resctrl,
        tree: &mut dyn Tree,
        groups: &[Group],
        others: &[Self],
    ) -> Result<(), Refusal> {
        for _ in 0..ROUNDS {
            let threads = threads_of(&self.dir).ok_or(Refusal::Cgroup)?;
            let has_new = !threads.is_subset(&self.threads);
            self.threads = threads;
            if !has_new {
                break;
            }
            let inside: BTreeSet<u32> = self.group.tasks().into_iter().collect();
            let outside: BTreeSet<u32> = self.threads.difference(&inside).copied().collect();
            if outside.is_empty() {
                break;
            }
            let listed;
            let groups = if groups.is_empty() {
                listed = resctrl.groups().map_err(Refusal::Failed)?;
                &listed
            } else {
                groups
            };
            let made = |group: &Group| {
                let mut all = others.iter().chain([&*self]);
                all.any(|own| own.group.inode == group.inode)
            };
            let places = Places::new(groups, made);
            if places.control(&outside) != Some(self.group.control()) {
                return Err(Refusal::Cgroup);
            }
            for thread in outside {
                match tree.put(thread, self.group.dir()) {
                    Ok(()) => {}
                    Err(error) if is(&error, Errno::SRCH) => {}
                    Err(error) => return Err(Refusal::Failed(error)),
                }
            }
            if self.worth == Worth::Whole {
                self.worth = Worth::Begin;
            }
        }
        Ok(())
    }
}

/// Where threads are.
struct Places<'a> {
    /// The control groups other than the default one.
    controls: Vec<(&'a str, BTreeSet<u32>)>,
    /// Threads in monitoring groups of somebody else.
    foreign: BTreeSet<u32>,
}

impl<'a> Places<'a> {
    fn new(groups: &'a [Group], made: impl Fn(&Group) -> bool) -> Self {
        let mut places = Self { controls: Vec::new(), foreign: BTreeSet::new() };
        // The default group has all threads that are in no other control group.
        for group in groups.iter().filter(|group| !group.name.is_empty() && !made(group)) {
            let tasks = group.tasks().into_iter();
            if group.is_control {
                places.controls.push((&group.name, tasks.collect()));
            } else {
                places.foreign.extend(tasks);
            }
        }
        places
    }

    /// The control group that all of these threads are in; `None` if there are several, or if any
    /// thread is in a monitoring group of somebody else.
    fn control(&self, threads: &BTreeSet<u32>) -> Option<&'a str> {
        if !self.foreign.is_disjoint(threads) {
            return None;
        }
        let mut its = self.controls.iter().filter(|(_, tasks)| !tasks.is_disjoint(threads));
        match (its.next(), its.next()) {
            (None, _) => Some(""),
            (Some((name, tasks)), None) => threads.is_subset(tasks).then_some(name),
            _ => None,
        }
    }
}

/// Whether a cgroup is `above`, or below it.
fn is_in(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests;
