//! A part of a recording: the data of the records between two ticks, and its files.
//!
//! A recording that is not rotated is one part. Guarantees: a part is a complete recording, with
//! its own windows, names, losses and metadata. A part stops at the tick at which the next one
//! starts, so no count, time or window is in both or in neither.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use anyhow::Result;

use super::args::RecordOptions;
use super::metadata;
use super::planned::{link_rows, plan_rows};
use super::side_sources::SideSources;
use crate::assemble::{Sink, Timeline, TimelineSetup};
use crate::attribute::{
    self, AttributionSettings, Attributor, CoreSiblings, Effort, RecordingFacts, order_counters,
};
use crate::clock::{Snapshot, mono_ns};
use crate::discover::Machine;
use crate::entries::Relief;
use crate::open::{self, CpuSetChange, Layout, Session, Stopped, Timer};
use crate::plan::Plan;
use crate::schema::loss::LossCause;
use crate::schema::origin::RecordingOrigin;
use crate::tables::thread::{Finishing, WriterHandle};
use crate::tables::writer::{CreateOptions, RecordingTarget};

/// What all parts share.
#[derive(Debug)]
pub(super) struct CommonState<'a> {
    pub options: &'a RecordOptions,
    pub machine: &'a Machine,
    pub plan: &'a Plan,
    /// The CPUs that were online when the recording began.
    pub cpus: Vec<u32>,
    /// The counters that were opened and not retired.
    pub opened: HashSet<u32>,
    /// Counters that stopped and have not started again.
    pub stopped: BTreeMap<u32, Stopped>,
    /// Counters that a source retired.
    pub retired: BTreeMap<u32, RetiredCounter>,
    /// What is left out now.
    pub relief: Relief,
    /// Whether it is recorded who holds which device.
    pub holders: bool,
}

/// A counter that is no longer read.
#[derive(Debug)]
pub(super) struct RetiredCounter {
    pub cause: LossCause,
    /// The reason, in one line.
    pub why: String,
}

impl<'a> CommonState<'a> {
    pub(super) fn new(
        options: &'a RecordOptions,
        machine: &'a Machine,
        plan: &'a Plan,
        session: &Session,
        cpus: Vec<u32>,
    ) -> Self {
        let read = session.layouts().values().flat_map(Layout::ids);
        let opened = read.chain(session.statistics().ids()).collect();
        let (stopped, retired) = (BTreeMap::new(), BTreeMap::new());
        let (relief, holders) = (Relief::None, session.sees_holders());
        Self { options, machine, plan, cpus, opened, stopped, retired, relief, holders }
    }

    /// Applies a change: counters that stopped, are read elsewhere, or count again.
    pub(super) fn apply_change(&mut self, change: &CpuSetChange) {
        self.stopped.extend(change.stopped.iter().map(|counter| (counter.id, *counter)));
        let placed = change.layouts.iter().flat_map(|layouts| layouts.values());
        for id in placed.flat_map(Layout::ids).chain(change.retired.iter().copied()) {
            self.stopped.remove(&id);
        }
    }
}

/// The files of a part before its first tick.
#[derive(Debug)]
pub(super) struct Draft {
    writer: WriterHandle,
    pairs: BTreeMap<String, String>,
    clock: Snapshot,
}

impl Draft {
    /// Creates the files of a part; sources say `source_metadata` of themselves. The offset between
    /// its clocks is that of the previous part, unless the wall clock was set since.
    ///
    /// # Errors
    ///
    /// The files cannot be created.
    pub(super) fn create_files(
        target: RecordingTarget,
        options: &RecordOptions,
        plan: &Plan,
        source_metadata: BTreeMap<String, String>,
        previous_clock: Option<Snapshot>,
    ) -> Result<Self> {
        let clock = Snapshot::read_clocks();
        let clock = previous_clock.map_or(clock, |previous| clock.with_offset_of(previous));
        let mut pairs = metadata::at_start(options, plan, clock)?;
        pairs.extend(source_metadata);
        let create = CreateOptions {
            overwrite: options.force,
            mode: options.mode,
            ..CreateOptions::default()
        };
        let writer = WriterHandle::create(target, create, &pairs, options.tap.as_ref())?;
        Ok(Self { writer, pairs, clock })
    }

