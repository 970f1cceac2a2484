//! The command after `--`.

use std::{ffi::OsString, process::ExitStatus, time::Duration};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// How long a command that was told to stop may take before it is left alone.
const PATIENCE: Duration = Duration::from_secs(2);

/// The running command, or none.
#[derive(Debug)]
pub struct Workload(Option<Child>);

impl Workload {
    /// No command.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Starts `command`; an empty one is none.
    pub fn start(command: &[OsString]) -> Result<Self> {
        let Some((program, args)) = command.split_first() else {
            return Ok(Self::none());
        };
        let child = Command::new(program)
            .args(args)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Self(Some(child)))
    }

    /// Waits for its end; for ever where there is none.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        match &mut self.0 {
            Some(child) => child.wait().await.context("cannot wait for the command"),
            None => std::future::pending().await,
        }
    }

    /// Tells it to stop, as `perf record` does when it is stopped first.
    pub async fn terminate(&mut self) -> Result<()> {
        let Some(child) = &mut self.0 else {
            return Ok(());
        };
        if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id as i32))
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            log::warn!("cannot stop the command (pid {pid}): {error}");
        }
        if tokio::time::timeout(PATIENCE, child.wait()).await.is_err() {
            log::warn!("the command does not stop; it goes on without the recording");
        }
        Ok(())
    }
}

/// The exit code of a status as a shell gives it.
pub fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
