//! The recorder's loop: drain the rings, advance the time line, hand rows to the writer. At the end
//! it closes the last window and finishes the tables.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::cpu_changes::CpuChanges;
use super::open_parts::LAST_WAIT;
use super::progress::ProgressLine;
use super::relief::ReliefControl;
use super::ring_feed::{RingFeed, SETTLE_NS};
use super::side_sources::{SideSources, StopPoint};
use super::state::RecorderState;
use crate::clock::mono_ns;
use crate::schema::loss::Losses;
use crate::signals::Signals;
use crate::tables::writer::RecordingSize;
use crate::workload::Workload;

/// The recording ends after this wait even if the ring is not empty.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The result of a recording.
#[derive(Debug)]
pub struct RecordingOutcome {
    /// What was written.
    pub finished: RecordingSize,
    /// Number of parts: 1 unless the recording was rotated.
    pub part_count: u32,
    /// The losses; they say whether the recording is complete.
    pub losses: Losses,
    /// Length of the recording in seconds.
    pub seconds: f64,
    /// Counters that were read.
    pub counters: usize,
}

/// A recording that runs.
pub(super) struct RecorderLoop<'a> {
    pub state: RecorderState<'a>,
    /// What is polled beside the rings.
    pub sources: SideSources<'a>,
    pub feed: RingFeed,
    pub cpu_changes: CpuChanges,
    pub relief: ReliefControl,
    pub drain_period: Duration,
    pub sealed_at: Instant,
}

