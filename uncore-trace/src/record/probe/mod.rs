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
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

pub use self::place::thaw_left;
use self::process::{Orders, Told};
use crate::confine::Needs;
use crate::discover::Machine;
use crate::schema::probe;

/// The program's name, `argv[0]`, in the process.
pub(super) const NAME: &str = "uncore-trace-probe";

/// How long the process may take to begin, and to thaw a cgroup.
const BEGINS: Duration = Duration::from_secs(5);
const ENDS: Duration = Duration::from_secs(1);

/// Pause between two looks at the process.
const LOOK: Duration = Duration::from_millis(2);

/// Time between two lists of cgroups.
const ASKS: Duration = Duration::from_secs(1);

/// The way out, if no cgroup can be paused.
const REMEDY: &str = "record as root with a cgroup v2 hierarchy that can be written, or leave out \
                      --probe";

/// Pauses cgroups if this process was started for that; `None` otherwise.
pub fn main(name: Option<&OsStr>) -> Option<ExitCode> {
    (name? == NAME).then(process::main)
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
    /// `None` once it was told to stop.
    orders: Option<ChildStdin>,
    lines: ChildStdout,
    /// A line that has not come as a whole.
    rest: Vec<u8>,
    about: probe::Probe,
    begin: Instant,
    asked: Instant,
    has_ended: bool,
}

impl Probe {
    /// Starts the process. It pauses nothing until [`Self::ask`] names cgroups.
    ///
    /// # Errors
    ///
    /// It cannot pause cgroups.
    pub(super) fn start(machine: &Machine, budget: f64) -> Result<Self> {
        let mount = machine.cgroups.v2.clone();
        let mount = mount.with_context(|| format!("there are no cgroups to pause: {REMEDY}"))?;
        let mut child = Command::new("/proc/self/exe")
            .arg0(NAME)
            // A terminal sends Ctrl-C to the recorder's group.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the process that pauses cgroups")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (mut input, lines) = pipes.context("the process that pauses cgroups has no pipes")?;
        let orders = Orders { mount, budget };
        let text = serde_json::to_string(&orders).context("cannot write orders as JSON")?;
        writeln!(input, "{text}").context("the process that pauses cgroups takes no orders")?;
        for pipe in [
            fcntl_getfl(&lines).and_then(|now| fcntl_setfl(&lines, now | OFlags::NONBLOCK)),
            fcntl_getfl(&input).and_then(|now| fcntl_setfl(&input, now | OFlags::NONBLOCK)),
        ] {
            pipe.context("cannot talk to the process that pauses cgroups")?;
        }
        let about = probe::Probe { budget, ..probe::Probe::default() };
        let (orders, rest, begin) = (Some(input), Vec::new(), Instant::now());
        let mut probe =
            Self { child, orders, lines, rest, about, begin, asked: begin, has_ended: false };
        probe.ready()?;
        Ok(probe)
    }

    /// Waits for the first line.
    fn ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < BEGINS {
            match self.told()?.into_iter().next() {
                Some(Told::Failed { why }) => bail!("cannot pause cgroups: {why}: {REMEDY}"),
                Some(_) => return Ok(()),
                None if self.has_ended => bail!("cannot pause cgroups: {REMEDY}"),
                None => thread::sleep(LOOK),
            }
        }
        bail!("the process that pauses cgroups did not begin in {} s", BEGINS.as_secs())
    }

    /// What was paused.
    pub(super) const fn about(&self) -> &probe::Probe {
        &self.about
    }

    /// Once a second, names the cgroups that cannot be told apart.
    pub(super) fn ask(&mut self, confused: impl FnOnce() -> Vec<u64>) {
        self.take();
        if self.has_ended || self.asked.elapsed() < ASKS {
            return;
        }
        self.asked = Instant::now();
        if let (Some(orders), Ok(text)) = (&mut self.orders, serde_json::to_string(&confused())) {
            // One that has gone is reported by `take`.
            orders.write_all(format!("{text}\n").as_bytes()).ok();
        }
    }

    /// Takes the pauses that have ended.
    fn take(&mut self) {
        let was_running = !self.has_ended;
        if was_running {
            self.about.time_ns = self.begin.elapsed().as_nanos() as i64;
        }
        let told = self.told().unwrap_or_else(|error| {
            log::warn!("cannot read what was paused: {error:#}");
            self.has_ended = true;
            Vec::new()
        });
        for told in told {
            match told {
                Told::Paused { cgroup, ns } => self.about.add(cgroup, ns),
                Told::Failed { why } => log::warn!("no more cgroups are paused: {why}"),
                Told::Ready => {}
            }
        }
        if was_running && self.has_ended {
            self.child.wait().ok();
            thaw_left();
            if self.orders.is_some() {
                log::warn!("the process that pauses cgroups ended early: none is paused now");
            }
        }
    }

    /// Ends the process; nothing is paused then.
    pub(super) fn stop(&mut self) {
        self.orders = None;
        let begin = Instant::now();
        self.take();
        while !self.has_ended && begin.elapsed() < ENDS {
            thread::sleep(LOOK);
            self.take();
        }
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
        told.context("the process that pauses cgroups wrote what is not understood")
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop();
    }
}
