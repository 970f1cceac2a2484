//! Remembers the line of a row for later rows with the same keys.
//!
//! Lines are identified by numbers ([`QuickKey`]) as long as batches have the same dictionaries.
//! The reader has one dictionary for all batches of a row group, so names are compared once per row
//! group and line, and not once per batch. That matters because a window of a thousand tenants is
//! as long as a batch.

use std::collections::HashMap;

use arrow::array::{Array as _, StringArray};
use foldhash::fast::RandomState;

use super::key::{FabricColumns, QuickKey};

/// Most lines that are remembered.
const MAX_LINES: usize = 1 << 16;

/// A value for each line.
#[derive(Debug, Default)]
pub(super) struct LineCache<T> {
    /// In the order of first appearance. The rows of one owner are consecutive, counter by counter,
    /// so the line of a row is mostly the one after that of the previous row, which needs no hash.
    lines: Vec<(QuickKey, T)>,
    /// Index in `lines`.
    index_of_line: HashMap<QuickKey, usize, RandomState>,
    /// Index of the line to try first.
    next_index: usize,
    /// The dictionaries to which the keys refer. They are held, so that no other one can get the
    /// same address.
    dictionaries: Vec<StringArray>,
}

impl<T: Copy> LineCache<T> {
    /// Begins a batch: forgets all lines if the dictionaries have changed. Returns whether it did.
    pub(super) fn begin_batch(&mut self, columns: &FabricColumns<'_>) -> bool {
        let batch_dictionaries = columns.key_dictionaries();
        let is_unchanged = self.dictionaries.len() == batch_dictionaries.len()
            && self
                .dictionaries
                .iter()
                .zip(&batch_dictionaries)
                .all(|(held, current)| is_same_array(held, current));
        let is_outdated = !is_unchanged || self.lines.len() > MAX_LINES;
        if is_outdated {
            self.lines.clear();
            self.index_of_line.clear();
            self.dictionaries = batch_dictionaries.into_iter().cloned().collect();
        }
        is_outdated
    }

    /// The value of a line; computed by `compute_value` if the line is new.
    #[inline]
    pub(super) fn get(&mut self, line: QuickKey, compute_value: impl FnOnce() -> T) -> T {
        let index = match self.lines.get(self.next_index) {
            Some((expected_line, _)) if *expected_line == line => self.next_index,
            _ => *self.index_of_line.entry(line).or_insert_with(|| {
                self.lines.push((line, compute_value()));
                self.lines.len() - 1
            }),
        };
        self.next_index = index + 1;
        self.lines[index].1
    }
}

/// Whether both are the same array in memory.
fn is_same_array(array: &StringArray, other_array: &StringArray) -> bool {
    array.len() == other_array.len()
        && array.value_offsets().as_ptr() == other_array.value_offsets().as_ptr()
        && array.values().as_ptr() == other_array.values().as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_computed_once_in_any_order() {
        let line = |number: i32| -> QuickKey { ([0, 0, number], 0, 0, 0, (0, None), 0) };
        let mut known = LineCache::default();
        let mut computed = Vec::new();
        for number in [1, 2, 3, 1, 2, 3, 3, 1, 4, 2, 4, 1] {
            let value = known.get(line(number), || {
                computed.push(number);
                number * 10
            });
            assert_eq!(value, number * 10);
        }
        assert_eq!(computed, [1, 2, 3, 4]);
    }

    #[test]
    fn equal_strings_elsewhere_are_another_dictionary() {
        let dictionary = StringArray::from(vec!["/a", "/b"]);
        assert!(is_same_array(&dictionary, &dictionary.clone()));
        assert!(!is_same_array(&dictionary, &StringArray::from(vec!["/a", "/b"])));
        assert!(!is_same_array(&dictionary, &dictionary.slice(0, 1)));
    }
}
