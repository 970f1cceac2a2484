//! Numbers the owners of the last minute.

use std::collections::{HashMap, HashSet, VecDeque};

use super::WAYS;
use super::frame::{Closed, Task};
use crate::view::key::By;

/// Most owners that are kept apart; further ones are summed.
pub const OWNERS: usize = 4096;

/// Name of the sum of owners beyond [`OWNERS`].
const BEYOND: &str = "(more owners than are kept apart)";

/// The owner of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// Kind, as in `fabric`.
    pub(super) kind: String,
    /// Its name for each of [`WAYS`].
    keys: Vec<String>,
}

impl Owner {
    /// Its name in this grouping.
    pub(super) fn key(&self, by: By) -> &str {
        let place = WAYS.iter().position(|way| *way == by);
        place.and_then(|place| self.keys.get(place)).map_or("", String::as_str)
    }
}

/// Owners and their numbers.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: HashMap<u32, Owner>,
    ids: HashMap<(String, Vec<String>), u32>,
    tasks: HashMap<Task, u32>,
    next: u32,
}

impl Owners {
    /// The number of an owner with this kind and these names for each of [`WAYS`].
    pub(super) fn id(&mut self, kind: &str, keys: Vec<String>, task: Option<Task>) -> u32 {
        let wanted = (kind.to_owned(), keys);
        if let Some(&id) = self.ids.get(&wanted) {
            // Another process may have the same names, for example in a cgroup that was created
            // again.
            if let Some(task) = task {
                self.tasks.insert(task, id);
            }
            return id;
        }
        let is_full = self.known.len() >= OWNERS;
        let (kind, keys) = if is_full {
            ("other_tasks".to_owned(), vec![BEYOND.to_owned(); WAYS.len()])
        } else {
            wanted
        };
        if let Some(id) = self.ids.get(&(kind.clone(), keys.clone())) {
            return *id;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.ids.insert((kind.clone(), keys.clone()), id);
        self.known.insert(id, Owner { kind, keys });
        if let Some(task) = task.filter(|_| !is_full) {
            self.tasks.insert(task, id);
        }
        id
    }

    /// The owner with this number.
    pub(super) fn get(&self, id: u32) -> Option<&Owner> {
        self.known.get(&id)
    }

    /// The numbers of the owners with this name in a grouping.
    pub(super) fn named(&self, by: By, name: &str) -> HashSet<u32> {
        let its = self.known.iter().filter(|(_, owner)| owner.key(by) == name);
        its.map(|(id, _)| *id).collect()
    }

    /// The owner of a process.
    pub(super) fn of_task(&self, task: &Task) -> Option<&Owner> {
        self.get(*self.tasks.get(task)?)
    }

    /// Removes owners that are in no frame, if there are many.
    pub(super) fn forget(&mut self, frames: &VecDeque<Closed>) {
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
