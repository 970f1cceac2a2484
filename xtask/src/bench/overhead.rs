//! `cargo xtask bench overhead`: what a context switch costs under each recorder.
//!
//! The workload is `perf bench sched pipe` pinned to one CPU: two processes that hand each other a
//! byte, so that each loop is two switches. Every variant is measured once a round, and each
//! round begins with another one, so that neither drift nor order favours any.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Zoned;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use uncore_trace_ebpf::build;

use super::machine;
use super::running::{Attached, Nothing, Recorder, Running};
use super::stats::{self, Summary};
use crate::target;

/// Options of `cargo xtask bench overhead`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds: each measures every variant once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Loops of the pipe benchmark; each is two context switches
    #[arg(short, long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    loops: u32,
    /// CPU the workload is pinned to [default: the last one]
    #[arg(long)]
    cpu: Option<u32>,
    /// Measure the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// Measure only the variants whose name contains TEXT, beside nothing and the floor
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Time for a recorder to attach, in milliseconds
    #[arg(long, default_value_t = 1500)]
    settle: u64,
    /// Print every sample as JSON
    #[arg(long)]
    json: bool,
}

/// What runs beside the workload: a name for the table and how it is started.
struct Variant {
    name: &'static str,
    start: fn(&Bench) -> Result<Box<dyn Running>>,
}

/// Everything that is compared. The first two are what the others are compared with.
const VARIANTS: &[Variant] = &[
    Variant { name: "nothing", start: |_| Ok(Box::new(Nothing)) },
    Variant { name: "empty program (the floor)", start: Bench::floor },
    // A counter that counts nothing at a switch, as those of a fabric do.
    Variant {
        name: "record -e page-faults",
        start: |b| b.record(&["-e", "page-faults", "-o", "run.parquet"]),
    },
    // One that is read at every switch, as those of misses are: what it costs beside the other.
    Variant {
        name: "record -e page-faults at every switch",
        start: |b| {
            let options = ["--sample-on", "sched", "--min-gap", "0", "-o", "run.parquet"];
            b.record(&[&["-e", "page-faults"][..], &options].concat())
        },
    },
    // Nearly without the timer, which only reader CPUs have: the switches alone.
    Variant {
        name: "record -e page-faults --tick 10ms",
        start: |b| b.record(&["-e", "page-faults", "--tick", "10ms", "-o", "run.parquet"]),
    },
    Variant {
        name: "record -e page-faults --slices",
        start: |b| b.record(&["-e", "page-faults", "--slices", "-o", "run/"]),
    },
    // With `context-switches`, which the kernel itself counts at every switch.
    Variant { name: "record -p host", start: |b| b.record(&["-p", "host", "-o", "run.parquet"]) },
    Variant { name: "perf record -e sched:sched_switch -a", start: Bench::perf },
];
const BASE: usize = 0;
const FLOOR: usize = 1;

/// What the variants need, made once.
struct Bench {
    /// The uncore-trace that is measured.
    bin: PathBuf,
    /// The object of the empty program.
    object: PathBuf,
    /// Where recorders write; a new one for each run.
    scratch: tempfile::TempDir,
    settle: Duration,
}

impl Bench {
    fn floor(&self) -> Result<Box<dyn Running>> {
        Ok(Box::new(Attached::new(&self.object, "floor", "sched_switch")?))
    }

    fn record(&self, args: &[&str]) -> Result<Box<dyn Running>> {
        let mut command = Command::new(&self.bin);
        command.args(["record", "-q"]).args(args);
        self.recorder(command)
    }

    fn perf(&self) -> Result<Box<dyn Running>> {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "sched:sched_switch", "-a", "-o", "perf.data"]);
        self.recorder(command)
    }

    fn recorder(&self, mut command: Command) -> Result<Box<dyn Running>> {
        command.current_dir(self.scratch.path());
        let log = self.scratch.path().join("stderr");
        Ok(Box::new(Recorder::start(command, &log, self.settle)?))
    }
}

