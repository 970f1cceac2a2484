//! The command after `--`.
//!
//! Guarantees: only [`Workload::terminate`] sends it a signal; dropping this leaves it running.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::signals::Signals;

/// The time that a command and the processes that it waited for ran on CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandCpuTime {
    /// In user space.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CommandCpuTime {
    /// That of all children of this process that ended; 0 if the kernel does not say.
    #[expect(unsafe_code, reason = "no safe binding of getrusage(2)")]
    fn of_children() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the kernel writes a `rusage` there, and nothing if it fails.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
        // SAFETY: a `rusage` of zeros is valid.
        let libc::rusage { ru_utime, ru_stime, .. } = unsafe { usage.assume_init() };
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        Self { user: time(ru_utime), system: time(ru_stime) }
    }

    fn time_since(self, earlier: Self) -> Self {
        let Self { user, system } = earlier;
        Self { user: self.user.saturating_sub(user), system: self.system.saturating_sub(system) }
    }
}

/// The command: not given, running or ended.
#[derive(Debug, Default)]
pub struct Workload {
    child: Option<Child>,
    status: Option<ExitStatus>,
    /// The time of the children that ended before it began.
    children_before: CommandCpuTime,
    /// Its own time once it has ended.
    pub used: Option<CommandCpuTime>,
    /// Whether it was sent SIGTERM.
    terminated: bool,
}

impl Workload {
    /// No command.
    pub const fn without_command() -> Self {
        let children_before = CommandCpuTime { user: Duration::ZERO, system: Duration::ZERO };
        Self { child: None, status: None, children_before, used: None, terminated: false }
    }

    /// Starts `command`; nothing if that is empty.
    ///
    /// # Errors
    ///
    /// It cannot be run.
    pub fn start_command(command: &[OsString]) -> Result<Self> {
        let Some((program, args)) = command.split_first() else {
            return Ok(Self::without_command());
        };
        let child = Command::new(program)
            .args(args)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Self {
            child: Some(child),
            children_before: CommandCpuTime::of_children(),
            ..Self::without_command()
        })
    }

    /// The pid of the command while it runs.
    ///
    /// # Errors
    ///
    /// The state of the command cannot be read.
    pub fn running_pid(&mut self) -> Result<Option<u32>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        if let Some(status) = child.try_wait().context("cannot read the state of the command")? {
            self.status = Some(status);
            self.used.get_or_insert_with(|| {
                CommandCpuTime::of_children().time_since(self.children_before)
            });
        }
        Ok(child.id())
    }

    /// The pid of the command until it was waited for.
    pub fn child_pid(&self) -> Option<u32> {
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
    pub async fn wait_for_end(&mut self) -> Result<()> {
        match &mut self.child {
            Some(child) => {
                self.status = Some(child.wait().await.context("cannot wait for the command")?);
                self.used.get_or_insert_with(|| {
                    CommandCpuTime::of_children().time_since(self.children_before)
                });
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
    /// As for [`Workload::wait_for_end`].
    pub async fn wait_or_leave(&mut self, signals: &mut Signals) -> Result<()> {
        if self.child.is_none() {
            return Ok(());
        }
        tokio::select! {
            // A command that has ended counts as ended, even if a signal arrived as well.
            biased;
            ended = self.wait_for_end() => ended,
            () = signals.wait_to_leave() => Ok(()),
        }
    }

    /// Sends SIGTERM to the command if it runs; does not wait.
    pub fn terminate(&mut self) {
        // The pid cannot be reused before the command is waited for.
        let Some(pid) = self.child_pid().and_then(|id| Pid::from_raw(id as i32)) else { return };
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
