//! The thread that consumes the recorder's rows (the tap): it sums them in windows, writes the
//! roll-up, updates the metrics and evaluates the triggers.

mod lacking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::system::uname;

use super::Asked;
use super::figures;
use super::http::{Pages, Shared};
use super::metrics::{Metrics, Own, add_lost, textfile};
use super::notify::Notify;
use super::pulse::Pulse;
use super::reload::Reload;
use super::room::Room;
use super::wishes::Wishes;
use crate::clock::Snapshot;
use crate::config::Config;
use crate::record::own_cpu_ns;
use crate::schema::origin::Origin;
use crate::schema::{canary, fabric, metadata, readings, rollup};
use crate::tables::hours::{self, Hours, Unwritten};
use crate::tables::mode::Mode;
use crate::tables::thread::Tapped;
use crate::view::rollup::{Form, Label, Rows, Summer};

/// Longest wait for rows before other work is checked: signals, seals, old files.
const LOOK: Duration = Duration::from_millis(200);

/// Interval between seals: after one, the rows summed so far survive a kill.
const SEAL: Duration = Duration::from_secs(10);

/// Interval between looks at disks and at files that wait for the object store.
const FIGURES: Duration = Duration::from_secs(30);

/// Interval between searches for old or unfinished files of earlier hours.
const TIDY: Duration = Duration::from_mins(10);

/// A window without new rows is closed after this time. A part of the ring ends at most 2 s after
/// the next has begun, and its rows may wait for a flush and the lag.
const SLACK: Duration = Duration::from_secs(5);

/// Length of a window if there is no roll-up and only metrics are computed.
const WINDOW: Duration = Duration::from_secs(10);

/// Windows after which a page without a new one is old.
const WINDOWS: u32 = 3;

/// Time that a busy machine may take beyond that.
const PATIENCE: Duration = Duration::from_secs(10);

/// Cgroups with rows of their own if there is no roll-up and only metrics are computed.
const OWNERS: usize = 1000;

/// State of the consumer thread.
#[derive(Debug)]
pub(super) struct Consumer {
    config: Config,
    reload: Reload,
    pulse: Pulse,
    summer: Summer,
    hours: Option<Hours>,
    metrics: Metrics,
    shared: Arc<Shared>,
    asked: Asked,
    notify: Notify,
    wishes: Wishes,
    /// Free space on the disk of the ring.
    room: Option<Room>,
    /// Losses by cause, for each part that is being recorded.
    lost: BTreeMap<u32, BTreeMap<String, u64>>,
    lost_before: BTreeMap<String, u64>,
    own: Own,
    sealed: Instant,
    /// Time of the last look at disks and at files that wait for the store.
    looked: Option<Instant>,
    /// Time of the last search for files of earlier hours.
    tidied: Option<Instant>,
    /// Whether rows could not be written since the last seal. Only the first failure is logged.
    failing: bool,
    /// Whether the last hour could not be finished.
    is_unfinished: bool,
    /// Parts of the ring whose files were lost, all or some.
    lost_parts: usize,
    /// Whether the metadata of the recording have arrived.
    has_begun: bool,
}

