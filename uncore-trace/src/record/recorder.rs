//! The loop: drain the ring, advance the time line, hand rows to the writer, until it is time to
//! stop; then close the last window and finish the tables.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::args::{Options, Sampling};
use super::metadata;
use super::planned::{plan_rows, warn_of_unopened};
use super::progress::Progress;
use super::witness::Watch;
use crate::assemble::{Setup, Sink, Timeline};
use crate::attribute::{Attributor, Effort, Methods, RecordingFacts, order};
use crate::clock::{Snapshot, mono_ns};
use crate::count::Count;
use crate::discover::Machine;
use crate::drain::{Peek, Record, decode, peek};
use crate::open::{self, Change, Drops, Layout, Session, Timer};
use crate::plan::Plan;
use crate::priority;
use crate::schema::loss::{Cause, Losses};
use crate::schema::origin::Origin;
use crate::signals::Signals;
use crate::tables::place;
use crate::tables::thread::WriterHandle;
use crate::tables::writer::{Create, Finished, Target};
use crate::workload::Workload;

/// How often the ring is drained; `args::buffer_mib` sizes the ring by it.
const DRAIN: Duration = Duration::from_millis(50);

/// Records of what happened this long before a drain have reached the ring: a program that is
/// preempted by the hypervisor in the middle may be late.
const SETTLE_NS: u64 = 5_000_000;

/// After this long without the last readings the recording ends without them.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// After this long it ends also with something left in the ring.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How a recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was written.
    pub finished: Finished,
    /// What was not seen, by what it costs; it says whether the recording is complete.
    pub losses: Losses,
    /// Length of the recording, s.
    pub seconds: f64,
    /// Counters that were read.
    pub counters: usize,
}

struct Recorder<'a> {
    options: &'a Options,
    root: &'a Path,
    session: Session,
    timeline: Timeline,
    sink: Sink,
    writer: WriterHandle,
    drops: Drops,
    /// Watches the witnesses, where they may be dropped.
    watch: Option<Watch<'a>>,
    /// When counters last changed their places, ns.
    changed: u64,
    /// The CPUs that were online at these times, the oldest first: each for when all that was sent
    /// before has been fed, and with it all that a CPU sent which went offline.
    looks: VecDeque<(u64, Vec<u32>)>,
    /// `Drops::moved` when counters were last gone after.
    followed: u64,
    sealed: Instant,
    /// The metadata of the last seal, and how many losses it tells of.
    pairs: BTreeMap<String, String>,
    losses_sealed: Option<u64>,
}

/// Records `plan` on `machine` as `options` say, until the command ends, a signal comes or the time
/// is over. The command is started here; when this returns, also with an error, all files are
/// closed, no counter and no program is left in the kernel, and the command may still run.
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
    let clock = Snapshot::take();
    let pairs = metadata::at_start(options, plan, clock)?;
    let create = Create { overwrite: options.force, mode: options.mode, ..Create::default() };
    let writer = WriterHandle::create(target, create, &pairs)?;
    let online: Vec<u32> = machine.cpus.online.iter().collect();
    let possible = machine.cpus.possible.iter().max().map_or(1, |highest| highest + 1);
    let mut session = Session::open(plan, &online, possible, session_options(options))?;
    warn_of_unopened(plan, &session, options);
    let over = delay(options, workload, signals).await?;
    let timer = session.start()?;
    let start_tick = mono_ns() as u64 / plan.tick_ns + 1;
    let setup = Setup {
        plan,
        layouts: &session.layouts().clone(),
        cpus: &online,
        places: &machine.cpus.places,
        start_tick,
        clock,
        root: &machine.root,
        cgroup_mount: machine.cgroups.v2.as_deref(),
        only_cgroups: options.cgroups.clone(),
        cgroup_depth: options.cgroup_depth,
        io: options.io,
    };
    let mut sink = Sink::new(&writer, options.slices, Origin::of(&pairs));
    plan_rows(plan, &session, &mut sink);
    let opened: HashSet<u32> = session.layouts().values().flat_map(Layout::ids).collect();
    let attributor = Attributor::new(&RecordingFacts {
        plan,
        counters: &order(plan, |id| !opened.contains(&id)),
        methods: Methods {
            choice: options.method,
            io: options.io,
            lag_ns: options.lag.as_nanos() as u64,
            effort: Effort::Live,
        },
        start_tick,
        clock,
        origin: &sink.origin,
    });
    let mut timeline = Timeline::new(&setup, Box::new(attributor), &mut sink);
    if options.witness_budget.is_some() {
        timeline.ledger.set_optional(plan.witnesses().map(|its| its.id));
    }
    metadata::unopened(&mut timeline.ledger, session.unopened(), mono_ns() as u64);
    for unseen in session.unseen() {
        timeline.ledger.explain(Cause::IoUnseen, mono_ns() as u64, None, unseen);
    }
    let watch = options.witness_budget.map(|budget| {
        let unopened = session.unopened().iter().map(|its| its.counter).collect();
        Watch::new(plan, budget, &unopened, &mut session, mono_ns() as u64)
    });
    let mut recorder = Recorder {
        options,
        root: &machine.root,
        session,
        timeline,
        sink,
        writer,
        drops: Drops::default(),
        watch,
        changed: 0,
        looks: VecDeque::new(),
        followed: 0,
        sealed: Instant::now(),
        pairs,
        losses_sealed: None,
    };
    let begin = Instant::now();
    if options.delay.is_zero() {
        // Counting has begun: the command is seen from its first instruction.
        *workload = Workload::start(&options.command)?;
    }
    priority::raise_priority();
    if !over {
        recorder.run(workload, signals).await?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    recorder.stop(signals, plan.tick_ns).await?;
    recorder.finish(clock, timer, seconds)
}