    /// Begins the part with this tick.
    ///
    /// # Errors
    ///
    /// The kernel does not say which CPUs are online, or the first rows cannot be written.
    pub(super) fn begin_part(
        self,
        common: &CommonState<'_>,
        session: &Session,
        start_tick: u64,
    ) -> Result<OpenPart> {
        let CommonState { options, machine, plan, .. } = common;
        let Self { mut writer, pairs, clock } = self;
        let online = open::online_cpus(&machine.root)?;
        let missing = |present: &[u32], expected: &[u32]| -> Vec<u32> {
            expected.iter().copied().filter(|cpu| !present.contains(cpu)).collect()
        };
        let setup = TimelineSetup {
            plan,
            layouts: session.layouts(),
            opened: &common.opened,
            cpus: &common.cpus,
            offline: &missing(&online, &common.cpus),
            cpu_locations: machine.cpus.cpu_locations(),
            start_tick,
            clock,
            root: &machine.root,
            cgroups: &machine.cgroups,
            trusted_cgroups: options.trusted_cgroups.clone(),
            only_cgroups: options.cgroups.clone(),
            cgroup_depth: options.cgroup_depth,
            io: options.io,
            holders: common.holders,
        };
        let mut sink = Sink::new(&writer, options.slices, RecordingOrigin::from_metadata(&pairs));
        let unopened = session
            .unopened()
            .iter()
            .map(|unopened_counter| (unopened_counter.counter, unopened_counter.reason.as_str()));
        let retired = common.retired.iter().map(|(id, retired)| (*id, retired.why.as_str()));
        plan_rows(plan, &unopened.chain(retired).collect(), &mut sink);
        link_rows(plan, &mut sink);
        let attributor = Attributor::new(&RecordingFacts {
            plan,
            counters: &order_counters(plan, |id| !common.opened.contains(&id)),
            settings: AttributionSettings {
                choice: options.method,
                io: options.io,
                lag_ns: options.lag.as_nanos() as u64,
                min_share: options.min_share,
                row_limit: options.row_limit,
                effort: Effort::Live,
            },
            start_tick,
            clock,
            origin: &sink.origin,
            siblings: &CoreSiblings::from_locations(machine.cpus.cpu_locations()),
            threads: attribute::live_threads(),
            sums: sink.wants_table(&crate::schema::sums::TABLE),
        });
        let mut timeline = Timeline::new(&setup, Box::new(attributor), &mut sink);
        let now_ns = mono_ns() as u64;
        timeline.feed_reading(&session.statistics().read(), &mut sink);
        let ledger = &mut timeline.ledger;
        if options.witness_budget.is_some() {
            ledger.set_optional(plan.only_witnesses().map(|witness| witness.id));
        }
        for unopened in session.unopened() {
            let (id, why) = (unopened.counter, &unopened.reason);
            ledger.add_explained(LossCause::NotOpened, now_ns, Some(id), why);
        }
        for (id, retired) in &common.retired {
            ledger.add_explained(retired.cause, now_ns, Some(*id), &retired.why);
        }
        for unseen in session.unseen() {
            ledger.add_explained(LossCause::IoUnseen, now_ns, None, unseen);
        }
        if let Some(why) = machine.cgroups.unnamed_reason() {
            let has_tree = machine.cgroups.v2.is_some();
            let cause =
                if has_tree { LossCause::CgroupsPartial } else { LossCause::CgroupsUnnamed };
            ledger.add_explained(cause, now_ns, None, &why);
        }
        if let Some(why) = session.unseen_holders() {
            ledger.add_explained(LossCause::HolderUnseen, now_ns, None, why);
        }
        if common.relief > Relief::None {
            ledger.add_relief_change(now_ns, 0, Relief::None, common.relief);
        }
        let start_ns = start_tick * plan.tick_ns;
        // Changes since the recording began.
        let change = CpuSetChange {
            came_online: missing(&common.cpus, &online),
            stopped: common.stopped.values().copied().collect(),
            ..CpuSetChange::default()
        };
        if !change.came_online.is_empty() || !change.stopped.is_empty() {
            timeline.apply_change(&change, start_ns, &mut sink, &mut |_| None);
        }
        // Rows of counters and CPUs go to the writer before the first row that refers to them: the
        // writer seals them in that order.
        sink.hand_over_all(&mut writer)?;
        Ok(OpenPart {
            timeline,
            sink,
            start_ns,
            writer,
            pairs,
            losses_sealed: None,
            clock,
            begin: Instant::now(),
            own_cpu_ns: metadata::own_cpu_ns(),
        })
    }
}

/// A part after its first tick.
#[derive(Debug)]
pub(super) struct OpenPart {
    pub timeline: Timeline,
    pub sink: Sink,
    /// Begin of its first tick, `CLOCK_MONOTONIC`, ns.
    pub start_ns: u64,
    pub writer: WriterHandle,
    pub begin: Instant,
    /// The metadata at the last seal.
    pub pairs: BTreeMap<String, String>,
    /// The number of losses in them.
    losses_sealed: Option<u64>,
    pub clock: Snapshot,
    /// CPU time that this process had used when the part began.
    pub own_cpu_ns: i64,
}

impl OpenPart {
    /// Hands all rows to the writer and makes them survive a kill, with the losses so far and what
    /// sources have given it: a recorder that is killed cannot write them later.
    pub(super) fn seal_rows(&mut self, sources: &mut SideSources<'_>) -> Result<()> {
        // Sources come first: they give it rows, losses and metadata.
        let has_new_metadata = sources.seal_part(self)?;
        self.sink.hand_over_all(&mut self.writer)?;
        let losses = self.timeline.ledger.totals().values().sum();
        if self.losses_sealed.replace(losses) != Some(losses) || has_new_metadata {
            metadata::note_losses(&mut self.pairs, &self.timeline.ledger)?;
            self.writer.set_metadata(self.pairs.clone())?;
        }
        self.writer.seal_rows()
    }

    /// Ends the part, to which sources have given their last; its thread finishes the files.
    /// Returns its losses by cause.
    pub(super) fn end_part(
        mut self,
        timer: Timer,
    ) -> Result<(Finishing, BTreeMap<LossCause, u64>)> {
        self.timeline.write_last_rows(&mut self.sink);
        self.timeline.ledger.write_rows(&mut self.sink);
        metadata::at_end(&mut self, timer)?;
        self.sink.finish_rows(&mut self.writer)?;
        Ok((self.writer.start_finishing(self.pairs)?, self.timeline.ledger.totals().clone()))
    }
}
