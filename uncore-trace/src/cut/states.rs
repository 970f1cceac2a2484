//! Copies rows that describe a state from a time on: the last row of each key before the begin, and
//! all later rows that change the state.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::row::{RowConverter, SortField};

use super::rows::{RowCopier, filter_rows};
use crate::clock::TimeSpan;
use crate::schema::columns::{i64_column, word_column};

/// Rows beyond those in use at which the others are freed.
const SLACK: usize = 1 << 16;

/// The columns that say which state a row holds, and from when on.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldColumns {
    /// The time from which a row holds; `None`: always.
    pub since: Option<&'static str>,
    /// The key.
    pub key: &'static [&'static str],
    /// A column, and its value in the last row of a key.
    pub last_row: Option<(&'static str, &'static str)>,
}

/// Current state of each key.
#[derive(Debug, Default)]
pub(super) struct HeldStates(HashMap<Box<[u8]>, Box<[u8]>>);

impl HeldStates {
    /// Copies the rows of a table that hold at any time of the span.
    pub(super) fn copy_table(
        &mut self,
        copier: &mut RowCopier<'_>,
        held_columns: HeldColumns,
        span: TimeSpan<i64>,
    ) -> Result<()> {
        let RowCopier { table, columns, write } = copier;
        if held_columns.since.is_some() && span.begin_ns > i64::MIN {
            let mut latest_rows = LatestRows::default();
            for batch in table.scan_columns(columns)? {
                latest_rows.add_batch(&batch?, held_columns, span.begin_ns)?;
            }
            if let Some(batch) = latest_rows.into_rows()? {
                write(self.select_changes(&batch, held_columns)?)?;
            }
        }
        for batch in table.scan_columns(columns)? {
            let mut batch = batch?;
            if let Some(since) = held_columns.since {
                let times = i64_column(&batch, since)?.values().iter();
                let is_within =
                    times.map(|time_ns| (span.begin_ns..=span.end_ns).contains(time_ns));
                batch = filter_rows(&batch, &is_within.collect::<Vec<bool>>())?;
            }
            write(self.select_changes(&batch, held_columns)?)?;
        }
        Ok(())
    }

    /// The rows that differ from the current state, which they change.
    fn select_changes(
        &mut self,
        batch: &RecordBatch,
        held_columns: HeldColumns,
    ) -> Result<RecordBatch> {
        let HeldColumns { since, key, .. } = held_columns;
        let keys = row_bytes(batch, |name| key.contains(&name))?;
        let states = row_bytes(batch, |name| !key.contains(&name) && Some(name) != since)?;
        let changes = keys.into_iter().zip(states).map(|(key, state)| {
            let is_known = self.0.get(&key).is_some_and(|known| *known == state);
            if !is_known {
                self.0.insert(key, state);
            }
            !is_known
        });
        filter_rows(batch, &changes.collect::<Vec<bool>>())
    }
}

/// The last row of each key before a time.
#[derive(Debug, Default)]
struct LatestRows {
    batches: Vec<RecordBatch>,
    row_count: usize,
    row_of_key: HashMap<Box<[u8]>, (usize, usize)>,
}

impl LatestRows {
    fn add_batch(
        &mut self,
        batch: &RecordBatch,
        held_columns: HeldColumns,
        begin_ns: i64,
    ) -> Result<()> {
        let HeldColumns { since: Some(since), key, last_row } = held_columns else {
            return Ok(());
        };
        let times = i64_column(batch, since)?.values();
        let final_column = last_row
            .map(|(column, value)| Ok::<_, anyhow::Error>((word_column(batch, column)?, value)));
        let final_words = final_column.transpose()?;
        for (row, key) in row_bytes(batch, |name| key.contains(&name))?.into_iter().enumerate() {
            if times.get(row).is_none_or(|time_ns| *time_ns >= begin_ns) {
                continue;
            }
            if final_words.as_ref().is_some_and(|(words, value)| words.get(row) == Some(*value)) {
                self.row_of_key.remove(&key);
            } else {
                self.row_of_key.insert(key, (self.batches.len(), row));
            }
        }
        self.row_count += batch.num_rows();
        self.batches.push(batch.clone());
        if self.row_count > 2 * self.row_of_key.len() + SLACK {
            self.free_old_rows()?;
        }
        Ok(())
    }

    /// Frees rows that are not the last of their key.
    fn free_old_rows(&mut self) -> Result<()> {
        let mut rows_of_keys: Vec<&mut (usize, usize)> = self.row_of_key.values_mut().collect();
        rows_of_keys.sort_unstable();
        let wanted: Vec<(usize, usize)> =
            rows_of_keys.iter().map(|batch_and_row| **batch_and_row).collect();
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let kept = if wanted.is_empty() {
            None
        } else {
            Some(interleave_record_batch(&batches, &wanted).context("cannot copy rows")?)
        };
        for (row, new_row) in rows_of_keys.into_iter().enumerate() {
            *new_row = (0, row);
        }
        self.row_count = wanted.len();
        self.batches = kept.into_iter().collect();
        Ok(())
    }

