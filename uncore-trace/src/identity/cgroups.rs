//! Finds the path of a cgroup id, and the container, pod and job that contain it.
//!
//! The id of a cgroup is the inode number of its directory in the v2 hierarchy. Paths are those
//! below the mount point ([`CgroupView`]). They come from the records of cgroups that are created
//! during the recording. For other ids, the hierarchy is walked when the id is first seen.
//!
//! Guarantee: a cgroup has one path, whichever source it comes from.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::containers::{Inside, label_with_id};
use super::machines::launched_machine;
use super::qemu::Qemu;
use super::runtimes::Runtimes;
use super::trust::Trust;
use crate::discover::cgroups::CgroupReach;
use crate::discover::{CgroupMounts, CgroupView};
use crate::schema::cgroups::{CgroupNames, ancestor_path};

/// How long a removed cgroup keeps its path, ns: longer than a recorder lags behind.
const KEEP_NS: u64 = 30_000_000_000;

/// Shortest time between two walks, ns, whichever ids they look for.
const WALK_AGAIN_NS: u64 = 1_000_000_000;

/// Longest time between two walks, ns. The time doubles up to this while walks do not find what
/// they look for.
const WALK_SELDOM_NS: u64 = 16_000_000_000;

/// A cgroup.
#[derive(Debug)]
struct KnownCgroup {
    names: Arc<CgroupNames>,
    /// Whether container, pod and job were looked up.
    named: bool,
    /// Whether [`Cgroups::take_unlogged`] has returned it.
    logged: bool,
}

/// Cgroups by id.
#[derive(Debug)]
pub struct Cgroups {
    mount: Option<PathBuf>,
    view: CgroupView,
    /// The path of the mount's root in the hierarchy, without a slash at its end; `None` until a
    /// record of the kernel tells.
    root_path: Option<String>,
    runtimes: Runtimes,
    qemu: Qemu,
    trust: Trust,
    /// Cgroups whose path has names that are not believed, and that were not taken yet.
    refused: Vec<Arc<CgroupNames>>,
    by_id: HashMap<u64, KnownCgroup>,
    removed: VecDeque<(u64, u64)>,
    walked_ns: Option<u64>,
    /// Time to the next walk, ns.
    walk_pause_ns: u64,
    /// Ids whose path became known and was not taken yet.
    fresh: VecDeque<u64>,
}

impl Cgroups {
    /// Paths below the mount point of the whole v2 hierarchy. Without a mount point no path is
    /// known. Names of containers come from files below `root`. Below the cgroups `trusted`, all
    /// names are believed.
    pub fn new(mount: Option<&Path>, root: &Path, trusted: Vec<String>) -> Self {
        Self {
            mount: mount.map(Path::to_owned),
            view: CgroupView::default(),
            root_path: Some(String::new()),
            runtimes: Runtimes::new(root),
            qemu: Qemu::new(mount, root),
            trust: Trust::new(mount, trusted),
            refused: Vec::new(),
            by_id: HashMap::new(),
            removed: VecDeque::new(),
            walked_ns: None,
            walk_pause_ns: WALK_AGAIN_NS,
            fresh: VecDeque::new(),
        }
    }

    /// The same with the hierarchy as it is mounted.
    pub fn from_mounts(mounts: &CgroupMounts, root: &Path, trusted: Vec<String>) -> Self {
        let CgroupMounts { v2, view, .. } = mounts;
        let above = (v2.is_none() || view.reach == CgroupReach::Whole).then(String::new);
        Self { view: view.clone(), root_path: above, ..Self::new(v2.as_deref(), root, trusted) }
    }

    /// The path of a cgroup, or `None` if it cannot be found. `now_ns` is the time of a record.
    pub fn cgroup_path(&mut self, id: u64, now_ns: u64) -> Option<&str> {
        let stale = self.walked_ns.is_none_or(|walked| now_ns > walked + self.walk_pause_ns);
        if !self.by_id.contains_key(&id) && stale {
            self.walk_hierarchy(now_ns);
            self.walk_pause_ns = if self.by_id.contains_key(&id) {
                WALK_AGAIN_NS
            } else {
                (self.walk_pause_ns * 2).min(WALK_SELDOM_NS)
            };
        }
        self.known_path(id)
    }

