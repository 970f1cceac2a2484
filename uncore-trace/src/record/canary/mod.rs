//! The canary: a process of this program in a cgroup of its own that moves known numbers of bytes
//! at random times, so that a recording holds the truth about one of its tenants.
//!
//! [`CanaryProcess`] is the recorder's end. It says what may be moved ([`routes`]: only what a
//! counter of the plan counts), starts the process ([`process`]), and takes a line for each burst.
//! Guarantees: the process moves bytes only between the order `go` and
//! [`CanaryProcess::stop_moving`]; it ends when the recorder does, also by `kill -9`, because its
//! standard input ends; then [`keeper`] or [`cgroup::remove_left_cgroups`] removes its cgroup.

mod cgroup;
mod disk;
mod keeper;
mod memory;
mod network;
mod orders;
mod pace;
mod process;
mod routes;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use self::cgroup::remove_left_cgroups;
use self::orders::CanaryMessage;
use self::routes::Routes;
use super::child::{Child, LOOK};
use super::open_part::OpenPart;
use super::open_parts::OpenParts;
use super::side_sources::{Preparation, SideSetup, SideSource, StopPoint};
use super::state::RecorderState;
use crate::assemble::Sink;
use crate::discover::Machine;
use crate::plan::Plan;
use crate::schema::canary::{self, Burst, Skipped};
use crate::schema::metadata::CANARY;
use crate::tables::writer::RecordingTarget;

/// The program's name, `argv[0]`, in the process.
const NAME: &str = "uncore-trace-canary";

/// How long the process may take to fill its array and file.
const PREPARES: Duration = Duration::from_secs(30);

/// How long it may take to end a burst, which is a read of a disk at most.
const ENDS: Duration = Duration::from_secs(2);

/// Runs the canary or the keeper of its cgroup if this process was started as one; `None`
/// otherwise.
pub fn main(name: Option<&OsStr>) -> Option<ExitCode> {
    match name? {
        name if name == NAME => Some(process::main()),
        name if name == keeper::NAME => Some(keeper::main()),
        _ => None,
    }
}

/// Checks that there is something to move, and that it would be counted.
///
/// # Errors
///
/// There is nothing, or no cgroup v2.
pub(super) fn check_canary(machine: &Machine, plan: &Plan, directory: &Path) -> Result<()> {
    Routes::find_routes(machine, plan, Some(directory)).map(drop)
}

/// Starts the process of the canary, if one is asked for.
///
/// # Errors
///
/// See [`CanaryProcess::start_process`].
pub(super) fn prepare_source<'a>(
    preparation: &Preparation<'_, 'a>,
) -> Result<Option<SideSetup<'a>>> {
    let Preparation { machine, plan, options, target, .. } = preparation;
    if !options.canary {
        return Ok(None);
    }
    let mut canary = CanaryProcess::start_process(machine, plan, target)?;
    let mut metadata = BTreeMap::new();
    canary.summary.write_metadata(&mut metadata)?;
    let own_cgroup = Some(canary.summary.cgroup.clone());
    let mut setup = SideSetup::new(|_begun| {
        canary.child.send_order("go");
        Some(Box::new(canary))
    });
    (setup.own_cgroup, setup.metadata) = (own_cgroup, metadata);
    Ok(Some(setup))
}

/// A running canary.
#[derive(Debug)]
struct CanaryProcess {
    child: Child,
    routes: Routes,
    /// Its cgroup, and what it does not move.
    summary: canary::CanarySummary,
    /// What it moved in each part that takes records, by the time at which the part starts.
    part_summaries: BTreeMap<u64, canary::CanarySummary>,
}

impl CanaryProcess {
    /// Starts the process and waits until it is ready. It moves bytes after the order
    /// `go`.
    ///
    /// # Errors
    ///
    /// No counter of the plan counts what it can move, or it cannot have a cgroup of its own.
    fn start_process(machine: &Machine, plan: &Plan, target: &RecordingTarget) -> Result<Self> {
        let (routes, orders) = Routes::find_routes(machine, plan, file_directory(target))?;
        let child = Child::start_process(NAME, "the canary", &orders)?;
        let summary =
            canary::CanarySummary { skipped: orders.skipped, ..canary::CanarySummary::default() };
        let mut canary = Self { child, routes, summary, part_summaries: BTreeMap::new() };
        canary.wait_until_ready()?;
        Ok(canary)
    }

