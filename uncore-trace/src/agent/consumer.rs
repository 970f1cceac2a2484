//! The thread that takes what comes out of the tap.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Asked;
use super::http::Shared;
use super::metrics::{Metrics, Own, add_lost};
use super::notify::Notify;
use super::wishes::Wishes;
use crate::clock::Snapshot;
use crate::config::Config;
use crate::record::own_cpu_ns;
use crate::schema::origin::Origin;
use crate::schema::{fabric, metadata, readings, rollup};
use crate::tables::hours::{self, Hours, Unwritten};
use crate::tables::mode::Mode;
use crate::tables::thread::Tapped;
use crate::view::rollup::{Form, Label, Rows, Summer};

/// How long it waits for rows before it looks at what else there is to do.
const LOOK: Duration = Duration::from_millis(200);

/// How often what was summed is made to survive a kill.
const SEAL: Duration = Duration::from_secs(10);

/// How often files of earlier hours are looked for.
const TIDY: Duration = Duration::from_mins(10);

/// After this time without a row of a window it is closed: a part ends at most 2 s after the next has
/// begun, and its rows may wait for a flush and a lag.
const SLACK: Duration = Duration::from_secs(5);

/// The window of what only Prometheus reads.
const WINDOW: Duration = Duration::from_secs(10);

/// Cgroups that are kept apart of what only Prometheus reads.
const OWNERS: usize = 1000;

/// See the module.
#[derive(Debug)]
pub(super) struct Consumer {
    config: Config,
    path: PathBuf,
    summer: Summer,
    hours: Option<Hours>,
    metrics: Metrics,
    shared: Arc<Shared>,
    asked: Asked,
    notify: Notify,
    wishes: Wishes,
    /// What was lost, by part, and in the parts that are over.
    lost: BTreeMap<u32, BTreeMap<String, u64>>,
    lost_before: BTreeMap<String, u64>,
    own: Own,
    sealed: Instant,
    /// When files of earlier hours were last looked for.
    tidied: Option<Instant>,
    /// Whether rows could not be written since the last seal: it is told once.
    failing: bool,
    /// Whether the metadata have come.
    has_begun: bool,
}

impl Consumer {
    pub(super) fn new(
        config: Config,
        path: PathBuf,
        wishes: Wishes,
        shared: Arc<Shared>,
        asked: Asked,
        notify: Notify,
    ) -> Self {
        Self {
            summer: Summer::new(form(&config)),
            hours: None,
            metrics: Metrics::new(config.metrics.as_ref().map_or(0, |metrics| metrics.owners)),
            config,
            path,
            shared,
            asked,
            notify,
            wishes,
            lost: BTreeMap::new(),
            lost_before: BTreeMap::new(),
            own: Own::default(),
            sealed: Instant::now(),
            tidied: None,
            failing: false,
            has_begun: false,
        }
    }