/// A variant and its samples, in microseconds a switch, one a round.
#[derive(Serialize)]
struct Series {
    name: &'static str,
    samples: Vec<f64>,
}

/// A line of the result.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    /// Microseconds a switch.
    us: Summary,
    /// Median over the rounds, in percent of `nothing` in the same round.
    percent: Option<f64>,
    /// Its cost in costs of the floor; `None` where the floor is lost in noise.
    floors: Option<f64>,
    samples: &'a [f64],
}

/// The whole result, as `--json` prints it.
#[derive(Serialize)]
struct Report<'a> {
    date: String,
    machine: String,
    rounds: u32,
    loops: u32,
    variants: Vec<Row<'a>>,
}

/// Measures and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot watch for signals")?;
    }
    let chosen = choose(&args.only)?;
    let mut series: Vec<Series> =
        chosen.iter().map(|v| Series { name: v.name, samples: Vec::new() }).collect();
    let cpu = args.cpu.map_or_else(last_cpu, Ok)?;
    let toolchain = build::toolchain()?;
    let needs_bin = chosen.iter().any(|variant| variant.name.starts_with("record"));
    let object = build::compile(&toolchain, "floor", &target::dir()?.join("bpf"))?;
    let bin = match &args.bin {
        Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
        None if needs_bin => target::release()?,
        None => PathBuf::new(),
    };
    for round in 0..args.rounds as usize {
        for turn in 0..chosen.len() {
            let index = (turn + round) % chosen.len();
            let bench = Bench {
                bin: bin.clone(),
                object: object.clone(),
                scratch: tempfile::tempdir().context("cannot make a scratch directory")?,
                settle: Duration::from_millis(args.settle),
            };
            let name = chosen[index].name;
            let sample = measure(chosen[index], &bench, cpu, args.loops, &interrupted)
                .with_context(|| format!("round {}, {name}", round + 1))?;
            eprintln!("round {}: {name}: {sample:.3} us a switch", round + 1);
            series[index].samples.push(sample);
        }
    }
    let report = Report {
        date: Zoned::now().strftime("%Y-%m-%d").to_string(),
        machine: machine::describe(),
        rounds: args.rounds,
        loops: args.loops,
        variants: rows(&series)?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).context("writing JSON")?);
    } else {
        print!("{}", markdown(&report));
    }
    Ok(())
}

/// The variants to measure: all, or the first two and those that are named.
fn choose(only: &[String]) -> Result<Vec<&'static Variant>> {
    for text in only {
        ensure!(
            VARIANTS.iter().any(|variant| variant.name.contains(text.as_str())),
            "--only {text}: no such variant; there are: {}",
            VARIANTS.iter().map(|variant| variant.name).collect::<Vec<_>>().join(", ")
        );
    }
    let wanted = |(index, variant): &(usize, &'static Variant)| {
        *index <= FLOOR
            || only.is_empty()
            || only.iter().any(|text| variant.name.contains(text.as_str()))
    };
    Ok(VARIANTS.iter().enumerate().filter(wanted).map(|(_, variant)| variant).collect())
}

/// One sample: the workload beside one variant, which is gone afterwards.
fn measure(
    variant: &Variant,
    bench: &Bench,
    cpu: u32,
    loops: u32,
    interrupted: &AtomicBool,
) -> Result<f64> {
    let running = (variant.start)(bench)?;
    let sample = pipe(cpu, loops);
    if interrupted.load(Ordering::Relaxed) {
        bail!("interrupted: everything is stopped and removed");
    }
    let sample = sample?;
    running.stop()?;
    Ok(sample)
}

/// Runs the workload; returns microseconds a switch.
fn pipe(cpu: u32, loops: u32) -> Result<f64> {
    let output = Command::new("taskset")
        .args(["-c", &cpu.to_string()])
        .args(["perf", "bench", "--format", "simple", "sched", "pipe"])
        .args(["--loop", &loops.to_string()])
        .output()
        .context("cannot run taskset: it is in util-linux")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("perf bench sched pipe on CPU {cpu} failed: {}", error.trim());
    }
    per_switch(&String::from_utf8_lossy(&output.stdout), loops)
}

