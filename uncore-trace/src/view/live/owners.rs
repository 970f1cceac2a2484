//! Numbers the owners of the last minute.

use std::collections::{HashMap, HashSet, VecDeque};

use super::GROUPINGS;
use super::frame::{ClosedFrame, LiveTask};
use crate::view::grouping::GroupBy;

/// Most owners that are kept apart; further ones are summed.
pub const OWNERS: usize = 4096;

/// Name of the sum of owners beyond [`OWNERS`].
const BEYOND: &str = "(more owners than are kept apart)";

/// The owner of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveOwner {
    /// Kind, as in `fabric`.
    pub(super) owner_kind: String,
    /// Name of the owner for each of [`GROUPINGS`].
    names: Vec<String>,
}

impl LiveOwner {
    /// Kind of the owner, and its name in this grouping.
    pub(super) fn kind_and_name(&self, grouping: GroupBy) -> (String, String) {
        (self.owner_kind.clone(), self.name_in(grouping).to_owned())
    }

    /// Name of the owner in this grouping.
    pub(super) fn name_in(&self, grouping: GroupBy) -> &str {
        let grouping_index = GROUPINGS.iter().position(|candidate| *candidate == grouping);
        grouping_index.and_then(|index| self.names.get(index)).map_or("", String::as_str)
    }
}

/// Owners and their numbers.
#[derive(Debug, Default)]
pub(super) struct OwnerTable {
    known: HashMap<u32, LiveOwner>,
    ids: HashMap<(String, Vec<String>), u32>,
    tasks: HashMap<LiveTask, u32>,
    next_id: u32,
}

impl OwnerTable {
    /// The number of an owner with this kind and these names for each of [`GROUPINGS`].
    pub(super) fn find_or_add_id(
        &mut self,
        owner_kind: &str,
        keys: Vec<String>,
        task: Option<LiveTask>,
    ) -> u32 {
        let wanted = (owner_kind.to_owned(), keys);
        let is_full = self.known.len() >= OWNERS && !self.ids.contains_key(&wanted);
        let kind_and_names = if is_full {
            ("other_tasks".to_owned(), vec![BEYOND.to_owned(); GROUPINGS.len()])
        } else {
            wanted
        };
        let id = *self.ids.entry(kind_and_names).or_insert_with_key(|(owner_kind, names)| {
            let (owner_kind, names) = (owner_kind.clone(), names.clone());
            let id = self.next_id;
            self.known.insert(id, LiveOwner { owner_kind, names });
            self.next_id = id.wrapping_add(1);
            id
        });
        // Another process may have the same names, for example in a cgroup that was created again.
        if let Some(task) = task.filter(|_| !is_full) {
            self.tasks.insert(task, id);
        }
        id
    }

    /// The owner with this number.
    pub(super) fn find_owner(&self, id: u32) -> Option<&LiveOwner> {
        self.known.get(&id)
    }

    /// The numbers of the owners with this name in a grouping.
    pub(super) fn ids_with_name(&self, grouping: GroupBy, name: &str) -> HashSet<u32> {
        let matching = self.known.iter().filter(|(_, owner)| owner.name_in(grouping) == name);
        matching.map(|(id, _)| *id).collect()
    }

    /// The owner of a process.
    pub(super) fn of_task(&self, task: &LiveTask) -> Option<&LiveOwner> {
        self.find_owner(*self.tasks.get(task)?)
    }

    /// Removes owners that are in no frame, if there are many.
    pub(super) fn forget_unseen(&mut self, frames: &VecDeque<ClosedFrame>) {
        if self.known.len() < OWNERS / 2 {
            return;
        }
        let seen: HashSet<u32> = frames
            .iter()
            .flat_map(|frame| frame.rates.values().flatten().map(|(owner, _)| *owner))
            .collect();
        self.known.retain(|id, _| seen.contains(id));
        self.ids.retain(|_, id| seen.contains(id));
        self.tasks.retain(|_, id| seen.contains(id));
    }
}
