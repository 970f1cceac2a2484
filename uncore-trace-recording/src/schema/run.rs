//! `run`: the metadata of the recording as a table, with the same pairs as each file's metadata.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::column_type::{Null, Text, Word, table};
use super::origin::RecordingOrigin;

table! {
    "run", "the recording's metadata", sorted by [];
    Own;
    origin;
    key: Text => Plain, "Name, with the prefix `uncore_trace.`.";
    value: Text => Plain, "Value; JSON where the key says so.";
}

/// The metadata as rows of this table.
pub fn metadata_rows(pairs: &BTreeMap<String, String>) -> RecordBatch {
    let mut builder = Builder::default();
    let RecordingOrigin { host, boot_id, cluster } = &RecordingOrigin::from_metadata(pairs);
    for (key, value) in pairs {
        builder.append(&Row { host, boot_id, cluster: cluster.as_deref(), key, value });
    }
    builder.finish()
}
