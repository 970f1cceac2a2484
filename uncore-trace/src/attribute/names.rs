//! Names of cgroups and interrupts, as the log tells them.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::schema::cgroups::Place;

/// Cgroups that are kept, the newest: short-lived ones may come by the million.
const MOST_CGROUPS: usize = 1 << 16;

/// All names so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    cgroups: HashMap<u64, Arc<Place>>,
    /// Their ids, the oldest first.
    order: VecDeque<u64>,
    interrupts: HashMap<u32, String>,
}

impl Names {
    /// A cgroup has this path from now on.
    pub(super) fn cgroup(&mut self, id: u64, place: &Arc<Place>) {
        if self.cgroups.insert(id, Arc::clone(place)).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MOST_CGROUPS
            && let Some(oldest) = self.order.pop_front()
        {
            self.cgroups.remove(&oldest);
        }
    }

    /// Where a cgroup is, if the log has told.
    pub(super) fn place(&self, id: u64) -> Option<&Place> {
        self.cgroups.get(&id).map(Arc::as_ref)
    }

    /// An interrupt has this name.
    pub(super) fn interrupt(&mut self, number: u32, name: &str) {
        self.interrupts.entry(number).or_insert_with(|| name.to_owned());
    }

    /// The name of an interrupt; `irq:NUMBER` if the log has not told it.
    pub(super) fn irq(&self, number: u32) -> Cow<'_, str> {
        let known = self.interrupts.get(&number);
        known.map_or_else(|| format!("irq:{number}").into(), |name| name.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded() {
        let mut names = Names::default();
        let place = Arc::new(Place { path: "/".into(), ..Place::default() });
        for id in 0..=MOST_CGROUPS as u64 {
            names.cgroup(id, &place);
        }
        assert_eq!(names.cgroups.len(), MOST_CGROUPS);
        assert!(names.place(0).is_none() && names.place(1).is_some());
    }

    #[test]
    fn an_interrupt_without_a_name_has_its_number() {
        let mut names = Names::default();
        assert_eq!(names.irq(9), "irq:9");
        names.interrupt(9, "irq:acpi");
        assert_eq!(names.irq(9), "irq:acpi");
    }
}
