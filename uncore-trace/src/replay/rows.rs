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

/// Decodes a batch.
type DecodeBatch<T> = fn(&RecordBatch) -> Result<Vec<(u64, T)>>;

/// What makes entries of the rows of a table.
pub(super) struct TableForm<T> {
    /// The table.
    pub table: &'static TableDef,
    /// The columns that are read.
    pub columns: &'static [&'static str],
    /// Decodes a batch: the rows, each with the end of its tick.
    pub decode: DecodeBatch<T>,
    /// The entry of a row.
    pub entry: fn(&T) -> LogEntry<'_>,
}

impl<T> StoredEntries<T> {
    /// Opens a table that older recordings may lack.
    pub(super) fn open_if_there(recording: &Recording, form: &TableForm<T>) -> Result<Self> {
        let scan = recording.find_table(form.table)?.map(|table| table.scan_columns(form.columns));
        let rows = scan.transpose()?.map(|scan| TableRows::new(scan, form.decode));
        Ok(Self { rows, entry: form.entry })
    }

    /// Opens a table that every recording has.
    pub(super) fn open_table(recording: &Recording, form: &TableForm<T>) -> Result<Self> {
        let scan = recording.open_table(form.table)?.scan_columns(form.columns)?;
        Ok(Self { rows: Some(TableRows::new(scan, form.decode)), entry: form.entry })
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
