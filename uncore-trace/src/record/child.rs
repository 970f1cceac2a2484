//! A process of this program beside the recorder, such as a canary. The recorder gives it orders
//! and it answers, both as lines of JSON over pipes.
//!
//! [`Child`] is the recorder's end; the process uses [`run_child`], [`OrderLines`] and
//! [`send_line`]. Guarantee: it can end with the recorder, also by `kill -9`: its input ends then.

use std::ffi::CStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{self, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::thread::set_name;
use serde::Serialize;
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::clock::mono_ns;

/// Pause between two looks at a process.
pub(super) const LOOK: Duration = Duration::from_millis(2);

/// A running process.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    /// What it is called in errors.
    label: &'static str,
    /// `None` once it was told to end.
    orders: Option<ChildStdin>,
    lines: ChildStdout,
    /// A line that has not come as a whole.
    partial_line: Vec<u8>,
    /// Whether it says nothing more.
    pub has_ended: bool,
}

impl Child {
    /// Starts this program with another name, `argv[0]`, and gives it its orders.
    pub(super) fn start_process(
        name: &str,
        label: &'static str,
        orders: &impl Serialize,
    ) -> Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .arg0(name)
            // A terminal sends Ctrl-C to the recorder's group.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {label}"))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (mut input, lines) = pipes.with_context(|| format!("{label} has no pipes"))?;
        let text = serde_json::to_string(orders).context("cannot write orders as JSON")?;
        writeln!(input, "{text}").with_context(|| format!("cannot send orders to {label}"))?;
        let non_blocking = ioctl_fionbio(&lines, true).and_then(|()| ioctl_fionbio(&input, true));
        non_blocking.with_context(|| format!("cannot talk to {label}"))?;
        let (orders, partial_line) = (Some(input), Vec::new());
        Ok(Self { process, label, orders, lines, partial_line, has_ended: false })
    }

    /// Gives it a line. One that has gone is found by [`Self::take_answers`].
    pub(super) fn send_order(&mut self, line: &str) {
        if let Some(orders) = &mut self.orders {
            orders.write_all(format!("{line}\n").as_bytes()).ok();
        }
    }

    /// Closes the standard input of the process, so that it ends.
    pub(super) fn close_orders(&mut self) {
        self.orders = None;
    }

    /// Whether it was told to end.
    pub(super) const fn is_dismissed(&self) -> bool {
        self.orders.is_none()
    }

    /// The answers that have arrived since the last call.
    pub(super) fn take_answers<T: DeserializeOwned>(&mut self) -> Result<Vec<T>> {
        let mut bytes = [0; 4096];
        while !self.has_ended {
            match self.lines.read(&mut bytes) {
                Ok(0) => self.has_ended = true,
                Ok(read) => self.partial_line.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(end) = self.partial_line.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let whole: Vec<u8> = self.partial_line.drain(..=end).collect();
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let answers: Result<Vec<T>, _> = lines.map(serde_json::from_slice).collect();
        answers.with_context(|| format!("{} wrote a line that cannot be parsed", self.label))
    }

    /// Waits until it has exited, for this time at most.
    pub(super) fn wait_for_exit(&mut self, timeout: Duration) {
        let begin = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begin.elapsed() < timeout {
            thread::sleep(LOOK);
        }
    }
}

/// Runs the process; `failed` makes the line that says why it cannot go on.
pub(super) fn run_child<T: Serialize>(
    name: &CStr,
    run: impl FnOnce() -> Result<()>,
    failed: impl FnOnce(String) -> T,
) -> ExitCode {
    match prepare_process(name).and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If nobody reads it, nobody needs it.
            send_line(&failed(format!("{error:#}"))).ok();
            ExitCode::FAILURE
        }
    }
}

fn prepare_process(name: &CStr) -> Result<()> {
    // The recorder ends this process by closing a pipe, so that it can clean up first. A service
    // manager sends these signals to both.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).context("cannot handle signals")?;
    }
    set_name(name).context("cannot set the name of this process")
}

/// Sends a message to the recorder, as a line of JSON.
pub(super) fn send_line(message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(message).context("cannot write a line")?;
    line.push('\n');
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
    written.context("the recorder does not read")
}

/// Lines of standard input, which a process takes from the recorder.
#[derive(Debug, Default)]
pub(super) struct OrderLines {
    partial_line: Vec<u8>,
    pub has_ended: bool,
}

impl OrderLines {
    /// The next line; `None` if none has come until `until_ns`, or standard input has ended.
    pub(super) fn wait_for_line(&mut self, until_ns: i64) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.partial_line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.partial_line.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            let left_ns = until_ns - mono_ns();
            if left_ns <= 0 || self.has_ended {
                return Ok(None);
            }
            let timeout =
                Timespec { tv_sec: left_ns / 1_000_000_000, tv_nsec: left_ns % 1_000_000_000 };
            let input = io::stdin();
            match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error).context("cannot wait"),
            }
            let mut bytes = [0; 4096];
            let read = rustix::io::read(&input, &mut bytes).context("cannot read orders")?;
            self.has_ended = read == 0;
            self.partial_line.extend_from_slice(&bytes[..read]);
        }
    }
}
