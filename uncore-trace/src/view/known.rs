//! What was found out about the line of a row, remembered for the rows that follow.
//!
//! A line is told by numbers ([`Quick`]) as long as the dictionaries of a batch are those of the batches
//! before it. The reader has one dictionary for all batches of a row group, so that names are looked at
//! once a row group and line, and not once a batch: a window of a thousand tenants is as long as a batch.

use std::collections::HashMap;

use arrow::array::{Array as _, StringArray};
use foldhash::fast::RandomState;

use super::key::{Columns, Quick};

/// Lines that are remembered at most.
const MOST: usize = 1 << 16;

/// What was found out about each line.
#[derive(Debug)]
pub(super) struct Known<T> {
    lines: HashMap<Quick, T, RandomState>,
    /// Those that the keys point into. They are kept: another one could have the same address.
    dictionaries: Vec<StringArray>,
}

impl<T: Copy> Known<T> {
    pub(super) fn new() -> Self {
        Self { lines: HashMap::default(), dictionaries: Vec::new() }
    }

    /// Begins a batch: forgets everything if its keys may mean something else.
    pub(super) fn begin(&mut self, columns: &Columns<'_>) {
        let now = columns.dictionaries();
        let is_same = self.dictionaries.len() == now.len()
            && self.dictionaries.iter().zip(&now).all(|(one, two)| is_same(one, two));
        if !is_same || self.lines.len() > MOST {
            self.lines.clear();
            self.dictionaries = now.into_iter().cloned().collect();
        }
    }

    /// What is known of a line, or is found out now.
    pub(super) fn get(&mut self, line: Quick, find: impl FnOnce() -> T) -> T {
        *self.lines.entry(line).or_insert_with(find)
    }
}

/// Whether both are one array in memory.
fn is_same(one: &StringArray, two: &StringArray) -> bool {
    one.len() == two.len()
        && one.value_offsets().as_ptr() == two.value_offsets().as_ptr()
        && one.values().as_ptr() == two.values().as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_elsewhere_are_another_dictionary() {
        let one = StringArray::from(vec!["/a", "/b"]);
        assert!(is_same(&one, &one.clone()));
        assert!(!is_same(&one, &StringArray::from(vec!["/a", "/b"])));
        assert!(!is_same(&one, &one.slice(0, 1)));
    }
}
