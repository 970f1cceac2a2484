//! The innermost cgroup that an owner is in.

use crate::attribute::owner_names::OwnerNames;
use crate::entries::Owner;

/// The index of the innermost of these cgroups that an owner is in.
pub(super) fn find_innermost(
    owner: &Owner,
    cgroups: impl Iterator<Item: AsRef<str>>,
    names: &OwnerNames,
) -> Option<usize> {
    let Owner::Task { cgroup_id, .. } = owner else { return None };
    let path = &names.cgroup_names(*cgroup_id)?.path;
    let candidates = cgroups.enumerate().filter(|(_, cgroup)| is_in_cgroup(path, cgroup.as_ref()));
    candidates.max_by_key(|(_, cgroup)| cgroup.as_ref().len()).map(|(index, _)| index)
}

/// Whether a cgroup is `ancestor`, or below it.
fn is_in_cgroup(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('/'))
}
