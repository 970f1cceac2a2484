//! Names of cgroups and interrupts from the log.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use foldhash::HashMap;

use crate::schema::cgroups::CgroupNames;

/// Largest number of cgroups in memory: there may be millions of short-lived ones.
const MAX_CGROUPS: usize = 1 << 17;

/// A cgroup.
#[derive(Debug)]
struct CachedCgroup {
    names: Arc<CgroupNames>,
    /// Whether it was looked up since it was last the oldest.
    used: AtomicBool,
}

/// The known names.
///
/// At most [`MAX_CGROUPS`] cgroups are kept. For a new one the oldest is removed, unless it was
/// looked up since it was last the oldest; then it becomes the newest (second chance, or CLOCK:
/// Corbató, 1968). This depends on the log only, so a replay keeps the same cgroups.
#[derive(Debug, Default)]
pub(super) struct OwnerNames {
    cgroups: HashMap<u64, CachedCgroup>,
    /// Their ids, oldest first.
    order: VecDeque<u64>,
    interrupts: HashMap<u32, String>,
    /// Whether a cgroup in use had to be removed.
    is_short: bool,
}

impl OwnerNames {
    /// Sets the path of a cgroup from now on.
    pub(super) fn set_cgroup(&mut self, id: u64, names: &Arc<CgroupNames>) {
        let known = CachedCgroup { names: Arc::clone(names), used: AtomicBool::new(false) };
        if self.cgroups.insert(id, known).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_CGROUPS {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        for _ in 0..self.order.len() {
            let Some(id) = self.order.pop_front() else { return };
            let is_used =
                self.cgroups.get(&id).is_some_and(|known| known.used.swap(false, Relaxed));
            if !is_used {
                self.cgroups.remove(&id);
                return;
            }
            self.order.push_back(id);
        }
        // All are in use, and each was the oldest.
        if let Some(id) = self.order.pop_front() {
            self.cgroups.remove(&id);
        }
        if !std::mem::replace(&mut self.is_short, true) {
            log::warn!("more than {MAX_CGROUPS} cgroups are in use: from now on some have no path");
        }
    }

    /// The path, container, pod and job of a cgroup, if the log has it.
    pub(super) fn cgroup_names(&self, id: u64) -> Option<&CgroupNames> {
        let known = self.cgroups.get(&id)?;
        known.used.store(true, Relaxed);
        Some(&known.names)
    }

    /// Sets the name of an interrupt.
    pub(super) fn set_interrupt(&mut self, number: u32, name: &str) {
        self.interrupts.entry(number).or_insert_with(|| name.to_owned());
    }

    /// The name of an interrupt; `irq:NUMBER` if the log does not have it.
    pub(super) fn interrupt_name(&self, number: u32) -> Cow<'_, str> {
        let known = self.interrupts.get(&number);
        known.map_or_else(|| format!("irq:{number}").into(), |name| name.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded() {
        let mut names = OwnerNames::default();
        let root = Arc::new(CgroupNames { path: "/".into(), ..CgroupNames::default() });
        for id in 0..MAX_CGROUPS as u64 {
            names.set_cgroup(id, &root);
        }
        assert!(names.cgroup_names(0).is_some());
        // The first one is in use, and short-lived ones come and go.
        for id in 0..3 * MAX_CGROUPS as u64 {
            names.set_cgroup(id + MAX_CGROUPS as u64, &root);
            assert!(names.cgroup_names(0).is_some(), "{id}");
        }
        assert_eq!((names.cgroups.len(), names.order.len()), (MAX_CGROUPS, MAX_CGROUPS));
        assert!(names.cgroup_names(1).is_none());
    }

    #[test]
    fn an_interrupt_without_a_name_has_its_number() {
        let mut names = OwnerNames::default();
        assert_eq!(names.interrupt_name(9), "irq:9");
        names.set_interrupt(9, "irq:acpi");
        assert_eq!(names.interrupt_name(9), "irq:acpi");
    }
}
