//! Columns that were added to a table later: files of an older program lack them.
//!
//! Guarantee: whatever reads such a file gets all columns that it asks for, those that the file
//! lacks as nulls, in the order of the table.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::array::{RecordBatch, new_null_array};
use arrow::datatypes::{FieldRef, Schema};

use crate::schema::TableDef;

/// The columns that a file with this schema lacks and may lack.
pub(super) fn absent_columns(def: &TableDef, stored: &Schema) -> Vec<FieldRef> {
    let schema = (def.schema)();
    let later = schema.fields().iter().filter(|field| def.later.contains(&field.name().as_str()));
    later.filter(|field| stored.field_with_name(field.name()).is_err()).cloned().collect()
}

/// The batch with these columns, all null, after the columns that it has.
pub(super) fn add_absent_columns(batch: RecordBatch, absent: &[FieldRef]) -> Result<RecordBatch> {
    if absent.is_empty() {
        return Ok(batch);
    }
    let rows = batch.num_rows();
    let (schema, mut columns, _) = batch.into_parts();
    columns.extend(absent.iter().map(|field| new_null_array(field.data_type(), rows)));
    let fields: Vec<FieldRef> = schema.fields().iter().chain(absent).cloned().collect();
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    RecordBatch::try_new(Arc::new(schema), columns).context("cannot add a column")
}

#[cfg(test)]
mod tests {
    use crate::schema::ALL;

    #[test]
    fn later_columns_are_the_last() {
        for def in ALL {
            let schema = (def.schema)();
            let names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            assert_eq!(names[names.len() - def.later.len()..], *def.later, "{}", def.name);
        }
    }
}
