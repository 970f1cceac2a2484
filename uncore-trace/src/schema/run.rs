//! `run`: the recording's metadata as a table, the same pairs as each file's key-value metadata.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::kind::{Text, table};

table! {
    "run", "the recording's metadata", sorted by [];
    key: Text => Plain, "Name, with the prefix `uncore_trace.`.";
    value: Text => Plain, "Value; JSON where the key says so.";
}

/// The metadata as rows of this table.
pub fn of(pairs: &BTreeMap<String, String>) -> RecordBatch {
    let mut builder = Builder::default();
    for (key, value) in pairs {
        builder.append(&Row { key, value });
    }
    builder.finish()
}
