//! The canary: a process of this program in a cgroup of its own that moves known numbers of bytes
//! at random times, so that a recording holds the truth about one of its tenants.
//!
//! [`Canary`] is the recorder's end. It says what may be moved ([`routes`]: only what a counter of
//! the plan counts), starts the process ([`process`]), and takes a line for each burst. Guarantees:
//! the process moves bytes only between [`Canary::go`] and [`Canary::stop`]; it ends when the
//! recorder does, also by `kill -9`, because its standard input ends then; it removes its cgroup
//! itself. If both are killed, the next canary or `repair` removes it ([`place::remove_left`]).

mod disk;
mod memory;
mod network;
mod orders;
mod pace;
mod place;
mod process;
mod routes;

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use self::orders::Told;
pub use self::place::remove_left;
use self::routes::Routes;
use crate::discover::Machine;
use crate::plan::Plan;
use crate::schema::canary::{self, Burst, Skipped, Way};
use crate::tables::writer::Target;

/// The program's name, `argv[0]`, in the process.
const NAME: &str = "uncore-trace-canary";

/// How long the process may take to fill its array and file.
const PREPARES: Duration = Duration::from_secs(30);

/// How long it may take to end a burst, which is a read of a disk at most.
const ENDS: Duration = Duration::from_secs(2);

/// Pause between two looks at the process.
const LOOK: Duration = Duration::from_millis(2);

/// Runs the canary if this process was started as one; `None` otherwise.
pub fn main(name: Option<&OsStr>) -> Option<ExitCode> {
    (name? == NAME).then(process::main)
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
    /// `None` once it was told to stop.
    orders: Option<ChildStdin>,
    lines: ChildStdout,
    /// A line that has not come as a whole.
    rest: Vec<u8>,
    routes: Routes,
    /// Its cgroup, and what it does not move.
    about: canary::Canary,
    has_ended: bool,
}

impl Canary {
    /// Starts the process and waits until it is ready. It moves nothing until [`Self::go`].
    ///
    /// # Errors
    ///
    /// No counter of the plan counts what it can move, or it cannot have a cgroup of its own.
    pub(super) fn start(machine: &Machine, plan: &Plan, target: &Target) -> Result<Self> {
        let (routes, orders) = Routes::of(machine, plan, directory(target))?;
        let mut child = Command::new("/proc/self/exe")
            .arg0(NAME)
            // A terminal sends Ctrl-C to the recorder's group.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the canary")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (mut input, lines) = pipes.context("the canary has no pipes")?;
        let text = serde_json::to_string(&orders).context("cannot write orders as JSON")?;
        writeln!(input, "{text}").context("the canary takes no orders")?;
        let flags = fcntl_getfl(&lines).and_then(|now| fcntl_setfl(&lines, now | OFlags::NONBLOCK));
        flags.context("cannot read from the canary")?;
        let about = canary::Canary { skipped: orders.skipped, ..canary::Canary::default() };
        let (orders, rest) = (Some(input), Vec::new());
        let mut canary = Self { child, orders, lines, rest, routes, about, has_ended: false };
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
                _ if self.has_ended => bail!("the canary ended before it was ready"),
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
        if let Some(orders) = &mut self.orders {
            // A canary that has gone is reported by `take`.
            orders.write_all(b"go\n").ok();
        }
    }

    /// The bursts that have ended since the last call, with their devices and links.
    pub(super) fn take(&mut self) -> Vec<Ended> {
        let was_running = !self.has_ended;
        let told = self.told().unwrap_or_else(|error| {
            log::warn!("cannot read what the canary moved: {error:#}");
            self.has_ended = true;
            Vec::new()
        });
        if was_running && self.has_ended && self.orders.is_some() {
            log::warn!("the canary ended early: nothing more is known of what it was credited");
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
        self.orders = None;
        let begin = Instant::now();
        let mut bursts = self.take();
        while !self.has_ended && begin.elapsed() < ENDS {
            thread::sleep(LOOK);
            bursts.extend(self.take());
        }
        bursts
    }

    /// The lines that have come.
    fn told(&mut self) -> Result<Vec<Told>> {
        let mut bytes = [0; 4096];
        while !self.has_ended {
            match self.lines.read(&mut bytes) {
                Ok(0) => self.has_ended = true,
                Ok(read) => self.rest.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let told: Result<Vec<Told>, _> = lines.map(serde_json::from_slice).collect();
        let told = told.context("the canary wrote what is not understood")?;
        // Its exit takes longer: it frees its arrays.
        self.has_ended |= matches!(told.last(), Some(Told::Ended));
        Ok(told)
    }
}

impl Drop for Canary {
    /// The process has removed its cgroup when it has ended.
    fn drop(&mut self) {
        self.orders = None;
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begin.elapsed() < ENDS {
            thread::sleep(LOOK);
        }
    }
}

/// The directory in which it may have a file: that of the output.
fn directory(target: &Target) -> Option<&Path> {
    let path = match target {
        Target::Dataset(path) if path.is_dir() => return Some(path),
        Target::File(path) | Target::Table(_, path) | Target::Dataset(path) => path,
        Target::Stream(_) | Target::Pieces(_) | Target::Nowhere => return None,
    };
    path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above })
}
