//! The cgroup that a group's tasks are in.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::bounds;
use crate::discover::{CgroupView, read};

/// Largest number of cgroups below that of a tenant.
const MOST_CGROUPS: usize = 4096;

/// The cgroup whose threads, with those of the cgroups below it, are these; `None` if there is no
/// such cgroup: then the group has a part of a tenant only, or several tenants.
///
/// `mount` is the mount point of the v2 hierarchy below `root`, and the path is below it. A thread
/// that begins or ends meanwhile may hide the cgroup until the next look.
pub fn find_tenant(
    root: &Path,
    mount: &Path,
    view: &CgroupView,
    threads: &[u32],
) -> Option<String> {
    let mut common: Option<PathBuf> = None;
    for thread in threads {
        // One that has ended belongs to nobody.
        let Some(path) = cgroup_of(root, view, *thread) else { continue };
        common = Some(match common {
            None => path,
            Some(common) => common_prefix(&common, &path),
        });
    }
    let path = common.filter(|path| path != Path::new("/"))?;
    let dir =
        root.join(mount.strip_prefix("/").unwrap_or(mount)).join(path.strip_prefix("/").ok()?);
    let known: BTreeSet<u32> = threads.iter().copied().collect();
    threads_of(&dir)?.is_subset(&known).then(|| path.to_str().map(str::to_owned))?
}

/// The path of a thread's cgroup below the mount point; `None` if it has ended, or is not there.
pub fn cgroup_of(root: &Path, view: &CgroupView, thread: u32) -> Option<PathBuf> {
    let text = read::read_bytes(&root.join(format!("proc/{thread}/cgroup"))).ok()?;
    let text = String::from_utf8(text).ok()?;
    view.path_of(Path::new(text.lines().find_map(|line| line.strip_prefix("0::"))?))
}

/// The path that both begin with.
fn common_prefix(path: &Path, other_path: &Path) -> PathBuf {
    let pairs = path.components().zip(other_path.components());
    pairs
        .take_while(|(component, other_component)| component == other_component)
        .map(|(component, _)| component)
        .collect()
}

/// The threads of the cgroup in `dir` and of those below it; `None` if it cannot be read, or has
/// too many cgroups below it.
pub fn threads_of(dir: &Path) -> Option<BTreeSet<u32>> {
    let mut threads = BTreeSet::new();
    let mut waiting = vec![dir.to_owned()];
    let mut remaining = MOST_CGROUPS;
    while let Some(dir) = waiting.pop() {
        remaining = remaining.checked_sub(1)?;
        let text = bounds::system_text(dir.join("cgroup.threads")).ok()?;
        threads.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
        let dirs = fs::read_dir(&dir).ok()?.flatten();
        let dirs = dirs.filter(|entry| entry.file_type().is_ok_and(|file_type| file_type.is_dir()));
        waiting.extend(dirs.map(|entry| entry.path()));
    }
    Some(threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::resctrl::fake::FakeResctrl;

    #[test]
    fn a_tenant_has_all_threads_of_its_cgroups() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let fake = FakeResctrl::new(root);
        fake.add_cgroup("/pods", &[]);
        fake.add_cgroup("/pods/a", &[]);
        fake.add_cgroup("/pods/a/x", &[1, 2]);
        fake.add_cgroup("/pods/a/y", &[3]);
        fake.add_cgroup("/pods/b", &[4]);
        let of = |threads: &[u32]| {
            let view = CgroupView::default();
            find_tenant(root, Path::new("/sys/fs/cgroup"), &view, threads)
        };
        assert_eq!(of(&[1, 2]).as_deref(), Some("/pods/a/x"));
        assert_eq!(of(&[1, 2, 3]).as_deref(), Some("/pods/a"));
        // 9 has ended.
        assert_eq!(of(&[4, 9]).as_deref(), Some("/pods/b"));
        assert_eq!(of(&[1, 2, 3, 4]).as_deref(), Some("/pods"));
        for part in [&[1][..], &[1, 3], &[3, 4], &[], &[9]] {
            assert_eq!(of(part), None, "{part:?}");
        }
    }
}