    /// A cgroup with its container, pod and job. Their names are looked up once, so that they do
    /// not change within a recording.
    pub fn cgroup_names(&mut self, id: u64, now_ns: u64) -> Option<&Arc<CgroupNames>> {
        if !self.by_id.contains_key(&id) {
            self.cgroup_path(id, now_ns)?;
        }
        let known = self.by_id.get_mut(&id)?;
        if !known.named {
            known.named = true;
            if known.find_names(id, &self.trust, &self.runtimes, &self.qemu) {
                self.refused.push(Arc::clone(&known.names));
            }
        }
        Some(&known.names)
    }

    /// The path, if it is known without a lookup.
    pub fn known_path(&self, id: u64) -> Option<&str> {
        self.by_id.get(&id).map(|known| &*known.names.path)
    }

    /// The ancestor at `depth` components below the root. The cgroup itself if it is not deeper, or
    /// if its path or that ancestor is unknown.
    pub fn ancestor_id(&mut self, id: u64, depth: usize, now_ns: u64) -> u64 {
        let Some(path) = self.cgroup_path(id, now_ns) else {
            return id;
        };
        let above = ancestor_path(path, depth);
        if above.len() == path.len() {
            return id;
        }
        let above = above.to_owned();
        self.id_of_path(above.as_ref()).unwrap_or(id)
    }

    /// The path that `/proc/PID/cgroup` has, below the mount point; `None` if it is not there.
    pub fn path_of(&self, membership: &Path) -> Option<PathBuf> {
        self.view.path_of(membership)
    }

    /// The id of a path below the mount point, from its directory.
    pub fn id_of_path(&self, path: &Path) -> Option<u64> {
        use std::os::unix::fs::MetadataExt as _;
        let dir = self.mount.as_ref()?.join(path.strip_prefix("/").unwrap_or(path));
        fs::metadata(dir).ok().map(|metadata| metadata.ino())
    }

    /// Notes the path of a cgroup that was created or used, as the kernel's records have it: from
    /// the root of the hierarchy. A cgroup that is not below the mount point has no path.
    pub fn learn_from_kernel(&mut self, id: u64, path: &str) {
        if self.root_path.is_none() {
            self.root_path = self.root_above(id, path).map(str::to_owned);
        }
        let below = self.root_path.as_deref().and_then(|above| path.strip_prefix(above));
        match below {
            Some("") => self.learn_path(id, "/".to_owned()),
            Some(below) if below.starts_with('/') => self.learn_path(id, below.to_owned()),
            Some(_) | None => {}
        }
    }

