//! Whether a file may have its rows: they are of the host, boot and cluster of its footer, and of
//! the hour of its path.
//!
//! A host writes its own files, digests included. So what it says of others shows in nothing but
//! its rows.

use anyhow::Result;
use arrow::array::{RecordBatch, TimestampMicrosecondArray};
use std::ops::Range;

use crate::schema::columns;
use crate::schema::origin::RecordingOrigin;
use crate::schema::rollup::LONGEST_WINDOW_NS;

/// Columns that are checked.
pub(super) const COLUMNS: [&str; 5] = ["host", "boot_id", "cluster", "ts", "window_ns"];

/// The host, boot, cluster and time that the rows of a file may have.
#[derive(Debug)]
pub(super) struct AllowedRows<'a> {
    pub(super) origin: &'a RecordingOrigin,
    /// The first µs of the hour and the first after it, if the path says it.
    pub(super) range_us: Option<Range<i64>>,
}

impl AllowedRows<'_> {
    /// Why the file may not have a row of the batch; `None` if it may have all.
    pub(super) fn refusal_reason(&self, batch: &RecordBatch) -> Result<Option<String>> {
        let RecordingOrigin { host, boot_id, cluster } = self.origin;
        for (column, expected) in
            [("host", Some(host)), ("boot_id", Some(boot_id)), ("cluster", cluster.as_ref())]
        {
            let words = columns::word_column(batch, column)?;
            let mut previous_key = None;
            for row in 0..batch.num_rows() {
                let key = words.dictionary_key(row);
                // Nearly all rows have the same key.
                if previous_key == Some(key) {
                    continue;
                }
                previous_key = Some(key);
                let actual = words.get(row);
                if actual != expected.map(String::as_str) {
                    let [actual_text, expected_text] =
                        [actual, expected.map(String::as_str)].map(|word| word.unwrap_or("null"));
                    return Ok(Some(format!(
                        "it has rows of the {column} {actual_text}, and its footer says \
                         {expected_text}"
                    )));
                }
            }
        }
        let ends: &TimestampMicrosecondArray = columns::typed_column(batch, "ts")?;
        if let Some(range) = &self.range_us
            && let Some(ts) = ends.values().iter().find(|ts| !range.contains(ts))
        {
            let time = jiff::Timestamp::from_microsecond(*ts);
            let time = time.map_or_else(|_| format!("{ts} µs"), |time| time.to_string());
            return Ok(Some(format!("it has a window that ends at {time}, outside of its hour")));
        }
        let lengths = columns::i64_column(batch, "window_ns")?;
        let wrong =
            lengths.values().iter().find(|length| !(1..=LONGEST_WINDOW_NS).contains(length));
        Ok(wrong.map(|length| format!("it has a window of {length} ns")))
    }
}
