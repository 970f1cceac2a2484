//! Passes of an upload: each scans the directory and sends the files that wait.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use tokio::time::{sleep, timeout};

use uncore_trace_recording::signals::Signals;
use uncore_trace_recording::text::count_noun;
use uncore_trace_recording::units;

use crate::backoff::{Backoff, spread_wait};
use crate::figures::UploadFigures;
use crate::journal::Journal;
use crate::store::UploadStore;
use crate::tree::{CompleteFile, RollupTree};
use crate::uploader::{GRACE, UploadOutcome, UploadTask};

/// Number of passes that `--once` tries.
const ATTEMPTS: u32 = 3;

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// All files were sent.
    All,
    /// The time of the pass is over, and some files still wait.
    Some,
    /// A file could not be sent.
    Failed,
    /// A signal arrived.
    Stopped,
}

/// The result of sending one file.
enum SendResult {
    /// The store has confirmed it, or it no longer exists.
    Done,
    /// It could not be read; the pass goes on with the next file.
    Unread,
    /// The store did not confirm it; the pass ends.
    Failed,
    /// A signal arrived.
    Stopped,
}

/// A running upload.
#[derive(Debug)]
pub(crate) struct Uploader<'a> {
    task: &'a UploadTask,
    tree: RollupTree,
    store: UploadStore,
    journal: Journal,
    figures: UploadFigures,
    backoff: Backoff,
    /// Number of failures by file. Files with fewer failures are sent first, so that a file that
    /// always fails does not block the others.
    failed: BTreeMap<String, u32>,
    /// The last failure of the last pass.
    failure: Option<String>,
    /// Whether there was a pass. The first pass drops no files, so that a backlog is sent.
    had_chance: bool,
    /// Whether the last write of the metrics failed.
    textfile_failed: bool,
}

impl<'a> Uploader<'a> {
    pub(crate) fn new(task: &'a UploadTask, store: UploadStore) -> Result<Self> {
        let tree = RollupTree::new(&task.directory);
        let journal = Journal::open(&task.directory, store.store_name(), &tree.scan_files()?)?;
        Ok(Self {
            task,
            tree,
            store,
            journal,
            figures: UploadFigures::default(),
            backoff: Backoff::new(task.settings.every),
            failed: BTreeMap::new(),
            failure: None,
            had_chance: false,
            textfile_failed: false,
        })
    }

