//! The thread that consumes the recorder's rows (the tap): it sums them in windows, writes the
//! roll-up, updates the metrics, evaluates the triggers and collects profiles.

mod lacking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::system::uname;

use super::PendingRequests;
use super::figures;
use super::http::{HttpState, Pages};
use super::metrics::{AgentMetrics, MetricsPage, add_lost, format_textfile};
use super::notify::Notify;
use super::pending_spans::SpanSaver;
use super::profiles::ProfileCollector;
use super::reload::Reload;
use super::ring_reserve::RingReserve;
use super::watchdog::Pulse;
use crate::clock::{Snapshot, duration_ns};
use crate::config::Config;
use crate::record::own_cpu_ns;
use crate::schema::origin::RecordingOrigin;
use crate::schema::{canary, fabric, metadata, readings, rollup, sums};
use crate::tables::hour_upkeep;
use crate::tables::hours::{Hours, Unwritten};
use crate::tables::mode::FileMode;
use crate::tables::thread::Tapped;
use crate::view::rollup::{RollupForm, RollupRows, RollupSummer, WallTimeSource};

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

/// What the consumer works with, beside the rows.
#[derive(Debug)]
pub(super) struct ConsumerContext {
    pub config: Config,
    pub reload: Reload,
    pub pulse: Pulse,
    /// Free space on the disk of the ring.
    pub room: Option<RingReserve>,
    pub wishes: SpanSaver,
    pub shared: Arc<HttpState>,
    pub requests: PendingRequests,
    pub notify: Notify,
}

/// State of the consumer thread.
#[derive(Debug)]
pub(super) struct TapConsumer {
    context: ConsumerContext,
    summer: RollupSummer,
    profiles: ProfileCollector,
    hours: Option<Hours>,
    metrics: MetricsPage,
    /// Losses by cause, for each part that is being recorded.
    lost: BTreeMap<u32, BTreeMap<String, u64>>,
    lost_before: BTreeMap<String, u64>,
    agent_metrics: AgentMetrics,
    sealed_at: Instant,
    /// Time of the last look at disks and at files that wait for the store.
    figures_read_at: Option<Instant>,
    /// Time of the last search for files of earlier hours.
    tidied_at: Option<Instant>,
    /// Whether rows could not be written since the last seal. Only the first failure is logged.
    is_failing: bool,
    /// Whether the last hour could not be finished.
    is_unfinished: bool,
    /// Parts of the ring whose files were lost, all or some.
    lost_parts: usize,
    /// Whether the metadata of the recording have arrived.
    has_begun: bool,
}

impl TapConsumer {
    pub(super) fn new(context: ConsumerContext) -> Self {
        let config = &context.config;
        Self {
            summer: RollupSummer::new(summer_form(config)),
            profiles: ProfileCollector::new(context.requests.profiles.clone()),
            hours: None,
            metrics: MetricsPage::new(config.metrics.as_ref().map_or(0, |metrics| metrics.owners)),
            context,
            lost: BTreeMap::new(),
            lost_before: BTreeMap::new(),
            agent_metrics: AgentMetrics::default(),
            sealed_at: Instant::now(),
            figures_read_at: None,
            tidied_at: None,
            is_failing: false,
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
                Ok(tapped) => self.consume_message(tapped)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look_around();
        }
        self.context.notify.report_stopping();
        let finished = self.finish_hour();
        self.serve_profiles(true);
        // Also if the hour could not be finished: triggers are served, and the last counts are
        // published.
        self.context.wishes.save_due_spans(true);
        self.publish_metrics();
        finished.map(|()| self.describe_gaps())
    }

    /// Closes all windows and finishes the hour.
    fn finish_hour(&mut self) -> Result<()> {
        self.close_all()?;
        if let Some(Err(Unwritten { rows, error })) = self.hours.as_mut().map(Hours::finish_hour) {
            self.agent_metrics.unwritten += rows;
            self.is_unfinished = true;
            log::warn!("the last hour of the roll-up is left unfinished: {error:#}");
        }
        Ok(())
    }