    /// The path of the mount's root in the hierarchy, from a cgroup whose directory has the end of
    /// its path.
    fn root_above<'a>(&self, id: u64, path: &'a str) -> Option<&'a str> {
        let slashes = path.match_indices('/').map(|(begin, _)| begin);
        let mut ends = slashes.chain([path.len()]).map(|begin| path.split_at(begin));
        ends.find(|(_, below)| self.id_of_path(Path::new(below)) == Some(id))
            .map(|(above, _)| above)
    }

    /// Notes the path of a cgroup below the mount point. Cgroups are never renamed, so the first
    /// path stays.
    pub fn learn_path(&mut self, id: u64, path: String) {
        let names = Arc::new(CgroupNames { path: path.into(), ..CgroupNames::default() });
        let learnt = KnownCgroup { names, named: false, logged: false };
        if let Entry::Vacant(new) = self.by_id.entry(id) {
            new.insert(learnt);
            self.fresh.push_back(id);
        }
    }

    /// Whether [`Cgroups::take_unlogged`] has returned this cgroup.
    pub fn is_logged(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|known| known.logged)
    }

    /// The names of a cgroup, if they are known and were not returned before.
    pub fn take_unlogged(&mut self, id: u64, now_ns: u64) -> Option<&Arc<CgroupNames>> {
        if self.is_logged(id) {
            return None;
        }
        self.cgroup_names(id, now_ns)?;
        let known = self.by_id.get_mut(&id)?;
        known.logged = true;
        Some(&known.names)
    }

    /// Drops a cgroup that was removed. Its path is kept for a while, because its last records may
    /// still arrive.
    pub fn forget_cgroup(&mut self, id: u64, now_ns: u64) {
        self.removed.push_back((now_ns, id));
        let is_due = |(removed, _): &mut (u64, u64)| *removed + KEEP_NS < now_ns;
        while let Some((_, id)) = self.removed.pop_front_if(is_due) {
            self.by_id.remove(&id);
        }
    }

    /// The cgroups whose path has the form of a container, pod or job that others than root may
    /// have named, since the last call.
    pub fn take_refused(&mut self) -> Vec<Arc<CgroupNames>> {
        std::mem::take(&mut self.refused)
    }

    /// At most `limit` ids whose path became known since they were last taken.
    pub fn take_new(&mut self, limit: usize) -> Vec<u64> {
        self.fresh.drain(..limit.min(self.fresh.len())).collect()
    }

    fn walk_hierarchy(&mut self, now_ns: u64) {
        use std::os::unix::fs::MetadataExt as _;
        self.walked_ns = Some(now_ns);
        let Some(mount) = self.mount.clone() else {
            return;
        };
        let Ok(root) = fs::metadata(&mount) else {
            return;
        };
        self.learn_path(root.ino(), "/".to_owned());
        let mut open = vec![(mount, String::new())];
        while let Some((dir, path)) = open.pop() {
            // A cgroup may be removed during the walk.
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|file_type| file_type.is_dir()) {
                    let path = format!("{path}/{}", entry.file_name().to_string_lossy());
                    self.learn_path(entry.ino(), path.clone());
                    open.push((entry.path(), path));
                }
            }
        }
    }
}

impl KnownCgroup {
    /// Finds container, pod and job; whether the path has names of them that are not believed.
    fn find_names(&mut self, id: u64, trust: &Trust, runtimes: &Runtimes, qemu: &Qemu) -> bool {
        let claimed = Inside::parse(&self.names.path);
        if claimed == Inside::default() {
            let machine = qemu
                .machine_of_unit(&self.names.path, || trust.believed_path(id, &self.names.path));
            if let Some(machine) = machine {
                Arc::make_mut(&mut self.names).container = Some(machine.into());
            }
            return false;
        }
        let inside = Inside::parse(trust.believed_path(id, &self.names.path));
        let is_refused = inside != claimed;
        let (mut container, mut pod) = (None, None);
        if let Some(id) = inside.container.as_deref() {
            let named = runtimes.container_names(id, inside.pod.is_some());
            // The container with this name has the virtual machine of a pod of KubeVirt.
            let of_machine = named.container.as_deref() == Some("compute");
            let launched = named.pod.as_deref().filter(|_| of_machine).and_then(launched_machine);
            let launched = launched.or(named.container.as_deref()).map(str::to_owned);
            let name = launched.or_else(|| qemu.machine_of_number(&self.names.path, id));
            container = Some(label_with_id(name.as_deref(), id));
            pod = named.pod;
        }
        if let Some(uid) = inside.pod.as_deref() {
            pod = pod.or_else(|| runtimes.pod_name(uid));
            pod = Some(label_with_id(pod.as_deref(), uid));
        }
        if inside != Inside::default() {
            let job = inside.job.map(Cow::into_owned);
            let names = Arc::make_mut(&mut self.names);
            names.container = container.map(Into::into);
            names.pod = pod.map(Into::into);
            names.job = job.map(Into::into);
        }
        is_refused
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::discover::mounts::MountTable;

    #[test]
    fn paths_come_from_one_walk_of_the_hierarchy_and_then_from_records() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("tenants/a");
        fs::create_dir_all(&inner).unwrap();
        let ino = |path: &Path| fs::metadata(path).unwrap().ino();
        let mut cgroups = Cgroups::new(Some(root.path()), Path::new("/nonexistent"), Vec::new());
        assert_eq!(cgroups.cgroup_path(ino(root.path()), 1), Some("/"));
        assert_eq!(cgroups.cgroup_path(ino(&inner), 2), Some("/tenants/a"));
        assert_eq!(cgroups.cgroup_path(u64::MAX, 3), None);
        cgroups.learn_path(u64::MAX, "/late".to_owned());
        assert_eq!(cgroups.cgroup_path(u64::MAX, 5), Some("/late"));
    }

