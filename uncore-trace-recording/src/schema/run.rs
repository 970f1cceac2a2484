//! `run`: the metadata of the recording as a table, with the same pairs as each file's metadata.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::column_type::{Null, Text, Word, table};
use super::origin::RecordingOrigin;

table! {
    "run", "the recording's metadata", sorted by [];
    Own;
    host: Word => Dict, "Host name.";
    boot_id: Word => Dict, "Random id of the boot (`/proc/sys/kernel/random/boot_id`): times of `CLOCK_MONOTONIC` and ids compare within one boot.";
    cluster: Null<Word> => Dict, "Cluster the host is in, as `--cluster` named it; null where it was not named.";
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
