//! The signals that end a measurement: SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal was
//! closed).
//!
//! Guarantees: no signal loses what was measured so far; no signal is passed on to the command,
//! which gets SIGINT and SIGHUP from the terminal itself; a SIGHUP that is ignored when the program
//! starts, as by nohup(1), stays ignored, also by the command. SIGINT and SIGTERM are always
//! caught: a shell script starts background jobs with SIGINT ignored, and SIGINT is what stops
//! them.
//!
//! A file that grows beyond the limit of the session (`ulimit -f`) is an error of writing, not a
//! signal that ends the program.

use std::future::pending;

use anyhow::{Context as _, Result};
use procfs::process::Process;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Starts the event loop of this thread.
///
/// # Errors
///
/// The kernel gives it no descriptors.
pub fn event_loop() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("cannot start the event loop")
}

/// Makes a write beyond the limit of a file's size fail with EFBIG, where SIGXFSZ would end the
/// program without a word. A handler does that and not `SIG_IGN`, which the command would inherit.
#[expect(unsafe_code, reason = "the standard library sets no handlers")]
pub fn survive_file_size_limit() {
    extern "C" fn ignore(_: libc::c_int) {}
    let handler = ignore as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing.
    let previous = unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
    if previous == libc::SIG_ERR {
        log::info!("SIGXFSZ cannot be handled");
    }
}

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGINT: end the measurement. A second one: do not wait for the command.
    Interrupt,
    /// SIGTERM or SIGHUP: end soon, without waiting for the command.
    Terminate,
}

/// Handlers for the signals that end a measurement, from construction on.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if SIGHUP is ignored.
    hangup: Option<Signal>,
    /// Whether the first SIGINT is only for the command.
    first_is_for_command: bool,
    interrupts: u32,
    terminated: bool,
}

impl Signals {
    /// Installs the handlers; needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refuses to install a handler.
    pub fn install() -> Result<Self> {
        Self::with_hangup(!is_ignored(SignalKind::hangup()))
    }

    /// As [`Signals::install`], without SIGHUP.
    ///
    /// # Errors
    ///
    /// As of [`Signals::install`].
    pub fn without_hangup() -> Result<Self> {
        Self::with_hangup(false)
    }

    fn with_hangup(hangup: bool) -> Result<Self> {
        let catch = |signal_kind| signal(signal_kind).context("cannot handle signals");
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: hangup.then(|| catch(SignalKind::hangup())).transpose()?,
            first_is_for_command: false,
            interrupts: 0,
            terminated: false,
        })
    }

    /// As [`Signals::install`], but [`Signals::next`] does not return for the first SIGINT, which
    /// is for the command.
    ///
    /// # Errors
    ///
    /// As for [`Signals::install`].
    pub fn install_but_first_interrupt() -> Result<Self> {
        Ok(Self { first_is_for_command: true, ..Self::install()? })
    }

    /// Waits for the next signal; cancel-safe.
    pub async fn next(&mut self) -> SignalRequest {
        loop {
            let request = self.receive_signal().await;
            if request == SignalRequest::Terminate
                || !self.first_is_for_command
                || self.interrupts > 1
            {
                return request;
            }
        }
    }

    /// Waits for a signal that ends the wait for the command: SIGTERM, SIGHUP, or the second SIGINT
    /// since the start. The first SIGINT from a terminal reaches the command too, which may need
    /// time to end.
    pub async fn wait_to_leave(&mut self) {
        while !self.asked_to_leave() {
            self.receive_signal().await;
        }
    }

    /// Whether [`Signals::wait_to_leave`] returns at once.
    pub const fn asked_to_leave(&self) -> bool {
        self.terminated || self.interrupts > 1
    }

    /// Whether a SIGINT arrived.
    pub const fn was_interrupted(&self) -> bool {
        self.interrupts > 0
    }

    async fn receive_signal(&mut self) -> SignalRequest {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        let request = tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Interrupt,
            _ = self.terminate.recv() => SignalRequest::Terminate,
            _ = hangup => SignalRequest::Terminate,
        };
        match request {
            SignalRequest::Interrupt => self.interrupts += 1,
            SignalRequest::Terminate => self.terminated = true,
        }
        request
    }
}

/// Whether this process ignores a signal; `false` if procfs cannot be read.
fn is_ignored(signal_kind: SignalKind) -> bool {
    // Bit 0 is signal 1: proc_pid_status(5).
    let bit = u32::try_from(signal_kind.as_raw_value() - 1).unwrap_or(u32::MAX);
    let ignored =
        Process::myself().and_then(|process| process.status()).map_or(0, |status| status.sigign);
    ignored.checked_shr(bit).is_some_and(|shifted| shifted & 1 == 1)
}
