//! Remembers the line of a row for later rows with the same keys.
//!
//! Lines are identified by numbers ([`Quick`]) as long as batches have the same dictionaries. The
//! reader has one dictionary for all batches of a row group, so names are compared once per row
//! group and line, and not once per batch. That matters because a window of a thousand tenants is
//! as long as a batch.

use std::collections::HashMap;

use arrow::array::{Array as _, StringArray};
use foldhash::fast::RandomState;

use super::key::{Columns, Quick};

/// Most lines that are remembered.
const MOST: usize = 1 << 16;

/// A value for each line.
#[derive(Debug)]
pub(super) struct LineCache<T> {
    /// In the order of first appearance. The rows of one owner are consecutive, counter by counter,
    /// so the line of a row is mostly the one after that of the previous row, which needs no hash.
    lines: Vec<(Quick, T)>,
    /// Index in `lines`.
    places: HashMap<Quick, usize, RandomState>,
    /// Index of the line to try first.
    next: usize,
    /// The dictionaries to which the keys refer. They are held, so that no other one can get the
    /// same address.
    dictionaries: Vec<StringArray>,
}

impl<T: Copy> LineCache<T> {
    pub(super) fn new() -> Self {
        Self { lines: Vec::new(), places: HashMap::default(), next: 0, dictionaries: Vec::new() }
    }

    /// Begins a batch: forgets all lines if the dictionaries have changed. Returns whether it did.
    pub(super) fn begin(&mut self, columns: &Columns<'_>) -> bool {
        let now = columns.dictionaries();
        let is_same = self.dictionaries.len() == now.len()
            && self.dictionaries.iter().zip(&now).all(|(one, two)| is_same(one, two));
        let is_over = !is_same || self.lines.len() > MOST;
        if is_over {
            self.lines.clear();
            self.places.clear();
            self.dictionaries = now.into_iter().cloned().collect();
        }
        is_over
    }

    /// The value of a line; computed by `find` if it is new.
    #[inline]
    pub(super) fn get(&mut self, line: Quick, find: impl FnOnce() -> T) -> T {
        let place = match self.lines.get(self.next) {
            Some((next, _)) if *next == line => self.next,
            _ => *self.places.entry(line).or_insert_with(|| {
                self.lines.push((line, find()));
                self.lines.len() - 1
            }),
        };
        self.next = place + 1;
        self.lines[place].1
    }
}

/// Whether both are the same array in memory.
fn is_same(one: &StringArray, two: &StringArray) -> bool {
    one.len() == two.len()
        && one.value_offsets().as_ptr() == two.value_offsets().as_ptr()
        && one.values().as_ptr() == two.values().as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_found_out_once_whatever_the_order() {
        let line = |number: i32| -> Quick { ([0, 0, number], 0, 0, 0, (0, None), 0) };
        let mut known = LineCache::new();
        let mut found = Vec::new();
        for number in [1, 2, 3, 1, 2, 3, 3, 1, 4, 2, 4, 1] {
            let told = known.get(line(number), || {
                found.push(number);
                number * 10
            });
            assert_eq!(told, number * 10);
        }
        assert_eq!(found, [1, 2, 3, 4]);
    }

    #[test]
    fn equal_strings_elsewhere_are_another_dictionary() {
        let one = StringArray::from(vec!["/a", "/b"]);
        assert!(is_same(&one, &one.clone()));
        assert!(!is_same(&one, &StringArray::from(vec!["/a", "/b"])));
        assert!(!is_same(&one, &one.slice(0, 1)));
    }
}
