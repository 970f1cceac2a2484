//! The command after `--`.
//!
//! Guarantees: only [`Workload::terminate`] sends it a signal; dropping this leaves it running.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::signals::Signals;

/// The command: not given, running or ended.
#[derive(Debug, Default)]
pub struct Workload {
    child: Option<Child>,
    status: Option<ExitStatus>,
    /// Whether it was sent SIGTERM.
    terminated: bool,
}

impl Workload {
    /// No command.
    pub const fn none() -> Self {
        Self { child: None, status: None, terminated: false }
    }

    /// Starts `command`; nothing if that is empty.
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

    /// The pid of the command while it runs.
    ///
    /// # Errors
    ///
    /// The state of the command cannot be read.
    pub fn running(&mut self) -> Result<Option<u32>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        if let Some(status) = child.try_wait().context("cannot look for the command")? {
            self.status = Some(status);
        }
        Ok(child.id())
    }

    /// The pid of the command until it was waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Whether there is a command, running or ended.
    pub const fn is_some(&self) -> bool {
        self.child.is_some()
    }

    /// Waits for the end of the command; forever without one. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The state of the command cannot be read.
    pub async fn ended(&mut self) -> Result<()> {
        match &mut self.child {
            Some(child) => {
                self.status = Some(child.wait().await.context("cannot wait for the command")?);
                Ok(())
            }
            None => std::future::pending().await,
        }
    }

    /// Waits for the end of the command, or until `signals` end the wait. Returns at once without a
    /// command.
    ///
    /// # Errors
    ///
    /// As for [`Workload::ended`].
    pub async fn wait(&mut self, signals: &mut Signals) -> Result<()> {
        if self.child.is_none() {
            return Ok(());
        }
        tokio::select! {
            // A command that has ended counts as ended, even if a signal arrived as well.
            biased;
            ended = self.ended() => ended,
            () = signals.leave() => Ok(()),
        }
    }

    /// Sends SIGTERM to the command if it runs; does not wait.
    pub fn terminate(&mut self) {
        // The pid cannot be reused before the command is waited for.
        let Some(pid) = self.id().and_then(|id| Pid::from_raw(id as i32)) else { return };
        match kill_process(pid, Signal::TERM) {
            Ok(()) => self.terminated = true,
            Err(error) => log::warn!("cannot send SIGTERM to the command (pid {pid}): {error}"),
        }
    }

    /// The exit code of the command once it has ended. After death by a signal it is 128 + its
    /// number, as in a shell; after the SIGTERM of [`Workload::terminate`] it is 0, because that
    /// end was requested.
    pub fn exit_code(&self) -> Option<u8> {
        let status = self.status?;
        if self.terminated && status.signal() == Some(Signal::TERM.as_raw()) {
            return Some(0);
        }
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Some(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }
}
