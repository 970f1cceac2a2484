//! The innermost cgroup that an owner is in.

use foldhash::HashMap;

use crate::attribute::owner_names::OwnerNames;
use crate::entries::Owner;

/// The indexes of some cgroups, by their paths.
pub(super) struct CgroupIndexes<'a>(HashMap<&'a str, usize>);

impl<'a> CgroupIndexes<'a> {
    /// Numbers cgroups in their order.
    pub(super) fn new(paths: impl Iterator<Item = &'a str>) -> Self {
        Self(paths.zip(0..).collect())
    }

    /// The index of the innermost of the cgroups that an owner is in.
    pub(super) fn find_innermost(&self, owner: &Owner, names: &OwnerNames) -> Option<usize> {
        let Owner::Task { cgroup_id, .. } = owner else { return None };
        let mut ancestor = &*names.cgroup_names(*cgroup_id)?.path;
        loop {
            match self.0.get(ancestor) {
                Some(index) => return Some(*index),
                None => ancestor = ancestor.rsplit_once('/')?.0,
            }
        }
    }
}
