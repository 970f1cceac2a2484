//! Iterates over the rows of a table, with one batch in memory.

use std::iter::Peekable;
use std::vec::IntoIter;

use anyhow::Result;
use arrow::array::RecordBatch;

use crate::tables::reader::Scan;

/// The rows that were not used yet.
#[derive(Debug)]
pub(super) struct Rows<T> {
    scan: Scan,
    decode: fn(&RecordBatch) -> Result<Vec<T>>,
    batch: Peekable<IntoIter<T>>,
}

impl<T> Rows<T> {
    /// Starts at the first row.
    pub(super) fn new(scan: Scan, decode: fn(&RecordBatch) -> Result<Vec<T>>) -> Self {
        Self { scan, decode, batch: Vec::new().into_iter().peekable() }
    }

    /// The next row, without consuming it.
    pub(super) fn peek(&mut self) -> Result<Option<&T>> {
        while self.batch.peek().is_none() {
            match self.scan.next().transpose()? {
                Some(batch) => self.batch = (self.decode)(&batch)?.into_iter().peekable(),
                None => return Ok(None),
            }
        }
        Ok(self.batch.peek())
    }

    /// Consumes and returns the next row if it is `wanted`.
    pub(super) fn next_if(&mut self, wanted: impl Fn(&T) -> bool) -> Result<Option<T>> {
        Ok(if self.peek()?.is_some_and(wanted) { self.batch.next() } else { None })
    }
}