impl Consumer {
    pub(super) fn new(
        config: Config,
        (reload, pulse, room): (Reload, Pulse, Option<Room>),
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
            reload,
            pulse,
            shared,
            asked,
            notify,
            wishes,
            room,
            lost: BTreeMap::new(),
            lost_before: BTreeMap::new(),
            own: Own::default(),
            sealed: Instant::now(),
            looked: None,
            tidied: None,
            failing: false,
            is_unfinished: false,
            lost_parts: 0,
            has_begun: false,
        }
    }

    /// Consumes rows until the recorder ends, then finishes the hour and saves what triggers asked
    /// for. Returns what ring and roll-up lack, if that is anything.
    pub(super) fn run(mut self, tapped: &Receiver<Tapped>) -> Result<Option<String>> {
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
        // Also if the hour could not be finished: triggers are served, and the last counts are
        // published.
        self.wishes.look(true);
        self.publish();
        finished.map(|()| self.lacking())
    }

    /// Closes all windows and finishes the hour.
    fn finish(&mut self) -> Result<()> {
        self.close_all()?;
        let finished = self.hours.as_mut().map(Hours::finish);
        if let Some(Err(Unwritten { rows, error })) = finished {
            self.own.unwritten += rows;
            self.is_unfinished = true;
            log::warn!("the last hour of the roll-up is left unfinished: {error:#}");
        }
        Ok(())
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
                self.pulse.rows();
                self.wishes.fabric(part, &rows)?;
                self.summer.fabric(part, &rows)?;
                // Not the label of the part: without a ring one part lasts for the whole recording,
                // and its offset between the clocks gets old.
                while let Some(rows) = self.summer.closed(Label::Clock(Snapshot::take())) {
                    self.window(&rows)?;
                }
            }
            Tapped::Rows(_, def, rows) if def.name == readings::TABLE.name => {
                self.wishes.readings(&rows)?;
            }
            Tapped::Rows(_, def, rows) if def.name == canary::TABLE.name => {
                self.metrics.canary.moved(&rows)?;
            }
            Tapped::Rows(..) => {}
            Tapped::End(part, is_broken) => {
                self.summer.end(part);
                self.wishes.end(part, !is_broken);
                self.lost_parts += usize::from(is_broken && self.config.ring.is_some());
                // The next part reports losses that last; those of this part stay counted.
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
            self.metrics.canary.metadata(&pairs)?;
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

    /// Writes a closed window of the roll-up and adds it to the metrics. A failing disk is logged
    /// and counted; recording goes on.
    fn window(&mut self, rows: &Rows) -> Result<()> {
        // Before rows are written, so that none is lost while old parts of the ring take the space.
        self.room.iter_mut().for_each(Room::make);
        let written = self.hours.as_mut().map(|hours| hours.write(rows.end, &rows.batch));
        if let Some(Err(unwritten)) = written {
            self.unwritten(&unwritten);
        }
        self.own.last_window_s = Some(rows.end.0 as f64 / 1e6);
        if self.config.metrics.is_some() {
            self.metrics.canary.end(rows.end.1);
            self.metrics.window(&rows.batch)?;
            self.publish();
        }
        Ok(())
    }

    /// Counts rows of the roll-up that could not be written.
    fn unwritten(&mut self, Unwritten { rows, error }: &Unwritten) {
        self.own.unwritten += rows;
        if !std::mem::replace(&mut self.failing, true) {
            log::warn!("rows of the roll-up are lost until it can be written again: {error:#}");
        }
    }

    /// Makes the page of metrics.
    pub(super) fn publish(&mut self) {
        let Some(config) = &self.config.metrics else { return };
        let mut lost = self.lost_before.clone();
        self.lost.values().for_each(|its| add_lost(&mut lost, its));
        self.metrics.set_lost(lost);
        self.own.joined = self.summer.joined();
        (self.own.kept, self.own.refused) = (self.wishes.done, self.wishes.refused);
        self.own.cpu_s = own_cpu_ns() as f64 / 1e9;
        self.own.resident_bytes = resident_bytes().unwrap_or(self.own.resident_bytes);
        self.metrics.set_own(self.own.clone());
        match self.metrics.page() {
            Ok(page) => {
                if let Some(file) = &config.textfile
                    && let Err(error) = Mode::PUBLIC.replace(file, textfile(&page).as_bytes())
                {
                    log::warn!("cannot write the metrics to {}: {error}", file.display());
                }
                let host = uname();
                let otlp = self.metrics.request(&host.nodename().to_string_lossy());
                let pages = Pages { text: page.into(), otlp: otlp.into() };
                self.shared.show(pages, self.good_for());
            }
            Err(error) => log::warn!("cannot make the metrics: {error:#}"),
        }
    }

    /// How long the page is good: it is made again after each window.
    fn good_for(&self) -> Duration {
        let window = self.config.rollup.as_ref().map_or(WINDOW, |rollup| rollup.window);
        window.saturating_mul(WINDOWS).saturating_add(SLACK).saturating_add(PATIENCE)
    }

    /// Work between batches of rows: watchdog, signals, seals, old files, triggers.
    fn look_around(&mut self) {
        self.notify.alive(&mut self.pulse);
        if self.asked.reload.swap(false, Ordering::Relaxed) {
            self.reload.ask();
        }
        if let Some(read) = self.reload.take() {
            self.reload(read);
        }
        if self.asked.keep.swap(false, Ordering::Relaxed) {
            self.wishes.ask();
        }
        self.room.iter_mut().for_each(Room::make);
        if self.sealed.elapsed() >= SEAL {
            self.sealed = Instant::now();
            self.seal();
        }
        if self.looked.is_none_or(|last| last.elapsed() >= FIGURES) {
            self.looked = Some(Instant::now());
            self.own.disks = figures::disks(&self.config);
            self.own.unsent = figures::unsent(&self.config);
        }
        if self.tidied.is_none_or(|last| last.elapsed() >= TIDY) {
            self.tidied = Some(Instant::now());
            self.tidy();
        }
        self.wishes.look(false);
    }

    /// Writes the rows summed so far to disk, so that they survive a kill.
    fn seal(&mut self) {
        match self.hours.as_mut().map(Hours::seal) {
            Some(Ok(true)) if std::mem::take(&mut self.failing) => {
                log::info!("the roll-up is written again");
                // Segments that the failure left behind are finished by the next `tidy`.
                self.tidied = None;
            }
            Some(Err(unwritten)) => self.unwritten(&unwritten),
            Some(Ok(_)) | None => {}
        }
    }

    /// Finishes hours that an error left unfinished, and removes old ones.
    fn tidy(&self) {
        let Some(rollup) = &self.config.rollup else { return };
        match hours::repair(&rollup.directory) {
            Ok(files) => files.iter().for_each(|file| {
                log::info!("finished the hour {}, which an error had left", file.display());
            }),
            Err(error) => log::warn!("cannot look for unfinished hours: {error:#}"),
        }
        let unsent = self.config.upload.as_ref().map(|upload| upload.queue);
        let trimmed = rollup.keep.map(|age| hours::trim(&rollup.directory, age, unsent));
        if let Some(Err(error)) = trimmed {
            log::warn!("cannot look for hours older than rollup.keep: {error:#}");
        }
    }

    /// SIGHUP: applies the new configuration as a whole, or refuses it as a whole.
    fn reload(&mut self, read: Result<Config>) {
        match read.and_then(|new| self.apply(new)) {
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
        anyhow::ensure!(new.identity == old.identity, name("[identity]"));
        anyhow::ensure!(new.ring == old.ring, name("[ring]"));
        anyhow::ensure!(new.triggers == old.triggers, name("[[trigger]]"));
        anyhow::ensure!(new.kept.directory == old.kept.directory, name("kept.directory"));
        let place =
            |config: &Config| config.rollup.as_ref().map(|its| (its.directory.clone(), its.mode));
        anyhow::ensure!(place(&new) == place(old), name("rollup.directory or rollup.mode"));
        let open = |config: &Config| {
            let metrics = config.metrics.clone();
            metrics.map(|its| (its.listen, its.mode, its.token, its.textfile))
        };
        let keys = "metrics.listen, metrics.mode, metrics.token-file or metrics.textfile";
        anyhow::ensure!(open(&new) == open(old), name(keys));
        if let Some(metrics) = &new.metrics {
            self.metrics.set_owners(metrics.owners);
        }
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

/// Resident memory of this process, bytes.
fn resident_bytes() -> Option<u64> {
    let statm = procfs::process::Process::myself().ok()?.statm().ok()?;
    Some(statm.resident * procfs::page_size())
}

#[cfg(test)]
mod tests;