impl Recorder<'_> {
    /// Drains until the command ends, a signal comes or the time is over.
    async fn run(&mut self, workload: &mut Workload, signals: &mut Signals) -> Result<()> {
        let progress = Progress::new(self.options.quiet);
        let mut ticks = interval(DRAIN.min(self.options.flush / 4));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let forever = Duration::from_secs(u64::from(u32::MAX));
        let over = sleep(self.options.duration.unwrap_or(forever));
        tokio::pin!(over);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if !self.drain()? {
                        ticks.reset_immediately();
                        // Without a pause the runtime never looks for signals.
                        tokio::task::yield_now().await;
                    }
                    self.seal_if_due()?;
                    progress.update(self.sink.fabric_rows(), &self.timeline.ledger.losses());
                }
                ended = workload.ended() => break ended?,
                _ = signals.next() => break,
                () = &mut over => break,
            }
        }
        progress.finish();
        Ok(())
    }

    /// Waits for the readings of the last tick, closes everything, and stops the session.
    async fn stop(&mut self, signals: &mut Signals, tick_ns: u64) -> Result<()> {
        self.watch = None;
        self.timeline.stop_at(mono_ns() as u64 / tick_ns + 1);
        // The last tick's readings have come by then, and nothing after them matters: with the
        // programs gone the ring can only get emptier.
        sleep(2 * self.options.tick + Duration::from_nanos(2 * SETTLE_NS)).await;
        self.remember_running().await;
        // Of a CPU that was away too shortly to be seen, and with nobody's hint.
        let stopped = self.session.take_stopped();
        self.session.stop()?;
        let counts = self.session.counts();
        let counted = mono_ns() as u64;
        // Everything in the ring is from before these counts.
        let begin = Instant::now();
        while !self.feed()?.1 && begin.elapsed() < LONGEST_WAIT {
            tokio::task::yield_now().await;
        }
        self.last_change(stopped, &counts, counted)?;
        let mut waiting = Instant::now();
        let mut pause = Duration::ZERO;
        while !self.timeline.is_done()
            && waiting.elapsed() < LAST_WAIT
            && begin.elapsed() < LONGEST_WAIT
        {
            tokio::select! {
                () = sleep(pause) => {
                    pause = Duration::from_millis(5);
                    if !self.drain()? {
                        // What is missing may be in the rest.
                        (waiting, pause) = (Instant::now(), Duration::ZERO);
                    }
                }
                _ = signals.next() => break,
            }
        }
        self.drain()?;
        self.timeline.give_up(mono_ns() as u64);
        Ok(())
    }

    /// What happened to CPUs and counters since the last look, at the end of the recording: the
    /// counters had these counts at `now`.
    fn last_change(
        &mut self,
        stopped: Vec<(u32, Count)>,
        counts: &[(u32, Count)],
        now: u64,
    ) -> Result<()> {
        let gone = self.session.take_gone(&open::online(self.root)?);
        self.apply(&Change { gone, stopped, ..Change::default() }, now)?;
        self.looks.clear();
        self.timeline.last_counts(counts, now, &mut self.sink);
        Ok(())
    }

    /// Remembers who runs on each CPU: a task that leaves once the programs are gone sends nothing,
    /// and may be gone itself before its time is looked for.
    async fn remember_running(&mut self) {
        let begin = Instant::now();
        let session = &self.session;
        while !self.timeline.remember_running(&mut |cpu| unsent(session, cpu).ok()?)
            && begin.elapsed() < DRAIN
        {
            sleep(Duration::from_micros(100)).await;
        }
    }

    /// Takes what is in the ring, for [`DRAIN`] at most: a machine that fills it faster than it
    /// is emptied must not keep the recorder from its other duties. `false` if something is left.
    fn drain(&mut self) -> Result<bool> {
        let now = mono_ns() as u64;
        let online = open::online(self.root)?;
        // A CPU that leaves and returns while the ring is behind was away all the same.
        if self.looks.back().is_none_or(|(_, last)| *last != online) {
            self.looks.push_back((now, online));
        }
        let (horizon, emptied) = self.feed()?;
        let fed = if emptied { now } else { horizon };
        let look = self.looks.pop_front_if(|(time, _)| *time <= fed);
        let has_changed = match look {
            Some((_, online)) => self.follow(&online)?,
            // What was sent of the places before the last ones has been fed.
            None => fed >= self.changed && self.drop_witnesses()?,
        };
        if has_changed {
            // What is sent until now is of the CPUs as they were before this one.
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
        self.timeline.advance(horizon, emptied, &mut self.sink, &mut look);
        self.sink.hand_over(&mut self.writer)?;
        failed.map_or(Ok(emptied), Err)
    }

    /// Feeds what is in the ring to the time line, for [`DRAIN`] at most. Returns the time up to which
    /// all was fed, and whether that is all there was.
    fn feed(&mut self) -> Result<(u64, bool)> {
        let mut horizon = (mono_ns() as u64).saturating_sub(SETTLE_NS);
        let begin = Instant::now();
        let mut emptied = true;
        let mut records = 0;
        while let Some(item) = self.session.ring().next() {
            records += 1;
            match decode(&item) {
                Ok(record) => {
                    if let (Some(watch), Record::Sample(sample)) = (&mut self.watch, &record) {
                        watch.read(sample.cpu);
                    }
                    self.timeline.feed(record, &mut self.sink);
                }
                Err(error) => {
                    let ledger = &mut self.timeline.ledger;
                    ledger.explain(Cause::Undecodable, horizon, None, &error.to_string());
                }
            }
            if begin.elapsed() >= DRAIN {
                emptied = false;
                // What is left is newer than what was fed, by less than the ring can be out of
                // order.
                horizon = horizon.min(self.timeline.newest().saturating_sub(SETTLE_NS));
                break;
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.drained(records, emptied);
        }
        self.session.flush_log();
        self.note_drops(horizon)?;
        self.sink.hand_over(&mut self.writer)?;
        Ok((horizon, emptied))
    }

    /// Drops the witnesses that cost too much, or whose counters of the core PMU others need. `true` if
    /// there were any.
    fn drop_witnesses(&mut self) -> Result<bool> {
        let now = mono_ns() as u64;
        let look = |watch: &mut Watch<'_>| watch.look(&mut self.session, now);
        let Some(dropped) = self.watch.as_mut().and_then(look) else {
            return Ok(false);
        };
        log::warn!(
            "the witness of {} CPUs is read no longer: {}; counts are divided without it from here",
            dropped.ids.len(),
            dropped.why
        );
        let change = self.session.retire(&dropped.ids)?;
        for id in &dropped.ids {
            let why = format!("not read from here: {}", dropped.why);
            self.timeline.ledger.explain(Cause::WitnessLost, now, Some(*id), &why);
        }
        self.apply(&change, now)?;
        Ok(true)
    }

    /// Goes after counters whose CPU went offline. `true` if something is read elsewhere from here.
    fn follow(&mut self, online: &[u32]) -> Result<bool> {
        let hint = self.timeline.take_is_on_other_cpu() || self.followed < self.drops.moved;
        self.followed = self.drops.moved;
        // A CPU that is given counters may read them before all of them are placed.
        let before = mono_ns() as u64;
        let Some(mut change) = self.session.follow(online, self.root, hint)? else {
            return Ok(false);
        };
        if !change.gone.is_empty() {
            // One that is back already writes its state again: its absence was idle time.
            let back = open::online(self.root)?;
            change.gone.retain(|cpu| !back.contains(cpu));
        }
        self.apply(&change, before)?;
        Ok(true)
    }

    /// Tells the time line of a change that happened at `time`.
    fn apply(&mut self, change: &Change, time: u64) -> Result<()> {
        let session = &self.session;
        let mut look = |cpu| unsent(session, cpu).ok()?;
        self.timeline.follow(change, time, &mut self.sink, &mut look);
        for &cpu in &change.gone {
            self.session.forget(cpu)?;
        }
        Ok(())
    }

    fn note_drops(&mut self, now: u64) -> Result<()> {
        let drops = self.session.drops()?;
        let before = std::mem::replace(&mut self.drops, drops);
        for (kind, (after, before)) in drops.records.iter().zip(before.records).enumerate() {
            let lost = after - before;
            if lost > 0 {
                let detail = format!("{lost} records of kind {kind}");
                self.timeline.ledger.explain(Cause::RingFull, now, None, &detail);
            }
        }
        for (after, before, cause) in [
            (drops.nested, before.nested, Cause::NestedReading),
            (drops.switches, before.switches, Cause::UnseenSwitch),
            (drops.timer, before.timer, Cause::TimerStopped),
        ] {
            if after > before {
                self.timeline.ledger.add(cause, now, 0, None, None, after - before);
            }
        }
        for (after, before, what) in [
            (drops.unowned, before.unowned, "requests for whose owners there was no room"),
            (
                drops.missed,
                before.missed,
                "requests, packets or reads that came in the middle of another",
            ),
        ] {
            if after > before {
                let detail = format!("{} {what}", after - before);
                self.timeline.ledger.explain(Cause::IoUnseen, now, None, &detail);
            }
        }
        Ok(())
    }

    /// Seals early enough that what is not yet closed is part of the flush interval too.
    fn seal_if_due(&mut self) -> Result<()> {
        // A drain is a period late at most, and a seal takes its time too.
        let margin = 2 * DRAIN + self.options.flush / 10;
        let options = &self.options;
        let lag = margin + Duration::from_nanos(SETTLE_NS) + options.interval + options.lag;
        let due = self.options.flush.saturating_sub(lag).max(self.options.flush / 4);
        if self.sealed.elapsed() >= due {
            self.sealed = Instant::now();
            self.sink.flush(&mut self.writer)?;
            self.note_losses()?;
            self.writer.seal()?;
        }
        Ok(())
    }

    /// Tells the next segments what was lost so far: a recorder that is killed has no other chance.
    fn note_losses(&mut self) -> Result<()> {
        let losses = self.timeline.ledger.totals().values().sum();
        if self.losses_sealed.replace(losses) == Some(losses) {
            return Ok(());
        }
        metadata::losses(&mut self.pairs, &self.timeline.ledger)?;
        self.writer.set_metadata(self.pairs.clone())
    }

    fn finish(mut self, clock: Snapshot, timer: Timer, seconds: f64) -> Result<Outcome> {
        self.timeline.ledger.rows(&mut self.sink);
        let losses = self.timeline.ledger.losses();
        let complete = losses.is_complete();
        metadata::at_end(&mut self.pairs, clock, &self.timeline, timer, complete)?;
        self.sink.finish(&mut self.writer)?;
        let counters = self.session.opened();
        // Nothing of the session is needed any more, and the machine should not pay for it while
        // the file is put together.
        drop(self.session);
        let finished = self.writer.finish(self.pairs)?;
        Ok(Outcome { finished, losses, seconds, counters })
    }
}

/// With a delay the command runs for that long before anything is counted. `true` if the recording
/// is over by then.
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
        timer: options.timer,
        buffer_bytes: options.buffer,
    }
}

/// Whether `output` is a directory, which has the raw tables too.
///
/// # Errors
///
/// The name does not tell what it is to be.
pub fn has_raw_tables(output: &Path) -> Result<bool> {
    Ok(matches!(place::target(output)?, Target::Dataset(_)))
}

/// What a CPU has not sent; `None` while it is writing that.
fn unsent(session: &Session, cpu: u32) -> Result<Option<Peek>> {
    let (state, io) = session.cpu_state(cpu)?;
    Ok(peek(cpu, &state, io.as_ref()))
}
