//! `uncore-trace mark`: sets a mark in running recordings.

use std::collections::BTreeSet;
use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};

use super::heading::MARK;
use crate::bounds;
use crate::cli::messages::print_message;
use crate::clock::mono_ns;
use crate::record::marks::send::{MarkAnswer, send_to_recorder};
use crate::record::marks::wire::{MarkAct, Message, listening_pids};
use crate::schema::marks::TEXT_BYTES;
use crate::signals::{Signals, event_loop};
use crate::text::printable;
use crate::workload::Workload;

/// The kernel's list of the Unix sockets of this network namespace.
const SOCKETS: &str = "/proc/net/unix";

/// Name a moment or a span in running recordings
///
/// Every running recording gets the mark, in its table `marks` and in its metadata. `report` shows
/// marks and accepts them as times: `--from mark:TEXT --to mark:TEXT`. Only root and the user who
/// records may mark a recording.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples: a moment, a span in two steps, and a span that is a command's run
  uncore-trace mark checkpoint
  uncore-trace mark 'epoch 1' --begin
  uncore-trace mark 'epoch 1' --end
  uncore-trace mark 'load data' -- ./load.sh
  uncore-trace report run.parquet --from 'mark:load data' --to 'mark:load data'

A recorder listens on the Unix socket @uncore-trace/marks/PID in its network
namespace: run `mark` in the same namespace.

Exit code: 0 if a recording has the mark, 2 if none has it. With CMD it is the
exit code of the command (128 + N if signal N killed it), or 2 if nothing
records: then the command is not run.")]
pub struct Args {
    /// The name of the mark, 1 to 1024 bytes
    #[arg(value_name = "TEXT")]
    text: String,

    /// Begin a span with this name; without --begin and --end the mark is an instant
    #[arg(long, conflicts_with_all = ["end", "command"], help_heading = MARK)]
    begin: bool,

    /// End the span with this name; if several are open, the one that began last
    #[arg(long, conflicts_with = "command", help_heading = MARK)]
    end: bool,

    /// Mark only the recording of the recorder with this pid
    #[arg(long, value_name = "PID", help_heading = MARK)]
    pid: Option<u32>,

    /// Command to run; the span is from its start to its end
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Sets the mark. Exit code 0, or that of the command.
pub fn run(args: &Args) -> Result<u8> {
    let mono_ns = mono_ns();
    match args.text.len() {
        0 => bail!("a mark needs a text: uncore-trace mark TEXT"),
        length if length > TEXT_BYTES => {
            bail!("the text of the mark has {length} bytes: write at most {TEXT_BYTES}")
        }
        _ => {}
    }
    let runtime = event_loop()?;
    let act = match (args.begin, args.end) {
        (true, _) => MarkAct::Begin,
        (_, true) => MarkAct::End,
        _ => MarkAct::Instant,
    };
    let message = Message { act, mono_ns, text: args.text.clone(), id: None };
    runtime.block_on(async {
        if args.command.is_empty() {
            send_to_recorders(&find_recorders(args.pid)?, &message).await?;
            return Ok(0);
        }
        mark_command(args, message).await
    })
}

/// Pids of the recorders that the mark is sent to.
fn find_recorders(pid: Option<u32>) -> Result<BTreeSet<u32>> {
    let list = bounds::system_bytes(SOCKETS).with_context(|| format!("cannot read {SOCKETS}"))?;
    let listening_pids = listening_pids(&String::from_utf8_lossy(&list));
    let start = "start one with `uncore-trace record -o run.parquet`";
    match pid {
        Some(pid) if listening_pids.contains(&pid) => Ok([pid].into()),
        Some(pid) => bail!("process {pid} records nothing that can be marked: {start}"),
        None if listening_pids.is_empty() => {
            bail!("nothing is recorded that can be marked: {start}")
        }
        None => Ok(listening_pids),
    }
}

/// Sends the mark to all recorders; returns the pids of those that accepted it.
///
/// # Errors
///
/// No recorder accepted it; the message says why.
async fn send_to_recorders(recorders: &BTreeSet<u32>, message: &Message) -> Result<BTreeSet<u32>> {
    let (mut accepted, mut refused) = (BTreeSet::new(), Vec::new());
    for &pid in recorders {
        match send_to_recorder(pid, message).await {
            Ok(MarkAnswer::Taken) => drop(accepted.insert(pid)),
            Ok(MarkAnswer::Refused(reason)) => refused.push((pid, reason)),
            Ok(MarkAnswer::Gone) => refused.push((pid, "it has ended".to_owned())),
            Err(error) => refused.push((pid, format!("{error:#}"))),
        }
    }
    let reasons = refused.iter().map(|(pid, reason)| format!("recorder {pid}: {reason}"));
    let reasons: Vec<String> = reasons.collect();
    if accepted.is_empty() {
        bail!("the mark was not accepted by {}", reasons.join("; by "));
    }
    for reason in reasons {
        log::warn!("the mark was not accepted by {reason}");
    }
    if accepted.len() > 1 {
        let pids: Vec<String> = accepted.iter().map(ToString::to_string).collect();
        print_message(&format!(
            "marked {} recordings, of the recorders {}",
            accepted.len(),
            pids.join(", ")
        ));
    }
    Ok(accepted)
}

/// Runs the command and marks its span. Returns its exit code.
async fn mark_command(args: &Args, begin: Message) -> Result<u8> {
    // First: a Ctrl-C must end the command only, because the end of its span is still to be marked.
    let mut signals = Signals::install()?;
    let id = format!("{}-{}", std::process::id(), begin.mono_ns);
    let begin = Message { act: MarkAct::Begin, id: Some(id), ..begin };
    let recorders = send_to_recorders(&find_recorders(args.pid)?, &begin).await?;
    let mut workload = Workload::without_command();
    let wait_result = match Workload::start_command(&args.command) {
        Ok(started) => {
            workload = started;
            workload.wait_or_leave(&mut signals).await
        }
        Err(error) => Err(error),
    };
    let end = Message { act: MarkAct::End, mono_ns: mono_ns(), ..begin };
    for pid in recorders {
        let lost = match send_to_recorder(pid, &end).await {
            Ok(MarkAnswer::Taken) => continue,
            Ok(MarkAnswer::Gone) => "it had ended".to_owned(),
            Ok(MarkAnswer::Refused(reason)) => reason,
            Err(error) => format!("{error:#}"),
        };
        log::warn!(
            "the end of '{}' is not in the recording of recorder {pid}: {}",
            printable(&end.text),
            printable(&lost)
        );
    }
    wait_result?;
    if let Some(pid) = workload.running_pid()? {
        bail!("the command (pid {pid}) still runs: the span was ended before the command");
    }
    Ok(workload.exit_code().unwrap_or(2))
}
