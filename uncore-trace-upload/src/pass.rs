//! One look at the directory after the other, and what is done about the files that wait.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use tokio::time::{sleep, timeout};

use uncore_trace::signals::Signals;
use uncore_trace::text::counted;
use uncore_trace::units;

use crate::backoff::{Backoff, spread};
use crate::figures::Figures;
use crate::journal::Journal;
use crate::store::Store;
use crate::tree::{Found, Tree};
use crate::uploader::{GRACE, Outcome, Task};

/// How often `--once` tries.
const ATTEMPTS: u32 = 3;

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// All was sent.
    All,
    /// Some files still wait, as it is time for the next look.
    Some,
    /// A file could not be sent.
    Failed,
    /// A signal came.
    Stopped,
}

/// What became of a file.
enum Sent {
    /// It is no longer there to send, or the store has confirmed it.
    Done,
    /// It cannot be read; others may.
    Unread,
    Failed,
    Stopped,
}

/// An upload that runs.
#[derive(Debug)]
pub(crate) struct Uploader<'a> {
    task: &'a Task,
    tree: Tree,
    store: Store,
    journal: Journal,
    figures: Figures,
    backoff: Backoff,
    /// Failures by file: files that failed less come first, so that one of them holds up no other.
    failed: BTreeMap<String, u32>,
    /// Of the last pass.
    failure: Option<String>,
    /// What waited at the start has its chance before the limit counts.
    had_chance: bool,
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

    /// Sends what is there.
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

    /// Sends what comes, until a signal does.
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
                    counted(waiting_files as usize, "file"),
                    units::human(waiting_bytes as f64, "bytes"),
                );
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = signals.next() => return Ok(()),
            }
        }
    }

    /// What became of it all.
    pub(crate) fn outcome(mut self, ended: Result<()>) -> Result<Outcome> {
        self.write_figures();
        ended?;
        Ok(Outcome { figures: self.figures, failure: self.failure })
    }

    /// Looks once and sends what waits, one file after the other, for about `at_most`.
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

    /// The files that wait, in the order in which they are sent.
    fn look(&mut self) -> Result<Vec<Found>> {
        let all = self.tree.scan()?;
        self.journal.keep(&all);
        let (sent, mut waiting): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|found| self.journal.has(found));
        // Where a kill came before it was removed, or the setting is new.
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

    /// Drops a file if more waits than the limit; to be asked of the oldest first.
    fn exceeds(&mut self, found: &Found) -> bool {
        let limit = self.task.settings.queue;
        let waiting = self.figures.waiting_bytes;
        if waiting <= limit {
            return false;
        }
        let bytes = |count: u64| units::human(count as f64, "bytes");
        if let Err(error) = self.tree.remove(found) {
            log::warn!("cannot remove {} to keep to [upload] queue: {error}", self.shown(found));
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
            counted(self.figures.dropped_files as usize, "file"),
        );
        true
    }

    /// Sends a file; at a signal the request has a little time to end.
    async fn send(&mut self, found: &Found, signals: &mut Signals) -> Sent {
        let bytes = match self.tree.read(found) {
            Ok(bytes) => bytes,
            // The agent has removed it, as it is old.
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

    fn confirmed(&mut self, found: &Found) {
        self.journal.note(found);
        self.backoff.succeeded();
        self.figures.sent(found.stamp.size);
        log::info!("sent {} to {}", found.name, self.store.name());
        self.remove_sent(found);
    }

    fn fails(&mut self, found: &Found, why: String) {
        self.figures.failures += 1;
        *self.failed.entry(found.name.clone()).or_default() += 1;
        self.failure = Some(why);
    }

    /// Removes a file that was confirmed, unless it is to stay, or the agent may still use the directory of its
    /// hour.
    fn remove_sent(&self, found: &Found) {
        if self.task.settings.keep_local || !found.is_of_the_past(SystemTime::now()) {
            return;
        }
        if let Err(error) = self.tree.remove(found) {
            log::warn!(
                "cannot remove {}, which was sent: {error}; upload as a user who may write there, or \
                 set keep-local = true",
                self.shown(found)
            );
        }
    }

    fn shown(&self, found: &Found) -> String {
        self.task.directory.join(&found.name).display().to_string()
    }

    /// For the textfile collector; a failure is told once.
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
