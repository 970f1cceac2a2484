//! A table as CSV (RFC 4180), with a header.
//!
//! Guarantees: what is null is empty; a record is one line, because control characters of names are
//! written as `\n`, `\u{1b}`, as `report --csv` does; numbers are as recorded.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Array, ArrayRef, AsArray as _, DictionaryArray, RecordBatch, StringArray};
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Int32Type, TimeUnit, TimestampMicrosecondType};

use super::Selection;
use crate::text::printable;

/// Writes the rows; returns their number.
///
/// # Errors
///
/// The table cannot be read, or `out` not written.
pub fn write(selection: &Selection<'_>, out: impl Write) -> Result<u64> {
    let schema = selection.table().schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut writer = WriterBuilder::new().with_header(true).build(out);
    // The header is written with the first batch, also where it has no rows.
    writer.write(&shown(&RecordBatch::new_empty(schema.clone()))?)?;
    let mut rows = 0;
    for batch in selection.batches(&names)? {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        writer.write(&shown(&batch)?)?;
    }
    Ok(rows)
}

/// The batch as it is written.
fn shown(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| (field.name(), column_shown(column)));
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The column with its strings fit to be shown, and with an offset for a zone: arrow has no names of
/// zones without its feature `chrono-tz`.
fn column_shown(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            Arc::new(times.clone().with_timezone("+00:00"))
        }
        DataType::Utf8 => Arc::new(strings(column.as_string())),
        DataType::Dictionary(_, _) => {
            let Some(words) = column.as_dictionary_opt::<Int32Type>() else {
                return Arc::clone(column);
            };
            let Some(values) = words.values().as_string_opt::<i32>() else {
                return Arc::clone(column);
            };
            match DictionaryArray::try_new(words.keys().clone(), Arc::new(strings(values))) {
                Ok(words) => Arc::new(words),
                // As many values as before: the keys still point into them.
                Err(_) => Arc::clone(column),
            }
        }
        _ => Arc::clone(column),
    }
}

fn strings(values: &StringArray) -> StringArray {
    values.iter().map(|value| value.map(printable)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::fabric;
    use crate::view::sample::{Broken, INTACT, Sample};
    use crate::view::span::Span;

    fn csv(sample: &Sample) -> String {
        let recording = sample.open();
        let table = recording.table(&fabric::TABLE).unwrap();
        let span = Span::of(&recording, &table, None, None).unwrap().unwrap();
        let mut out = Vec::new();
        let rows = write(&Selection::new(&table, &span), &mut out).unwrap();
        assert_eq!(rows as i64, table.rows());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_row_is_a_line_with_every_column_and_null_is_empty() {
        let broken = Broken {
            fabric: |row, number| {
                if number < 4 {
                    (row.value, row.total, row.confidence) = (None, None, None);
                }
                true
            },
            ..INTACT
        };
        let text = csv(&Sample::new(false, &broken));
        let lines: Vec<&str> = text.lines().collect();
        let schema = fabric::schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(lines[0], names.join(","));
        assert_eq!(lines.len(), 1 + 300 * 2 * 4);
        let unknown: Vec<&str> = lines[1].split(',').collect();
        assert_eq!(unknown.len(), names.len());
        assert_eq!(unknown[0], "2023-11-14T22:13:25.010Z");
        let cell = |line: &str, name: &str| {
            let at = names.iter().position(|other| *other == name).unwrap();
            line.split(',').nth(at).unwrap().to_owned()
        };
        for name in ["value", "total", "confidence"] {
            assert_eq!(cell(lines[1], name), "", "{name}");
        }
        assert_eq!(cell(lines[5], "value"), "15.0");
        assert_eq!(cell(lines[5], "total"), "30.0");
    }

    #[test]
    fn hostile_names_are_text_in_one_line() {
        let broken = Broken {
            fabric: |row, _| {
                if row.pid == Some(100) {
                    row.comm = Some("a,\"b\"\r\n\u{1b}[2J\u{202e},");
                }
                true
            },
            ..INTACT
        };
        let text = csv(&Sample::new(false, &broken));
        assert_eq!(text.lines().count(), 1 + 300 * 2 * 4);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'));
        assert!(text.contains(r#","a,""b""\r\n\u{1b}[2J\u{202e},","#), "{}", &text[..2000]);
    }
}
