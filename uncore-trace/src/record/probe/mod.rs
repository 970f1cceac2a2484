//! Probes: a process of this program that pauses cgroups for some milliseconds each, so that the
//! counts tell apart tenants that always run together.
//!
//! [`Probe`] is the recorder's end. It starts the process ([`process`]), tells it which cgroups
//! cannot be told apart, and takes a line for each pause. Guarantees: a cgroup is paused for at most
//! its budget ([`pace`]) and at most 10 ms at a time, unless the process has to wait for a CPU; the
//! recorder, init and all that contain them are never paused ([`place`]). The process ends when the
//! recorder does, also by `kill -9`, because its standard input ends then, and thaws what it froze
//! first. If it is killed, the recorder thaws it; if both are, the next recorder or `repair` does
//! ([`thaw_left`]).

mod pace;
mod place;
mod process;

use std::ffi::OsStr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

pub use self::place::thaw_left;
use self::process::{Orders, Told};
use super::child::{Child, LOOK};
use crate::attribute::Choice;
use crate::confine::Needs;
use crate::discover::Machine;
use crate::plan::{Counter, Plan};
use crate::schema::probe;

/// The program's name, `argv[0]`, in the process.
pub(super) const NAME: &str = "uncore-trace-probe";

/// What it is called in errors.
const ABOUT: &str = "the process that pauses cgroups";

/// How long the process may take to begin, and to thaw a cgroup.
const BEGINS: Duration = Duration::from_secs(5);
const ENDS: Duration = Duration::from_secs(1);

/// Time between two lists of cgroups.
const ASKS: Duration = Duration::from_secs(1);

/// The way out, if no cgroup can be paused.
const REMEDY: &str = "record as root with a cgroup v2 hierarchy that can be written, or leave out \
                      --probe";

/// Pauses cgroups if this process was started for that; `None` otherwise.
pub fn main(name: Option<&OsStr>) -> Option<ExitCode> {
    (name? == NAME).then(process::main)
}

/// Checks that there are cgroups to pause, and counts to learn from.
///
/// # Errors
///
/// There are none.
pub(super) fn check(machine: &Machine, plan: &Plan, method: Choice) -> Result<()> {
    ensure!(machine.cgroups.v2.is_some(), "there are no cgroups to pause: {REMEDY}");
    ensure!(
        !matches!(method, Choice::Residency | Choice::Io),
        "--probe pauses cgroups to learn what they move, and --method {} learns nothing: leave out \
         one of the two",
        method.name()
    );
    let is_shared = |counter: &Counter| counter.is_of_cpus() && counter.role.counts();
    ensure!(
        method == Choice::Regression || plan.counters.iter().any(is_shared),
        "--probe tells apart who moves what several CPUs share, and nothing asked for counts that: \
         count memory or links, e.g. with -p mem, or leave out --probe"
    );
    Ok(())
}

/// What the recorder needs to thaw a cgroup if the process was killed.
pub(super) fn needs(machine: &Machine) -> Needs {
    let mount = machine.cgroups.v2.clone();
    Needs { writes: mount.into_iter().chain([place::RUN.into()]).collect(), ..Needs::default() }
}

/// A running process that pauses cgroups.
#[derive(Debug)]
pub(super) struct Probe {
    child: Child,
    about: probe::Probe,
    begin: Instant,
    asked: Instant,
}

impl Probe {
    /// Starts the process. It pauses nothing until [`Self::ask`] names cgroups.
    ///
    /// # Errors
    ///
    /// It cannot pause cgroups.
    pub(super) fn start(
        machine: &Machine,
        plan: &Plan,
        method: Choice,
        budget: f64,
    ) -> Result<Self> {
        check(machine, plan, method)?;
        let mount = machine.cgroups.v2.clone();
        let mount = mount.with_context(|| format!("there are no cgroups to pause: {REMEDY}"))?;
        let child = Child::start(NAME, ABOUT, &Orders { mount, budget })?;
        let about = probe::Probe { budget, ..probe::Probe::default() };
        let begin = Instant::now();
        let mut probe = Self { child, about, begin, asked: begin };
        probe.ready()?;
        Ok(probe)
    }

    /// Waits for the first line.
    fn ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < BEGINS {
            match self.child.told()?.into_iter().next() {
                Some(Told::Failed { why }) => bail!("cannot pause cgroups: {why}: {REMEDY}"),
                Some(_) => return Ok(()),
                None if self.child.has_ended => bail!("cannot pause cgroups: {REMEDY}"),
                None => thread::sleep(LOOK),
            }
        }
        bail!("{ABOUT} did not begin in {} s", BEGINS.as_secs())
    }

    /// What was paused.
    pub(super) const fn about(&self) -> &probe::Probe {
        &self.about
    }

    /// Once a second, names the cgroups that cannot be told apart. `true` if it did.
    pub(super) fn ask(&mut self, confused: impl FnOnce() -> Vec<u64>) -> bool {
        self.take();
        if self.child.has_ended || self.asked.elapsed() < ASKS {
            return false;
        }
        self.asked = Instant::now();
        if let Ok(text) = serde_json::to_string(&confused()) {
            self.child.order(&text);
        }
        true
    }

    /// Takes the pauses that have ended.
    fn take(&mut self) {
        let was_running = !self.child.has_ended;
        if was_running {
            self.about.time_ns = self.begin.elapsed().as_nanos() as i64;
        }
        let told = self.child.told().unwrap_or_else(|error| {
            log::warn!("cannot read what was paused: {error:#}");
            self.child.has_ended = true;
            Vec::new()
        });
        for told in told {
            match told {
                Told::Paused { cgroup, ns } => self.about.add(cgroup, ns),
                Told::Failed { why } => log::warn!("no more cgroups are paused: {why}"),
                Told::Ready => {}
            }
        }
        if was_running && self.child.has_ended {
            self.child.wait(ENDS);
            thaw_left();
            if !self.child.is_dismissed() {
                log::warn!("{ABOUT} ended early: none is paused now");
            }
        }
    }

    /// Ends the process; nothing is paused then.
    pub(super) fn stop(&mut self) {
        self.child.dismiss();
        let begin = Instant::now();
        self.take();
        while !self.child.has_ended && begin.elapsed() < ENDS {
            thread::sleep(LOOK);
            self.take();
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop();
    }
}
