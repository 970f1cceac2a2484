//! Records to a file while `top` runs, from one press of `r` to the next.
//!
//! The rows are those that are shown. Losses are counted from the start of the file. The CPU time
//! by owner is left out, because it covers the whole session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;

use crate::clock::Snapshot;
use crate::schema::loss::Losses;
use crate::schema::{fabric, metadata};
use crate::tables::output_path;
use crate::tables::writer::{CreateOptions, RecordingTarget, Writer};

/// A recording that is being written.
struct OpenRecording {
    writer: Writer,
    path: PathBuf,
    begin: Snapshot,
    /// Losses of the session before this recording, by cause.
    losses: BTreeMap<String, u64>,
}

/// Starts and ends recordings.
pub(super) struct Saver {
    /// Path that the user gave; `None`: a name made of the time.
    wanted: Option<PathBuf>,
    /// The current metadata of the session.
    pairs: BTreeMap<String, String>,
    open: Option<OpenRecording>,
}

impl Saver {
    pub(super) fn new(wanted: Option<PathBuf>) -> Self {
        Self { wanted, pairs: BTreeMap::new(), open: None }
    }

    /// Replaces the metadata of the session.
    pub(super) fn set_metadata(&mut self, pairs: BTreeMap<String, String>) {
        self.pairs = pairs;
    }

    /// The host that is watched.
    pub(super) fn host_name(&self) -> &str {
        self.pairs.get(metadata::HOST).map_or("", String::as_str)
    }

    /// The file that is being written.
    pub(super) fn open_path(&self) -> Option<&Path> {
        self.open.as_ref().map(|open| open.path.as_path())
    }

    /// Starts a recording; returns its path.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be created.
    pub(super) fn start_recording(&mut self) -> Result<PathBuf> {
        let path = self.wanted.clone().unwrap_or_else(output_path::unused_name);
        let begin = Snapshot::read_clocks();
        let mut pairs = self.pairs.clone();
        pairs.insert(metadata::CLOCKS.to_owned(), serde_json::to_string(&[begin])?);
        let writer =
            Writer::create(RecordingTarget::File(path.clone()), CreateOptions::default(), &pairs)?;
        self.open = Some(OpenRecording {
            writer,
            path: path.clone(),
            begin,
            losses: self.session_losses(),
        });
        Ok(path)
    }

    /// Writes rows of `fabric` if a recording runs. They survive `kill -9`.
    ///
    /// # Errors
    ///
    /// They cannot be written; this ends the recording.
    pub(super) fn write_rows(&mut self, rows: &RecordBatch) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let written =
            open.writer.write(&fabric::TABLE, rows).and_then(|()| open.writer.seal_rows());
        if written.is_err() {
            self.open = None;
        }
        written
    }

    /// Ends the recording; returns its path and its number of rows, or `None` if none runs.
    ///
    /// # Errors
    ///
    /// The file cannot be finished.
    pub(super) fn finish_recording(&mut self) -> Result<Option<(PathBuf, u64)>> {
        let Some(open) = self.open.take() else { return Ok(None) };
        let mut pairs = self.pairs.clone();
        let mut losses = self.session_losses();
        for (cause, count_before) in &open.losses {
            if let Some(count) = losses.get_mut(cause) {
                *count = count.saturating_sub(*count_before);
            }
        }
        losses.retain(|_, count| *count > 0);
        let sorted =
            Losses::from_totals(losses.iter().map(|(cause, count)| (cause.as_str(), *count)));
        let clocks = serde_json::to_string(&[open.begin, Snapshot::read_clocks()])?;
        pairs.insert(metadata::CLOCKS.to_owned(), clocks);
        pairs.insert(metadata::COMPLETE.to_owned(), sorted.is_complete().to_string());
        pairs.insert(metadata::LOSS.to_owned(), serde_json::to_string(&losses)?);
        for key in [metadata::LOSS_FIRST, metadata::CPU_TIME, metadata::OWN, metadata::STOP_TICK] {
            pairs.remove(key);
        }
        let shown = open.path.display().to_string();
        let finished = open.writer.finish(&pairs).with_context(|| format!("cannot end {shown}"))?;
        Ok(Some((open.path, finished.rows)))
    }

    fn session_losses(&self) -> BTreeMap<String, u64> {
        let losses = self.pairs.get(metadata::LOSS);
        losses.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}
