//! The command after `--`.
//!
//! Guarantees: it is sent no signal but by [`Workload::terminate`]; dropping this leaves it running.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::signals::Signals;

/// The command, running or ended, or none.
#[derive(Debug, Default)]
pub struct Workload {
    child: Option<Child>,
    status: Option<ExitStatus>,
    /// It was sent SIGTERM.
    terminated: bool,
}

impl Workload {
    /// No command.
    pub const fn none() -> Self {
        Self { child: None, status: None, terminated: false }
    }

    /// Starts `command`; an empty one is none.
    ///
    /// # Errors
    ///
    /// It cannot be run.
    pub fn start(command: &[OsString]) -> Result<Self> {
        let Some((program, args)) = command.split_first() else {
            return Ok(Self::none());
        };
        let child = Command::new(program)
            .args(args)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Self { child: Some(child), ..Self::none() })
    }

    /// Its process while it runs.
    ///
    /// # Errors
    ///
    /// The kernel does not say whether it runs.
    pub fn running(&mut self) -> Result<Option<u32>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        if let Some(status) = child.try_wait().context("cannot look for the command")? {
            self.status = Some(status);
        }
        Ok(child.id())
    }

    /// Its process, until it was waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Whether there is one, running or ended.
    pub const fn is_some(&self) -> bool {
        self.child.is_some()
    }

    /// Waits for its end; for ever where there is none. May be cancelled.
    ///
    /// # Errors
    ///
    /// The kernel does not say how it ended.
    pub async fn ended(&mut self) -> Result<()> {
        match &mut self.child {
            Some(child) => {
                self.status = Some(child.wait().await.context("cannot wait for the command")?);
                Ok(())
            }
            None => std::future::pending().await,
        }
    }

    /// Waits for its end or, if that is first, until `signals` say that it is to be left alone. At
    /// once where there is none.
    ///
    /// # Errors
    ///
    /// As for [`Workload::ended`].
    pub async fn wait(&mut self, signals: &mut Signals) -> Result<()> {
        if self.child.is_none() {
            return Ok(());
        }
        tokio::select! {
            // One that has ended is not left alone.
            biased;
            ended = self.ended() => ended,
            () = signals.leave() => Ok(()),
        }
    }

    /// Sends it SIGTERM if it runs; does not wait.
    pub fn terminate(&mut self) {
        // Its number is its own until it was waited for.
        let Some(pid) = self.id().and_then(|id| Pid::from_raw(id as i32)) else { return };
        match kill_process(pid, Signal::TERM) {
            Ok(()) => self.terminated = true,
            Err(error) => log::warn!("cannot send SIGTERM to the command (pid {pid}): {error}"),
        }
    }

    /// Its exit code once it has ended: of one that died by a signal 128 and its number, as a shell
    /// gives it, and 0 if that was the SIGTERM of [`Workload::terminate`], by which it ended as it
    /// was to.
    pub fn exit_code(&self) -> Option<u8> {
        let status = self.status?;
        if self.terminated && status.signal() == Some(Signal::TERM.as_raw()) {
            return Some(0);
        }
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Some(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }
}
