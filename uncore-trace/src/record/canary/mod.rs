//! The canary: a process of this program in a cgroup of its own that moves known numbers of bytes
//! at random times, so that a recording holds the truth about one of its tenants.
//!
//! [`Canary`] is the recorder's end. It says what may be moved ([`routes`]: only what a counter of
//! the plan counts), starts the process ([`process`]), and takes a line for each burst. Guarantees:
//! the process moves bytes only between [`Canary::go`] and [`Canary::stop`]; it ends when the
//! recorder does, also by `kill -9`, because its standard input ends then; its
//! cgroup is removed then ([`keeper`]). If both are killed, the next canary or `repair` removes it ([`place::remove_left`]).

mod disk;
mod keeper;
mod memory;
mod network;
mod orders;
mod pace;
mod place;
mod process;
mod routes;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use self::orders::Told;
pub use self::place::remove_left;
use self::routes::Routes;
use super::child::{Child, LOOK};
use crate::discover::Machine;
use crate::plan::Plan;
use crate::schema::canary::{self, Burst, Skipped, Way};
use crate::tables::writer::RecordingTarget;

/// The program's name, `argv[0]`, in the process.
const NAME: &str = "uncore-trace-canary";

/// How long the process may take to fill its array and file.
const PREPARES: Duration = Duration::from_secs(30);

/// How long it may take to end a burst, which is a read of a disk at most.
const ENDS: Duration = Duration::from_secs(2);

/// Runs the canary or the keeper of its cgroup if this process was started as one; `None` otherwise.
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
pub(super) fn check(machine: &Machine, plan: &Plan, directory: &Path) -> Result<()> {
    Routes::of(machine, plan, Some(directory)).map(drop)
}

/// A burst that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub burst: Burst,
    /// The disk or interface that moved its bytes; `None` for memory.
    pub device: Option<String>,
    /// The links whose counters count them.
    pub links: Vec<Way>,
}

/// A running canary.
#[derive(Debug)]
pub(super) struct Canary {
    child: Child,
    routes: Routes,
    /// Its cgroup, and what it does not move.
    about: canary::Canary,
}

impl Canary {
    /// Starts the process and waits until it is ready. It moves nothing until [`Self::go`].
    ///
    /// # Errors
    ///
    /// No counter of the plan counts what it can move, or it cannot have a cgroup of its own.
    pub(super) fn start(machine: &Machine, plan: &Plan, target: &RecordingTarget) -> Result<Self> {
        let (routes, orders) = Routes::of(machine, plan, directory(target))?;
        let child = Child::start_process(NAME, "the canary", &orders)?;
        let about = canary::Canary { skipped: orders.skipped, ..canary::Canary::default() };
        let mut canary = Self { child, routes, about };
        canary.ready()?;
        Ok(canary)
    }

    /// Waits for the first line.
    fn ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PREPARES {
            match self.told()?.into_iter().next() {
                Some(Told::Ready { cgroup, skipped }) => {
                    self.about.cgroup = cgroup;
                    for Skipped { kind, why } in &skipped {
                        log::warn!("the canary moves nothing of {}: {why}", kind.name());
                    }
                    self.about.skipped.extend(skipped);
                    self.about.skipped.sort_by_key(|its| its.kind);
                    return Ok(());
                }
                Some(Told::Failed { why }) => bail!("{why}"),
                _ if self.child.has_ended => bail!("the canary ended before it was ready"),
                _ => thread::sleep(LOOK),
            }
        }
        bail!("the canary was not ready after {} s: leave out --canary", PREPARES.as_secs())
    }

    /// What the metadata say of it before it moved anything.
    pub(super) const fn about(&self) -> &canary::Canary {
        &self.about
    }

    /// Lets it move bytes from here on.
    pub(super) fn go(&mut self) {
        self.child.send_order("go");
    }

    /// The bursts that have ended since the last call, with their devices and links.
    pub(super) fn take(&mut self) -> Vec<Ended> {
        let was_running = !self.child.has_ended;
        let told = self.told().unwrap_or_else(|error| {
            log::warn!("cannot read what the canary moved: {error:#}");
            self.child.has_ended = true;
            Vec::new()
        });
        if was_running && self.child.has_ended && !self.child.is_dismissed() {
            log::warn!("the canary ended early: nothing more is known of what it was credited");
            self.child.wait_for_exit(ENDS);
            remove_left();
        }
        let mut bursts = Vec::new();
        for told in told {
            match told {
                Told::Burst(burst) => bursts.push(self.routes.routed(burst)),
                Told::GaveUp { kind, why } => {
                    log::warn!("the canary moves nothing more of {}: {why}", kind.name());
                }
                Told::Failed { why } => log::warn!("the canary failed: {why}"),
                Told::Ready { .. } | Told::Ended => {}
            }
        }
        bursts
    }

    /// Ends its last burst, and returns the bursts that have ended since the last call.
    pub(super) fn stop(&mut self) -> Vec<Ended> {
        self.child.dismiss();
        let begin = Instant::now();
        let mut bursts = self.take();
        while !self.child.has_ended && begin.elapsed() < ENDS {
            thread::sleep(LOOK);
            bursts.extend(self.take());
        }
        bursts
    }

    /// The lines that have come.
    fn told(&mut self) -> Result<Vec<Told>> {
        let told: Vec<Told> = self.child.take_answers()?;
        // Its exit takes longer: it frees its arrays.
        self.child.has_ended |= matches!(told.last(), Some(Told::Ended));
        Ok(told)
    }
}

impl Drop for Canary {
    /// The process has removed its cgroup when it has ended.
    fn drop(&mut self) {
        self.child.dismiss();
        self.child.wait_for_exit(ENDS);
    }
}

/// The directory in which it may have a file: that of the output.
fn directory(target: &RecordingTarget) -> Option<&Path> {
    let path = match target {
        RecordingTarget::Dataset(path) if path.is_dir() => return Some(path),
        RecordingTarget::File(path) | RecordingTarget::Table(_, path) | RecordingTarget::Dataset(path) => path,
        RecordingTarget::Stream(_) | RecordingTarget::Pieces(_) | RecordingTarget::Nowhere => return None,
    };
    path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above })
}
