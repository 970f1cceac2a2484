//! Iterates over the rows of a table, with one batch in memory, and gives entries to the log.

use std::iter::Peekable;
use std::vec::IntoIter;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::ReplayLog;
use crate::entries::LogEntry;
use crate::schema::TableDef;
use crate::tables::reader::{Recording, TableScan};

/// The rows that were not used yet.
#[derive(Debug)]
pub(super) struct TableRows<T> {
    scan: TableScan,
    decode: fn(&RecordBatch) -> Result<Vec<T>>,
    batch: Peekable<IntoIter<T>>,
}

impl<T> TableRows<T> {
    /// Starts at the first row.
    pub(super) fn new(scan: TableScan, decode: fn(&RecordBatch) -> Result<Vec<T>>) -> Self {
        Self { scan, decode, batch: Vec::new().into_iter().peekable() }
    }

    /// The next row, without consuming it.
    pub(super) fn peek_row(&mut self) -> Result<Option<&T>> {
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
        Ok(if self.peek_row()?.is_some_and(wanted) { self.batch.next() } else { None })
    }
}

/// Rows of a table whose rows are entries, with the end of the tick in which each is logged;
/// nothing if the recording has no such table.
#[derive(Debug)]
pub(super) struct StoredEntries<T> {
    rows: Option<TableRows<(u64, T)>>,
    entry: fn(&T) -> LogEntry<'_>,
}

/// What makes entries of the rows of a table: the table, its columns, how a batch is decoded, and
/// the entry of a row.
pub(super) type TableForm<T> = (
    &'static TableDef,
    &'static [&'static str],
    fn(&RecordBatch) -> Result<Vec<(u64, T)>>,
    fn(&T) -> LogEntry<'_>,
);

impl<T> StoredEntries<T> {
    /// Opens the table.
    pub(super) fn open_table(
        recording: &Recording,
        (table, columns, decode, entry): TableForm<T>,
    ) -> Result<Self> {
        let table = recording.find_table(table)?;
        let scan = table.map(|table| table.scan_columns(columns)).transpose()?;
        Ok(Self { rows: scan.map(|scan| TableRows::new(scan, decode)), entry })
    }

    /// Adds the rows of ticks up to the one that ends at `tick_end_ns`.
    pub(super) fn feed_until(&mut self, tick_end_ns: u64, log: &mut ReplayLog) -> Result<()> {
        let Some(rows) = &mut self.rows else {
            return Ok(());
        };
        while let Some((_, row)) = rows.next_if(|(tick_end, _)| *tick_end <= tick_end_ns)? {
            log.log_entry((self.entry)(&row))?;
        }
        Ok(())
    }
}
