//! `-o -`: the table `fabric` as an Arrow IPC stream.
//!
//! Guarantee: every batch is flushed, so that the reader of a pipe lags by at most one batch. The
//! schema of the stream has the metadata that are known at the start. What is known only at the end
//! (loss, completeness) cannot be in a stream; the recorder prints it on standard error.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;

use super::disk;
use crate::schema::fabric;

/// The destination of the stream.
pub(super) type StreamSink = Box<dyn Write + Send>;

/// Writes batches of `fabric` to a pipe.
pub(super) struct Stream {
    writer: StreamWriter<StreamSink>,
    rows: u64,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// The message for a broken pipe.
const GONE: &str = "the reader of the stream has gone (broken pipe)";

impl Stream {
    /// Begins the stream: writes schema and metadata.
    pub(super) fn create(sink: StreamSink, pairs: &BTreeMap<String, String>) -> Result<Stream> {
        let schema = fabric::schema();
        let pairs: HashMap<String, String> = pairs.clone().into_iter().collect();
        let schema = Arc::unwrap_or_clone(schema).with_metadata(pairs);
        let writer =
            StreamWriter::try_new(sink, &schema).map_err(|error| explain_stream_error(&error))?;
        let mut stream = Stream { writer, rows: 0 };
        stream.flush_pipe()?;
        Ok(stream)
    }

    /// Writes a batch.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch).map_err(|error| explain_stream_error(&error))?;
        self.rows += batch.num_rows() as u64;
        self.flush_pipe()
    }

    fn flush_pipe(&mut self) -> Result<()> {
        self.writer
            .get_mut()
            .flush()
            .map_err(|error| explain_stream_error(&ArrowError::from(error)))
    }

    /// Ends the stream. Returns the number of rows.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.writer.finish().map_err(|error| explain_stream_error(&error))?;
        self.flush_pipe()?;
        Ok(self.rows)
    }
}

fn explain_stream_error(error: &ArrowError) -> anyhow::Error {
    if disk::io_error(error).is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe) {
        anyhow!(GONE)
    } else {
        anyhow!("cannot write the stream: {}", disk::explain_error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::BrokenPipe))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_named_as_such() {
        let error = Stream::create(Box::new(Broken), &BTreeMap::new()).unwrap_err();
        assert_eq!(format!("{error:#}"), GONE);
    }
}