    /// Takes rows until there are no more, finishes the hour and keeps what is due.
    pub(super) fn run(mut self, tapped: &Receiver<Tapped>) -> Result<()> {
        loop {
            match tapped.recv_timeout(LOOK) {
                Ok(tapped) => self.take(tapped)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look_around();
        }
        self.notify.stopping();
        let finished = self.finish();
        // Whatever became of the hour: what is due is kept, and what was counted is told.
        self.wishes.look(true);
        self.publish();
        finished
    }

    /// Closes all windows and finishes the hour.
    fn finish(&mut self) -> Result<()> {
        self.close_all()?;
        let Some(hours) = &mut self.hours else { return Ok(()) };
        match hours.finish() {
            Ok(_) => Ok(()),
            Err(Unwritten { rows, error }) => {
                self.own.unwritten += rows;
                Err(error.context("the last hour of the roll-up is left unfinished"))
            }
        }
    }

    /// Closes all windows, complete or not.
    fn close_all(&mut self) -> Result<()> {
        while let Some(rows) = self.summer.close(Label::Clock(Snapshot::take())) {
            self.window(&rows)?;
        }
        Ok(())
    }

    fn take(&mut self, tapped: Tapped) -> Result<()> {
        match tapped {
            Tapped::Metadata(part, pairs) => self.metadata(part, &pairs)?,
            Tapped::Rows(part, def, rows) if def.name == fabric::TABLE.name => {
                self.notify.ready();
                self.wishes.fabric(part, &rows)?;
                self.summer.fabric(part, &rows)?;
                // A part may last for ever, and its own label is as old as it is.
                while let Some(rows) = self.summer.closed(Label::Clock(Snapshot::take())) {
                    self.window(&rows)?;
                }
            }
            Tapped::Rows(_, def, rows) if def.name == readings::TABLE.name => {
                self.wishes.readings(&rows)?;
            }
            Tapped::Rows(..) => {}
            Tapped::End(part, is_broken) => {
                self.summer.end(part);
                self.wishes.end(part, !is_broken);
                let lost = self.lost.remove(&part).unwrap_or_default();
                add_lost(&mut self.lost_before, &lost);
            }
        }
        Ok(())
    }

    fn metadata(&mut self, part: u32, pairs: &BTreeMap<String, String>) -> Result<()> {
        let mut pairs = pairs.clone();
        pairs.entry(metadata::CLUSTER.to_owned()).or_insert_with(|| self.config.cluster.clone());
        // The plan is the same in all parts.
        if !std::mem::replace(&mut self.has_begun, true) {
            self.summer.metadata(&pairs)?;
            self.wishes.set_boot(Origin::of(&pairs).boot_id);
            if let Some(rollup) = &self.config.rollup {
                let pairs = rollup::pairs(&pairs);
                self.hours = Some(Hours::open(&rollup.directory, rollup.mode, pairs)?);
            }
        }
        let lost = pairs.get(metadata::LOSS).and_then(|text| serde_json::from_str(text).ok());
        if let Some(lost) = lost {
            self.lost.insert(part, lost);
        }
        Ok(())
    }

    /// Takes a window of the roll-up that is complete. A disk that fails ends nothing.
    fn window(&mut self, rows: &Rows) -> Result<()> {
        let written = self.hours.as_mut().map(|hours| hours.write(rows.end, &rows.batch));
        if let Some(Err(unwritten)) = written {
            self.unwritten(&unwritten);
        }
        if self.config.metrics.is_some() {
            self.metrics.window(&rows.batch)?;
            self.publish();
        }
        Ok(())
    }

    /// Rows of the roll-up are lost.
    fn unwritten(&mut self, Unwritten { rows, error }: &Unwritten) {
        self.own.unwritten += rows;
        if !std::mem::replace(&mut self.failing, true) {
            log::warn!("rows of the roll-up are lost until it can be written again: {error:#}");
        }
    }

    /// Makes the page that Prometheus reads.
    pub(super) fn publish(&mut self) {
        let Some(config) = &self.config.metrics else { return };
        let mut lost = self.lost_before.clone();
        self.lost.values().for_each(|its| add_lost(&mut lost, its));
        self.metrics.set_lost(lost);
        self.own.joined = self.summer.joined();
        (self.own.kept, self.own.refused) = (self.wishes.done, self.wishes.refused);
        self.own.cpu_s = own_cpu_ns() as f64 / 1e9;
        self.own.resident_bytes = resident_bytes().unwrap_or(self.own.resident_bytes);
        self.metrics.set_own(self.own);
        match self.metrics.page() {
            Ok(page) => {
                if let Some(file) = &config.textfile
                    && let Err(error) = Mode::PUBLIC.replace(file, page.as_bytes())
                {
                    log::warn!("cannot write the metrics to {}: {error}", file.display());
                }
                self.shared.show(page);
            }
            Err(error) => log::warn!("cannot make the metrics: {error:#}"),
        }
    }

    /// What is to be done beside the rows.
    fn look_around(&mut self) {
        self.notify.alive();
        if self.asked.reload.swap(false, Ordering::Relaxed) {
            self.reload();
        }
        if self.asked.keep.swap(false, Ordering::Relaxed) {
            self.wishes.ask();
        }
        if self.sealed.elapsed() >= SEAL {
            self.sealed = Instant::now();
            self.seal();
        }
        if self.tidied.is_none_or(|last| last.elapsed() >= TIDY) {
            self.tidied = Some(Instant::now());
            self.tidy();
        }
        self.wishes.look(false);
    }

    /// Makes what was summed survive a kill.
    fn seal(&mut self) {
        match self.hours.as_mut().map(Hours::seal) {
            Some(Ok(true)) if std::mem::take(&mut self.failing) => {
                log::info!("the roll-up is written again");
                // What the failure left is finished too.
                self.tidied = None;
            }
            Some(Err(unwritten)) => self.unwritten(&unwritten),
            Some(Ok(_)) | None => {}
        }
    }

    /// Finishes hours that an error left, and removes old ones.
    fn tidy(&self) {
        let Some(rollup) = &self.config.rollup else { return };
        match hours::repair(&rollup.directory) {
            Ok(files) => files.iter().for_each(|file| {
                log::info!("finished the hour {}, which an error had left", file.display());
            }),
            Err(error) => log::warn!("hours that were left cannot be looked for: {error:#}"),
        }
        let unsent = self.config.upload.as_ref().map(|upload| upload.queue);
        let trimmed = rollup.keep.map(|age| hours::trim(&rollup.directory, age, unsent));
        if let Some(Err(error)) = trimmed {
            log::warn!("cannot look for hours older than rollup.keep: {error:#}");
        }
    }

    /// SIGHUP: the configuration is applied as a whole or refused as a whole.
    fn reload(&mut self) {
        match Config::read(&self.path).and_then(|new| self.apply(new)) {
            Ok(()) => log::info!("the configuration was read again and is applied"),
            Err(error) => {
                log::warn!(
                    "the configuration is not applied, and the old one stays in use: {error:#}"
                );
            }
        }
    }

    fn apply(&mut self, new: Config) -> Result<()> {
        let old = &self.config;
        let name = |what: &str| format!("{what} has changed: restart the agent for that");
        anyhow::ensure!(new.cluster == old.cluster, name("cluster"));
        anyhow::ensure!(new.record == old.record, name("[record]"));
        anyhow::ensure!(new.ring == old.ring, name("[ring]"));
        anyhow::ensure!(new.triggers == old.triggers, name("[[trigger]]"));
        anyhow::ensure!(new.kept.directory == old.kept.directory, name("kept.directory"));
        let place =
            |config: &Config| config.rollup.as_ref().map(|its| (its.directory.clone(), its.mode));
        anyhow::ensure!(place(&new) == place(old), name("rollup.directory or rollup.mode"));
        let open =
            |config: &Config| config.metrics.as_ref().map(|its| (its.listen, its.textfile.clone()));
        anyhow::ensure!(open(&new) == open(old), name("metrics.listen or metrics.textfile"));
        if let Some(metrics) = &new.metrics {
            self.metrics.set_owners(metrics.owners);
        }
        self.close_all()?;
        self.summer.set_form(form(&new));
        self.wishes.set_kept(new.kept.clone());
        self.config = new;
        Ok(())
    }
}

fn form(config: &Config) -> Form {
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let (window, owners) =
        config.rollup.as_ref().map_or((WINDOW, OWNERS), |rollup| (rollup.window, rollup.owners));
    Form { window_ns: ns(window), owners, slack_ns: ns(SLACK) }
}

/// Memory that is used now, bytes.
fn resident_bytes() -> Option<u64> {
    let statm = procfs::process::Process::myself().ok()?.statm().ok()?;
    Some(statm.resident * procfs::page_size())
}

#[cfg(test)]
mod tests;
