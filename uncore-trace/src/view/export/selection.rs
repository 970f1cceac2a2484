//! The rows of a table in the selected time.
//!
//! A row belongs to the span in which it ends, as a window does. Tables that describe a state
//! (counters, links, cgroups, CPUs, metadata), whose rows hold from their time on, and marks are
//! exported whole.

use anyhow::Result;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;

use crate::schema::columns::i64_column;
use crate::schema::{TableDef, cgroups, counters, cpus, links, marks, run};
use crate::tables::reader::OpenTable;
use crate::view::span::SelectedTime;

/// Tables that are exported whole.
const WHOLE: [&TableDef; 6] =
    [&cgroups::TABLE, &counters::TABLE, &cpus::TABLE, &links::TABLE, &marks::TABLE, &run::TABLE];
/// Columns with the end time of a row; every other table has one of them.
const ENDS: [&str; 2] = ["mono_ns", "end_ns"];

/// Rows of one table.
#[derive(Debug)]
pub struct SelectedRows<'a> {
    /// The table.
    pub table: &'a OpenTable,
    span: &'a SelectedTime,
    end_column: Option<&'static str>,
}

impl<'a> SelectedRows<'a> {
    /// The rows of `table` that end in `span`.
    pub fn new(table: &'a OpenTable, span: &'a SelectedTime) -> Self {
        let schema = (table.table_def().schema)();
        let whole = WHOLE.iter().any(|def| def.name == table.table_def().name);
        let end = ENDS.into_iter().find(|end| !whole && schema.column_with_name(end).is_some());
        Self { table, span, end_column: end }
    }

    /// The rows with these columns, in the order of the table. The time column may be included too.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub fn batches(&self, columns: &[&str]) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        let end = self.end_column;
        let wanted = self.span.wanted.clone();
        let scan = match end {
            None => self.table.scan_columns(columns)?,
            Some(end) => {
                let columns: Vec<&str> = columns.iter().copied().chain([end]).collect();
                self.table.scan_within(&columns, end, wanted.clone())?
            }
        };
        let is_all = wanted == (i64::MIN..=i64::MAX);
        Ok(scan.map(move |batch| {
            let batch = batch?;
            let Some(end) = end.filter(|_| !is_all) else { return Ok(batch) };
            let ends = i64_column(&batch, end)?;
            let keep: BooleanArray =
                ends.values().iter().map(|end| Some(wanted.contains(end))).collect();
            Ok(filter_record_batch(&batch, &keep)?)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ALL, fabric, readings};
    use crate::view::sample::{INTACT, SampleRecording};

    #[test]
    fn every_table_is_whole_or_has_the_end_of_its_rows() {
        for def in ALL {
            let schema = (def.schema)();
            let whole = WHOLE.iter().any(|other| other.name == def.name);
            let has_end = ENDS.iter().any(|end| schema.column_with_name(end).is_some());
            assert!(whole || has_end, "{}", def.name);
        }
    }

    #[test]
    fn spans_that_meet_divide_a_table() {
        let sample = SampleRecording::new(true, &INTACT);
        let recording = sample.open();
        let fabric = recording.open_table(&fabric::TABLE).unwrap();
        for def in [&fabric::TABLE, &readings::TABLE, &counters::TABLE] {
            let table = recording.open_table(def).unwrap();
            let rows = |from: &str, to: &str| {
                let parse = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
                let span = SelectedTime::between_moments(
                    &recording,
                    &fabric,
                    parse(from).as_ref(),
                    parse(to).as_ref(),
                );
                let span = span.unwrap().unwrap();
                let selection = SelectedRows::new(&table, &span);
                let batches = selection.batches(&[]).unwrap();
                batches.map(|batch| batch.unwrap().num_rows()).sum::<usize>() as i64
            };
            if def.name == counters::TABLE.name {
                assert_eq!(rows("", ""), rows("1s", ""));
                continue;
            }
            assert_eq!(rows("", ""), table.row_count(), "{}", def.name);
            assert!(rows("", "1s") > 0 && rows("1s", "") > 0);
            assert_eq!(rows("", "1s") + rows("1s", ""), table.row_count(), "{}", def.name);
        }
    }
}