    /// Sends the files that exist now, in up to [`ATTEMPTS`] passes.
    pub(crate) async fn send_existing(&mut self, signals: &mut Signals) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            if self.run_pass(None, signals).await? != Passed::Failed || attempt == ATTEMPTS {
                break;
            }
            tokio::select! {
                () = sleep(self.backoff.next_wait()) => {}
                _ = signals.next() => break,
            }
        }
        Ok(())
    }

    /// Sends files as they appear, until a signal arrives.
    pub(crate) async fn run(&mut self, signals: &mut Signals) -> Result<()> {
        let every = self.task.settings.every;
        loop {
            let passed = self.run_pass(Some(every), signals).await?;
            self.write_figures();
            let wait = match passed {
                Passed::Stopped => return Ok(()),
                Passed::Some => continue,
                Passed::All => spread_wait(every),
                Passed::Failed => self.backoff.next_wait(),
            };
            if let Some(failure) = &self.failure {
                let UploadFigures { waiting_files, waiting_bytes, .. } = self.figures;
                log::warn!(
                    "{failure}; next attempt in {}, {} ({}) waiting",
                    units::human(wait.as_nanos() as f64, "ns"),
                    count_noun(waiting_files as usize, "file"),
                    units::human(waiting_bytes as f64, "bytes"),
                );
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = signals.next() => return Ok(()),
            }
        }
    }

    /// Writes the metrics and returns the outcome.
    pub(crate) fn into_outcome(mut self, ended: Result<()>) -> Result<UploadOutcome> {
        self.write_figures();
        ended?;
        Ok(UploadOutcome { figures: self.figures, failure: self.failure })
    }

    /// Scans the directory and sends the waiting files one by one. After `at_most`, no further file
    /// is started.
    async fn run_pass(
        &mut self,
        at_most: Option<Duration>,
        signals: &mut Signals,
    ) -> Result<Passed> {
        let begun = Instant::now();
        let waiting = self.find_waiting()?;
        self.failure = None;
        let mut passed = Passed::All;
        for file in &waiting {
            if at_most.is_some_and(|at_most| begun.elapsed() > at_most) {
                return Ok(Passed::Some);
            }
            match self.send_file(file, signals).await {
                SendResult::Done => {}
                SendResult::Unread => passed = Passed::Failed,
                SendResult::Failed => return Ok(Passed::Failed),
                SendResult::Stopped => return Ok(Passed::Stopped),
            }
        }
        Ok(passed)
    }

    /// Scans the directory. Returns the waiting files in the order in which they are sent.
    fn find_waiting(&mut self) -> Result<Vec<CompleteFile>> {
        let files = self.tree.scan_files()?;
        self.journal.rewrite_if_needed(&files);
        let (sent, mut waiting): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| self.journal.has_sent(file));
        // An earlier process may have been killed between sending and removing, or `keep-local` may
        // have been switched off since.
        for file in &sent {
            self.remove_sent(file);
        }
        self.figures.waiting_files = waiting.len() as u64;
        self.figures.waiting_bytes = waiting.iter().map(|file| file.stamp.size).sum();
        if self.had_chance {
            waiting.retain(|file| !self.drop_if_exceeds(file));
        }
        self.had_chance = true;
        self.failed.retain(|name, _| waiting.iter().any(|file| file.name == *name));
        waiting.sort_by_key(|file| self.failed.get(&file.name).copied());
        Ok(waiting)
    }

    /// Removes a file if more bytes wait than the limit. Must be called for the oldest files first.
    fn drop_if_exceeds(&mut self, complete_file: &CompleteFile) -> bool {
        let limit = self.task.settings.queue;
        let waiting = self.figures.waiting_bytes;
        if waiting <= limit {
            return false;
        }
        let bytes = |count: u64| units::human(count as f64, "bytes");
        if let Err(error) = self.tree.remove_file(complete_file) {
            log::warn!(
                "cannot remove {}, although [upload] queue is exceeded: {error}",
                self.shown_path(complete_file)
            );
            return false;
        }
        self.figures.count_dropped(complete_file.stamp.size);
        log::warn!(
            "dropped {} ({}), which was not sent: {} waited and [upload] queue is {}; {} dropped \
             since the start",
            self.shown_path(complete_file),
            bytes(complete_file.stamp.size),
            bytes(waiting),
            bytes(limit),
            count_noun(self.figures.dropped_files as usize, "file"),
        );
        true
    }

    /// Sends a file. After a signal, the request may still take [`GRACE`].
    async fn send_file(&mut self, file: &CompleteFile, signals: &mut Signals) -> SendResult {
        let bytes = match self.tree.read_file(file) {
            Ok(bytes) => bytes,
            // The agent has removed it because of its age.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.figures.no_longer_waits(file.stamp.size);
                return SendResult::Done;
            }
            Err(error) => {
                self.count_failure(file, format!("cannot read {}: {error}", self.shown_path(file)));
                return SendResult::Unread;
            }
        };
        let (answer, stopped) = {
            let mut put = std::pin::pin!(self.store.put_object(&file.name, bytes));
            tokio::select! {
                answer = &mut put => (Some(answer), false),
                _ = signals.next() => (timeout(GRACE, &mut put).await.ok(), true),
            }
        };
        match answer {
            Some(Ok(())) => self.note_confirmed(file),
            Some(Err(why)) => {
                let (name, store) = (&file.name, self.store.store_name());
                self.count_failure(file, format!("cannot send {name} to {store}: {why}"));
                return if stopped { SendResult::Stopped } else { SendResult::Failed };
            }
            None => {}
        }
        if stopped { SendResult::Stopped } else { SendResult::Done }
    }

    fn note_confirmed(&mut self, file: &CompleteFile) {
        self.journal.add_sent(file);
        self.backoff.reset_wait();
        self.figures.count_sent(file.stamp.size);
        log::info!("sent {} to {}", file.name, self.store.store_name());
        self.remove_sent(file);
    }

    fn count_failure(&mut self, file: &CompleteFile, why: String) {
        self.figures.failures += 1;
        *self.failed.entry(file.name.clone()).or_default() += 1;
        self.failure = Some(why);
    }

    /// Removes a confirmed file, unless `keep-local` is set or the agent may still write into its
    /// hour.
    fn remove_sent(&self, file: &CompleteFile) {
        if self.task.settings.keep_local || !file.is_of_the_past(SystemTime::now()) {
            return;
        }
        if let Err(error) = self.tree.remove_file(file) {
            log::warn!(
                "cannot remove {}, which was sent: {error}; run the upload as a user who may write \
                 there, or set keep-local = true",
                self.shown_path(file)
            );
        }
    }

    fn shown_path(&self, file: &CompleteFile) -> String {
        self.task.directory.join(&file.name).display().to_string()
    }

    /// Writes the metrics for the textfile collector; of consecutive failures, only the first is
    /// logged.
    fn write_figures(&mut self) {
        let Some(path) = &self.task.textfile else { return };
        match self.figures.write(path) {
            Err(error) if !self.textfile_failed => {
                self.textfile_failed = true;
                log::warn!("cannot write {}: {error}; the upload goes on", path.display());
            }
            written => self.textfile_failed &= written.is_err(),
        }
    }
}