impl RecorderLoop<'_> {
    /// Drains until the command ends, a signal comes or the time is over.
    pub(super) async fn run_until_end(
        &mut self,
        workload: &mut Workload,
        signals: &mut Signals,
    ) -> Result<()> {
        let options = self.state.common.options;
        let progress = ProgressLine::new(options.quiet);
        let mut ticks = interval(self.drain_period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let over = sleep(options.duration.unwrap_or(Duration::from_secs(u64::from(u32::MAX))));
        tokio::pin!(over);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if !self.drain_rings()? {
                        ticks.reset_immediately();
                        // Without a pause the runtime would never check for signals.
                        tokio::task::yield_now().await;
                    }
                    // Sources come first: what belongs to the live part must be in it before it is
                    // sealed, or ends.
                    let mut sources = self.sources.each_source();
                    sources.try_for_each(|source| source.end_drain(&mut self.state))?;
                    self.seal_if_due()?;
                    self.state.rotate_if_due(&mut self.sources)?;
                    options.control.count_drain();
                    let open_parts = &self.state.open_parts;
                    progress.redraw_line(open_parts.fabric_rows(), &open_parts.losses_so_far());
                }
                ended = workload.wait_for_end() => break ended?,
                _ = signals.next() => break,
                () = &mut over => break,
            }
        }
        progress.clear_line();
        Ok(())
    }

    /// Waits for the readings of the last tick, closes all windows, and stops the session.
    pub(super) async fn stop_session(&mut self, signals: &mut Signals) -> Result<()> {
        let tick_ns = self.state.common.plan.tick_ns;
        // The canary, so that all its bytes are counted in the last window, and the witnesses: no
        // counter is retired any more, which would be a change that the last windows wait for.
        self.sources.stop_sources(StopPoint::BeforeLastTick, &mut self.state)?;
        // Two parts never end at the same time: the last tick is that of the live one.
        self.wait_for_previous_part(signals).await?;
        // A reading counts when the tick in which it ends is closed: that is the last one.
        let read_ns = self.state.read_statistics();
        self.state.open_parts.live.timeline.stop_at(read_ns / tick_ns + 1);
        // By then the last tick's readings have arrived. Later records are not needed: once the
        // programs are detached, nothing refills the ring.
        sleep(2 * self.state.common.options.tick + Duration::from_nanos(2 * SETTLE_NS)).await;
        self.remember_running().await;
        // While the counters still count, and after the wait: monitors and accounts measure past
        // the end of the last window, and marks that the command wrote just before it ended have
        // been read by now.
        self.sources.stop_sources(StopPoint::AfterLastTick, &mut self.state)?;
        // Counters that stopped because a CPU went offline for a time too short to be noticed
        // otherwise.
        let stopped = self.state.session.take_stopped();
        self.state.is_ending = true;
        self.state.session.stop()?;
        let counts = self.state.session.current_counts();
        let counts_ns = mono_ns() as u64;
        // All records in the ring are older than these counts, so all are fed before the counts.
        let drain_begin = Instant::now();
        while !self.feed.feed_records(&mut self.state, &mut self.sources)?.has_emptied
            && drain_begin.elapsed() < LONGEST_WAIT
        {
            tokio::task::yield_now().await;
        }
        self.cpu_changes.apply_last_change(&mut self.state, stopped, &counts, counts_ns)?;
        let mut waiting_since = Instant::now();
        let mut pause = Duration::ZERO;
        while !self.state.open_parts.live.timeline.is_done()
            && waiting_since.elapsed() < LAST_WAIT
            && drain_begin.elapsed() < LONGEST_WAIT
        {
            tokio::select! {
                () = sleep(pause) => {
                    pause = Duration::from_millis(5);
                    if !self.drain_rings()? {
                        // What is missing may be in the rest of the ring.
                        (waiting_since, pause) = (Instant::now(), Duration::ZERO);
                    }
                }
                _ = signals.next() => break,
            }
        }
        self.drain_rings()?;
        let end_ns = mono_ns() as u64;
        self.relief.end_relief(&mut self.state, end_ns);
        let live = &mut self.state.open_parts.live;
        live.timeline.give_up(end_ns, &mut live.sink);
        Ok(())
    }

    /// Waits until the part before the live one is closed.
    async fn wait_for_previous_part(&mut self, signals: &mut Signals) -> Result<()> {
        while !self.state.open_parts.is_settled() {
            let has_emptied = self.drain_rings()?;
            self.state.rotate_if_due(&mut self.sources)?;
            tokio::select! {
                () = sleep(Duration::from_millis(if has_emptied { 5 } else { 0 })) => {}
                _ = signals.next() => self.state.open_parts.end_live_part(&mut self.sources)?,
            }
        }
        Ok(())
    }

    /// Remembers which task runs on each CPU. A task that leaves after the programs are detached
    /// sends no record, and may have exited before its time is closed.
    async fn remember_running(&mut self) {
        let begin = Instant::now();
        while !self.state.remember_running() && begin.elapsed() < self.drain_period {
            sleep(Duration::from_micros(100)).await;
        }
    }

    /// Processes what has arrived since the last drain. `false` if records are left in the rings.
    ///
    /// The order is that of time: what is read or listed before the rings is older than the newest
    /// record, so that a tick is closed only when all that belongs to it has been taken.
    fn drain_rings(&mut self) -> Result<bool> {
        let now_ns = self.state.read_statistics();
        self.sources.each_source().try_for_each(|source| source.poll(&mut self.state))?;
        // CPUs are listed before the ring is read: a CPU that is offline in the list has sent all
        // its records before, so they are fed below.
        self.cpu_changes.list_online_cpus(now_ns)?;
        let behind_ns = now_ns.saturating_sub(self.state.fed_ns);
        let outcome = self.feed.feed_records(&mut self.state, &mut self.sources)?;
        self.state.fed_ns = if outcome.has_emptied { now_ns } else { outcome.horizon_ns };
        let fed = self.feed.fed_records(outcome);
        let mut sources = self.sources.each_source();
        sources.try_for_each(|source| source.follow_records(&mut self.state, fed))?;
        self.relief.update_relief(&mut self.state, &self.feed, now_ns, behind_ns);
        if outcome.has_emptied {
            self.feed.clear_backlog();
        }
        let timer_moves = self.feed.timer_moves();
        self.cpu_changes.apply_due_change(&mut self.state, &mut self.sources, timer_moves)?;
        // Last: a CPU that has just gone offline does not hold up its ticks.
        self.state.close_bins(outcome.horizon_ns, outcome.has_emptied)?;
        Ok(outcome.has_emptied)
    }

    /// Seals early, so that data which is not closed yet is written within the flush interval too.
    fn seal_if_due(&mut self) -> Result<()> {
        let options = self.state.common.options;
        // A drain is late by at most one period, and a seal takes time.
        let margin = 2 * self.drain_period + options.flush / 10;
        let is_waiting = self.state.open_parts.live.timeline.is_waiting();
        let waiting = if is_waiting { options.lag } else { Duration::ZERO };
        let lag = margin + Duration::from_nanos(SETTLE_NS) + options.interval + waiting;
        if self.sealed_at.elapsed() >= options.flush.saturating_sub(lag).max(options.flush / 4) {
            self.sealed_at = Instant::now();
            self.state.open_parts.live.seal_rows(&mut self.sources)?;
        }
        Ok(())
    }

    pub(super) fn finish_recording(self, seconds: f64) -> Result<RecordingOutcome> {
        let Self { state: RecorderState { session, open_parts, .. }, mut sources, .. } = self;
        let counters = session.opened_count();
        // The session is not needed any more; its programs should not run while the files are
        // finished.
        drop(session);
        open_parts.finish_parts(&mut sources, seconds, counters)
    }
}
