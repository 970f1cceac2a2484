//! A table as CSV (RFC 4180), with a header.
//!
//! Guarantees: null is an empty field; a record is one line, because control characters of names
//! are escaped (`\n`, `\u{1b}`), and no text is a formula of a spreadsheet, as in `report --csv`;
//! numbers are as recorded.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, StringArray};
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Int32Type, TimeUnit, TimestampMicrosecondType};

use super::SelectedRows;
use crate::text::csv_text;

/// Writes the rows; returns their number.
///
/// # Errors
///
/// The table cannot be read, or `output` cannot be written.
pub fn write_csv(selection: &SelectedRows<'_>, output: impl Write) -> Result<u64> {
    let schema = selection.table.scan_schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut writer = WriterBuilder::new().with_header(true).build(output);
    // Writes the header, even if there are no rows.
    writer.write(&batch_for_csv(&RecordBatch::new_empty(schema.clone()))?)?;
    let mut rows = 0;
    for batch in selection.batches(&names)? {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        writer.write(&batch_for_csv(&batch)?)?;
    }
    Ok(rows)
}

/// The batch in its form for CSV.
fn batch_for_csv(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| (field.name(), column_for_csv(column)));
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The column with its strings escaped, and with a UTC offset as time zone: arrow knows names of
/// zones only with its feature `chrono-tz`.
fn column_for_csv(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            Arc::new(times.clone().with_timezone("+00:00"))
        }
        DataType::Utf8 => Arc::new(escape_strings(column.as_string())),
        DataType::Dictionary(_, _) => {
            let words = column.as_dictionary_opt::<Int32Type>();
            let escaped = words.and_then(|words| {
                let values = escape_strings(words.values().as_string_opt::<i32>()?);
                Some(Arc::new(words.with_values(Arc::new(values))) as ArrayRef)
            });
            escaped.unwrap_or_else(|| Arc::clone(column))
        }
        _ => Arc::clone(column),
    }
}

fn escape_strings(values: &StringArray) -> StringArray {
    values.iter().map(|value| value.map(csv_text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::fabric;
    use crate::view::sample::{Broken, INTACT, SampleRecording};
    use crate::view::span::SelectedTime;

    fn csv(sample: &SampleRecording) -> String {
        let recording = sample.open();
        let table = recording.open_table(&fabric::TABLE).unwrap();
        let span = SelectedTime::between_moments(&recording, &table, None, None).unwrap().unwrap();
        let mut out = Vec::new();
        let rows = write_csv(&SelectedRows::new(&table, &span), &mut out).unwrap();
        assert_eq!(rows as i64, table.row_count());
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
        let text = csv(&SampleRecording::new(false, &broken));
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
        let text = csv(&SampleRecording::new(false, &broken));
        assert_eq!(text.lines().count(), 1 + 300 * 2 * 4);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'));
        assert!(text.contains(r#","a,""b""\r\n\u{1b}[2J\u{202e},","#), "{}", &text[..2000]);
    }
}
