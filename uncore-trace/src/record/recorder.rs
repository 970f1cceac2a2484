//! The recorder's loop: drain the ring, advance the time line, hand rows to the writer. At the end
//! it closes the last window and finishes the tables.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval, sleep};
use uncore_trace_common::record::{KIND_CGROUP, KIND_FILE, KIND_TASK};

use super::accounts::{self, AccountThread};
use super::args::{AtSwitch, RecordOptions, Sampling};
use super::canary::CanaryProcess;
use super::holders::Reread;
use super::load::{RecorderLoad, ReliefChange};
use super::marks::RecordingMarks;
use super::monitors::{self, MonitorThread};
use super::needs::recorder_needs;
use super::part::{CommonState, Draft};
use super::parts::{LAST_WAIT, OpenParts, RecordingTotals};
use super::planned::warn_of_unopened;
use super::pods::{self, PodThread};
use super::progress::ProgressLine;
use super::rotate::Rotation;
use super::witness::WitnessWatch;
use crate::clock::mono_ns;
use crate::confine;
use crate::count::Count;
use crate::discover::{CpuList, Machine};
use crate::drain::{DrainedRecord, Merge, Peek, decode_record, decode_state};
use crate::open::{self, CpuSetChange, DropCounts, OnlineCpus, Session, Stopped};
use crate::plan::Plan;
use crate::priority;
use crate::schema::loss::{Cause, Losses};
use crate::signals::Signals;
use crate::tables::place;
use crate::tables::writer::{RecordingSize, RecordingTarget};
use crate::workload::Workload;

/// Records of events that happened this long before a drain are in the ring. The delay allows for a
/// program that the hypervisor preempts before it sends its record.
const SETTLE_NS: u64 = 5_000_000;

/// Records that are fed between two readings of the clock, some 50 us.
const RECORDS_AT_ONCE: u64 = 64;

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

struct RecorderLoop<'a> {
    common: CommonState<'a>,
    session: Session,
    /// The order in which the rings are read.
    merge: Merge,
    online: OnlineCpus,
    /// The drain period.
    drain_period: Duration,
    open_parts: OpenParts,
    drops: DropCounts,
    /// Watches the witnesses, if they may be dropped.
    witness_watch: Option<WitnessWatch<'a>>,
    /// The monitors of resctrl, if any measure what is counted.
    monitors: Option<MonitorThread>,
    /// The kubelet, if there is one.
    pods: Option<PodThread>,
    /// What devices count themselves, if it is known who holds them.
    accounts: Option<AccountThread>,
    /// When counters last changed their reader CPUs, ns.
    changed_ns: u64,
    /// Lists of the CPUs that were online, with the time of each look, oldest first. A list is
    /// applied once all records sent before its time have been fed, which include all records of
    /// CPUs that went offline.
    cpu_lists: VecDeque<(u64, Vec<u32>)>,
    /// The value of `Drops::moved` when the counters were last followed.
    followed_moves: u64,
    sealed_at: Instant,
    /// When all files of watched devices are read again.
    reread: Reread,
    /// Whether the recorder keeps up.
    load: RecorderLoad,
    /// The time up to which all records were fed.
    fed_ns: u64,
    /// By ring: bytes that were read since the rings were empty.
    backlog: Vec<u64>,
    /// Whether the recording ends: what is left out does not change any more.
    is_ending: bool,
}