    /// A mount whose root is at `/host/ns` in the hierarchy, seen from a namespace.
    #[test]
    fn a_cgroup_has_one_path_whichever_source_it_has() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["proc/self/ns", "cg/in", "cg/late"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let link = root.path().join("proc/self/ns/cgroup");
        std::os::unix::fs::symlink("cgroup:[4026532911]", link).unwrap();
        let ino = |path: &str| fs::metadata(root.path().join("cg").join(path)).unwrap().ino();
        let (top, inner, late) = (ino(""), ino("in"), ino("late"));
        let mount = root.path().join("cg");
        let mountinfo = format!("30 20 0:26 / {} rw - cgroup2 cgroup rw\n", mount.display());
        let mounts = CgroupMounts::from_mounts(root.path(), &MountTable::parse(&mountinfo));
        let mut cgroups = Cgroups::from_mounts(&mounts, root.path(), Vec::new());
        // Nothing is known of a cgroup that is elsewhere, or gone before the first that is not.
        cgroups.learn_from_kernel(1_000_001, "/host/other/in");
        cgroups.learn_from_kernel(1_000_002, "/in");
        assert_eq!((cgroups.known_path(1_000_001), cgroups.known_path(1_000_002)), (None, None));
        assert_eq!(cgroups.cgroup_path(inner, 1), Some("/in"));
        cgroups.learn_from_kernel(inner, "/host/ns/in");
        assert_eq!(cgroups.known_path(inner), Some("/in"));
        cgroups.learn_from_kernel(1_000_003, "/host/ns/in/gone");
        cgroups.learn_from_kernel(1_000_004, "/host/nsx");
        cgroups.learn_from_kernel(1_000_005, "/in");
        assert_eq!(cgroups.known_path(1_000_003), Some("/in/gone"));
        assert_eq!((cgroups.known_path(1_000_004), cgroups.known_path(1_000_005)), (None, None));
        cgroups.learn_from_kernel(top, "/host/ns");
        assert_eq!(cgroups.known_path(top), Some("/"));
        assert_eq!(cgroups.cgroup_path(late, 2), Some("/late"));
        cgroups.learn_path(late, "/other".to_owned());
        assert_eq!(cgroups.cgroup_path(late, 2), Some("/late"));
        let mut learnt = cgroups.take_new(9);
        learnt.sort_unstable();
        let mut all = [inner, 1_000_003, top, late];
        all.sort_unstable();
        assert_eq!(learnt, all);
    }

    #[test]
    fn walks_that_find_nothing_become_rare() {
        let root = tempfile::tempdir().unwrap();
        let mut cgroups = Cgroups::new(Some(root.path()), Path::new("/nonexistent"), Vec::new());
        let mut walks = 0;
        let mut last = None;
        for second in 1..=320 {
            assert_eq!(cgroups.cgroup_path(u64::MAX, second * 1_000_000_000), None);
            walks += usize::from(last != cgroups.walked_ns);
            last = cgroups.walked_ns;
        }
        assert!((15..30).contains(&walks), "{walks}");
        fs::create_dir(root.path().join("late")).unwrap();
        let id = fs::metadata(root.path().join("late")).unwrap().ino();
        assert_eq!(cgroups.cgroup_path(id, 400_000_000_000), Some("/late"));
        assert_eq!(cgroups.walk_pause_ns, WALK_AGAIN_NS);
    }

    #[test]
    fn a_removed_cgroup_keeps_its_path_for_a_while() {
        let mut cgroups = Cgroups::new(None, Path::new("/nonexistent"), Vec::new());
        cgroups.learn_path(7, "/gone".to_owned());
        cgroups.forget_cgroup(7, 2);
        assert_eq!(cgroups.known_path(7), Some("/gone"));
        cgroups.forget_cgroup(8, 3 + KEEP_NS);
        assert_eq!(cgroups.known_path(7), None);
    }

