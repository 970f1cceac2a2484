//! Ctrl-C and SIGTERM: both ask for what was measured so far, neither loses it.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a measurement, caught from when this is made.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches them; needs a tokio runtime.
    pub fn install() -> Result<Self> {
        let install = |kind| signal(kind).context("cannot handle signals");
        Ok(Self {
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one; none is lost where this is cancelled.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
