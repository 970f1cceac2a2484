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
use super::args::{AtSwitch, Options, Sampling};
use super::canary::Canary;
use super::holders::Reread;
use super::load::{Changed, RecorderLoad};
use super::marks::Marks;
use super::monitors::{self, MonitorThread};
use super::needs::needs;
use super::part::{Common, Draft};
use super::parts::{Ended, LAST_WAIT, Parts};
use super::planned::warn_of_unopened;
use super::pods::{self, Pods};
use super::progress::Progress;
use super::rotate::Rotation;
use super::witness::WitnessWatch;
use crate::clock::mono_ns;
use crate::confine;
use crate::count::Count;
use crate::discover::{CpuList, Machine};
use crate::drain::{Merge, Peek, Record, decode, peek};
use crate::open::{self, Change, Drops, Online, Session, Stopped};
use crate::plan::Plan;
use crate::priority;
use crate::schema::loss::{Cause, Losses};
use crate::signals::Signals;
use crate::tables::place;
use crate::tables::writer::{RecordingSize, Target};
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
pub struct Outcome {
    /// What was written.
    pub finished: RecordingSize,
    /// Number of parts: 1 unless the recording was rotated.
    pub parts: u32,
    /// The losses; they say whether the recording is complete.
    pub losses: Losses,
    /// Length of the recording in seconds.
    pub seconds: f64,
    /// Counters that were read.
    pub counters: usize,
}

