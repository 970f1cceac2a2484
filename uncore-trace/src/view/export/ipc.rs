//! A table as an Arrow IPC file, with the metadata of the recording in its schema.
//!
//! Guarantees: columns and types are those of the table; every dictionary is in the file once and
//! complete, because readers differ in their support for dictionaries that grow or are replaced
//! within a file (Arrow columnar format 1.5, "Dictionary Messages"). So the strings are read before
//! the rows.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::array::{
    Array as _, ArrayRef, AsArray as _, DictionaryArray, Int32Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Int32Type, SchemaRef};
use arrow::ipc::writer::FileWriter;

use super::SelectedRows;

/// Writes the rows; returns their number.
///
/// # Errors
///
/// The table cannot be read, or `output` cannot be written.
pub fn write_ipc(selection: &SelectedRows<'_>, output: impl Write) -> Result<u64> {
    let table = selection.table;
    let pairs: HashMap<String, String> = table.metadata_pairs().clone().into_iter().collect();
    let schema: SchemaRef =
        Arc::new(Arc::unwrap_or_clone(table.scan_schema()).with_metadata(pairs));
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let dictionaries = Dictionaries::read_dictionaries(selection, &schema)?;
    let mut writer = FileWriter::try_new(output, &schema)?;
    let mut rows = 0;
    for batch in selection.batches(&names)? {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        let columns = names.iter().map(|name| {
            let column = batch.column_by_name(name).with_context(|| format!("no column {name}"))?;
            dictionaries.complete_column(name, column)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    writer.finish()?;
    Ok(rows)
}

/// The strings of each dictionary column of a table, by column name.
struct Dictionaries(HashMap<String, Dictionary>);

/// The strings of one column.
struct Dictionary {
    keys: HashMap<String, i32>,
    /// In the order of their keys; all batches use this array.
    values: ArrayRef,
}

impl Dictionaries {
    fn read_dictionaries(selection: &SelectedRows<'_>, schema: &SchemaRef) -> Result<Self> {
        let dictionary_fields = schema.fields().iter();
        let words = dictionary_fields
            .filter(|field| matches!(field.data_type(), DataType::Dictionary(_, _)));
        let words: Vec<&str> = words.map(|field| field.name().as_str()).collect();
        let mut keys_by_column: Vec<HashMap<String, i32>> = vec![HashMap::new(); words.len()];
        if !words.is_empty() {
            for batch in selection.batches(&words)? {
                let batch = batch?;
                for (name, keys) in words.iter().zip(&mut keys_by_column) {
                    let column = batch.column_by_name(name);
                    add_keys(keys, column.with_context(|| format!("no column {name}"))?)?;
                }
            }
        }
        let named_dictionary = |(name, keys): (&str, _)| (name.to_owned(), Dictionary::new(keys));
        Ok(Self(words.into_iter().zip(keys_by_column).map(named_dictionary).collect()))
    }

    /// The column with keys into the complete dictionary.
    fn complete_column(&self, name: &str, column: &ArrayRef) -> Result<ArrayRef> {
        let Some(dictionary) = self.0.get(name) else { return Ok(Arc::clone(column)) };
        let (keys, values) = keys_and_strings(column)?;
        let map: Vec<Option<i32>> = values
            .iter()
            .map(|value| value.and_then(|value| dictionary.keys.get(value).copied()))
            .collect();
        let complete_key =
            |key: i32| usize::try_from(key).ok().and_then(|index| *map.get(index)?);
        let keys: Int32Array = keys.iter().map(|old| old.and_then(complete_key)).collect();
        Ok(Arc::new(DictionaryArray::try_new(keys, Arc::clone(&dictionary.values))?))
    }
}

impl Dictionary {
    fn new(keys: HashMap<String, i32>) -> Self {
        let mut values: Vec<(&String, i32)> =
            keys.iter().map(|(value, key)| (value, *key)).collect();
        values.sort_by_key(|(_, key)| *key);
        let values: StringArray = values.into_iter().map(|(value, _)| Some(value)).collect();
        Self { values: Arc::new(values), keys }
    }
}

/// Gives a key to each string of the column that has none yet.
fn add_keys(known: &mut HashMap<String, i32>, column: &ArrayRef) -> Result<()> {
    let (keys, values) = keys_and_strings(column)?;
    let mut seen = vec![false; values.len()];
    for value_index in keys.iter().flatten().filter_map(|key| usize::try_from(key).ok()) {
        let is_new = seen.get_mut(value_index).is_some_and(|seen| !std::mem::replace(seen, true));
        if is_new && values.is_valid(value_index) && !known.contains_key(values.value(value_index))
        {
            known.insert(values.value(value_index).to_owned(), known.len() as i32);
        }
    }
    Ok(())
}

/// Keys and strings of a dictionary column.
fn keys_and_strings(column: &ArrayRef) -> Result<(&Int32Array, &StringArray)> {
    let words = column.as_dictionary_opt::<Int32Type>();
    let pair = words.and_then(|words| Some((words.keys(), words.values().as_string_opt()?)));
    pair.context("a dictionary column is not of strings")
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use arrow::compute::concat_batches;
    use arrow::ipc::reader::FileReader;

    use super::*;
    use crate::schema::{ALL, fabric, metadata};
    use crate::view::sample::{INTACT, SampleRecording};
    use crate::view::span::SelectedTime;

    #[test]
    fn every_table_is_read_back_as_it_was() {
        let sample = SampleRecording::new(true, &INTACT);
        let recording = sample.open();
        let span = SelectedTime::between_moments(
            &recording,
            &recording.open_table(&fabric::TABLE).unwrap(),
            None,
            None,
        );
        let span = span.unwrap().unwrap();
        for def in ALL {
            let table = recording.open_table(def).unwrap();
            let mut out = Vec::new();
            let rows = write_ipc(&SelectedRows::new(&table, &span), &mut out).unwrap();
            assert_eq!(rows as i64, table.row_count(), "{}", def.name);
            let reader = FileReader::try_new(Cursor::new(out), None).unwrap();
            let schema = reader.schema();
            assert_eq!(schema.fields(), (def.schema)().fields(), "{}", def.name);
            assert_eq!(schema.metadata()[metadata::TICK_NS], "1000000");
            let written: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
            let names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            let stored = table.scan_columns(&names).unwrap().map(|batch| batch.unwrap());
            let plain = (def.schema)();
            let stored = concat_batches(&plain, &stored.collect::<Vec<_>>()).unwrap();
            let written: Vec<RecordBatch> = written
                .iter()
                .map(|batch| {
                    RecordBatch::try_new(Arc::clone(&plain), batch.columns().to_vec()).unwrap()
                })
                .collect();
            let written = concat_batches(&plain, &written).unwrap();
            assert_eq!(written, stored, "{}", def.name);
        }
    }
}