/// Reads what `perf bench --format simple` prints: the seconds it took, alone on a line.
fn per_switch(text: &str, loops: u32) -> Result<f64> {
    let seconds = text.lines().find_map(|line| line.trim().parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0.0);
    let seconds = seconds.with_context(|| format!("perf bench printed no time: {text:?}"))?;
    Ok(seconds * 1e6 / (2.0 * f64::from(loops)))
}

fn rows(series: &[Series]) -> Result<Vec<Row<'_>>> {
    let (base, floor) = (&series[BASE].samples, &series[FLOOR].samples);
    series
        .iter()
        .enumerate()
        .map(|(index, one)| {
            Ok(Row {
                name: one.name,
                us: Summary::of(one.samples.iter().copied()).context("no rounds were measured")?,
                percent: (index != BASE).then(|| stats::percent(&one.samples, base)).flatten(),
                floors: (index > FLOOR)
                    .then(|| stats::over_floor(&one.samples, floor, base))
                    .flatten(),
                samples: &one.samples,
            })
        })
        .collect()
}

/// The table as it goes into the README.
fn markdown(report: &Report<'_>) -> String {
    let Report { date, machine, rounds, loops, variants } = report;
    let mut lines = vec![
        "| beside `perf bench sched pipe` on one CPU | us/switch, median | min-max \
         | over nothing | costs of the floor |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for Row { name, us: Summary { median, min, max }, percent, floors, .. } in variants {
        let percent = percent.map_or_else(String::new, |percent| format!("{percent:+.1} %"));
        let floors = floors.map_or_else(String::new, |floors| format!("{floors:.2}"));
        lines.push(format!("| {name} | {median:.3} | {min:.3}-{max:.3} | {percent} | {floors} |"));
    }
    lines.push(String::new());
    lines.push(format!("{date}, {machine}; {rounds} interleaved rounds of {loops} loops.\n"));
    lines.join("\n")
}

/// The last CPU: the first one gets most interrupts.
fn last_cpu() -> Result<u32> {
    let cpus = std::thread::available_parallelism().context("cannot count the CPUs")?.get();
    Ok(cpus as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_perf_bench() {
        assert!((per_switch("0.400\n", 20_000).unwrap() - 10.0).abs() < 1e-9);
        assert!(per_switch("# Running\n\n", 1).is_err());
        assert!(per_switch("0.000\n", 1).is_err());
    }

    #[test]
    fn the_table() {
        let series = [
            Series { name: "nothing", samples: vec![2.0, 2.0, 4.0] },
            Series { name: "floor", samples: vec![2.1, 2.1, 4.2] },
            Series { name: "record", samples: vec![2.2, 2.2, 4.4] },
        ];
        let report = Report {
            date: "2026-01-02".to_owned(),
            machine: "a CPU".to_owned(),
            rounds: 3,
            loops: 10,
            variants: rows(&series).unwrap(),
        };
        let text = markdown(&report);
        assert!(text.contains("| nothing | 2.000 | 2.000-4.000 |  |  |"), "{text}");
        assert!(text.contains("| floor | 2.100 | 2.100-4.200 | +5.0 % |  |"), "{text}");
        assert!(text.contains("| record | 2.200 | 2.200-4.400 | +10.0 % | 2.00 |"), "{text}");
        assert!(text.ends_with("2026-01-02, a CPU; 3 interleaved rounds of 10 loops.\n"));
    }

    #[test]
    fn nothing_and_the_floor_are_always_measured() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|text| (*text).to_owned()).collect();
            choose(&only).map(|chosen| chosen.iter().map(|v| v.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), VARIANTS.len());
        assert_eq!(names(&["slices"]).unwrap()[2..], ["record -e page-faults --slices"]);
        assert!(format!("{:#}", names(&["strace"]).unwrap_err()).contains("there are: nothing"));
    }
}
