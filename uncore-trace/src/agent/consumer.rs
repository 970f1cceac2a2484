//! The thread that takes what comes out of the tap.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::Asked;
use super::http::Shared;
use super::keep::{Keeping, Wish};
use super::metrics::{Metrics, Own, add_lost};
use super::notify::Notify;
use super::trigger::{Condition, Watch};
use crate::clock::mono_ns;
use crate::config::{Config, Trigger};
use crate::record::{Control, own_cpu_ns};
use crate::schema::{fabric, metadata, readings, rollup};
use crate::tables::hours::{self, Hours};
use crate::tables::thread::Tapped;
use crate::view::rollup::{Form, Rows, Summer};

/// How long it waits for rows before it looks at what else there is to do.
const LOOK: Duration = Duration::from_millis(200);

/// How often what was summed is made to survive a kill.
const SEAL: Duration = Duration::from_secs(10);

/// How often old hours are looked for.
const TRIM: Duration = Duration::from_mins(10);

/// After this time without a row of a window it is closed: a part ends at most 2 s after the next has
/// begun, and its rows may wait for a flush and a lag.
const SLACK: Duration = Duration::from_secs(5);

/// The window of what only Prometheus reads.
const WINDOW: Duration = Duration::from_secs(10);

/// Cgroups that are kept apart of what only Prometheus reads.
const OWNERS: usize = 1000;

/// The name of what is kept because somebody asked for it.
const ASKED: &str = "asked";

/// A trigger while the agent runs.
#[derive(Debug)]
struct Watched {
    trigger: Trigger,
    watch: Option<Watch>,
    /// When it was followed last.
    last: Option<Instant>,
}

/// Something that is to be kept once the part is finished that has its end.
#[derive(Debug)]
struct Due {
    name: String,
    from: i64,
    to: i64,
    /// Whether the part was told to end.
    is_ended: bool,
    /// Parts that had ended by then.
    ended: u64,
}

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
    control: Control,
    notify: Notify,
    triggers: Vec<Watched>,
    due: Vec<Due>,
    /// What is being kept: one thing at a time.
    keeping: Option<Keeping>,
    /// When something was kept last because somebody asked for it.
    asked_last: Option<Instant>,
    /// What was lost, by part, and in the parts that are over.
    lost: BTreeMap<u32, BTreeMap<String, u64>>,
    lost_before: BTreeMap<String, u64>,
    /// Parts that are over.
    ended: u64,
    own: Own,
    sealed: Instant,
    trimmed: Option<Instant>,
    /// Whether the last write failed: it is told once.
    failing: bool,
    /// Whether the metadata have come.
    has_begun: bool,
}

impl Consumer {
    pub(super) fn new(
        config: Config,
        path: PathBuf,
        conditions: Vec<Option<Condition>>,
        shared: Arc<Shared>,
        asked: Asked,
        control: Control,
        notify: Notify,
    ) -> Self {
        let triggers =
            config.triggers.iter().cloned().zip(conditions).map(|(trigger, condition)| Watched {
                trigger,
                watch: condition.map(Watch::new),
                last: None,
            });
        Self {
            summer: Summer::new(form(&config)),
            hours: None,
            metrics: Metrics::new(config.metrics.as_ref().map_or(0, |metrics| metrics.owners)),
            triggers: triggers.collect(),
            config,
            path,
            shared,
            asked,
            control,
            notify,
            due: Vec::new(),
            keeping: None,
            asked_last: None,
            lost: BTreeMap::new(),
            lost_before: BTreeMap::new(),
            ended: 0,
            own: Own::default(),
            sealed: Instant::now(),
            trimmed: None,
            failing: false,
            has_begun: false,
        }
    }

