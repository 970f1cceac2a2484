//! `run`: the recording's metadata as a table, the same pairs as each file's key-value metadata.

use super::kind::{Text, table};

table! {
    "run", "the recording's metadata", sorted by [];
    key: Text => Plain, "Name, with the prefix `uncore_trace.`.";
    value: Text => Plain, "Value; JSON where the key says so.";
}