    /// The rows, in the order of the table.
    fn into_rows(mut self) -> Result<Option<RecordBatch>> {
        self.free_old_rows()?;
        Ok(self.batches.pop())
    }
}

/// The selected columns of each row, as comparable bytes.
fn row_bytes(batch: &RecordBatch, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Box<[u8]>>> {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns());
    let (fields, columns): (Vec<SortField>, Vec<_>) = fields
        .filter(|(field, _)| is_wanted(field.name()))
        .map(|(field, column)| (SortField::new(field.data_type().clone()), column.clone()))
        .unzip();
    let converter = RowConverter::new(fields).context("cannot compare rows")?;
    let rows = converter.convert_columns(&columns).context("cannot compare rows")?;
    Ok(rows.iter().map(|row| Box::from(row.as_ref())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::row_time::RowTime;
    use crate::schema::tasks::{Builder, Row, TABLE};
    use crate::schema::{SCHEMA_VERSION, metadata};
    use crate::tables::reader::OpenTable;
    use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};

    fn row(mono_ns: i64, tid: i32, comm: &'static str, what: &'static str) -> Row<'static> {
        Row { mono_ns, pid: tid, tid, comm, cgroup_id: 1, what }
    }

    /// The time and thread of the rows that are copied from these tables, one after the other,
    /// between two times.
    fn copied(tables: &[Vec<Row<'_>>], begin: i64, end: i64) -> Vec<(i64, i32)> {
        let dir = tempfile::tempdir().unwrap();
        let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
        let RowTime::Holds { since, key, last_row } = TABLE.when else {
            unreachable!("tasks hold")
        };
        let (mut states, mut copied_rows) = (HeldStates::default(), Vec::new());
        for (index, rows) in tables.iter().enumerate() {
            let path = dir.path().join(format!("{index}.parquet"));
            let target = RecordingTarget::Table(&TABLE, path.clone());
            let mut writer =
                Writer::create(target, CreateOptions::default(), &[version.clone()].into())
                    .unwrap();
            let mut builder = Builder::default();
            builder.append_all(rows);
            writer.write(&TABLE, &builder.finish()).unwrap();
            writer.finish(&[version.clone()].into()).unwrap();
            let table = OpenTable::open(&TABLE, &path).unwrap();
            let columns: Vec<&str> = TABLE.encodings.iter().map(|(name, _)| *name).collect();
            let span = TimeSpan::new(if index == 0 { begin } else { i64::MIN }, end);
            let mut take = |batch: RecordBatch| {
                let (times, tids) = (
                    i64_column(&batch, "mono_ns")?.values().to_vec(),
                    crate::schema::columns::i32_column(&batch, "tid")?.values().to_vec(),
                );
                copied_rows.extend(times.into_iter().zip(tids));
                Ok(())
            };
            let mut copier = RowCopier { table: &table, columns: &columns, write: &mut take };
            let held_columns = HeldColumns { since, key, last_row };
            states.copy_table(&mut copier, held_columns, span).unwrap();
        }
        copied_rows
    }

    #[test]
    fn the_last_row_of_each_key_holds_until_its_end() {
        let rows = vec![
            row(1, 7, "a", "seen"),
            row(2, 8, "b", "seen"),
            row(3, 7, "c", "exec"),
            row(4, 9, "d", "seen"),
            row(5, 9, "d", "exit"),
            row(12, 8, "b", "exit"),
            row(20, 10, "e", "seen"),
        ];
        let table = [rows];
        assert_eq!(copied(&table, 10, 15), [(2, 8), (3, 7), (12, 8)]);
        assert_eq!(copied(&table, 3, 3), [(1, 7), (2, 8), (3, 7)]);
        assert_eq!(copied(&table, 0, 100).len(), 7);
    }

    #[test]
    fn rows_that_a_later_part_repeats_are_not_copied() {
        let first = vec![row(1, 7, "a", "seen"), row(2, 8, "b", "seen")];
        let second =
            vec![row(10, 7, "a", "seen"), row(10, 8, "b2", "seen"), row(11, 9, "c", "seen")];
        let copied_rows = copied(&[first, second], 0, 10);
        assert_eq!(copied_rows, [(1, 7), (2, 8), (10, 8)]);
    }

    #[test]
    fn many_rows_of_few_keys_are_few_in_memory() {
        let mut latest = LatestRows::default();
        let mut builder = Builder::default();
        let form = HeldColumns { since: Some("mono_ns"), key: &["tid"], last_row: None };
        for time in 0..40 {
            for row in 0..8192 {
                builder.append(&self::row(time * 8192 + row, (row % 5) as i32, "a", "exec"));
            }
            latest.add_batch(&builder.finish(), form, i64::MAX).unwrap();
            assert!(latest.row_count <= SLACK + 3 * 8192, "{}", latest.row_count);
        }
        let rows = latest.into_rows().unwrap().unwrap();
        let times = i64_column(&rows, "mono_ns").unwrap().values().to_vec();
        let last = 40 * 8192;
        assert_eq!(times, [last - 5, last - 4, last - 3, last - 2, last - 1]);
    }
}
