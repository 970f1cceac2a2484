//! The begin of a recording: opens the session, prepares and starts the sources beside it, starts
//! the command, and confines this process.

use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use tokio::time::sleep;

use super::args::{AtSwitch, RecordOptions, Sampling};
use super::cpu_changes::CpuChanges;
use super::load::RecorderLoad;
use super::open_part::{CommonState, Draft};
use super::open_parts::OpenParts;
use super::planned::warn_of_unopened;
use super::recorder::{RecorderLoop, RecordingOutcome};
use super::relief::ReliefControl;
use super::ring_feed::RingFeed;
use super::rotate::Rotation;
use super::side_sources::{BegunRecording, Preparation, SideSetup, SideSources, prepare_sources};
use super::state::RecorderState;
use crate::clock::mono_ns;
use crate::confine::{self, RECORDER, ThreadNeeds};
use crate::discover::{CpuList, Machine};
use crate::identity::runtimes::Runtimes;
use crate::open::{self, OnlineCpus, Session};
use crate::plan::Plan;
use crate::priority;
use crate::signals::Signals;
use crate::tables::output_path;
use crate::tables::writer::RecordingTarget;
use crate::workload::Workload;

/// Where the kernel and container runtimes describe CPUs, processes, cgroups, interrupts and
/// containers.
const TREES: [&str; 4] = ["proc", "sys", "run", "var/lib"];

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
    let is_dataset = matches!(target, RecordingTarget::Dataset(_));
    let wants_holders = plan.has_devices() || options.io && is_dataset;
    let preparation = Preparation { machine, plan, options, target: &target, wants_holders };
    let setups = prepare_sources(&preparation).await?;
    let options = &*with_own_cgroups(options, &setups);
    let rotation = Rotation::open_series(&target, options)?;
    let (rotation, first_target) = match rotation {
        Some((rotation, first_part_target)) => (Some(rotation), first_part_target),
        None => (None, target),
    };
    let source_metadata = setups.iter().flat_map(|setup| setup.metadata.clone()).collect();
    let draft = Draft::create_files(first_target, options, plan, source_metadata, None)?;
    let online: Vec<u32> = machine.cpus.online.iter().collect();
    let possible = machine.cpus.possible.iter().max().map_or(1, |highest| highest + 1);
    let mut session = Session::open(
        plan,
        &machine.root,
        &online,
        possible,
        session_options(options, wants_holders),
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
    let common = CommonState::new(options, machine, plan, &session, online);
    let mut live = draft.begin_part(&common, &session, start_tick)?;
    for setup in &setups {
        (setup.seed_part)(&session, &mut live);
    }
    let online = OnlineCpus::open(&machine.root)?;
    let at_switch = AtSwitch::from_plan(plan, options.witness_budget.is_some());
    let drain_period = options.drain_period(common.cpus.len(), at_switch);
    let load = RecorderLoad::new(options.lag.as_nanos() as u64, live.timeline.relief_steps());
    let feed = RingFeed::new(&mut session, drain_period, possible);
    let fed_ns = mono_ns() as u64;
    let begin = Instant::now();
    if options.delay.is_zero() {
        // Counting has begun, so the command is seen from its first instruction.
        *workload = Workload::start_command(&options.command)?;
    }
    priority::raise_priority();
    // After the priority is raised, which their threads inherit, and before this process is
    // confined: they confine themselves, as some may do what this thread may not.
    let start_ns = start_tick * plan.tick_ns;
    let mut counting = BegunRecording { session: &mut session, machine, start_ns };
    let started = setups.into_iter().filter_map(|setup| (setup.start)(&mut counting));
    let sources = SideSources(started.collect());
    let open_parts = OpenParts::new(live, rotation, timer);
    let rotation_needs = open_parts.rotation_needs();
    let mut recorder = RecorderLoop {
        state: RecorderState { common, session, open_parts, fed_ns, is_ending: false },
        sources,
        feed,
        cpu_changes: CpuChanges::new(online),
        relief: ReliefControl::new(load, drain_period),
        drain_period,
        sealed_at: begin,
    };
    confine::restrict_process(
        &recorder_needs(machine, options, workload).merged_with(rotation_needs),
    );
    if !is_over {
        recorder.run_until_end(workload, signals).await?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    recorder.stop_session(signals).await?;
    recorder.finish_recording(seconds)
}

/// The options with rows for the cgroups of sources, if only some cgroups have rows of their own.
fn with_own_cgroups<'a>(
    options: &'a RecordOptions,
    setups: &[SideSetup<'_>],
) -> Cow<'a, RecordOptions> {
    let mut own_cgroups = setups.iter().filter_map(|setup| setup.own_cgroup.clone()).peekable();
    if options.cgroups.is_empty() || own_cgroups.peek().is_none() {
        return Cow::Borrowed(options);
    }
    let mut options = options.clone();
    options.cgroups.extend(own_cgroups);
    Cow::Owned(options)
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

fn session_options(options: &RecordOptions, wants_holders: bool) -> open::SessionOptions {
    open::SessionOptions {
        tick_ns: options.tick.as_nanos() as u64,
        slices: options.slices,
        sample_on_sched: options.sample_on.contains(&Sampling::Sched),
        sample_on_irq: options.sample_on.contains(&Sampling::Irq),
        min_gap_ns: options.min_gap.as_nanos() as u64,
        io: options.io,
        holders: wants_holders,
        timer: options.timer,
        buffer_bytes: options.buffer,
    }
}

/// What the thread needs that drains the ring, follows the counters and looks up names.
fn recorder_needs(machine: &Machine, options: &RecordOptions, workload: &Workload) -> ThreadNeeds {
    let root = &machine.root;
    let trees = TREES.iter().map(|tree| root.join(tree)).chain(Runtimes::runtime_trees(root));
    let thread_needs = ThreadNeeds {
        capabilities: RECORDER,
        reads: trees.chain(machine.cgroups.v2.clone()).collect(),
        command: workload.child_pid(),
        counts: true,
        ..ThreadNeeds::default()
    };
    thread_needs.merged_with(options.afterwards.clone())
}

/// Whether `output` is a directory, which holds the raw tables too.
///
/// # Errors
///
/// The name is of neither kind.
pub fn has_raw_tables(output: &Path) -> Result<bool> {
    Ok(matches!(output_path::parse_target(output)?, RecordingTarget::Dataset(_)))
}
