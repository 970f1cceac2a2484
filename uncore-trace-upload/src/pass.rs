//! Passes of an upload: each scans the directory and sends the files that wait.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use tokio::time::{sleep, timeout};

use uncore_trace::signals::Signals;
use uncore_trace::text::count_noun;
use uncore_trace::units;

use crate::backoff::{Backoff, spread};
use crate::figures::Figures;
use crate::journal::Journal;
use crate::store::Store;
use crate::tree::{CompleteFile, Tree};
use crate::uploader::{GRACE, Outcome, Task};

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
enum Sent {
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
    task: &'a Task,
    tree: Tree,
    store: Store,
    journal: Journal,
    figures: Figures,
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
    pub(crate) fn new(task: &'a Task, store: Store) -> Result<Self> {
        let tree = Tree::new(&task.directory);
        let journal = Journal::open(&task.directory, store.name(), &tree.scan()?)?;
        Ok(Self {
            task,
            tree,
            store,
            journal,
            figures: Figures::default(),
            backoff: Backoff::new(task.settings.every),
            failed: BTreeMap::new(),
            failure: None,
            had_chance: false,
            textfile_failed: false,
        })
    }

    /// Sends the files that exist now, in up to [`ATTEMPTS`] passes.
    pub(crate) async fn once(&mut self, signals: &mut Signals) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            if self.pass(None, signals).await? != Passed::Failed || attempt == ATTEMPTS {
                break;
            }
            tokio::select! {
                () = sleep(self.backoff.failed()) => {}
                _ = signals.next() => break,
            }
        }
        Ok(())
    }

    /// Sends files as they appear, until a signal arrives.
    pub(crate) async fn run(&mut self, signals: &mut Signals) -> Result<()> {
        let every = self.task.settings.every;
        loop {
            let passed = self.pass(Some(every), signals).await?;
            self.write_figures();
            let wait = match passed {
                Passed::Stopped => return Ok(()),
                Passed::Some => continue,
                Passed::All => spread(every),
                Passed::Failed => self.backoff.failed(),
            };
            if let Some(failure) = &self.failure {
                let Figures { waiting_files, waiting_bytes, .. } = self.figures;
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
    pub(crate) fn outcome(mut self, ended: Result<()>) -> Result<Outcome> {
        self.write_figures();
        ended?;
        Ok(Outcome { figures: self.figures, failure: self.failure })
    }

    /// Scans the directory and sends the waiting files one by one. After `at_most`, no further file
    /// is started.
    async fn pass(&mut self, at_most: Option<Duration>, signals: &mut Signals) -> Result<Passed> {
        let begun = Instant::now();
        let waiting = self.look()?;
        self.failure = None;
        let mut passed = Passed::All;
        for found in &waiting {
            if at_most.is_some_and(|at_most| begun.elapsed() > at_most) {
                return Ok(Passed::Some);
            }
            match self.send(found, signals).await {
                Sent::Done => {}
                Sent::Unread => passed = Passed::Failed,
                Sent::Failed => return Ok(Passed::Failed),
                Sent::Stopped => return Ok(Passed::Stopped),
            }
        }
        Ok(passed)
    }

    /// Scans the directory. Returns the waiting files in the order in which they are sent.
    fn look(&mut self) -> Result<Vec<CompleteFile>> {
        let all = self.tree.scan()?;
        self.journal.keep(&all);
        let (sent, mut waiting): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|found| self.journal.has(found));
        // An earlier process may have been killed between sending and removing, or `keep-local` may
        // have been switched off since.
        for found in &sent {
            self.remove_sent(found);
        }
        self.figures.waiting_files = waiting.len() as u64;
        self.figures.waiting_bytes = waiting.iter().map(|found| found.stamp.size).sum();
        if self.had_chance {
            waiting.retain(|found| !self.exceeds(found));
        }
        self.had_chance = true;
        self.failed.retain(|name, _| waiting.iter().any(|found| found.name == *name));
        waiting.sort_by_key(|found| self.failed.get(&found.name).copied());
        Ok(waiting)
    }

    /// Removes a file if more bytes wait than the limit. Must be called for the oldest files first.
    fn exceeds(&mut self, found: &CompleteFile) -> bool {
        let limit = self.task.settings.queue;
        let waiting = self.figures.waiting_bytes;
        if waiting <= limit {
            return false;
        }
        let bytes = |count: u64| units::human(count as f64, "bytes");
        if let Err(error) = self.tree.remove(found) {
            log::warn!(
                "cannot remove {}, although [upload] queue is exceeded: {error}",
                self.shown(found)
            );
            return false;
        }
        self.figures.dropped(found.stamp.size);
        log::warn!(
            "dropped {} ({}), which was not sent: {} waited and [upload] queue is {}; {} dropped \
             since the start",
            self.shown(found),
            bytes(found.stamp.size),
            bytes(waiting),
            bytes(limit),
            count_noun(self.figures.dropped_files as usize, "file"),
        );
        true
    }

    /// Sends a file. After a signal, the request may still take [`GRACE`].
    async fn send(&mut self, found: &CompleteFile, signals: &mut Signals) -> Sent {
        let bytes = match self.tree.read(found) {
            Ok(bytes) => bytes,
            // The agent has removed it because of its age.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.figures.no_longer_waits(found.stamp.size);
                return Sent::Done;
            }
            Err(error) => {
                self.fails(found, format!("cannot read {}: {error}", self.shown(found)));
                return Sent::Unread;
            }
        };
        let (answer, stopped) = {
            let mut put = std::pin::pin!(self.store.put(&found.name, bytes));
            tokio::select! {
                answer = &mut put => (Some(answer), false),
                _ = signals.next() => (timeout(GRACE, &mut put).await.ok(), true),
            }
        };
        match answer {
            Some(Ok(())) => self.confirmed(found),
            Some(Err(why)) => {
                let (name, store) = (&found.name, self.store.name());
                self.fails(found, format!("cannot send {name} to {store}: {why}"));
                return if stopped { Sent::Stopped } else { Sent::Failed };
            }
            None => {}
        }
        if stopped { Sent::Stopped } else { Sent::Done }
    }

    fn confirmed(&mut self, found: &CompleteFile) {
        self.journal.note(found);
        self.backoff.succeeded();
        self.figures.sent(found.stamp.size);
        log::info!("sent {} to {}", found.name, self.store.name());
        self.remove_sent(found);
    }

    fn fails(&mut self, found: &CompleteFile, why: String) {
        self.figures.failures += 1;
        *self.failed.entry(found.name.clone()).or_default() += 1;
        self.failure = Some(why);
    }

    /// Removes a confirmed file, unless `keep-local` is set or the agent may still write into its
    /// hour.
    fn remove_sent(&self, found: &CompleteFile) {
        if self.task.settings.keep_local || !found.is_of_the_past(SystemTime::now()) {
            return;
        }
        if let Err(error) = self.tree.remove(found) {
            log::warn!(
                "cannot remove {}, which was sent: {error}; run the upload as a user who may write \
                 there, or set keep-local = true",
                self.shown(found)
            );
        }
    }

    fn shown(&self, found: &CompleteFile) -> String {
        self.task.directory.join(&found.name).display().to_string()
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