struct Recorder<'a> {
    common: Common<'a>,
    session: Session,
    /// The order in which the rings are read.
    merge: Merge,
    online: Online,
    /// The drain period.
    drain: Duration,
    parts: Parts,
    drops: Drops,
    /// Watches the witnesses, if they may be dropped.
    watch: Option<WitnessWatch<'a>>,
    /// The monitors of resctrl, if any measure what is counted.
    monitors: Option<MonitorThread>,
    /// The kubelet, if there is one.
    pods: Option<Pods>,
    /// What devices count themselves, if it is known who holds them.
    accounts: Option<AccountThread>,
    /// When counters last changed their reader CPUs, ns.
    changed: u64,
    /// Lists of the CPUs that were online, with the time of each look, oldest first. A list is
    /// applied once all records sent before its time have been fed, which include all records of
    /// CPUs that went offline.
    looks: VecDeque<(u64, Vec<u32>)>,
    /// The value of `Drops::moved` when the counters were last followed.
    followed: u64,
    sealed: Instant,
    /// When all files of watched devices are read again.
    reread: Reread,
    /// Whether it keeps up.
    load: RecorderLoad,
    /// The time up to which all records were fed.
    fed: u64,
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
    target: Target,
    machine: &Machine,
    plan: &Plan,
    options: &Options,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<Outcome> {
    // A recorder that was killed may have left monitoring groups.
    monitors::remove_left_groups();
    let ready = monitors::MonitorSetup::prepare_monitors(machine, plan, options.monitor)?;
    let marks = Marks::open(options, &target)?;
    let mut canary = options.canary.then(|| Canary::start(machine, plan, &target)).transpose()?;
    let options = &*with_canary(options, canary.as_ref());
    let rotation = Rotation::open(&target, options)?;
    let (rotation, first) = match rotation {
        Some((rotation, first)) => (Some(rotation), first),
        None => (None, target),
    };
    let about = canary.as_ref().map(Canary::about);
    let holders = plan.has_devices() || options.io && matches!(first, Target::Dataset(_));
    let pods = if holders { pods::Ready::connect(machine).await } else { None };
    let draft = Draft::create(first, options, plan, about, None)?;
    let online: Vec<u32> = machine.cpus.online.iter().collect();
    let possible = machine.cpus.possible.iter().max().map_or(1, |highest| highest + 1);
    let mut session = Session::open(
        plan,
        &machine.root,
        &online,
        possible,
        open::Options { holders, ..session_options(options) },
        options.btf.as_deref(),
    )?;
    warn_of_unopened(plan, &session, options);
    if let (cpus, counters @ 1..) = session.shared() {
        let cpus: CpuList = cpus.into_iter().collect();
        log::info!("{counters} counters are also read at the context switches of CPU {cpus}");
    }
    let over = delay(options, workload, signals).await?;
    let timer = session.start()?;
    let start_tick = mono_ns() as u64 / plan.tick_ns + 1;
    marks.begin((start_tick * plan.tick_ns) as i64);
    let common = Common::new(options, machine, plan, &session, online);
    let live = draft.begin(&common, &session, start_tick)?;
    let watch = options.witness_budget.map(|budget| {
        let unopened = session.unopened().iter().map(|its| its.counter).collect();
        WitnessWatch::new(plan, budget, &unopened, &mut session, mono_ns() as u64)
    });
    if let Some(canary) = &mut canary {
        canary.go();
    }
    let accounts = session.sees_holders().then(|| accounts::AccountSetup::prepare_reading(machine));
    let online = Online::open(&machine.root)?;
    let at_switch = AtSwitch::of(plan, options.witness_budget.is_some());
    let rings = session.rings().len();
    let load = RecorderLoad::new(options.lag.as_nanos() as u64, live.timeline.reliefs());
    let mut recorder = Recorder {
        online,
        drain: options.drain_period(common.cpus.len(), at_switch),
        common,
        merge: Merge::new(rings),
        session,
        parts: Parts::new(live, rotation, marks, canary, timer),
        drops: Drops::default(),
        watch,
        monitors: None,
        pods: None,
        accounts: None,
        changed: 0,
        looks: VecDeque::new(),
        followed: 0,
        sealed: Instant::now(),
        reread: Reread::default(),
        load,
        fed: mono_ns() as u64,
        backlog: vec![0; rings],
        is_ending: false,
    };
    let begin = Instant::now();
    if options.delay.is_zero() {
        // Counting has begun, so the command is seen from its first instruction.
        *workload = Workload::start(&options.command)?;
    }
    priority::raise_priority();
    // Its thread confines itself: it may change resctrl, and this thread may not.
    recorder.monitors = ready.and_then(monitors::MonitorSetup::start_thread);
    recorder.pods = pods.map(pods::Ready::start);
    recorder.accounts = accounts.and_then(accounts::AccountSetup::start_thread);
    let rotated = recorder.parts.needs();
    confine::process(&needs(machine, options, workload).and(rotated));
    if !over {
        recorder.run(workload, signals).await?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    recorder.stop(signals, plan.tick_ns).await?;
    recorder.finish(seconds)
}

impl Recorder<'_> {
    /// Drains until the command ends, a signal comes or the time is over.
    async fn run(&mut self, workload: &mut Workload, signals: &mut Signals) -> Result<()> {
        let progress = Progress::new(self.common.options.quiet);
        let mut ticks = interval(self.drain);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let forever = Duration::from_secs(u64::from(u32::MAX));
        let over = sleep(self.common.options.duration.unwrap_or(forever));
        tokio::pin!(over);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if !self.drain()? {
                        ticks.reset_immediately();
                        // Without a pause the runtime would never check for signals.
                        tokio::task::yield_now().await;
                    }
                    self.parts.take_bursts()?;
                    self.rank();
                    self.seal_if_due()?;
                    self.parts.rotate(&self.common, &self.session, self.fed)?;
                    self.common.options.control.has_drained();
                    progress.update(self.parts.rows(), &self.parts.losses());
                }
                ended = workload.ended() => break ended?,
                _ = signals.next() => break,
                () = &mut over => break,
            }
        }
        progress.finish();
        Ok(())
    }

    /// Waits for the readings of the last tick, closes all windows, and stops the session.
    async fn stop(&mut self, signals: &mut Signals, tick_ns: u64) -> Result<()> {
        self.watch = None;
        // Before the last tick, so that all its bytes are counted.
        self.parts.stop_canary()?;
        self.settle(signals).await?;
        let now = mono_ns() as u64;
        self.parts.live.timeline.stop_at(now / tick_ns + 1);
        self.read_statistics(now);
        // By then the last tick's readings have arrived. Later records are not needed: once the
        // programs are detached, nothing refills the ring.
        sleep(2 * self.common.options.tick + Duration::from_nanos(2 * SETTLE_NS)).await;
        self.remember_running().await;
        self.monitors.iter_mut().for_each(MonitorThread::stop_thread);
        self.accounts.iter_mut().for_each(AccountThread::stop_thread);
        self.take_measured();
        self.take_assigned();
        self.monitors = None;
        self.pods = None;
        // Marks that the command wrote just before it ended have been read by now.
        self.parts.marks.close();
        // Counters that stopped because a CPU went offline for a time too short to be noticed
        // otherwise.
        let stopped = self.session.take_stopped();
        self.is_ending = true;
        self.session.stop()?;
        let counts = self.session.counts();
        let counted = mono_ns() as u64;
        // All records in the ring are older than these counts.
        let begin = Instant::now();
        while !self.feed()?.1 && begin.elapsed() < LONGEST_WAIT {
            tokio::task::yield_now().await;
        }
        self.last_change(stopped, &counts, counted)?;
        let mut waiting = Instant::now();
        let mut pause = Duration::ZERO;
        while !self.parts.live.timeline.is_done()
            && waiting.elapsed() < LAST_WAIT
            && begin.elapsed() < LONGEST_WAIT
        {
            tokio::select! {
                () = sleep(pause) => {
                    pause = Duration::from_millis(5);
                    if !self.drain()? {
                        // What is missing may be in the rest of the ring.
                        (waiting, pause) = (Instant::now(), Duration::ZERO);
                    }
                }
                _ = signals.next() => break,
            }
        }
        self.drain()?;
        let now = mono_ns() as u64;
        if let Some(changed) = self.load.end_relief(now) {
            self.note_relief(now, &changed, changed.span_ns);
        }
        let live = &mut self.parts.live;
        live.timeline.give_up(now, &mut live.sink);
        Ok(())
    }

    /// Waits until the part before the live one is closed.
    async fn settle(&mut self, signals: &mut Signals) -> Result<()> {
        while !self.parts.is_settled() {
            let emptied = self.drain()?;
            self.parts.rotate(&self.common, &self.session, self.fed)?;
            tokio::select! {
                () = sleep(Duration::from_millis(if emptied { 5 } else { 0 })) => {}
                _ = signals.next() => self.parts.turn()?,
            }
        }
        Ok(())
    }

    /// Applies the changes of CPUs and counters since the last look, at the end of the recording.
    /// `counts` are the counts of the counters at `now`.
    fn last_change(
        &mut self,
        stopped: Vec<Stopped>,
        counts: &[(u32, Count)],
        now: u64,
    ) -> Result<()> {
        let gone = self.session.take_gone(self.online.look()?);
        self.apply(&Change { gone, stopped, ..Change::default() }, now)?;
        self.looks.clear();
        self.parts.live.timeline.last_counts(counts, now, &mut self.parts.live.sink);
        Ok(())
    }

    /// Remembers which task runs on each CPU. A task that leaves after the programs are detached
    /// sends no record, and may have exited before its time is closed.
    async fn remember_running(&mut self) {
        let begin = Instant::now();
        let session = &self.session;
        while !self.parts.live.timeline.remember_running(&mut |cpu| unsent(session, cpu).ok()?)
            && begin.elapsed() < self.drain
        {
            sleep(Duration::from_micros(100)).await;
        }
    }

    /// Processes the records in the ring, for one drain period at most, so that a machine that
    /// fills the ring faster than it is emptied does not keep the recorder from its other duties.
    /// `false` if records are left.
    fn drain(&mut self) -> Result<bool> {
        let now = mono_ns() as u64;
        self.read_statistics(now);
        self.take_measured();
        self.take_assigned();
        let online = self.online.look()?;
        // Every change is queued, not only the latest list: a CPU that leaves and returns while the
        // ring is behind was offline all the same.
        if self.looks.back().is_none_or(|(_, last)| last != online) {
            self.looks.push_back((now, online.to_vec()));
        }
        // CPUs are listed before the ring is read: a CPU that is offline in the list has sent all
        // its records before, so they are fed below.
        let behind = now.saturating_sub(self.fed);
        let (horizon, emptied) = self.feed()?;
        let fed = if emptied { now } else { horizon };
        self.fed = fed;
        self.reread.look(&self.session, &mut self.parts, fed);
        self.relieve(now, behind);
        if emptied {
            self.backlog.fill(0);
        }
        let has_all = self.has_all_of_gone(fed);
        let look = self.looks.pop_front_if(|(time, _)| *time <= fed && has_all);
        // A change applies to what is sent after it. So it waits until everything from before is
        // fed, and one change is made per drain.
        let has_changed = match look {
            Some((_, online)) => self.follow(&online)?,
            // The previous change of reader CPUs is complete: all records that were sent before it
            // have been fed.
            None => fed >= self.changed && self.drop_witnesses()?,
        };
        if has_changed {
            // Records sent until now describe the CPUs before the next change.
            self.changed = mono_ns() as u64;
            self.looks.iter_mut().for_each(|(time, _)| *time = self.changed);
        }
        let mut failed = None;
        let session = &self.session;
        let mut look = |cpu| {
            unsent(session, cpu).unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        };
        for part in self.parts.open() {
            while !part.timeline.advance(horizon, emptied, &mut part.sink, &mut look) {
                part.sink.hand_over(&mut part.writer)?;
            }
            part.sink.hand_over(&mut part.writer)?;
        }
        failed.map_or(Ok(emptied), Err)
    }

    /// Leaves out more if the recorder is late, and less if it has kept up.
    fn relieve(&mut self, now: u64, behind: u64) {
        if self.is_ending {
            return;
        }
        let ring = u64::from(self.common.options.buffer) / self.backlog.len().max(1) as u64;
        // A drain in time may find a large part of a ring too, if CPUs send much.
        let is_filling = self.backlog.iter().any(|bytes| *bytes > ring / 2)
            && behind > 2 * self.drain.as_nanos() as u64;
        if let Some(changed) = self.load.update_relief(now, behind, is_filling) {
            // Windows that wait are affected too.
            let waiting = behind + self.common.options.lag.as_nanos() as u64;
            let is_more = changed.after > changed.before;
            self.note_relief(now, &changed, if is_more { waiting } else { changed.span_ns });
            if is_more {
                log::warn!("the recorder is late: from here {}", changed.after.words());
            }
        }
        self.common.relief = self.load.current_relief();
        for part in self.parts.open() {
            part.timeline.relieve(self.common.relief);
        }
    }

    /// Enters a change of what is left out in the parts that it affects.
    fn note_relief(&mut self, now: u64, changed: &Changed, span: u64) {
        for part in self.parts.open() {
            part.timeline.ledger.relieved(now, span, changed.before, changed.after);
        }
    }

    /// Reads the statistics of disks and interfaces, if they are counted.
    fn read_statistics(&mut self, now: u64) {
        if !self.session.statistics().is_empty() {
            let sampled = self.session.statistics().read(now);
            for part in self.parts.open() {
                part.timeline.statistics(&sampled);
            }
        }
    }

    /// Takes what the monitors have measured.
    fn take_measured(&mut self) {
        for measured in self.monitors.iter().flat_map(MonitorThread::take_readings) {
            for part in self.parts.open() {
                part.timeline.monitors(&measured);
            }
            for lost in &measured.lost {
                self.parts.ledger(lost.time).monitor_lost(lost);
            }
        }
        self.take_accounts();
    }

    /// Takes what devices have counted, and says who holds them.
    fn take_accounts(&mut self) {
        let Some(accounts) = &mut self.accounts else { return };
        let note = |parts: &mut Parts, time: u64, why: &str| {
            parts.ledger(time).explain(Cause::AccountUnread, time, None, why);
        };
        for (reading, unread) in accounts.take_readings() {
            for part in self.parts.open() {
                part.timeline.accounts(&reading);
            }
            for why in unread {
                note(&mut self.parts, reading.time, &why);
            }
        }
        if !self.is_ending
            && let Some(why) = accounts.send_held(|| self.parts.live.timeline.held())
        {
            note(&mut self.parts, mono_ns() as u64, why);
        }
    }

    /// Takes what the kubelet has said.
    fn take_assigned(&mut self) {
        for assigned in self.pods.iter().flat_map(Pods::take) {
            for part in self.parts.open() {
                part.timeline.assigned(&assigned, &mut part.sink);
            }
            if let Err(why) = &assigned.list {
                let ledger = self.parts.ledger(assigned.time);
                ledger.explain(Cause::HolderUnseen, assigned.time, None, why);
            }
            self.common.assigned = Some(assigned);
        }
    }

    /// Tells the monitors who is large.
    fn rank(&mut self) {
        if let Some(monitors) = &mut self.monitors {
            monitors.rank_tenants(|| self.parts.live.timeline.largest());
        }
    }

    /// Feeds the records in the ring to the time line, for one drain period at most. Returns the
    /// time up to which all records were fed, and whether the ring was emptied.
    fn feed(&mut self) -> Result<(u64, bool)> {
        let mut horizon = (mono_ns() as u64).saturating_sub(SETTLE_NS);
        let begin = Instant::now();
        let mut emptied = true;
        let mut records = 0;
        let rings = self.session.rings();
        let backlog = &mut self.backlog;
        let mut read = |ring: usize| {
            let record = rings.get_mut(ring)?.next()?;
            if let Some(bytes) = backlog.get_mut(ring) {
                *bytes += record.len() as u64;
            }
            Some(decode(&record))
        };
        while let Some(decoded) = self.merge.next(&mut read) {
            records += 1;
            match decoded {
                Ok(record) => {
                    if let (Some(watch), Record::Sample(sample)) = (&mut self.watch, &record) {
                        watch.count_reading(sample.cpu);
                    }
                    self.parts.feed(record);
                }
                Err(error) => {
                    let ledger = self.parts.ledger(horizon);
                    ledger.explain(Cause::Undecodable, horizon, None, &error.to_string());
                }
            }
            if records % RECORDS_AT_ONCE == 0 && begin.elapsed() >= self.drain {
                emptied = false;
                // The records that are left are newer than those that were fed, except for the
                // disorder of a ring.
                horizon = horizon.min(self.parts.live.timeline.newest().saturating_sub(SETTLE_NS));
                break;
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.note_drain(records, emptied);
        }
        self.session.flush_log();
        self.note_drops(horizon)?;
        for part in self.parts.open() {
            part.sink.hand_over(&mut part.writer)?;
        }
        Ok((horizon, emptied))
    }

    /// Drops the witnesses that cost too much, or whose core PMU counters another tool needs.
    /// `true` if any were dropped.
    fn drop_witnesses(&mut self) -> Result<bool> {
        let now = mono_ns() as u64;
        let look = |watch: &mut WitnessWatch<'_>| watch.check_budget(&mut self.session, now);
        let Some(dropped) = self.watch.as_mut().and_then(look) else {
            return Ok(false);
        };
        log::warn!(
            "the witness of {} CPUs is read no longer: {}; counts are divided without it from here",
            dropped.counter_ids.len(),
            dropped.why
        );
        let change = self.session.retire(&dropped.counter_ids)?;
        for id in &dropped.counter_ids {
            let why = format!("not read from here: {}", dropped.why);
            for part in self.parts.open() {
                part.timeline.ledger.explain(Cause::WitnessLost, now, Some(*id), &why);
            }
            self.common.opened.remove(id);
            self.common.dropped.insert(*id, why);
        }
        self.apply(&change, now)?;
        Ok(true)
    }

    /// Whether all records were fed of those CPUs that are offline in both the next and the last
    /// look.
    fn has_all_of_gone(&self, fed: u64) -> bool {
        let Some(((_, next), (_, last))) = self.looks.front().zip(self.looks.back()) else {
            return true;
        };
        let is_gone = |cpu| !next.contains(&cpu) && !last.contains(&cpu);
        self.parts
            .live
            .timeline
            .has_all_of(is_gone, fed, &mut |cpu| unsent(&self.session, cpu).ok()?)
    }

    /// Finds counters whose CPU went offline. `true` if a counter is read elsewhere from now on.
    fn follow(&mut self, online: &[u32]) -> Result<bool> {
        let mut is_elsewhere = false;
        for part in self.parts.open() {
            is_elsewhere |= part.timeline.take_is_astray();
        }
        let hint = is_elsewhere || self.followed < self.drops.moved;
        self.followed = self.drops.moved;
        // The time is taken before the change: a CPU may read some of its new counters before all
        // are placed.
        let before = mono_ns() as u64;
        let Some(mut change) = self.session.follow(online, &self.common.machine.root, hint)? else {
            return Ok(false);
        };
        if !change.gone.is_empty() {
            // A CPU that is back online writes its state again, so its short absence is counted as
            // idle time.
            let back = self.online.look()?;
            change.gone.retain(|cpu| !back.contains(cpu));
        }
        self.apply(&change, before)?;
        Ok(true)
    }

    /// Applies a change that happened at `time` to the parts.
    fn apply(&mut self, change: &Change, time: u64) -> Result<()> {
        let session = &self.session;
        let mut look = |cpu| unsent(session, cpu).ok()?;
        for part in self.parts.open() {
            part.timeline.follow(change, time, &mut part.sink, &mut look);
            // As at the begin of a part: rows that refer to the current CPUs must come later.
            part.sink.flush(&mut part.writer)?;
        }
        self.common.follow(change);
        for &cpu in &change.gone {
            self.session.forget(cpu)?;
        }
        Ok(())
    }

    fn note_drops(&mut self, now: u64) -> Result<()> {
        let new = self.drops.advance(self.session.drops()?);
        for (kind, lost) in new.records.into_iter().enumerate().filter(|(_, lost)| *lost > 0) {
            let detail = format!("{lost} records of kind {kind}");
            if kind == KIND_FILE as usize {
                self.reread.has_lost();
                self.parts.ledger(now).explain(Cause::HolderUnseen, now, None, &detail);
                continue;
            }
            if [KIND_TASK, KIND_CGROUP].contains(&(kind as u32)) {
                self.reread.has_lost();
            }
            self.parts.ledger(now).explain(Cause::RingFull, now, None, &detail);
        }
        for (count, cause) in [
            (new.nested, Cause::NestedReading),
            (new.switches, Cause::UnseenSwitch),
            (new.timer, Cause::TimerStopped),
        ] {
            if count > 0 {
                self.parts.ledger(now).add(cause, now, 0, None, None, count);
            }
        }
        for (count, what) in [
            (new.unowned, "requests for whose owners there was no room"),
            (new.missed, "requests, packets or reads that came in the middle of another"),
        ] {
            if count > 0 {
                let detail = format!("{count} {what}");
                self.parts.ledger(now).explain(Cause::IoUnseen, now, None, &detail);
            }
        }
        Ok(())
    }

    /// Seals early, so that data which is not closed yet is written within the flush interval too.
    fn seal_if_due(&mut self) -> Result<()> {
        // A drain is late by at most one period, and a seal takes time.
        let margin = 2 * self.drain + self.common.options.flush / 10;
        let options = self.common.options;
        let waits = self.parts.live.timeline.waits();
        let waiting = if waits { options.lag } else { Duration::ZERO };
        let lag = margin + Duration::from_nanos(SETTLE_NS) + options.interval + waiting;
        let due = options.flush.saturating_sub(lag).max(options.flush / 4);
        if self.sealed.elapsed() >= due {
            self.sealed = Instant::now();
            self.parts.seal()?;
        }
        Ok(())
    }

    fn finish(self, seconds: f64) -> Result<Outcome> {
        let counters = self.session.opened();
        // The session is not needed any more; its programs should not run while the files are
        // finished.
        drop(self.session);
        let Ended { finished, parts, losses } = self.parts.finish()?;
        Ok(Outcome { finished, parts, losses, seconds, counters })
    }
}