    /// Closes all windows, complete or not.
    fn close_all(&mut self) -> Result<()> {
        while let Some(rows) =
            self.summer.close_oldest_window(WallTimeSource::Clock(Snapshot::read_clocks()))
        {
            self.write_window(&rows)?;
        }
        Ok(())
    }

    fn consume_message(&mut self, tapped: Tapped) -> Result<()> {
        match tapped {
            Tapped::Metadata(part_id, pairs) => self.apply_metadata(part_id, &pairs)?,
            Tapped::Rows(part_id, def, rows) if def.name == fabric::TABLE.name => {
                self.context.notify.report_ready();
                self.context.pulse.note_rows();
                self.context.wishes.note_windows(part_id, &rows)?;
            }
            // These have all cgroups, whatever rows `fabric` has.
            Tapped::Rows(part_id, def, rows) if def.name == sums::TABLE.name => {
                self.profiles.add_seconds(part_id, &rows);
                self.summer.add_rows(part_id, &rows, &(i64::MIN..=i64::MAX))?;
                // Not the label of the part: without a ring one part lasts for the whole recording,
                // and its offset between the clocks gets old.
                while let Some(rows) = self
                    .summer
                    .close_complete_window(WallTimeSource::Clock(Snapshot::read_clocks()))
                {
                    self.write_window(&rows)?;
                }
            }
            Tapped::Rows(_, def, rows) if def.name == readings::TABLE.name => {
                self.context.wishes.evaluate_conditions(&rows)?;
            }
            Tapped::Rows(_, def, rows) if def.name == canary::TABLE.name => {
                self.metrics.canary.add_bursts(&rows)?;
            }
            Tapped::Rows(..) => {}
            Tapped::End(part_id, is_broken) => {
                self.summer.end_source(part_id);
                self.profiles.end_part(part_id);
                self.context.wishes.end_part(part_id, !is_broken);
                self.lost_parts += usize::from(is_broken && self.context.config.ring.is_some());
                // The next part reports losses that last; those of this part stay counted.
                add_lost(&mut self.lost_before, &self.lost.remove(&part_id).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn apply_metadata(&mut self, part_id: u32, pairs: &BTreeMap<String, String>) -> Result<()> {
        let mut pairs = pairs.clone();
        pairs
            .entry(metadata::CLUSTER.to_owned())
            .or_insert_with(|| self.context.config.cluster.clone());
        // The plan is the same in all parts.
        if !std::mem::replace(&mut self.has_begun, true) {
            self.summer.read_metadata(&pairs)?;
            self.profiles.read_metadata(&pairs)?;
            self.metrics.canary.read_metadata(&pairs)?;
            self.context.wishes.boot_id = RecordingOrigin::from_metadata(&pairs).boot_id;
            if let Some(rollup) = &self.context.config.rollup {
                let pairs = rollup::file_metadata(&pairs);
                self.hours = Some(Hours::open(&rollup.directory, rollup.mode, pairs)?);
            }
        }
        let lost = pairs.get(metadata::LOSS).and_then(|text| serde_json::from_str(text).ok());
        if let Some(lost) = lost {
            self.lost.insert(part_id, lost);
        }
        Ok(())
    }

    /// Writes a closed window of the roll-up and adds it to the metrics. A failing disk is logged
    /// and counted; recording goes on.
    fn write_window(&mut self, rows: &RollupRows) -> Result<()> {
        // Before rows are written, so that none is lost while old parts of the ring take the space.
        self.context.room.iter_mut().for_each(RingReserve::free_reserve);
        let written = self.hours.as_mut().map(|hours| hours.write(rows.end, &rows.batch));
        if let Some(Err(unwritten)) = written {
            self.count_unwritten(&unwritten);
        }
        self.agent_metrics.last_window_s = Some(rows.end.ts_us as f64 / 1e6);
        if self.context.config.metrics.is_some() {
            self.metrics.canary.close_window(rows.end.mono_ns);
            self.metrics.add_window(&rows.batch)?;
            self.publish_metrics();
        }
        Ok(())
    }

    /// Counts rows of the roll-up that could not be written.
    fn count_unwritten(&mut self, Unwritten { rows, error }: &Unwritten) {
        self.agent_metrics.unwritten += rows;
        if !std::mem::replace(&mut self.is_failing, true) {
            log::warn!("rows of the roll-up are lost until it can be written again: {error:#}");
        }
    }

    /// Makes the page of metrics.
    pub(super) fn publish_metrics(&mut self) {
        let Some(config) = &self.context.config.metrics else { return };
        self.metrics.lost = all_lost(&self.lost_before, &self.lost);
        self.agent_metrics.joined = self.summer.joined_shares;
        (self.agent_metrics.kept, self.agent_metrics.refused) =
            (self.context.wishes.saved, self.context.wishes.refused);
        self.agent_metrics.cpu_s = own_cpu_ns() as f64 / 1e9;
        self.agent_metrics.resident_bytes =
            resident_bytes().unwrap_or(self.agent_metrics.resident_bytes);
        self.metrics.agent_metrics.clone_from(&self.agent_metrics);
        match self.metrics.encode_page() {
            Ok(page) => {
                if let Some(file) = &config.textfile
                    && let Err(error) =
                        FileMode::PUBLIC.replace_file(file, format_textfile(&page).as_bytes())
                {
                    log::warn!("cannot write the metrics to {}: {error}", file.display());
                }
                let otlp = self.metrics.encode_request(&uname().nodename().to_string_lossy());
                let pages = Pages { text: page.into(), otlp: otlp.into() };
                self.context.shared.replace_pages(pages, self.good_for());
            }
            Err(error) => log::warn!("cannot make the metrics: {error:#}"),
        }
    }

    /// How long the page is good: it is made again after each window.
    fn good_for(&self) -> Duration {
        let window = self.context.config.rollup.as_ref().map_or(WINDOW, |rollup| rollup.window);
        window.saturating_mul(WINDOWS).saturating_add(SLACK).saturating_add(PATIENCE)
    }

    /// Work between batches of rows: watchdog, signals, seals, old files, triggers.
    fn look_around(&mut self) {
        self.context.notify.report_alive(&mut self.context.pulse);
        if self.context.requests.reload.swap(false, Ordering::Relaxed) {
            self.context.reload.request_reload();
        }
        if let Some(read) = self.context.reload.take_config() {
            self.apply_reload(read);
        }
        if self.context.requests.keep.swap(false, Ordering::Relaxed) {
            self.context.wishes.request_save();
        }
        self.context.room.iter_mut().for_each(RingReserve::free_reserve);
        if self.sealed_at.elapsed() >= SEAL {
            self.sealed_at = Instant::now();
            self.seal_rows();
        }
        if self.figures_read_at.is_none_or(|read_at| read_at.elapsed() >= FIGURES) {
            self.figures_read_at = Some(Instant::now());
            self.agent_metrics.disks = figures::read_disks(&self.context.config);
            self.agent_metrics.unsent = figures::read_unsent(&self.context.config);
        }
        if self.tidied_at.is_none_or(|searched_at| searched_at.elapsed() >= TIDY) {
            self.tidied_at = Some(Instant::now());
            self.tidy_hours();
        }
        self.context.wishes.save_due_spans(false);
        self.serve_profiles(false);
    }

    /// Answers requests for profiles, all at the end.
    fn serve_profiles(&mut self, is_last: bool) {
        let (lost_before, lost) = (&self.lost_before, &self.lost);
        self.profiles.serve_requests(is_last, || all_lost(lost_before, lost));
    }

    /// Writes the rows summed so far to disk, so that they survive a kill.
    fn seal_rows(&mut self) {
        match self.hours.as_mut().map(Hours::seal_rows) {
            Some(Ok(true)) if std::mem::take(&mut self.is_failing) => {
                log::info!("the roll-up is written again");
                // Segments that the failure left behind are finished by the next `tidy_hours`.
                self.tidied_at = None;
            }
            Some(Err(unwritten)) => self.count_unwritten(&unwritten),
            Some(Ok(_)) | None => {}
        }
    }

    /// Finishes hours that an error left unfinished, and removes old ones.
    fn tidy_hours(&self) {
        let Some(rollup) = &self.context.config.rollup else { return };
        match hour_upkeep::repair_hours(&rollup.directory) {
            Ok(files) => files.iter().for_each(|file| {
                log::info!(
                    "finished the hour {}, which was left unfinished after an error",
                    file.display()
                );
            }),
            Err(error) => log::warn!("cannot search for unfinished hours: {error:#}"),
        }
        let unsent = self.context.config.upload.as_ref().map(|upload| upload.queue);
        let trimmed =
            rollup.keep.map(|age| hour_upkeep::trim_hours(&rollup.directory, age, unsent));
        if let Some(Err(error)) = trimmed {
            log::warn!("cannot search for hours older than rollup.keep: {error:#}");
        }
    }

    /// Applies the new configuration as a whole, or refuses it as a whole.
    fn apply_reload(&mut self, read: Result<Config>) {
        match read.and_then(|new| self.apply_config(new)) {
            Ok(()) => log::info!("the configuration was read again and is applied"),
            Err(error) => {
                log::warn!(
                    "the configuration is not applied, and the old one stays in use: {error:#}"
                );
            }
        }
    }

    fn apply_config(&mut self, new: Config) -> Result<()> {
        let old = &self.context.config;
        let restart_needed =
            |changed_key: &str| format!("{changed_key} has changed: restart the agent for that");
        anyhow::ensure!(new.cluster == old.cluster, restart_needed("cluster"));
        anyhow::ensure!(new.record == old.record, restart_needed("[record]"));
        anyhow::ensure!(new.identity == old.identity, restart_needed("[identity]"));
        anyhow::ensure!(new.ring == old.ring, restart_needed("[ring]"));
        anyhow::ensure!(new.triggers == old.triggers, restart_needed("[[trigger]]"));
        anyhow::ensure!(new.kept.directory == old.kept.directory, restart_needed("kept.directory"));
        let rollup_place = |config: &Config| {
            config.rollup.as_ref().map(|section| (section.directory.clone(), section.mode))
        };
        anyhow::ensure!(
            rollup_place(&new) == rollup_place(old),
            restart_needed("rollup.directory or rollup.mode")
        );
        let metrics_access = |config: &Config| {
            let metrics = config.metrics.clone();
            metrics.map(|served| (served.listen, served.mode, served.token, served.textfile))
        };
        let keys = "metrics.listen, metrics.mode, metrics.token-file or metrics.textfile";
        anyhow::ensure!(metrics_access(&new) == metrics_access(old), restart_needed(keys));
        if let Some(metrics) = &new.metrics {
            self.metrics.owners = metrics.owners;
        }
        self.summer.set_form(summer_form(&new));
        self.context.wishes.set_kept(new.kept.clone());
        self.context.config = new;
        Ok(())
    }
}

/// The losses since the agent began, by cause.
fn all_lost(
    lost_before: &BTreeMap<String, u64>,
    lost_by_part: &BTreeMap<u32, BTreeMap<String, u64>>,
) -> BTreeMap<String, u64> {
    let mut lost = lost_before.clone();
    for lost_in_part in lost_by_part.values() {
        add_lost(&mut lost, lost_in_part);
    }
    lost
}

fn summer_form(config: &Config) -> RollupForm {
    let (window, owners) =
        config.rollup.as_ref().map_or((WINDOW, OWNERS), |rollup| (rollup.window, rollup.owners));
    RollupForm { window_ns: duration_ns(window), owners, slack_ns: duration_ns(SLACK) }
}

/// Resident memory of this process, bytes.
fn resident_bytes() -> Option<u64> {
    Some(procfs::process::Process::myself().ok()?.statm().ok()?.resident * procfs::page_size())
}

#[cfg(test)]
mod tests;
