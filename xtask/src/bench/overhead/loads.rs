//! Loads beside which recorders run, and their results.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::disk::Disk;
use super::tools;

/// A load, with its name for `--load`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OverheadLoad {
    /// Two processes that hand each other a byte on one CPU
    Pipe,
    /// `perf bench sched messaging`, which is hackbench: many senders and receivers on all CPUs
    Messaging,
    /// fio on a block device without a disk
    Disk,
}

/// Requests in flight: with one, half of the time is spent on switches between them.
const DEPTH: &str = "--iodepth=32";
/// Groups of 20 senders and 20 receivers each.
const GROUPS: &str = "4";

/// Amount and place of each load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// CPU that `Pipe` and `Disk` are pinned to.
    pub(super) cpu: u32,
    /// Loops of `Pipe`; each is two context switches.
    pub(super) loops: u32,
    /// Messages from each sender to each receiver of its group.
    pub(super) messages: u32,
    /// Requests of 4 KiB.
    pub(super) requests: u32,
}

impl OverheadLoad {
    pub(super) const ALL: [OverheadLoad; 3] =
        [OverheadLoad::Pipe, OverheadLoad::Messaging, OverheadLoad::Disk];

    /// Head of the first column.
    pub(super) const fn column_title(self) -> &'static str {
        match self {
            OverheadLoad::Pipe => "beside `perf bench sched pipe` on one CPU",
            OverheadLoad::Messaging => {
                "beside `perf bench sched messaging` (hackbench) on all CPUs"
            }
            OverheadLoad::Disk => "beside `fio`, random reads of 4 KiB",
        }
    }

    /// Unit of a sample.
    pub(super) const fn sample_unit(self) -> &'static str {
        match self {
            OverheadLoad::Pipe => "us/switch",
            OverheadLoad::Messaging => "ms",
            OverheadLoad::Disk => "us/request",
        }
    }

    /// Hooks of the recorder that the load triggers: the floor has an empty program on each.
    pub(super) const fn triggered_hooks(self) -> &'static [&'static str] {
        match self {
            OverheadLoad::Pipe | OverheadLoad::Messaging => &["sched_switch"],
            OverheadLoad::Disk => &["sched_switch", "block_io_start", "block_rq_complete"],
        }
    }

    /// Installs what it runs, if that is missing.
    pub(super) fn prepare_load(self) -> Result<PreparedLoad> {
        let (tool, package) = match self {
            OverheadLoad::Pipe | OverheadLoad::Messaging => ("perf", "linux-perf"),
            OverheadLoad::Disk => ("fio", "fio"),
        };
        tools::install_tool(tool, package)?;
        let disk = if self == OverheadLoad::Disk { Some(Disk::new()?) } else { None };
        Ok(PreparedLoad { load: self, disk })
    }
}

/// A load that is ready to run.
#[derive(Debug)]
pub(super) struct PreparedLoad {
    load: OverheadLoad,
    disk: Option<Disk>,
}

impl PreparedLoad {
    /// Amount and device, for the line below the table.
    pub(super) fn description(&self, amount: Amount) -> String {
        let Amount { loops, messages, requests, .. } = amount;
        match self.load {
            OverheadLoad::Pipe => format!("{loops} loops"),
            OverheadLoad::Messaging => format!("{GROUPS} groups, {messages} messages"),
            OverheadLoad::Disk => {
                let disk = self.disk.as_ref().map(Disk::description).unwrap_or_default();
                format!("{requests} requests, 32 under way, to {disk}")
            }
        }
    }

    /// Runs it once; returns the time in its unit.
    pub(super) fn run_once(&self, amount: Amount) -> Result<f64> {
        let Amount { cpu, loops, messages, requests } = amount;
        match (self.load, &self.disk) {
            (OverheadLoad::Messaging, _) => {
                let text = run_messaging(messages)?;
                Ok(parse_seconds(&text)? * 1e3)
            }
            (OverheadLoad::Disk, Some(disk)) => {
                per_request(&run_fio(disk.device_path(), cpu, requests)?)
            }
            _ => per_switch(&run_pipe(cpu, loops)?, loops),
        }
    }
}

fn run_pipe(cpu: u32, loops: u32) -> Result<String> {
    let mut command = Command::new("taskset");
    command
        .args(["-c", &cpu.to_string()])
        .args(["perf", "bench", "--format", "simple", "sched", "pipe"])
        .args(["--loop", &loops.to_string()]);
    command_output(command)
}

fn run_messaging(messages: u32) -> Result<String> {
    let mut command = Command::new("perf");
    command
        .args(["bench", "--format", "simple", "sched", "messaging", "--group", GROUPS])
        .args(["--nr_loops", &messages.to_string()]);
    command_output(command)
}

fn run_fio(device: &PathBuf, cpu: u32, requests: u32) -> Result<String> {
    let mut filename = std::ffi::OsString::from("--filename=");
    filename.push(device);
    let mut command = Command::new("fio");
    command
        .args(["--name=bench", "--rw=randread", "--bs=4k", "--direct=1", "--readonly"])
        .args(["--ioengine=libaio", DEPTH, "--norandommap", "--output-format=json"])
        .arg(filename)
        .arg(format!("--cpus_allowed={cpu}"))
        .arg(format!("--io_size={}", u64::from(requests) * 4096));
    command_output(command)
}

/// Standard output of a command; an error has the last lines of standard error.
fn command_output(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed: {}", error.trim().lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Microseconds per switch, from the output of `perf bench --format simple sched pipe`: two
/// switches per loop.
pub(in super::super) fn per_switch(text: &str, loops: u32) -> Result<f64> {
    Ok(parse_seconds(text)? * 1e6 / (2.0 * f64::from(loops)))
}

/// Parses the output of `perf bench --format simple`: the seconds, alone on a line.
fn parse_seconds(text: &str) -> Result<f64> {
    let seconds = text.lines().find_map(|line| line.trim().parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0.0);
    seconds.with_context(|| format!("perf bench printed no time: {text:?}"))
}

/// Microseconds per request, from the output of `fio --output-format=json`.
fn per_request(text: &str) -> Result<f64> {
    // A line of text may come first.
    let json = text.find('{').map_or("", |begin| &text[begin..]);
    let report: Value = serde_json::from_str(json).context("cannot read what fio printed")?;
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64);
    let requests = number("/jobs/0/read/total_ios").context("fio said no number of requests")?;
    let rate = number("/jobs/0/read/iops").context("fio said no rate")?;
    ensure!(requests > 0.0 && rate > 0.0, "fio has read nothing");
    Ok(1e6 / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_perf_bench() {
        assert!((parse_seconds("0.400\n").unwrap() - 0.4).abs() < 1e-9);
        assert!(parse_seconds("# Running\n\n").is_err());
        assert!(parse_seconds("0.000\n").is_err());
    }

    #[test]
    fn the_rate_of_fio() {
        let text = "note\n{\"jobs\": [{\"read\": {\"total_ios\": 1000, \"iops\": 250000.0}}]}";
        assert!((per_request(text).unwrap() - 4.0).abs() < 1e-9);
        assert!(
            per_request("{\"jobs\": [{\"read\": {\"total_ios\": 0, \"iops\": 0.0}}]}").is_err()
        );
        assert!(per_request("fio: failed").is_err());
    }
}
