//! UPLOAD: the closed hours of the roll-up to an object store.
//!
//! Guarantees: an object has the name of its file below the roll-up directory, so that a file that is
//! sent twice is one object; a file counts as sent when the store took it and then says its size and the
//! entity tag of what it took; a file is removed when it was sent, or when more waits than the limit; a
//! request that stalls ends. It needs no privileges: who may read the directory and write to it may
//! send it.
//!
//! What was sent is in a journal in the directory ([`crate::journal`]). A kill between an answer of the store
//! and its line there sends that file once more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use uncore_trace::config::Upload;
use uncore_trace::confine::{self, Needs};
use uncore_trace::signals::Signals;
use uncore_trace::tables::lock::{self, Act, Lock};
use uncore_trace::tables::mode::Mode;

use crate::figures::Figures;
use crate::pass::Uploader;
use crate::store::Store;

/// The file that two uploads of one directory cannot lock.
const LOCK: &str = ".upload.lock";

/// How long a request that runs may take once the upload is to end.
pub(crate) const GRACE: Duration = Duration::from_secs(4);

/// What is sent, and how it is told.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// `[upload]`.
    pub(crate) settings: Upload,
    /// The roll-up directory.
    pub(crate) directory: PathBuf,
    /// Where the figures go, as Prometheus text.
    pub(crate) textfile: Option<PathBuf>,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was counted.
    pub(crate) figures: Figures,
    /// Why something was not sent at the last attempt.
    pub(crate) failure: Option<String>,
}

/// That the store and the directory can be used, as far as that is known without a request.
///
/// # Errors
///
/// Says what is wrong with one of them.
pub(crate) fn check(task: &Task) -> Result<()> {
    Store::open(&task.settings)?;
    directory_exists(&task.directory)
}

/// Sends until a signal comes, or with `once` what is there; needs a tokio runtime.
///
/// # Errors
///
/// The settings are wrong, the directory cannot be used, or another process sends it.
pub(crate) async fn run(task: &Task, once: bool, signals: &mut Signals) -> Result<Outcome> {
    directory_exists(&task.directory)?;
    let store = Store::open(&task.settings)?;
    let _lock = lock(&task.directory)?;
    confine::thread(&needs(task, &store));
    let mut uploader = Uploader::new(task, store)?;
    let result = if once { uploader.once(signals).await } else { uploader.run(signals).await };
    uploader.outcome(result)
}

fn directory_exists(directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        bail!(
            "cannot upload {}: there is no such directory; it is [rollup] directory of the \
             configuration, and the agent makes it",
            directory.display()
        );
    }
    Ok(())
}

fn lock(directory: &Path) -> Result<Lock> {
    lock::acquire_file(directory, &directory.join(LOCK), Mode::default(), Act::Upload)
}

/// Names of hosts and certificates are read in these trees, by the C library too.
const SYSTEM: [&str; 6] = ["/etc", "/usr", "/lib", "/lib64", "/run", "/proc/sys"];

/// Where certificates or credentials are that the environment names.
const NAMED_FILES: [&str; 4] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// What is read and written from here on.
fn needs(task: &Task, store: &Store) -> Needs {
    let mut reads: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    reads.extend(NAMED_FILES.iter().filter_map(std::env::var_os).map(PathBuf::from));
    let mut writes = vec![task.directory.clone()];
    writes.extend(store.directory().map(Path::to_owned));
    let textfile = task.textfile.as_deref().and_then(Path::parent);
    writes.extend(textfile.map(Path::to_owned));
    Needs { reads, writes, network: true, ..Needs::default() }
}