    #[test]
    fn a_deep_cgroup_has_an_ancestor_at_every_depth() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b/c");
        fs::create_dir_all(&inner).unwrap();
        let ino = |path: &str| fs::metadata(root.path().join(path)).unwrap().ino();
        let mut cgroups = Cgroups::new(Some(root.path()), root.path(), Vec::new());
        for (depth, ancestor) in [(0, ""), (1, "a"), (2, "a/b"), (3, "a/b/c"), (9, "a/b/c")] {
            assert_eq!(cgroups.ancestor_id(ino("a/b/c"), depth, 1), ino(ancestor), "{depth}");
        }
        assert_eq!(cgroups.ancestor_id(ino(""), 1, 1), ino(""));
        assert_eq!(cgroups.ancestor_id(u64::MAX, 1, 1), u64::MAX);
    }

    /// A hierarchy with these cgroups below `root`, and what names them.
    fn hierarchy(root: &Path, paths: &[&str]) -> Cgroups {
        let mount = root.join("cgroup");
        for path in paths {
            fs::create_dir_all(mount.join(path)).unwrap();
        }
        Cgroups::new(Some(&mount), root, Vec::new())
    }

    #[test]
    fn a_pod_of_kubevirt_is_named_after_its_virtual_machine() {
        let id = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
        let uid = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("run/containerd/io.containerd.runtime.v2.task/k8s.io").join(id);
        fs::create_dir_all(&task).unwrap();
        let names = |container: &str, pod: &str| {
            let annotations = [
                ("container-name", container),
                ("sandbox-name", pod),
                ("sandbox-namespace", "shop"),
            ]
            .map(|(key, value)| format!(r#""io.kubernetes.cri.{key}":"{value}""#));
            let config = format!(r#"{{"annotations":{{{}}}}}"#, annotations.join(","));
            fs::write(task.join("config.json"), config).unwrap();
            let path = format!("kubepods/burstable/pod{uid}/{id}");
            let mut cgroups = hierarchy(root.path(), &[&path]);
            let cgroup = cgroups.id_of_path(Path::new(&path)).unwrap();
            let names = cgroups.cgroup_names(cgroup, 1).unwrap().clone();
            assert!(cgroups.take_refused().is_empty());
            (names.container.clone().unwrap(), names.pod.clone().unwrap())
        };
        let pod = format!("shop/virt-launcher-db-x2k9p@{uid}");
        assert_eq!(
            names("compute", "virt-launcher-db-x2k9p"),
            ("db@3f4e5d6c7b8a".into(), pod.as_str().into())
        );
        let (container, _) = names("volumedisk0", "virt-launcher-db-x2k9p");
        assert_eq!(&*container, "volumedisk0@3f4e5d6c7b8a");
        assert_eq!(&*names("compute", "web-0").0, "compute@3f4e5d6c7b8a");
    }

    #[test]
    fn names_that_others_may_have_given_are_null_and_counted_once() {
        use std::os::unix::fs::PermissionsExt as _;
        let id = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
        let uid = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join(format!("var/lib/docker/containers/{id}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("config.v2.json"), r#"{"Name":"/web"}"#).unwrap();
        let real = format!("system.slice/docker-{id}.scope/init");
        let fake = format!("ci.service/docker-{id}.scope");
        let inner = format!("kubepods/pod{uid}/x.scope/docker-{id}.scope");
        let mut cgroups = hierarchy(root.path(), &[&real, &fake, &inner]);
        for dir in ["ci.service", &format!("kubepods/pod{uid}/x.scope")] {
            let dir = root.path().join("cgroup").join(dir);
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let mut names = |path: &str| {
            let id = cgroups.id_of_path(Path::new(path)).unwrap();
            let names = cgroups.cgroup_names(id, 1).unwrap().clone();
            cgroups.cgroup_names(id, 1).unwrap();
            let refused = cgroups.take_refused().len();
            (names.container.clone(), names.pod.clone(), refused)
        };
        assert_eq!(names(&real), (Some("web@3f4e5d6c7b8a".into()), None, 0));
        assert_eq!(names(&fake), (None, None, 1));
        assert_eq!(names(&inner), (None, Some(uid.into()), 1));
        assert_eq!(names("system.slice"), (None, None, 0));
    }
}
