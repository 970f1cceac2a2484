//! `cargo xtask bench sampling`: the cost of reading counters at fixed times, and the lateness of
//! the readings.
//!
//! The cost is user and system time of the recorder over a span without its start, and the run time
//! of its BPF programs, which is CPU time of others. `perf stat -I` prints the same events at the
//! same interval for comparison. Each round measures every variant once.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the tables are the result")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use aya::programs::loaded_programs;
use jiff::Zoned;
use serde::Deserialize;
use uncore_trace_ebpf::stamp::workspace_root;

use super::machine;
use super::running::{PythonLoad, RUN_AND_SLEEP, RecorderProcess, Running as _};
use super::stats::Summary;
use crate::command::run_quietly;
use crate::{setup, target};

/// Events that are counted on every CPU.
const EVENTS: &str = "page-faults,context-switches,cpu-migrations,minor-faults,major-faults";
/// Intervals between readings, ms.
const INTERVALS: [&str; 2] = ["1", "10"];
/// Ticks whose lateness is measured, and their length in ns.
const TICKS: [(&str, u64); 3] = [("10ms", 10_000_000), ("1ms", 1_000_000), ("100us", 100_000)];
/// Time for a recorder to attach and to print its first rows.
const SETTLE: Duration = Duration::from_secs(2);
/// Processes of the load.
const TENANTS: usize = 6;
/// Clock ticks a second of `/proc/PID/stat` (`USER_HZ`, 100 on every platform).
const USER_HZ: f64 = 100.0;

/// Options of `cargo xtask bench sampling`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds: each measures every variant once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Measure the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// Name of a variant in the table, and its command; the second argument is the interval in ms.
type SamplingVariant = (&'static str, fn(&Path, &str) -> Command);

const VARIANTS: [SamplingVariant; 3] = [
    ("`perf stat -I`", perf_stat_command),
    ("`record --method residency`", |bin, ms| record_command(bin, ms, "residency")),
    ("`record`", |bin, ms| record_command(bin, ms, "auto")),
];

fn perf_stat_command(_: &Path, ms: &str) -> Command {
    let mut command = Command::new("perf");
    command.args(["stat", "-a", "-e", EVENTS, "-I", ms, "-o", "perf.txt"]);
    command
}

fn record_command(bin: &Path, ms: &str, method: &str) -> Command {
    let mut command = Command::new(bin);
    command.args(["record", "-q", "-e", EVENTS, "--method", method, "-o", "run/"]);
    command.args(["--tick", &format!("{ms}ms")]);
    command
}

/// Part of a CPU, of the recorder and of its BPF programs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    recorder: f64,
    bpf: f64,
}

/// Lateness of readings, ns.
#[derive(Debug, Deserialize)]
struct ReadingLateness {
    ticks: u64,
    missing: u64,
    p50: u64,
    p99: u64,
    max: u64,
}

/// Measures and prints both tables.
pub(super) fn run(args: &Args) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
        None => target::release_binary()?,
    };
    let python = setup::readers_python()?;
    let _bpf_times = BpfTimes::enable()?;
    let span = Duration::from_secs(args.seconds);
    let cases: Vec<(bool, &str)> =
        [false, true].iter().flat_map(|load| INTERVALS.map(|ms| (*load, ms))).collect();
    let mut costs = vec![[const { Vec::new() }; VARIANTS.len()]; cases.len()];
    for round in 1..=args.rounds {
        for (&(is_loaded, ms), costs) in cases.iter().zip(&mut costs) {
            let _load =
                PythonLoad::start(if is_loaded { TENANTS } else { 0 }, &python, RUN_AND_SLEEP)?;
            for ((name, command), costs) in VARIANTS.iter().zip(costs) {
                let cost = measure_cost(command(&bin, ms), span).context(*name)?;
                eprintln!("round {round}: {name}, {ms} ms, {}: {cost:?}", load_text(is_loaded));
                costs.push(cost);
            }
        }
    }
    println!("| interval | machine | {} |", VARIANTS.map(|(name, _)| name).join(" | "));
    println!("|---|---|---|---|---|");
    for ((is_loaded, ms), costs) in cases.iter().zip(&costs) {
        let cells: Vec<String> = costs.iter().map(|costs| cost_cell(costs)).collect();
        println!("| {ms} ms | {} | {} |", load_text(*is_loaded), cells.join(" | "));
    }
    println!(
        "\n| tick | machine | ticks | missing | p50, us | p99, us | max, us \
         |\n|---|---|---|---|---|---|---|"
    );
    for is_loaded in [false, true] {
        let _load = PythonLoad::start(if is_loaded { TENANTS } else { 0 }, &python, RUN_AND_SLEEP)?;
        for (tick, ns) in TICKS {
            let ReadingLateness { ticks, missing, p50, p99, max } =
                measure_lateness(&bin, (tick, ns), span, &python)?;
            let us = [p50, p99, max].map(|ns| format!("{:.1}", ns as f64 / 1e3)).join(" | ");
            println!("| {tick} | {} | {ticks} | {missing} | {us} |", load_text(is_loaded));
        }
    }
    println!(
        "\n{}, {}; {} rounds of {} s.",
        Zoned::now().strftime("%Y-%m-%d"),
        machine::describe_machine(),
        args.rounds,
        args.seconds
    );
    Ok(())
}

