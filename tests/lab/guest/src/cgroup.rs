//! The cgroups of the tenants: /lab and its children.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};

/// The mount point of the v2 hierarchy.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// Makes the cgroup of a tenant.
pub(crate) fn create_cgroup(name: &str) -> Result<()> {
    let lab = Path::new(ROOT).join("lab");
    let path = lab.join(name);
    fs::create_dir_all(&path).with_context(|| format!("make cgroup {}", path.display()))?;
    allow_controllers(&lab)
}

/// Moves the calling process into the cgroup of a tenant.
pub(crate) fn enter_cgroup(name: &str) -> Result<()> {
    let path = Path::new(ROOT).join("lab").join(name).join("cgroup.procs");
    // 0 stands for the writer.
    fs::write(&path, "0").with_context(|| format!("write {}", path.display()))
}

/// Limits the CPU time of a tenant's cgroup to `QUOTA PERIOD`, both in microseconds.
pub(crate) fn limit_cpu(name: &str, cpu_max: &str) -> Result<()> {
    let path = Path::new(ROOT).join("lab").join(name).join("cpu.max");
    fs::write(&path, cpu_max).with_context(|| format!("write {cpu_max:?} to {}", path.display()))
}

/// Enables all controllers of a cgroup for its children.
pub(crate) fn allow_controllers(parent: &Path) -> Result<()> {
    let path = parent.join("cgroup.controllers");
    let names = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    for name in names.split_whitespace() {
        // One at a time: some kernels lack some controllers, and none is essential.
        fs::write(parent.join("cgroup.subtree_control"), format!("+{name}")).unwrap_or_default();
    }
    Ok(())
}

/// The path in the hierarchy and the id of every cgroup.
pub(crate) fn cgroup_ids() -> Result<BTreeMap<String, u64>> {
    let mut ids = BTreeMap::new();
    let mut pending = vec![PathBuf::from(ROOT)];
    while let Some(path) = pending.pop() {
        collect_ids(&path, &mut ids, &mut pending)
            .with_context(|| format!("list cgroup {}", path.display()))?;
    }
    Ok(ids)
}

fn collect_ids(
    path: &Path,
    ids: &mut BTreeMap<String, u64>,
    pending: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let inside = path.strip_prefix(ROOT).unwrap_or(path);
    // The inode number of a cgroup's directory is its id on 64-bit machines.
    ids.insert(format!("/{}", inside.display()), fs::metadata(path)?.ino());
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            pending.push(entry.path());
        }
    }
    Ok(())
}
