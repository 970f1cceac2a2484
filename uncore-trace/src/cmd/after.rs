//! The command when the measurement is over before it has ended.
//!
//! Guarantees: it is sent nothing unless the user asked for that; it is waited for until a signal
//! says not to; where it is left running, its pid is printed.

use anyhow::{Error, Result, anyhow};

use super::messages::say;
use crate::signals::Signals;
use crate::text::printable;
use crate::workload::Workload;

/// A recording is finished: sends the command SIGTERM if `kill` is set, and waits for it. Returns its
/// exit code, `None` where there is none or it still runs.
///
/// # Errors
///
/// The kernel does not say what became of the command.
pub async fn finished(
    workload: &mut Workload,
    signals: &mut Signals,
    kill: bool,
    quiet: bool,
) -> Result<Option<u8>> {
    let tell = |text: &str| {
        if !quiet {
            say(text);
        }
    };
    if kill {
        workload.terminate();
    }
    if let Some(pid) = workload.running()?
        && !signals.asked_to_leave()
    {
        let again = if signals.was_interrupted() { "Ctrl-C" } else { "Ctrl-C twice" };
        tell(&format!(
            "waiting for the command (pid {pid}); {again}, SIGTERM or SIGHUP ends the wait"
        ));
    }
    workload.wait(signals).await?;
    if let Some(pid) = workload.running()? {
        tell(&format!("the command (pid {pid}) still runs"));
    }
    Ok(workload.exit_code())
}

/// A measurement failed: says why at once and, if the command runs, waits for it. Returns the exit
/// code, 2; the command's own is named in the message.
///
/// # Errors
///
/// `error` where no command runs; what became of the command cannot be found out.
pub async fn failed(error: Error, workload: &mut Workload, signals: &mut Signals) -> Result<u8> {
    let Some(pid) = workload.running()? else {
        return Err(match workload.exit_code() {
            Some(code) => anyhow!("{error:#}; the command ended with exit code {code}"),
            None => error,
        });
    };
    let waits = if signals.asked_to_leave() { "" } else { ", and uncore-trace waits for it" };
    say(&printable(&format!("{error:#}; the command (pid {pid}) runs on{waits}")));
    workload.wait(signals).await?;
    say(&match workload.exit_code() {
        Some(code) => format!(
            "the command ended with exit code {code}; the exit code of uncore-trace is 2, as it \
             failed"
        ),
        None => format!("the command (pid {pid}) still runs"),
    });
    Ok(2)
}
