//! Reads the configuration again, in a thread of its own: a file that hangs, such as one of a
//! server that is away, must not stop the thread that sums.
//!
//! The kubelet mounts a `ConfigMap` as symbolic links: `agent.toml` leads to `..data/agent.toml`, and
//! `..data` to a directory. For a new content it makes a new directory and replaces the link
//! `..data`, so the file is never half-written. [`ConfigPath`] asks for a reload when the links lead
//! elsewhere, because in a pod nobody sends SIGHUP. A file without links may be half-written: it
//! waits for SIGHUP.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use crate::config::Config;
use crate::confine::{self, ThreadNeeds};

/// Time after which the log says that the file is still being read.
const LONG: Duration = Duration::from_secs(5);

/// Interval between looks at the links. The kubelet takes up to some minutes to replace them.
const LOOK: Duration = Duration::from_secs(5);

/// The path of the configuration, and where its links led before it was read.
#[derive(Debug, Clone)]
pub struct ConfigPath {
    pub(super) path: PathBuf,
    target: Option<PathBuf>,
}

impl ConfigPath {
    /// Follows the links.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), target: fs::canonicalize(path).ok() }
    }

    /// Whether the links lead elsewhere than before. A link that leads nowhere is being replaced.
    fn has_moved(&mut self) -> bool {
        let target = fs::canonicalize(&self.path).ok().or_else(|| self.target.clone());
        target != std::mem::replace(&mut self.target, target.clone())
    }

    /// Sets `moved` each time the links lead elsewhere, in a thread that ends with the process.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start_watching(mut self, moved: Arc<AtomicBool>) -> Result<()> {
        let watch = move || {
            confine::restrict_thread(&ThreadNeeds::default());
            loop {
                sleep(LOOK);
                if self.has_moved() {
                    moved.store(true, Ordering::Relaxed);
                }
            }
        };
        let thread = Builder::new().name("config-watch".to_owned()).spawn(watch);
        thread.map(drop).context("cannot start the thread that watches the configuration")
    }
}

/// The file, and the thread that reads it.
#[derive(Debug)]
pub(super) struct Reload {
    path: PathBuf,
    config_reader: Option<ConfigReader>,
    /// Whether it was asked for again meanwhile.
    is_asked_again: bool,
}

#[derive(Debug)]
struct ConfigReader {
    thread: JoinHandle<Result<Config>>,
    since: Instant,
    was_said: bool,
}

impl Reload {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, config_reader: None, is_asked_again: false }
    }

    /// Begins to read the file, once it is not being read any more.
    pub(super) fn request_reload(&mut self) {
        if self.config_reader.is_some() {
            self.is_asked_again = true;
            return;
        }
        let path = self.path.clone();
        let thread = Builder::new().name("config".to_owned()).spawn(move || Config::read(&path));
        match thread.context("cannot start the thread that reads the configuration") {
            Ok(thread) => {
                self.config_reader =
                    Some(ConfigReader { thread, since: Instant::now(), was_said: false });
            }
            Err(error) => log::warn!("{error:#}"),
        }
    }

    /// What was read, if a thread has ended.
    pub(super) fn take_config(&mut self) -> Option<Result<Config>> {
        if let Some(reading) = &mut self.config_reader
            && reading.since.elapsed() >= LONG
            && !std::mem::replace(&mut reading.was_said, true)
        {
            log::warn!(
                "{} is still being read: the old configuration stays in use",
                self.path.display()
            );
        }
        let ConfigReader { thread, .. } =
            self.config_reader.take_if(|reader| reader.thread.is_finished())?;
        if std::mem::take(&mut self.is_asked_again) {
            self.request_reload();
        }
        let result = thread.join();
        Some(result.unwrap_or_else(|_| Err(anyhow!("the thread that reads it ended early"))))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_that_lead_elsewhere_are_seen_once_and_a_changed_file_is_not() {
        let place = tempfile::tempdir().unwrap();
        let [file, data, next] =
            ["agent.toml", "..data", "..data_tmp"].map(|name| place.path().join(name));
        for directory in ["..1", "..2"] {
            fs::create_dir(place.path().join(directory)).unwrap();
            fs::write(place.path().join(directory).join("agent.toml"), directory).unwrap();
        }
        symlink("..1", &data).unwrap();
        symlink("..data/agent.toml", &file).unwrap();
        let mut linked = ConfigPath::new(&file);
        fs::write(&file, "half").unwrap();
        assert!(!linked.has_moved());
        symlink("..2", &next).unwrap();
        fs::rename(&next, &data).unwrap();
        assert!(linked.has_moved());
        assert!(!linked.has_moved());
        fs::remove_file(&data).unwrap();
        assert!(!linked.has_moved());
        symlink("..2", &data).unwrap();
        assert!(!linked.has_moved());
    }
}