    /// Takes rows until there are no more, and finishes the hour.
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
        while let Some(rows) = self.summer.close() {
            self.window(&rows)?;
        }
        if let Some(hours) = &mut self.hours {
            hours.finish().context("the last hour of the roll-up is left unfinished")?;
        }
        self.publish();
        self.keep_due(true);
        Ok(())
    }

    fn take(&mut self, tapped: Tapped) -> Result<()> {
        match tapped {
            Tapped::Metadata(part, pairs) => self.metadata(part, &pairs)?,
            Tapped::Rows(part, def, rows) if def.name == fabric::TABLE.name => {
                self.notify.ready();
                self.summer.fabric(part, &rows)?;
                while let Some(rows) = self.summer.closed() {
                    self.window(&rows)?;
                }
            }
            Tapped::Rows(_, def, rows) if def.name == readings::TABLE.name => {
                for at in 0..self.triggers.len() {
                    let watched = &mut self.triggers[at];
                    let Some(watch) = &mut watched.watch else { continue };
                    if let Some(time) = watch.readings(&rows)? {
                        self.fire(at, time);
                    }
                }
            }
            Tapped::Rows(..) => {}
            Tapped::End(part, is_broken) => {
                self.summer.end(part);
                self.ended += u64::from(!is_broken);
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
        if let Some(hours) = &mut self.hours {
            match hours.write(rows.end, &rows.batch) {
                Ok(_) => self.failing = false,
                Err(error) => {
                    self.own.unwritten += rows.batch.num_rows() as u64;
                    if !std::mem::replace(&mut self.failing, true) {
                        log::warn!(
                            "rows of the roll-up are lost until it can be written again: {error:#}"
                        );
                    }
                }
            }
        }
        if self.config.metrics.is_some() {
            self.metrics.window(&rows.batch)?;
            self.publish();
        }
        Ok(())
    }

    /// Makes the page that Prometheus reads.
    fn publish(&mut self) {
        let Some(config) = &self.config.metrics else { return };
        let mut lost = self.lost_before.clone();
        self.lost.values().for_each(|its| add_lost(&mut lost, its));
        self.metrics.set_lost(lost);
        self.own.joined = self.summer.joined();
        self.own.cpu_s = own_cpu_ns() as f64 / 1e9;
        self.own.resident_bytes = resident_bytes().unwrap_or(self.own.resident_bytes);
        self.metrics.set_own(self.own);
        match self.metrics.page() {
            Ok(page) => {
                if let Some(file) = &config.textfile
                    && let Err(error) = replace(file, &page)
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
            self.fire_asked();
        }
        if self.sealed.elapsed() >= SEAL {
            self.sealed = Instant::now();
            if let Some(Err(error)) = self.hours.as_mut().map(Hours::seal)
                && !std::mem::replace(&mut self.failing, true)
            {
                log::warn!("rows of the roll-up are lost until it can be written again: {error:#}");
            }
        }
        let keep = self.config.rollup.as_ref().and_then(|its| Some((&its.directory, its.keep?)));
        if let Some((directory, age)) = keep
            && self.trimmed.is_none_or(|last| last.elapsed() >= TRIM)
        {
            self.trimmed = Some(Instant::now());
            let unsent = self.config.upload.as_ref().map(|upload| upload.queue);
            if let Err(error) = hours::trim(directory, age, unsent) {
                log::warn!("old hours cannot be looked for: {error:#}");
            }
        }
        self.keep_due(false);
    }

    /// A condition came true at this time.
    fn fire(&mut self, at: usize, time: i64) {
        let pause = self.config.kept.pause;
        let watched = &mut self.triggers[at];
        if watched.last.is_some_and(|last| last.elapsed() < pause) {
            self.own.refused += 1;
            return;
        }
        watched.last = Some(Instant::now());
        let Trigger { name, before, after, .. } = watched.trigger.clone();
        log::warn!("trigger {name}: the condition came true; the ring is kept");
        self.due(name, time, before, after);
    }

    fn fire_asked(&mut self) {
        if self.config.ring.is_none() {
            log::warn!(
                "asked to keep the ring, but there is none: add [ring] to the configuration"
            );
            return;
        }
        if self.asked_last.is_some_and(|last| last.elapsed() < self.config.kept.pause) {
            self.own.refused += 1;
            log::warn!("asked to keep the ring again within kept.pause: nothing is done");
            return;
        }
        self.asked_last = Some(Instant::now());
        let by_hand = self.triggers.iter().find(|watched| watched.watch.is_none());
        let (name, before, after) = by_hand.map_or_else(
            || (ASKED.to_owned(), Duration::from_secs(30), Duration::from_secs(5)),
            |its| (its.trigger.name.clone(), its.trigger.before, its.trigger.after),
        );
        self.due(name, mono_ns(), before, after);
    }

    fn due(&mut self, name: String, time: i64, before: Duration, after: Duration) {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let (from, to) = (time.saturating_sub(ns(before)), time.saturating_add(ns(after)));
        self.due.push(Due { name, from, to, is_ended: false, ended: 0 });
    }

    /// Ends the part that has the end of what is to be kept, and keeps it once that is finished; at the
    /// end of the recording: all that is due, as all parts are finished.
    fn keep_due(&mut self, is_end: bool) {
        let now = mono_ns();
        let (mut still, due) = (Vec::new(), std::mem::take(&mut self.due));
        for mut due in due {
            if !due.is_ended && now >= due.to {
                (due.is_ended, due.ended) = (true, self.ended);
                self.control.end_part();
            }
            self.take_kept(is_end);
            let is_finished = is_end || due.is_ended && self.ended > due.ended;
            if is_finished && self.keeping.is_none() {
                self.keep(due);
            } else {
                still.push(due);
            }
        }
        self.due = still;
        self.take_kept(is_end);
    }

    fn keep(&mut self, due: Due) {
        let Some(ring) = &self.config.ring else { return };
        let Due { name, from, to, .. } = due;
        let kept = kept_directory(&self.config, &ring.directory);
        let (quota, mode) = (self.config.kept.quota, ring.mode);
        let wish = Wish { ring: ring.directory.clone(), kept, name, from, to, mode, quota };
        let name = wish.name.clone();
        match Keeping::start(wish) {
            Ok(keeping) => self.keeping = Some(keeping),
            Err(error) => self.not_kept(&name, &error),
        }
    }

    /// Says what became of what was to be kept, once that is known.
    fn take_kept(&mut self, does_wait: bool) {
        let Some(keeping) = self.keeping.take_if(|its| does_wait || its.is_over()) else { return };
        let name = keeping.name.clone();
        match keeping.join() {
            Ok(path) => {
                self.own.kept += 1;
                log::warn!("trigger {name}: kept {}", path.display());
            }
            Err(error) => self.not_kept(&name, &error),
        }
    }

    fn not_kept(&mut self, name: &str, error: &anyhow::Error) {
        self.own.refused += 1;
        log::warn!("trigger {name}: the ring cannot be kept: {error:#}");
    }

    /// SIGHUP: the configuration is applied as a whole or refused as a whole.
    fn reload(&mut self) {
        match Config::read(&self.path).and_then(|new| self.apply(new)) {
            Ok(()) => log::warn!("the configuration was read again and is applied"),
            Err(error) => {
                log::warn!("the configuration is not applied, the old one holds: {error:#}");
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
        while let Some(rows) = self.summer.close() {
            self.window(&rows)?;
        }
        self.summer.set_form(form(&new));
        self.config = new;
        Ok(())
    }
}

/// Where what is kept goes.
pub(super) fn kept_directory(config: &Config, ring: &Path) -> PathBuf {
    config.kept.directory.clone().unwrap_or_else(|| ring.join("kept"))
}

fn form(config: &Config) -> Form {
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let (window, owners) =
        config.rollup.as_ref().map_or((WINDOW, OWNERS), |rollup| (rollup.window, rollup.owners));
    Form { window_ns: ns(window), owners, slack_ns: ns(SLACK) }
}

/// Writes a file as a whole: who reads it sees the old one or the new one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path))
}

/// Memory that is used now, bytes.
fn resident_bytes() -> Option<u64> {
    let statm = procfs::process::Process::myself().ok()?.statm().ok()?;
    Some(statm.resident * procfs::page_size())
}
