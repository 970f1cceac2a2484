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
    /// In the order in which they came first. Rows of one owner stand together, with one counter after the
    /// other: most rows are of the line that came after that of the row before, and need no hash.
    lines: Vec<(Quick, T)>,
    /// Places in `lines`.
    places: HashMap<Quick, usize, RandomState>,
    /// Place of the line that is looked at first.
    next: usize,
    /// Those that the keys point into. They are kept: another one could have the same address.
    dictionaries: Vec<StringArray>,
}

impl<T: Copy> Known<T> {
    pub(super) fn new() -> Self {
        Self { lines: Vec::new(), places: HashMap::default(), next: 0, dictionaries: Vec::new() }
    }

    /// Begins a batch: forgets everything if its keys may mean something else.
    pub(super) fn begin(&mut self, columns: &Columns<'_>) {
        let now = columns.dictionaries();
        let is_same = self.dictionaries.len() == now.len()
            && self.dictionaries.iter().zip(&now).all(|(one, two)| is_same(one, two));
        if !is_same || self.lines.len() > MOST {
            self.lines.clear();
            self.places.clear();
            self.dictionaries = now.into_iter().cloned().collect();
        }
    }

    /// What is known of a line, or is found out now.
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
    fn each_line_is_found_out_once_whatever_the_order() {
        let line = |number: i32| -> Quick { ([0, 0, number], 0, 0, 0, (0, None), 0) };
        let mut known = Known::new();
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
