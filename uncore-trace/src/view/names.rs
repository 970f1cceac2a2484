//! Numbers for names: the first name has 0, and each new one the next number.

use std::collections::HashMap;
use std::hash::Hash;

/// Names, and the number of each.
#[derive(Debug)]
pub(super) struct NameNumbers<T> {
    /// By their numbers.
    pub(super) names: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T> Default for NameNumbers<T> {
    fn default() -> Self {
        Self { names: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> NameNumbers<T> {
    /// The number of a name, which it gets here if it is new.
    pub(super) fn number_of(&mut self, name: T) -> usize {
        *self.numbers.entry(name).or_insert_with_key(|new_name| {
            self.names.push(new_name.clone());
            self.names.len() - 1
        })
    }
}
