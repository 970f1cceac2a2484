//! What happens to the command that was started, when the measurement is over before the command
//! has ended.
//!
//! Guarantees: the command gets a signal only if the user asked for that; `uncore-trace` waits for
//! it until a signal ends the wait; if the command is left running, its pid is printed.

use anyhow::{Error, Result, anyhow};

use crate::cli::messages::print_message;
use crate::signals::Signals;
use crate::text::printable;
use crate::workload::Workload;

/// After a finished recording: sends the command SIGTERM if `kill` is set, and waits for it.
/// Returns its exit code, or `None` if there is no command or it still runs.
///
/// # Errors
///
/// The state of the command cannot be read.
pub async fn wait_after_recording(
    workload: &mut Workload,
    signals: &mut Signals,
    kill: bool,
    quiet: bool,
) -> Result<Option<u8>> {
    let say_unless_quiet = |text: &str| {
        if !quiet {
            print_message(text);
        }
    };
    if kill {
        workload.terminate();
    }
    if let Some(pid) = workload.running_pid()?
        && !signals.asked_to_leave()
    {
        let interrupt_keys = if signals.was_interrupted() { "Ctrl-C" } else { "Ctrl-C twice" };
        say_unless_quiet(&format!(
            "waiting for the command (pid {pid}); {interrupt_keys}, SIGTERM or SIGHUP ends the wait"
        ));
    }
    workload.wait_or_leave(signals).await?;
    if let Some(pid) = workload.running_pid()? {
        say_unless_quiet(&format!("the command (pid {pid}) still runs"));
    }
    Ok(workload.exit_code())
}

/// After a failed measurement: prints the error at once and, if the command runs, waits for it.
/// Returns exit code 2; a message names the exit code of the command.
///
/// # Errors
///
/// `error` if no command runs; the state of the command cannot be read.
pub async fn wait_after_failure(
    error: Error,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<u8> {
    let Some(pid) = workload.running_pid()? else {
        return Err(match workload.exit_code() {
            Some(code) => anyhow!("{error:#}; the command ended with exit code {code}"),
            None => error,
        });
    };
    let waits = if signals.asked_to_leave() { "" } else { ", and uncore-trace waits for it" };
    print_message(&printable(&format!("{error:#}; the command (pid {pid}) runs on{waits}")));
    workload.wait_or_leave(signals).await?;
    print_message(&match workload.exit_code() {
        Some(code) => format!(
            "the command ended with exit code {code}; the exit code of uncore-trace is 2, because \
             it failed"
        ),
        None => format!("the command (pid {pid}) still runs"),
    });
    Ok(2)
}
