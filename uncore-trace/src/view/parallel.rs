//! Sums the batches of a scan in several threads, while the calling thread decodes them.
//!
//! Each thread gets all batches, in their order, and sums a part of what is in them. Guarantee:
//! memory holds at most [`AHEAD`] batches that wait, whatever the length of the table.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, ScopedJoinHandle};

use anyhow::Result;
use arrow::array::RecordBatch;

use crate::tables::reader::TableScan;

/// Batches that may wait for a thread.
const AHEAD: usize = 4;

/// Most threads that sum: decoding takes about half as long as summing.
const MOST: usize = 2;

/// How many threads sum: one for each CPU that this process may use, at most [`MOST`].
pub(super) fn thread_count() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MOST)
}

/// What `sum_part` returns in each of `count` threads. It is given the batches and the number of
/// the thread.
///
/// # Errors
///
/// The table cannot be read, or `sum_part` fails.
pub(super) fn sum_in_threads<T: Send>(
    scan: TableScan,
    count: usize,
    sum_part: impl Fn(Receiver<RecordBatch>, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let shared_sum = &sum_part;
        let (threads, senders): (Vec<_>, Vec<_>) = (0..count)
            .map(|number| {
                let (sender, batches) = sync_channel(AHEAD);
                (scope.spawn(move || shared_sum(batches, number)), sender)
            })
            .unzip();
        let mut read = Ok(());
        for batch in scan {
            match batch {
                // A thread that takes no batch has failed: its error is returned below.
                Ok(batch) if senders.iter().all(|sender| sender.send(batch.clone()).is_ok()) => {}
                Ok(_) => break,
                Err(error) => {
                    read = Err(error);
                    break;
                }
            }
        }
        drop(senders);
        let joined = |thread: ScopedJoinHandle<'_, Result<T>>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        let results: Result<Vec<T>> = threads.into_iter().map(joined).collect();
        read.and(results)
    })
}