/// The options with rows for the canary, if only some cgroups have rows of their own.
fn with_canary<'a>(options: &'a Options, canary: Option<&Canary>) -> Cow<'a, Options> {
    match canary {
        Some(canary) if !options.cgroups.is_empty() => {
            let mut options = options.clone();
            options.cgroups.push(canary.about().cgroup.clone());
            Cow::Owned(options)
        }
        _ => Cow::Borrowed(options),
    }
}

/// With a delay, the command runs that long before counting begins. `true` if the recording is over
/// by then.
async fn delay(options: &Options, workload: &mut Workload, signals: &mut Signals) -> Result<bool> {
    if options.delay.is_zero() {
        return Ok(false);
    }
    *workload = Workload::start(&options.command)?;
    Ok(tokio::select! {
        () = sleep(options.delay) => false,
        ended = workload.ended() => ended.map(|()| true)?,
        _ = signals.next() => true,
    })
}

fn session_options(options: &Options) -> open::Options {
    open::Options {
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
    Ok(matches!(place::parse_target(output)?, Target::Dataset(_)))
}

/// A CPU's unsent state; `None` while the CPU writes it.
fn unsent(session: &Session, cpu: u32) -> Result<Option<Peek>> {
    let (state, io) = session.cpu_state(cpu)?;
    Ok(peek(cpu, &state, io.as_ref()))
}
