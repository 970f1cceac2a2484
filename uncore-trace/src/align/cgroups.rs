//! Cgroup ids to paths.
//!
//! The id of a cgroup is the inode number of its directory in the v2 hierarchy. Paths come from
//! the records of cgroups that are made while recording, else from a walk of the hierarchy when
//! an id is met for the first time.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    os::unix::fs::DirEntryExt as _,
    path::{Path, PathBuf},
};

/// How long a removed cgroup keeps its path: longer than a recorder lags behind.
const KEEP_NS: u64 = 30_000_000_000;

/// A walk that did not find an id is not repeated for other unknown ids for this long.
const WALK_AGAIN_NS: u64 = 1_000_000_000;

/// Paths by id.
#[derive(Debug, Default)]
pub struct Cgroups {
    mount: Option<PathBuf>,
    paths: HashMap<u64, String>,
    removed: VecDeque<(u64, u64)>,
    walked_at: Option<u64>,
    fresh: Vec<(u64, u64)>,
}

impl Cgroups {
    /// Paths below the mount point of the v2 hierarchy; without one no path is ever known.
    pub fn new(mount: Option<&Path>) -> Self {
        Self { mount: mount.map(Path::to_owned), ..Self::default() }
    }

    /// The path of a cgroup, or `None` if it cannot be learnt. `now` is a record's time.
    pub fn path(&mut self, id: u64, now: u64) -> Option<&str> {
        let stale = self.walked_at.is_none_or(|walked| now > walked + WALK_AGAIN_NS);
        if !self.paths.contains_key(&id) && stale {
            self.walk(now);
        }
        self.paths.get(&id).map(String::as_str)
    }

    /// A path that is known already.
    pub fn known(&self, id: u64) -> Option<&str> {
        self.paths.get(&id).map(String::as_str)
    }

    /// The id of a path, by its directory.
    pub fn id(&self, path: &str) -> Option<u64> {
        use std::os::unix::fs::MetadataExt as _;
        let dir = self.mount.as_ref()?.join(path.trim_start_matches('/'));
        fs::metadata(dir).ok().map(|metadata| metadata.ino())
    }

    /// A cgroup was made or used under this path.
    pub fn learn(&mut self, id: u64, path: String, now: u64) {
        if self.paths.insert(id, path).is_none() {
            self.fresh.push((id, now));
        }
    }

    /// A cgroup was removed; its path stays known for a while, its last records may still come.
    pub fn forget(&mut self, id: u64, now: u64) {
        self.removed.push_back((now, id));
        while let Some(&(removed, id)) = self.removed.front()
            && removed + KEEP_NS < now
        {
            self.paths.remove(&id);
            self.removed.pop_front();
        }
    }

    /// Ids whose path was learnt since the last call, with the time.
    pub fn take_fresh(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.fresh)
    }

    fn walk(&mut self, now: u64) {
        use std::os::unix::fs::MetadataExt as _;
        self.walked_at = Some(now);
        let Some(mount) = self.mount.clone() else {
            return;
        };
        let Ok(root) = fs::metadata(&mount) else {
            return;
        };
        self.learn(root.ino(), "/".to_owned(), now);
        let mut open = vec![(mount, String::new())];
        while let Some((dir, path)) = open.pop() {
            // A cgroup may vanish while it is walked.
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let path = format!("{path}/{}", entry.file_name().to_string_lossy());
                    self.learn(entry.ino(), path.clone(), now);
                    open.push((entry.path(), path));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn walks_the_hierarchy_once_and_then_learns() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("tenants/a");
        fs::create_dir_all(&inner).unwrap();
        let ino = |path: &Path| fs::metadata(path).unwrap().ino();
        let mut cgroups = Cgroups::new(Some(root.path()));
        assert_eq!(cgroups.path(ino(root.path()), 1), Some("/"));
        assert_eq!(cgroups.path(ino(&inner), 2), Some("/tenants/a"));
        assert_eq!(cgroups.path(u64::MAX, 3), None);
        cgroups.learn(u64::MAX, "/late".to_owned(), 4);
        assert_eq!(cgroups.path(u64::MAX, 5), Some("/late"));
    }

    #[test]
    fn a_removed_cgroup_keeps_its_path_for_a_while() {
        let mut cgroups = Cgroups::new(None);
        cgroups.learn(7, "/gone".to_owned(), 1);
        cgroups.forget(7, 2);
        assert_eq!(cgroups.known(7), Some("/gone"));
        cgroups.forget(8, 3 + KEEP_NS);
        assert_eq!(cgroups.known(7), None);
    }
}