    /// Waits for the first line.
    fn wait_until_ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PREPARES {
            match self.take_messages()?.into_iter().next() {
                Some(CanaryMessage::Ready { cgroup, skipped }) => {
                    self.summary.cgroup = cgroup;
                    for Skipped { kind: traffic, why } in &skipped {
                        log::warn!("the canary does not move {}: {why}", traffic.kind_name());
                    }
                    self.summary.skipped.extend(skipped);
                    self.summary.skipped.sort_by_key(|entry| entry.kind);
                    return Ok(());
                }
                Some(CanaryMessage::Failed { why }) => bail!("{why}"),
                _ if self.child.has_ended => bail!("the canary ended before it was ready"),
                _ => thread::sleep(LOOK),
            }
        }
        bail!("the canary was not ready after {} s: leave out --canary", PREPARES.as_secs())
    }

    /// The bursts that have ended since the last call.
    fn take_bursts(&mut self) -> Vec<Burst> {
        let was_running = !self.child.has_ended;
        let messages = self.take_messages().unwrap_or_else(|error| {
            log::warn!("cannot read what the canary moved: {error:#}");
            self.child.has_ended = true;
            Vec::new()
        });
        if was_running && self.child.has_ended && !self.child.is_dismissed() {
            log::warn!("the canary ended early: later shares cannot be compared with it");
            self.child.wait_for_exit(ENDS);
            remove_left_cgroups();
        }
        let mut bursts = Vec::new();
        for message in messages {
            match message {
                CanaryMessage::Burst(burst) => bursts.push(burst),
                CanaryMessage::GaveUp { kind: traffic, why } => {
                    log::warn!("the canary no longer moves {}: {why}", traffic.kind_name());
                }
                CanaryMessage::Failed { why } => log::warn!("the canary failed: {why}"),
                CanaryMessage::Ready { .. } | CanaryMessage::Ended => {}
            }
        }
        bursts
    }

    /// Ends its last burst, and returns the bursts that have ended since the last call.
    fn stop_moving(&mut self) -> Vec<Burst> {
        self.child.close_orders();
        let begin = Instant::now();
        let mut bursts = self.take_bursts();
        while !self.child.has_ended && begin.elapsed() < ENDS {
            thread::sleep(LOOK);
            bursts.extend(self.take_bursts());
        }
        bursts
    }

    /// Enters bursts that have ended, each in the part in which it ended.
    fn enter_bursts(&mut self, bursts: Vec<Burst>, open_parts: &mut OpenParts) -> Result<()> {
        for burst in bursts {
            let (device, links) = self.routes.route_burst(&burst);
            let open_part = open_parts.part_of_end(burst.end_ns);
            let new_summary = || self.summary.clone();
            let summary = self.part_summaries.entry(open_part.start_ns).or_insert_with(new_summary);
            summary.add_burst(burst.kind, &links, burst.bytes);
            let Sink { rows, origin, .. } = &mut open_part.sink;
            rows.canary.append_burst(&burst, device.as_deref(), &links, origin)?;
        }
        Ok(())
    }

    /// The messages that have arrived since the last call.
    fn take_messages(&mut self) -> Result<Vec<CanaryMessage>> {
        let messages: Vec<CanaryMessage> = self.child.take_answers()?;
        // Its exit takes longer: it frees its arrays.
        self.child.has_ended |= matches!(messages.last(), Some(CanaryMessage::Ended));
        Ok(messages)
    }
}

impl SideSource for CanaryProcess {
    fn end_drain(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        let bursts = self.take_bursts();
        self.enter_bursts(bursts, &mut state.open_parts)
    }

    fn write_metadata(&self, pairs: &mut BTreeMap<String, String>) -> Result<()> {
        self.summary.write_metadata(pairs)
    }

    /// Writes what the canary moved into the metadata.
    fn seal_part(&mut self, open_part: &mut OpenPart) -> Result<bool> {
        let summary = self.part_summaries.get(&open_part.start_ns).unwrap_or(&self.summary);
        let previous = open_part.pairs.get(CANARY).cloned();
        summary.write_metadata(&mut open_part.pairs)?;
        Ok(previous.as_ref() != open_part.pairs.get(CANARY))
    }

    fn end_part(&mut self, open_part: &mut OpenPart, _next_start_ns: Option<u64>) -> Result<()> {
        self.seal_part(open_part)?;
        self.part_summaries.remove(&open_part.start_ns);
        Ok(())
    }

    /// All its bytes are to be counted.
    fn stop_point(&self) -> StopPoint {
        StopPoint::BeforeLastTick
    }

    /// Ends the last burst.
    fn stop(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        let bursts = self.stop_moving();
        self.enter_bursts(bursts, &mut state.open_parts)
    }
}

impl Drop for CanaryProcess {
    /// The process has removed its cgroup when it has ended.
    fn drop(&mut self) {
        self.child.close_orders();
        self.child.wait_for_exit(ENDS);
    }
}

/// The directory in which it may have a file: that of the output.
fn file_directory(target: &RecordingTarget) -> Option<&Path> {
    let path = match target {
        RecordingTarget::Dataset(path) if path.is_dir() => return Some(path),
        RecordingTarget::File(path)
        | RecordingTarget::Table(_, path)
        | RecordingTarget::Dataset(path) => path,
        RecordingTarget::Stream(_) | RecordingTarget::Pieces(_) | RecordingTarget::Nowhere => {
            return None;
        }
    };
    path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}
