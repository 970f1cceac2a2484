//! Decodes the batches of a scan in another thread, while the one that asks for them sums the last
//! ones.
//!
//! Guarantees: the batches are those of the scan, in its order; memory holds [`AHEAD`] more of them
//! than without, whatever the length of the table.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;

use super::table::TableScan;

/// Batches that may wait: enough for the time that the begin of a row group takes, and below 10
/// MiB.
const AHEAD: usize = 4;

/// The batches of a scan that another thread decodes.
#[derive(Debug)]
pub struct Ahead {
    batches: Receiver<Result<RecordBatch>>,
    decoder: Option<JoinHandle<()>>,
}

impl Ahead {
    pub(super) fn new(scan: TableScan) -> Result<Self> {
        let (sender, batches) = sync_channel(AHEAD);
        let decode = move || {
            for batch in scan {
                // Nobody asks for more.
                if sender.send(batch).is_err() {
                    break;
                }
            }
        };
        let decoder = thread::Builder::new().name("decode".to_owned()).spawn(decode);
        let decoder = decoder.context("cannot start the thread that decodes tables")?;
        Ok(Self { batches, decoder: Some(decoder) })
    }
}

impl Iterator for Ahead {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(batch) = self.batches.recv() {
            return Some(batch);
        }
        // A panic there must not look like the end of the table.
        if let Some(Err(panic)) = self.decoder.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        None
    }
}
