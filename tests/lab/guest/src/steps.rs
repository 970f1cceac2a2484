//! Runs the steps: one command each. Everything that the host needs to check a step is in
//! /out/NAME.
//!
//! Guarantees that a step starts with an empty truth log, that no process of a step is alive when
//! the next one starts, and that a command which fails or hangs is a result and not an error.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, wait as wait_any,
};
use serde::Serialize;
use uncore_trace_lab::spec::Step;

use crate::cgroup;
use crate::kmsg::Messages;
use crate::model::Model;
use crate::wait::wait_within;

/// The directory of the work files of steps, for their commands.
const WORK: &str = "/lab/steps";
/// Time limit for processes to end after they were killed.
const REAP: Duration = Duration::from_secs(5);

/// How a step's command ended.
#[derive(Debug, Serialize)]
struct Outcome {
    /// Exit code; none if it was killed.
    exit: Option<i32>,
    /// The signal that killed it.
    signal: Option<i32>,
    seconds: f64,
    timed_out: bool,
}

/// Runs the steps in order.
#[expect(clippy::print_stdout, reason = "the host follows the steps on the console")]
pub(crate) fn run_steps(steps: &[Step], out: &Path) -> Result<()> {
    for step in steps {
        println!("lab: step {}", step.name);
        let outcome =
            run_step(step, &out.join(&step.name)).with_context(|| format!("step {}", step.name))?;
        let end = match outcome {
            Outcome { timed_out: true, .. } => "timed out".to_owned(),
            Outcome { exit: Some(code), .. } => format!("exit {code}"),
            Outcome { signal, .. } => format!("killed by signal {}", signal.unwrap_or(0)),
        };
        println!("lab: step {}: {end} after {:.1} s", step.name, outcome.seconds);
    }
    Ok(())
}

fn run_step(step: &Step, out: &Path) -> Result<Outcome> {
    fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    fs::create_dir_all(WORK).with_context(|| format!("make {WORK}"))?;
    let work = serde_json::to_vec(&step.work).context("write down the work")?;
    save_file(&Path::new(WORK).join(&step.name).with_added_extension("json"), &work)?;
    let model = Model::open_if_any()?;
    if let Some(model) = &model {
        model.clear_log()?;
    }
    let mut messages = Messages::new()?;
    let outcome = execute_command(step, &out.join("log.txt"))?;
    end_everything()?;
    save_file(&out.join("dmesg.txt"), messages.read_new()?.as_bytes())?;
    save_truth(model, &out.join("truth.bin"))?;
    let cgroups = serde_json::to_vec(&cgroup::cgroup_ids()?).context("write down the cgroups")?;
    save_file(&out.join("cgroups.json"), &cgroups)?;
    save_file(
        &out.join("result.json"),
        &serde_json::to_vec(&outcome).context("write down the end")?,
    )?;
    Ok(outcome)
}

fn save_file(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

/// Runs the command with its output in a file, until its time limit.
fn execute_command(step: &Step, log: &Path) -> Result<Outcome> {
    let mut file = File::create(log).with_context(|| format!("make {}", log.display()))?;
    let begin = Instant::now();
    let mut outcome = Outcome { exit: None, signal: None, seconds: 0.0, timed_out: false };
    let (program, args) = step.argv.split_first().context("no command")?;
    let clone = || file.try_clone().with_context(|| format!("open {} again", log.display()));
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(clone()?).stderr(clone()?);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // As a shell reports it.
            writeln!(file, "lab: cannot start {program}: {error}").context("write the log")?;
            outcome.exit = Some(127);
            return Ok(outcome);
        }
    };
    let pid = Pid::from_child(&child);
    outcome.timed_out = !ends_within(pid, Duration::from_secs(step.timeout_s.into()))?;
    if outcome.timed_out {
        child.kill().with_context(|| format!("kill {program}"))?;
    }
    let status: ExitStatus = child.wait().with_context(|| format!("wait for {program}"))?;
    outcome.seconds = begin.elapsed().as_secs_f64();
    outcome.exit = status.code();
    outcome.signal = status.signal();
    Ok(outcome)
}

/// Whether a child ends before a timeout, without polling.
fn ends_within(pid: Pid, time: Duration) -> Result<bool> {
    let child = pidfd_open(pid, PidfdFlags::empty()).context("open the command's pidfd")?;
    let deadline = Instant::now() + time;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(remaining).context("the time left")?;
        match poll(&mut [PollFd::new(&child, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            ended => return Ok(ended.map_err(io::Error::from).context("poll the command")? > 0),
        }
    }
}

/// Kills and reaps all processes that are left of a step. Only process 1 may do this, because it
/// ends every process.
fn end_everything() -> Result<()> {
    let end_all = || {
        // Process group 1 stands for every process but the caller.
        match kill_process_group(Pid::INIT, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Some(Err(error).context("end what the step has left")),
        }
        while let Ok(Some(_)) = wait_any(WaitOptions::NOHANG) {}
        matches!(wait_any(WaitOptions::NOHANG), Err(Errno::CHILD)).then_some(Ok(()))
    };
    // The results of the next step show processes that the kernel could not end.
    wait_within(REAP, end_all).unwrap_or(Ok(()))
}

/// Saves the truth log of the step. It is empty in a guest without the model.
fn save_truth(model: Option<Model>, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("make {}", path.display()))?;
    match model {
        Some(mut model) => model.copy_truth(io::BufWriter::new(file)),
        None => Ok(()),
    }
}
