//! Copies rows that describe a state from a time on: the last row of each key before the begin, and
//! all later rows that change the state.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::row::{RowConverter, SortField};

use super::rows::{Write, filtered};
use crate::schema::columns::{i64s, words};
use crate::tables::reader::Table;

/// Rows beyond those in use at which the others are freed.
const SLACK: usize = 1 << 16;

/// Column of the time from which a row holds, columns of the key, and the column and value of a
/// key's final row.
pub(super) type Form =
    (Option<&'static str>, &'static [&'static str], Option<(&'static str, &'static str)>);

/// Current state of each key.
#[derive(Debug, Default)]
pub(super) struct Held(HashMap<Box<[u8]>, Box<[u8]>>);

impl Held {
    /// Copies the rows of a table that hold at any time from `begin` to `end`.
    pub(super) fn copy(
        &mut self,
        table: &Table,
        columns: &[&str],
        form: Form,
        (begin, end): (i64, i64),
        write: &mut Write<'_>,
    ) -> Result<()> {
        let (since, ..) = form;
        if since.is_some() && begin > i64::MIN {
            let mut latest = Latest::default();
            for batch in table.scan(columns)? {
                latest.add(&batch?, form, begin)?;
            }
            if let Some(batch) = latest.rows()? {
                self.write(&batch, form, write)?;
            }
        }
        for batch in table.scan(columns)? {
            let batch = batch?;
            let Some(since) = since else {
                self.write(&batch, form, write)?;
                continue;
            };
            let times = i64s(&batch, since)?.values();
            let is_within = times.iter().map(|at| begin <= *at && *at <= end);
            self.write(&filtered(&batch, &is_within.collect::<Vec<bool>>())?, form, write)?;
        }
        Ok(())
    }

    /// Writes the rows that differ from the current state.
    fn write(&mut self, batch: &RecordBatch, form: Form, write: &mut Write<'_>) -> Result<()> {
        let (since, key, _) = form;
        let keys = bytes(batch, |name| key.contains(&name))?;
        let states = bytes(batch, |name| !key.contains(&name) && Some(name) != since)?;
        let news = keys.into_iter().zip(states).map(|(key, state)| {
            let is_known = self.0.get(&key).is_some_and(|known| *known == state);
            if !is_known {
                self.0.insert(key, state);
            }
            !is_known
        });
        let news: Vec<bool> = news.collect();
        write(filtered(batch, &news)?)
    }
}

/// The last row of each key before a time.
#[derive(Debug, Default)]
struct Latest {
    batches: Vec<RecordBatch>,
    rows: usize,
    at: HashMap<Box<[u8]>, (usize, usize)>,
}

impl Latest {
    fn add(&mut self, batch: &RecordBatch, (since, key, last): Form, begin: i64) -> Result<()> {
        let Some(since) = since else { return Ok(()) };
        let times = i64s(batch, since)?.values();
        let last =
            last.map(|(column, value)| Ok::<_, anyhow::Error>((words(batch, column)?, value)));
        let last = last.transpose()?;
        for (row, key) in bytes(batch, |name| key.contains(&name))?.into_iter().enumerate() {
            if times.get(row).is_none_or(|at| *at >= begin) {
                continue;
            }
            if last.as_ref().is_some_and(|(words, value)| words.get(row) == Some(*value)) {
                self.at.remove(&key);
            } else {
                self.at.insert(key, (self.batches.len(), row));
            }
        }
        self.rows += batch.num_rows();
        self.batches.push(batch.clone());
        if self.rows > 2 * self.at.len() + SLACK {
            self.compact()?;
        }
        Ok(())
    }

    /// Frees rows that are not the last of their key.
    fn compact(&mut self) -> Result<()> {
        let mut places: Vec<&mut (usize, usize)> = self.at.values_mut().collect();
        places.sort_unstable();
        let wanted: Vec<(usize, usize)> = places.iter().map(|place| **place).collect();
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let kept = if wanted.is_empty() {
            None
        } else {
            Some(interleave_record_batch(&batches, &wanted).context("cannot copy rows")?)
        };
        for (row, place) in places.into_iter().enumerate() {
            *place = (0, row);
        }
        self.rows = wanted.len();
        self.batches = kept.into_iter().collect();
        Ok(())
    }

    /// The rows, in the order of the table.
    fn rows(mut self) -> Result<Option<RecordBatch>> {
        self.compact()?;
        Ok(self.batches.pop())
    }
}

/// The selected columns of each row, as comparable bytes.
fn bytes(batch: &RecordBatch, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Box<[u8]>>> {
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
    use crate::schema::tasks::{Builder, Row, TABLE};
    use crate::schema::when::When;
    use crate::schema::{SCHEMA_VERSION, metadata};
    use crate::tables::writer::{CreateOptions, Target, Writer};

    fn row(mono_ns: i64, tid: i32, comm: &'static str, what: &'static str) -> Row<'static> {
        Row { mono_ns, pid: tid, tid, comm, cgroup_id: 1, what }
    }

    /// The time and thread of the rows that are copied from these tables, one after the other,
    /// between two times.
    fn copied(tables: &[Vec<Row<'_>>], begin: i64, end: i64) -> Vec<(i64, i32)> {
        let dir = tempfile::tempdir().unwrap();
        let version = (metadata::SCHEMA_VERSION.to_owned(), SCHEMA_VERSION.to_string());
        let When::Holds { since, key, last } = TABLE.when else { unreachable!("tasks hold") };
        let (mut held, mut found) = (Held::default(), Vec::new());
        for (at, rows) in tables.iter().enumerate() {
            let path = dir.path().join(format!("{at}.parquet"));
            let target = Target::Table(&TABLE, path.clone());
            let mut writer =
                Writer::create(target, CreateOptions::default(), &[version.clone()].into()).unwrap();
            let mut builder = Builder::default();
            builder.append_all(rows);
            writer.write(&TABLE, &builder.finish()).unwrap();
            writer.finish(&[version.clone()].into()).unwrap();
            let table = Table::open(&TABLE, &path).unwrap();
            let columns: Vec<&str> = TABLE.encodings.iter().map(|(name, _)| *name).collect();
            let begin = if at == 0 { begin } else { i64::MIN };
            let mut take = |batch: RecordBatch| {
                let (times, tids) = (
                    i64s(&batch, "mono_ns")?.values().to_vec(),
                    crate::schema::columns::i32s(&batch, "tid")?.values().to_vec(),
                );
                found.extend(times.into_iter().zip(tids));
                Ok(())
            };
            held.copy(&table, &columns, (since, key, last), (begin, end), &mut take).unwrap();
        }
        found
    }

    #[test]
    fn the_last_of_each_key_holds_until_it_ends() {
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
    fn what_a_later_part_says_again_is_not_copied() {
        let first = vec![row(1, 7, "a", "seen"), row(2, 8, "b", "seen")];
        let second =
            vec![row(10, 7, "a", "seen"), row(10, 8, "b2", "seen"), row(11, 9, "c", "seen")];
        let found = copied(&[first, second], 0, 10);
        assert_eq!(found, [(1, 7), (2, 8), (10, 8)]);
    }

    #[test]
    fn many_rows_of_few_keys_are_few_in_memory() {
        let mut latest = Latest::default();
        let mut builder = Builder::default();
        let form = (Some("mono_ns"), &["tid"][..], None);
        for at in 0..40 {
            for row in 0..8192 {
                builder.append(&self::row(at * 8192 + row, (row % 5) as i32, "a", "exec"));
            }
            latest.add(&builder.finish(), form, i64::MAX).unwrap();
            assert!(latest.rows <= SLACK + 3 * 8192, "{}", latest.rows);
        }
        let rows = latest.rows().unwrap().unwrap();
        let times = i64s(&rows, "mono_ns").unwrap().values().to_vec();
        let last = 40 * 8192;
        assert_eq!(times, [last - 5, last - 4, last - 3, last - 2, last - 1]);
    }
}
