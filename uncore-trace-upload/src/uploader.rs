//! UPLOAD: sends the files of the roll-up to an object store.
//!
//! Guarantees:
//! - An object has the name of its file below the roll-up directory, so a file that is sent twice
//!   is one object.
//! - A file counts as sent when the store has accepted it and then reports its size and its entity
//!   tag.
//! - A file is removed only after it was sent, or when more files wait than the limit allows.
//! - A stalled request ends.
//! - No privileges are needed beyond reading and writing the directory.
//!
//! A journal in the directory lists the sent files ([`crate::journal`]). If the process is killed
//! between the store's answer and the line in the journal, the file is sent once more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use uncore_trace_recording::config::UploadConfig;
use uncore_trace_recording::confine;
use uncore_trace_recording::signals::Signals;
use uncore_trace_recording::tables::lock::{self, Lock, LockingCommand};
use uncore_trace_recording::tables::mode::FileMode;

use crate::figures::UploadFigures;
use crate::needs;
use crate::otlp::{self, Push};
use crate::pass::Uploader;
use crate::store::UploadStore;

/// Lock file in the directory, so that only one process uploads it.
const LOCK: &str = ".upload.lock";

/// How long a running request may still take after a signal.
pub(crate) const GRACE: Duration = Duration::from_secs(4);

/// The parameters of an upload.
#[derive(Debug, Clone)]
pub(crate) struct UploadTask {
    /// The section `[upload]` of the configuration.
    pub(crate) settings: UploadConfig,
    /// The roll-up directory.
    pub(crate) directory: PathBuf,
    /// File for the metrics, as Prometheus text.
    pub(crate) textfile: Option<PathBuf>,
}

/// The outcome of an upload.
#[derive(Debug)]
pub(crate) struct UploadOutcome {
    /// Its metrics.
    pub(crate) figures: UploadFigures,
    /// Why a file was not sent in the last pass.
    pub(crate) failure: Option<String>,
}

/// Checks the store and the directory, without a request.
///
/// # Errors
///
/// The settings are wrong, or the directory does not exist.
pub(crate) fn check_task(task: &UploadTask) -> Result<()> {
    UploadStore::open(&task.settings)?;
    directory_exists(&task.directory)
}

/// Sends files, and beside that pushes metrics, until a signal arrives; with `once` only the files
/// that exist now. Needs a tokio runtime.
///
/// # Errors
///
/// The settings are wrong, the directory cannot be used, or another process uploads it.
pub(crate) async fn run(
    task: &UploadTask,
    push: Option<&mut Push>,
    once: bool,
    signals: &mut Signals,
) -> Result<UploadOutcome> {
    directory_exists(&task.directory)?;
    let store = UploadStore::open(&task.settings)?;
    let _lock = lock_directory(&task.directory)?;
    // Certificates have been read; the threads that look names up start later.
    confine::restrict_process(&needs::upload_needs(Some((task, &store)), push.as_deref()));
    let mut uploader = Uploader::new(task, store)?;
    let result = if once {
        uploader.send_existing(signals).await
    } else {
        otlp::push_beside(push, uploader.run(signals)).await
    };
    uploader.into_outcome(result)
}

/// Pushes metrics until a signal arrives, and sends no files; with `once` only gives up privileges.
pub(crate) async fn without_files(push: Option<&mut Push>, once: bool, signals: &mut Signals) {
    confine::restrict_process(&needs::upload_needs(None, push.as_deref()));
    if !once {
        otlp::push_beside(push, signals.next()).await;
    }
}

fn directory_exists(directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        bail!(
            "cannot upload {}: there is no such directory; the agent makes the directory of \
             [rollup] in the configuration",
            directory.display()
        );
    }
    Ok(())
}

fn lock_directory(directory: &Path) -> Result<Lock> {
    lock::acquire_file(
        directory,
        &directory.join(LOCK),
        FileMode::default(),
        LockingCommand::Upload,
    )
}