/// Records `plan` on `machine` as `options` say, until the command ends, a signal comes or the time
/// is over. The command is started here. When this returns, also with an error, all files are
/// closed and no counter or program is left in the kernel; the command may still run.
///
/// Once everything is attached and the command runs, this process is confined for good
/// ([`crate::confine`]): it cannot record a second time.
///
/// # Errors
///
/// The session cannot be opened, the output cannot be written, or the command cannot be run.
/// What was sealed before an error is kept.
pub async fn record(
    target: RecordingTarget,
    machine: &Machine,
    plan: &Plan,
    options: &RecordOptions,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<RecordingOutcome> {
    // A recorder that was killed may have left monitoring groups.
    monitors::remove_left_groups();
    let monitor_setup = monitors::MonitorSetup::prepare_monitors(machine, plan, options.monitor)?;
    let marks = RecordingMarks::open_listeners(options, &target)?;
    let mut canary =
        options.canary.then(|| CanaryProcess::start_process(machine, plan, &target)).transpose()?;
    let options = &*with_canary(options, canary.as_ref());
    let rotation = Rotation::open_series(&target, options)?;
    let (rotation, first_target) = match rotation {
        Some((rotation, first_part_target)) => (Some(rotation), first_part_target),
        None => (None, target),
    };
    let canary_summary = canary.as_ref().map(CanaryProcess::summary);
    let holders =
        plan.has_devices() || options.io && matches!(first_target, RecordingTarget::Dataset(_));
    let pod_setup = if holders { pods::PodSetup::connect_kubelet(machine).await } else { None };
    let draft = Draft::create_files(first_target, options, plan, canary_summary, None)?;
    let online: Vec<u32> = machine.cpus.online.iter().collect();
    let possible = machine.cpus.possible.iter().max().map_or(1, |highest| highest + 1);
    let mut session = Session::open(
        plan,
        &machine.root,
        &online,
        possible,
        open::SessionOptions { holders, ..session_options(options) },
        options.btf.as_deref(),
    )?;
    warn_of_unopened(plan, &session, options);
    if let (cpus, counters @ 1..) = session.shared_readers() {
        let cpus: CpuList = cpus.into_iter().collect();
        log::info!("{counters} counters are also read at the context switches of CPU {cpus}");
    }
    let is_over = run_delay(options, workload, signals).await?;
    let timer = session.start()?;
    let start_tick = mono_ns() as u64 / plan.tick_ns + 1;
    marks.begin_recording((start_tick * plan.tick_ns) as i64);
    let common = CommonState::new(options, machine, plan, &session, online);
    let live = draft.begin_part(&common, &session, start_tick)?;
    let witness_watch = options.witness_budget.map(|budget| {
        let unopened =
            session.unopened().iter().map(|unopened_counter| unopened_counter.counter).collect();
        WitnessWatch::new(plan, budget, &unopened, &mut session, mono_ns() as u64)
    });
    if let Some(canary) = &mut canary {
        canary.start_moving();
    }
    let account_setup =
        session.sees_holders().then(|| accounts::AccountSetup::prepare_reading(machine));
    let online = OnlineCpus::open(&machine.root)?;
    let at_switch = AtSwitch::from_plan(plan, options.witness_budget.is_some());
    let rings = session.rings().len();
    let load = RecorderLoad::new(options.lag.as_nanos() as u64, live.timeline.relief_steps());
    let mut recorder = RecorderLoop {
        online,
        drain_period: options.drain_period(common.cpus.len(), at_switch),
        common,
        merge: Merge::new(rings),
        session,
        open_parts: OpenParts::new(live, rotation, marks, canary, timer),
        drops: DropCounts::default(),
        witness_watch,
        monitors: None,
        pods: None,
        accounts: None,
        changed_ns: 0,
        cpu_lists: VecDeque::new(),
        followed_moves: 0,
        sealed_at: Instant::now(),
        reread: Reread::default(),
        load,
        fed_ns: mono_ns() as u64,
        backlog: vec![0; rings],
        is_ending: false,
    };
    let begin = Instant::now();
    if options.delay.is_zero() {
        // Counting has begun, so the command is seen from its first instruction.
        *workload = Workload::start_command(&options.command)?;
    }
    priority::raise_priority();
    // Its thread confines itself: it may change resctrl, and this thread may not.
    recorder.monitors = monitor_setup.and_then(monitors::MonitorSetup::start_thread);
    recorder.pods = pod_setup.map(pods::PodSetup::start_thread);
    recorder.accounts = account_setup.and_then(accounts::AccountSetup::start_thread);
    let rotation_needs = recorder.open_parts.rotation_needs();
    confine::restrict_process(
        &recorder_needs(machine, options, workload).merged_with(rotation_needs),
    );
    if !is_over {
        recorder.run_until_end(workload, signals).await?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    recorder.stop_session(signals, plan.tick_ns).await?;
    recorder.finish_recording(seconds)
}

impl RecorderLoop<'_> {
    /// Drains until the command ends, a signal comes or the time is over.
    async fn run_until_end(
        &mut self,
        workload: &mut Workload,
        signals: &mut Signals,
    ) -> Result<()> {
        let progress = ProgressLine::new(self.common.options.quiet);
        let mut ticks = interval(self.drain_period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let forever = Duration::from_secs(u64::from(u32::MAX));
        let over = sleep(self.common.options.duration.unwrap_or(forever));
        tokio::pin!(over);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if !self.drain_rings()? {
                        ticks.reset_immediately();
                        // Without a pause the runtime would never check for signals.
                        tokio::task::yield_now().await;
                    }
                    self.open_parts.take_bursts()?;
                    self.rank_tenants();
                    self.seal_if_due()?;
                    self.open_parts.rotate_if_due(&self.common, &self.session, self.fed_ns)?;
                    self.common.options.control.count_drain();
                    progress.redraw_line(self.open_parts.fabric_rows(), &self.open_parts.losses_so_far());
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
    async fn stop_session(&mut self, signals: &mut Signals, tick_ns: u64) -> Result<()> {
        self.witness_watch = None;
        // Before the last tick, so that all its bytes are counted.
        self.open_parts.stop_canary()?;
        self.wait_for_previous_part(signals).await?;
        let now_ns = mono_ns() as u64;
        self.open_parts.live.timeline.stop_at(now_ns / tick_ns + 1);
        self.read_statistics(now_ns);
        // By then the last tick's readings have arrived. Later records are not needed: once the
        // programs are detached, nothing refills the ring.
        sleep(2 * self.common.options.tick + Duration::from_nanos(2 * SETTLE_NS)).await;
        self.remember_running().await;
        self.monitors.iter_mut().for_each(MonitorThread::stop_thread);
        self.accounts.iter_mut().for_each(AccountThread::stop_thread);
        self.take_monitor_readings();
        self.take_assignments();
        self.monitors = None;
        self.pods = None;
        // Marks that the command wrote just before it ended have been read by now.
        self.open_parts.marks.stop_listening();
        // Counters that stopped because a CPU went offline for a time too short to be noticed
        // otherwise.
        let stopped = self.session.take_stopped();
        self.is_ending = true;
        self.session.stop()?;
        let counts = self.session.current_counts();
        let counts_ns = mono_ns() as u64;
        // All records in the ring are older than these counts.
        let drain_begin = Instant::now();
        while !self.feed_records()?.1 && drain_begin.elapsed() < LONGEST_WAIT {
            tokio::task::yield_now().await;
        }
        self.apply_last_change(stopped, &counts, counts_ns)?;
        let mut waiting_since = Instant::now();
        let mut pause = Duration::ZERO;
        while !self.open_parts.live.timeline.is_done()
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
        if let Some(relief_change) = self.load.end_relief(end_ns) {
            self.note_relief(end_ns, &relief_change, relief_change.span_ns);
        }
        let live = &mut self.open_parts.live;
        live.timeline.give_up(end_ns, &mut live.sink);
        Ok(())
    }

    /// Waits until the part before the live one is closed.
    async fn wait_for_previous_part(&mut self, signals: &mut Signals) -> Result<()> {
        while !self.open_parts.is_settled() {
            let emptied = self.drain_rings()?;
            self.open_parts.rotate_if_due(&self.common, &self.session, self.fed_ns)?;
            tokio::select! {
                () = sleep(Duration::from_millis(if emptied { 5 } else { 0 })) => {}
                _ = signals.next() => self.open_parts.end_live_part()?,
            }
        }
        Ok(())
    }

    /// Applies the changes of CPUs and counters since the last look, at the end of the recording.
    /// `counts` are the counts of the counters at `now_ns`.
    fn apply_last_change(
        &mut self,
        stopped: Vec<Stopped>,
        counts: &[(u32, Count)],
        now_ns: u64,
    ) -> Result<()> {
        let offline = self.session.take_offline(self.online.read_cpus()?);
        self.apply_change(
            &CpuSetChange { went_offline: offline, stopped, ..CpuSetChange::default() },
            now_ns,
        )?;
        self.cpu_lists.clear();
        self.open_parts.live.timeline.log_last_counts(
            counts,
            now_ns,
            &mut self.open_parts.live.sink,
        );
        Ok(())
    }

    /// Remembers which task runs on each CPU. A task that leaves after the programs are detached
    /// sends no record, and may have exited before its time is closed.
    async fn remember_running(&mut self) {
        let begin = Instant::now();
        let session = &self.session;
        while !self
            .open_parts
            .live
            .timeline
            .remember_running(&mut |cpu| read_unsent_state(session, cpu).ok()?)
            && begin.elapsed() < self.drain_period
        {
            sleep(Duration::from_micros(100)).await;
        }
    }

    /// Processes the records in the ring, for one drain period at most, so that a machine that
    /// fills the ring faster than it is emptied does not keep the recorder from its other duties.
    /// `false` if records are left.
    fn drain_rings(&mut self) -> Result<bool> {
        let now_ns = mono_ns() as u64;
        self.read_statistics(now_ns);
        self.take_monitor_readings();
        self.take_assignments();
        let online = self.online.read_cpus()?;
        // Every change is queued, not only the latest list: a CPU that leaves and returns while the
        // ring is behind was offline all the same.
        if self.cpu_lists.back().is_none_or(|(_, latest)| latest != online) {
            self.cpu_lists.push_back((now_ns, online.to_vec()));
        }
        // CPUs are listed before the ring is read: a CPU that is offline in the list has sent all
        // its records before, so they are fed below.
        let behind_ns = now_ns.saturating_sub(self.fed_ns);
        let (horizon_ns, emptied) = self.feed_records()?;
        let fed_ns = if emptied { now_ns } else { horizon_ns };
        self.fed_ns = fed_ns;
        self.reread.read_if_due(&self.session, &mut self.open_parts, fed_ns);
        self.update_relief(now_ns, behind_ns);
        if emptied {
            self.backlog.fill(0);
        }
        let has_all_of_offline = self.has_all_of_offline(fed_ns);
        let due_list =
            self.cpu_lists.pop_front_if(|(list_ns, _)| *list_ns <= fed_ns && has_all_of_offline);
        // A change applies to what is sent after it. So it waits until everything from before is
        // fed, and one change is made per drain.
        let has_changed = match due_list {
            Some((_, online)) => self.follow_cpus(&online)?,
            // The previous change of reader CPUs is complete: all records that were sent before it
            // have been fed.
            None => fed_ns >= self.changed_ns && self.drop_witnesses()?,
        };
        if has_changed {
            // Records sent until now describe the CPUs before the next change.
            self.changed_ns = mono_ns() as u64;
            self.cpu_lists.iter_mut().for_each(|(list_ns, _)| *list_ns = self.changed_ns);
        }
        let mut failed = None;
        let session = &self.session;
        let mut peek_cpu = |cpu| {
            read_unsent_state(session, cpu).unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        };
        for open_part in self.open_parts.oldest_first() {
            while !open_part.timeline.close_ticks(
                horizon_ns,
                emptied,
                &mut open_part.sink,
                &mut peek_cpu,
            ) {
                open_part.sink.hand_over(&mut open_part.writer)?;
            }
            open_part.sink.hand_over(&mut open_part.writer)?;
        }
        failed.map_or(Ok(emptied), Err)
    }

    /// Leaves out more if the recorder is late, and less if it has kept up.
    fn update_relief(&mut self, now_ns: u64, behind_ns: u64) {
        if self.is_ending {
            return;
        }
        let ring_bytes = u64::from(self.common.options.buffer) / self.backlog.len().max(1) as u64;
        // A drain in time may find a large part of a ring too, if CPUs send much.
        let is_filling = self.backlog.iter().any(|bytes| *bytes > ring_bytes / 2)
            && behind_ns > 2 * self.drain_period.as_nanos() as u64;
        if let Some(relief_change) = self.load.update_relief(now_ns, behind_ns, is_filling) {
            // Windows that wait are affected too.
            let waiting_ns = behind_ns + self.common.options.lag.as_nanos() as u64;
            let is_more = relief_change.new_relief > relief_change.old_relief;
            self.note_relief(
                now_ns,
                &relief_change,
                if is_more { waiting_ns } else { relief_change.span_ns },
            );
            if is_more {
                log::warn!(
                    "the recorder is late: from here {}",
                    relief_change.new_relief.in_words()
                );
            }
        }
        self.common.relief = self.load.current_relief();
        for open_part in self.open_parts.oldest_first() {
            open_part.timeline.set_relief(self.common.relief);
        }
    }

    /// Enters a change of what is left out in the parts that it affects.
    fn note_relief(&mut self, now_ns: u64, relief_change: &ReliefChange, span_ns: u64) {
        for open_part in self.open_parts.oldest_first() {
            open_part.timeline.ledger.add_relief_change(
                now_ns,
                span_ns,
                relief_change.old_relief,
                relief_change.new_relief,
            );
        }
    }

    /// Reads the statistics of disks and interfaces, if they are counted.
    fn read_statistics(&mut self, now_ns: u64) {
        if !self.session.statistics().is_empty() {
            let sampled = self.session.statistics().read(now_ns);
            for open_part in self.open_parts.oldest_first() {
                open_part.timeline.feed_statistics(&sampled);
            }
        }
    }

    /// Takes what the monitors have measured.
    fn take_monitor_readings(&mut self) {
        for reading in self.monitors.iter().flat_map(MonitorThread::take_readings) {
            for open_part in self.open_parts.oldest_first() {
                open_part.timeline.feed_monitors(&reading);
            }
            for lost in &reading.lost {
                self.open_parts.ledger_at(lost.time_ns).add_monitor_loss(lost);
            }
        }
        self.take_account_readings();
    }

    /// Takes what devices have counted, and says who holds them.
    fn take_account_readings(&mut self) {
        let Some(accounts) = &mut self.accounts else { return };
        let note_unread = |open_parts: &mut OpenParts, time_ns: u64, why: &str| {
            open_parts.ledger_at(time_ns).add_explained(Cause::AccountUnread, time_ns, None, why);
        };
        for (reading, unread) in accounts.take_readings() {
            for open_part in self.open_parts.oldest_first() {
                open_part.timeline.feed_accounts(&reading);
            }
            for why in unread {
                note_unread(&mut self.open_parts, reading.time_ns, &why);
            }
        }
        if !self.is_ending
            && let Some(why) = accounts.send_held(|| self.open_parts.live.timeline.held_devices())
        {
            note_unread(&mut self.open_parts, mono_ns() as u64, why);
        }
    }

    /// Takes what the kubelet has said.
    fn take_assignments(&mut self) {
        for assignments in self.pods.iter().flat_map(PodThread::take_answers) {
            for open_part in self.open_parts.oldest_first() {
                open_part.timeline.feed_assignments(&assignments, &mut open_part.sink);
            }
            if let Err(why) = &assignments.list {
                let ledger = self.open_parts.ledger_at(assignments.time_ns);
                ledger.add_explained(Cause::HolderUnseen, assignments.time_ns, None, why);
            }
            self.common.assigned = Some(assignments);
        }
    }

    /// Gives the thread of the monitors the largest tenants.
    fn rank_tenants(&mut self) {
        if let Some(monitors) = &mut self.monitors {
            monitors.rank_tenants(|| self.open_parts.live.timeline.largest_cgroups());
        }
    }

    /// Feeds the records in the ring to the time line, for one drain period at most. Returns the
    /// time up to which all records were fed, and whether the ring was emptied.
    fn feed_records(&mut self) -> Result<(u64, bool)> {
        let mut horizon_ns = (mono_ns() as u64).saturating_sub(SETTLE_NS);
        let begin = Instant::now();
        let mut emptied = true;
        let mut records = 0;
        let rings = self.session.rings();
        let backlog = &mut self.backlog;
        let mut read_record = |ring: usize| {
            let record = rings.get_mut(ring)?.next()?;
            if let Some(bytes) = backlog.get_mut(ring) {
                *bytes += record.len() as u64;
            }
            Some(decode_record(&record))
        };
        while let Some(decoded) = self.merge.next(&mut read_record) {
            records += 1;
            match decoded {
                Ok(record) => {
                    if let (Some(witness_watch), DrainedRecord::Sample(sample)) =
                        (&mut self.witness_watch, &record)
                    {
                        witness_watch.count_reading(sample.cpu);
                    }
                    self.open_parts.feed_record(record);
                }
                Err(error) => {
                    let ledger = self.open_parts.ledger_at(horizon_ns);
                    ledger.add_explained(Cause::Undecodable, horizon_ns, None, &error.to_string());
                }
            }
            if records % RECORDS_AT_ONCE == 0 && begin.elapsed() >= self.drain_period {
                emptied = false;
                // The records that are left are newer than those that were fed, except for the
                // disorder of a ring.
                horizon_ns = horizon_ns
                    .min(self.open_parts.live.timeline.newest_time().saturating_sub(SETTLE_NS));
                break;
            }
        }
        if let Some(witness_watch) = &mut self.witness_watch {
            witness_watch.note_drain(records, emptied);
        }
        self.session.flush_log();
        self.note_drops(horizon_ns)?;
        for open_part in self.open_parts.oldest_first() {
            open_part.sink.hand_over(&mut open_part.writer)?;
        }
        Ok((horizon_ns, emptied))
    }

    /// Drops the witnesses that cost too much, or whose core PMU counters another tool needs.
    /// `true` if any were dropped.
    fn drop_witnesses(&mut self) -> Result<bool> {
        let now_ns = mono_ns() as u64;
        let check = |witness_watch: &mut WitnessWatch<'_>| {
            witness_watch.check_budget(&mut self.session, now_ns)
        };
        let Some(dropped) = self.witness_watch.as_mut().and_then(check) else {
            return Ok(false);
        };
        log::warn!(
            "the witness of {} CPUs is read no longer: {}; counts are divided without it from here",
            dropped.counter_ids.len(),
            dropped.why
        );
        let change = self.session.retire_counters(&dropped.counter_ids)?;
        for id in &dropped.counter_ids {
            let why = format!("not read from here: {}", dropped.why);
            for open_part in self.open_parts.oldest_first() {
                open_part.timeline.ledger.add_explained(
                    Cause::WitnessLost,
                    now_ns,
                    Some(*id),
                    &why,
                );
            }
            self.common.opened.remove(id);
            self.common.dropped.insert(*id, why);
        }
        self.apply_change(&change, now_ns)?;
        Ok(true)
    }

    /// Whether all records were fed of those CPUs that are offline in both the next and the last
    /// look.
    fn has_all_of_offline(&self, fed_ns: u64) -> bool {
        let Some(((_, next_list), (_, last_list))) =
            self.cpu_lists.front().zip(self.cpu_lists.back())
        else {
            return true;
        };
        let is_offline = |cpu| !next_list.contains(&cpu) && !last_list.contains(&cpu);
        self.open_parts.live.timeline.has_all_records_of(is_offline, fed_ns, &mut |cpu| {
            read_unsent_state(&self.session, cpu).ok()?
        })
    }

    /// Finds counters whose CPU went offline. `true` if a counter is read elsewhere from now on.
    fn follow_cpus(&mut self, online: &[u32]) -> Result<bool> {
        let mut is_elsewhere = false;
        for open_part in self.open_parts.oldest_first() {
            is_elsewhere |= open_part.timeline.take_is_astray();
        }
        let may_have_moved = is_elsewhere || self.followed_moves < self.drops.moved;
        self.followed_moves = self.drops.moved;
        // The time is taken before the change: a CPU may read some of its new counters before all
        // are placed.
        let before_ns = mono_ns() as u64;
        let Some(mut change) =
            self.session.follow_cpus(online, &self.common.machine.root, may_have_moved)?
        else {
            return Ok(false);
        };
        if !change.went_offline.is_empty() {
            // A CPU that is back online writes its state again, so its short absence is counted as
            // idle time.
            let online_again = self.online.read_cpus()?;
            change.went_offline.retain(|cpu| !online_again.contains(cpu));
        }
        self.apply_change(&change, before_ns)?;
        Ok(true)
    }

    /// Applies a change that happened at `time_ns` to the parts.
    fn apply_change(&mut self, change: &CpuSetChange, time_ns: u64) -> Result<()> {
        let session = &self.session;
        let mut peek_cpu = |cpu| read_unsent_state(session, cpu).ok()?;
        for open_part in self.open_parts.oldest_first() {
            open_part.timeline.apply_change(change, time_ns, &mut open_part.sink, &mut peek_cpu);
            // As at the begin of a part: rows that refer to the current CPUs must come later.
            open_part.sink.flush_rows(&mut open_part.writer)?;
        }
        self.common.apply_change(change);
        for &cpu in &change.went_offline {
            self.session.reset_cpu(cpu)?;
        }
        Ok(())
    }

    fn note_drops(&mut self, now_ns: u64) -> Result<()> {
        let new_drops = self.drops.advance(self.session.drop_counts()?);
        for (record_kind, lost) in
            new_drops.records.into_iter().enumerate().filter(|(_, lost)| *lost > 0)
        {
            let detail = format!("{lost} records of kind {record_kind}");
            if record_kind == KIND_FILE as usize {
                self.reread.note_loss();
                self.open_parts.ledger_at(now_ns).add_explained(
                    Cause::HolderUnseen,
                    now_ns,
                    None,
                    &detail,
                );
                continue;
            }
            if [KIND_TASK, KIND_CGROUP].contains(&(record_kind as u32)) {
                self.reread.note_loss();
            }
            self.open_parts.ledger_at(now_ns).add_explained(Cause::RingFull, now_ns, None, &detail);
        }
        for (count, cause) in [
            (new_drops.nested, Cause::NestedReading),
            (new_drops.switches, Cause::UnseenSwitch),
            (new_drops.timer, Cause::TimerStopped),
        ] {
            if count > 0 {
                self.open_parts.ledger_at(now_ns).add_loss(cause, now_ns, 0, None, None, count);
            }
        }
        for (count, description) in [
            (new_drops.unowned, "requests for whose owners there was no room"),
            (new_drops.missed, "requests, packets or reads that came in the middle of another"),
        ] {
            if count > 0 {
                let detail = format!("{count} {description}");
                self.open_parts.ledger_at(now_ns).add_explained(
                    Cause::IoUnseen,
                    now_ns,
                    None,
                    &detail,
                );
            }
        }
        Ok(())
    }

    /// Seals early, so that data which is not closed yet is written within the flush interval too.
    fn seal_if_due(&mut self) -> Result<()> {
        // A drain is late by at most one period, and a seal takes time.
        let margin = 2 * self.drain_period + self.common.options.flush / 10;
        let options = self.common.options;
        let is_waiting = self.open_parts.live.timeline.is_waiting();
        let waiting = if is_waiting { options.lag } else { Duration::ZERO };
        let lag = margin + Duration::from_nanos(SETTLE_NS) + options.interval + waiting;
        let due = options.flush.saturating_sub(lag).max(options.flush / 4);
        if self.sealed_at.elapsed() >= due {
            self.sealed_at = Instant::now();
            self.open_parts.seal_live_part()?;
        }
        Ok(())
    }

    fn finish_recording(self, seconds: f64) -> Result<RecordingOutcome> {
        let counters = self.session.opened_count();
        // The session is not needed any more; its programs should not run while the files are
        // finished.
        drop(self.session);
        let RecordingTotals { finished, part_count: part_total, losses } =
            self.open_parts.finish_parts()?;
        Ok(RecordingOutcome { finished, part_count: part_total, losses, seconds, counters })
    }
}

/// The options with rows for the canary, if only some cgroups have rows of their own.
fn with_canary<'a>(
    options: &'a RecordOptions,
    canary: Option<&CanaryProcess>,
) -> Cow<'a, RecordOptions> {
    match canary {
        Some(canary) if !options.cgroups.is_empty() => {
            let mut options = options.clone();
            options.cgroups.push(canary.summary().cgroup.clone());
            Cow::Owned(options)
        }
        _ => Cow::Borrowed(options),
    }
}

