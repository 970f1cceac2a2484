//! Reads the configuration again, in a thread of its own: a file that hangs, such as one of a
//! server that is away, must not stop the thread that sums.

use std::path::PathBuf;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use crate::config::Config;

/// Time after which the log says that the file is still being read.
const LONG: Duration = Duration::from_secs(5);

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