const fn load_text(is_loaded: bool) -> &'static str {
    if is_loaded { "six processes run and sleep" } else { "idle" }
}

/// `2.1 % + 0.4 % BPF`: medians.
fn cost_cell(costs: &[Cost]) -> String {
    let percent = |cost_part: fn(&Cost) -> f64| {
        let summary = Summary::from_values(costs.iter().map(cost_part));
        summary.map_or_else(
            || "-".to_owned(),
            |fractions| format!("{:.1} %", fractions.median * 100.0),
        )
    };
    let recorder_percent = percent(|cost| cost.recorder);
    if costs.iter().all(|cost| cost.bpf == 0.0) {
        return recorder_percent;
    }
    format!("{recorder_percent} + {} in BPF", percent(|cost| cost.bpf))
}

/// Runs a recorder and measures it for a while.
fn measure_cost(mut command: Command, span: Duration) -> Result<Cost> {
    let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
    let programs_before: BTreeSet<u32> =
        program_run_times()?.into_iter().map(|(id, _)| id).collect();
    command.current_dir(scratch.path());
    let recorder = RecorderProcess::start(command, &scratch.path().join("stderr"), SETTLE)?;
    let bpf = || -> Result<f64> {
        let new_programs =
            program_run_times()?.into_iter().filter(|(id, _)| !programs_before.contains(id));
        Ok(new_programs.map(|(_, seconds)| seconds).sum())
    };
    let (begin, first_times) = (Instant::now(), (own_cpu(recorder.process_id())?, bpf()?));
    sleep(span);
    let (seconds, last_times) =
        (begin.elapsed().as_secs_f64(), (own_cpu(recorder.process_id())?, bpf()?));
    Box::new(recorder).stop()?;
    Ok(Cost {
        recorder: (last_times.0 - first_times.0) / seconds,
        bpf: (last_times.1 - first_times.1) / seconds,
    })
}

/// Records without another load, and computes the lateness of each reading.
fn measure_lateness(
    bin: &Path,
    (tick, ns): (&str, u64),
    span: Duration,
    python: &Path,
) -> Result<ReadingLateness> {
    let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
    let mut command = Command::new(bin);
    command.args(["record", "-q", "-e", "page-faults", "--method", "residency", "-o", "run/"]);
    command.args(["--tick", tick]).current_dir(scratch.path());
    let recorder = RecorderProcess::start(command, &scratch.path().join("stderr"), SETTLE)?;
    sleep(span);
    Box::new(recorder).stop()?;
    let mut python_command = Command::new(python);
    python_command.arg(workspace_root().join("xtask/src/bench/sampling.py"));
    let answer = run_quietly(
        python_command.arg(scratch.path().join("run/readings.parquet")).arg(ns.to_string()),
    )?;
    serde_json::from_str(&answer).context("cannot read how late readings were")
}

/// User and system time of all threads of a process, seconds (`proc_pid_stat(5)`, fields 14 and
/// 15).
fn own_cpu(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    cpu_ticks(&text).map(|ticks| ticks / USER_HZ).with_context(|| format!("{path} is {text:?}"))
}

/// The sum of both fields, in clock ticks; the name before them may contain blanks and parentheses.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(field(14)? + field(15)?)
}

/// Id and run time in seconds of each loaded BPF program.
fn program_run_times() -> Result<Vec<(u32, f64)>> {
    loaded_programs()
        .map(|program| program.map(|program| (program.id(), program.run_time().as_secs_f64())))
        .collect::<Result<_, _>>()
        .context("cannot list BPF programs")
}

/// The kernel counts run times of BPF programs until this is dropped.
struct BpfTimes {
    previous_setting: String,
}

impl BpfTimes {
    const FILE: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn enable() -> Result<Self> {
        let read = fs::read_to_string(Self::FILE);
        let previous_setting = read.with_context(|| format!("cannot read {}", Self::FILE))?;
        fs::write(Self::FILE, "1").with_context(|| format!("cannot write {}", Self::FILE))?;
        Ok(Self { previous_setting })
    }
}

impl Drop for BpfTimes {
    fn drop(&mut self) {
        if let Err(error) = fs::write(Self::FILE, self.previous_setting.trim()) {
            eprintln!("cannot write {}: {error}", Self::FILE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_after_a_name_that_may_hold_anything() {
        let stat = "7 (a) R (b) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20 0";
        assert_eq!(cpu_ticks(stat), Some(150.0));
        assert_eq!(cpu_ticks("7 (a"), None);
    }

    #[test]
    fn a_cell_has_medians_and_bpf_where_there_is_any() {
        let cost = |own, bpf| Cost { recorder: own, bpf };
        assert_eq!(cost_cell(&[cost(0.01, 0.0), cost(0.03, 0.0), cost(0.02, 0.0)]), "2.0 %");
        assert_eq!(cost_cell(&[cost(0.01, 0.005)]), "1.0 % + 0.5 % in BPF");
    }
}