/// With a delay, the command runs that long before counting begins. `true` if the recording is over
/// by then.
async fn run_delay(
    options: &RecordOptions,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<bool> {
    if options.delay.is_zero() {
        return Ok(false);
    }
    *workload = Workload::start_command(&options.command)?;
    Ok(tokio::select! {
        () = sleep(options.delay) => false,
        ended = workload.wait_for_end() => ended.map(|()| true)?,
        _ = signals.next() => true,
    })
}

fn session_options(options: &RecordOptions) -> open::SessionOptions {
    open::SessionOptions {
        tick_ns: options.tick.as_nanos() as u64,
        slices: options.slices,
        sample_on_sched: options.sample_on.contains(&Sampling::Sched),
        sample_on_irq: options.sample_on.contains(&Sampling::Irq),
        min_gap_ns: options.min_gap.as_nanos() as u64,
        io: options.io,
        holders: false,
        timer: options.timer,
        buffer_bytes: options.buffer,
    }
}

/// Whether `output` is a directory, which holds the raw tables too.
///
/// # Errors
///
/// The name is of neither kind.
pub fn has_raw_tables(output: &Path) -> Result<bool> {
    Ok(matches!(place::parse_target(output)?, RecordingTarget::Dataset(_)))
}

/// A CPU's unsent state; `None` while the CPU writes it.
fn read_unsent_state(session: &Session, cpu: u32) -> Result<Option<Peek>> {
    let (state, io) = session.cpu_state(cpu)?;
    Ok(decode_state(cpu, &state, io.as_ref()))
}
