//! `cargo xtask bench overhead`: the time of loads beside each recorder.
//!
//! The loads are context switches on one CPU, context switches on all CPUs, and requests to a block
//! device; each has a table. Every variant is measured once in each round, and each round begins
//! with another one, so that drift and order favour none. If the program of a variant cannot be
//! installed, or a variant fails, its line says why.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the tables are the result")]

mod disk;
mod loads;
mod table;
mod tools;
mod variants;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Zoned;
use signal_hook::consts::{SIGINT, SIGTERM};
use uncore_trace_ebpf::build;

use super::machine;
use crate::target;
pub(super) use loads::per_switch;
use loads::{Amount, OverheadLoad, PreparedLoad};
use table::{LoadReport, VariantSeries};
use variants::{OverheadBench, OverheadVariant};

/// Options of `cargo xtask bench overhead`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these loads [default: all]
    #[arg(long, value_enum, value_name = "LOAD")]
    load: Vec<OverheadLoad>,
    /// Rounds: each measures every variant once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Loops of the pipe benchmark; each is two context switches
    #[arg(
        short,
        long,
        default_value_t = 200_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    loops: u32,
    /// Messages from each sender to each of 20 receivers
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// Requests to the block device
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// CPU that the pipe benchmark and fio are pinned to [default: the last one]
    #[arg(long)]
    cpu: Option<u32>,
    /// Measure the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// Measure only the variants whose name contains TEXT, and the baseline and the floor
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Time for a recorder to attach, in milliseconds
    #[arg(long, default_value_t = 1500)]
    settle: u64,
    /// Print every sample as JSON, one line for each load
    #[arg(long)]
    json: bool,
}

/// State that all measurements share.
struct OverheadSetup {
    bin: PathBuf,
    object: PathBuf,
    settle: Duration,
    amount: Amount,
    rounds: u32,
    interrupted: Arc<AtomicBool>,
}

impl OverheadSetup {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Measures and prints a table for each load.
pub(super) fn run(args: &Args) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot watch for signals")?;
    }
    let loads = if args.load.is_empty() { OverheadLoad::ALL.to_vec() } else { args.load.clone() };
    variants::require_known(&args.only, &loads)?;
    let chosen: Vec<(OverheadLoad, Vec<&'static OverheadVariant>)> =
        loads.iter().map(|load| (*load, variants::choose_variants(*load, &args.only))).collect();
    let toolchain = build::toolchain()?;
    let needs_bin = chosen.iter().flat_map(|(_, chosen)| chosen).any(|variant| variant.is_record());
    let common = OverheadSetup {
        bin: match &args.bin {
            Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
            None if needs_bin => target::release_binary()?,
            None => PathBuf::new(),
        },
        object: build::compile_object(&toolchain, "floor", &target::target_dir()?.join("bpf"))?,
        settle: Duration::from_millis(args.settle),
        amount: Amount {
            cpu: args.cpu.map_or_else(last_cpu, Ok)?,
            loops: args.loops,
            messages: args.messages,
            requests: args.requests,
        },
        rounds: args.rounds,
        interrupted,
    };
    for (load, chosen) in chosen.iter().filter(|(_, chosen)| !chosen.is_empty()) {
        let prepared = load.prepare_load()?;
        let series = measure_series(&common, *load, &prepared, chosen)?;
        let date = Zoned::now().strftime("%Y-%m-%d").to_string();
        let about = prepared.description(common.amount);
        let date_and_machine = (date, machine::describe_machine());
        let report = LoadReport::new(*load, &series, common.rounds, about, date_and_machine)?;
        if args.json {
            println!("{}", serde_json::to_string(&report).context("writing JSON")?);
        } else {
            println!("{}", report.to_markdown());
        }
    }
    Ok(())
}

/// Measures all variants of a load.
fn measure_series(
    common: &OverheadSetup,
    load: OverheadLoad,
    prepared: &PreparedLoad,
    chosen: &[&'static OverheadVariant],
) -> Result<Vec<VariantSeries>> {
    let mut series: Vec<VariantSeries> = Vec::new();
    for variant in chosen {
        let absent = variant.install_program().err().map(|error| format!("{error:#}"));
        series.push(VariantSeries { name: variant.name, samples: Vec::new(), absent });
    }
    for round in 0..common.rounds as usize {
        for turn in 0..chosen.len() {
            let index = (turn + round) % chosen.len();
            if series[index].absent.is_some() {
                continue;
            }
            let name = chosen[index].name;
            let sample = measure_once(common, load, prepared, chosen[index])
                .with_context(|| format!("round {}, {name}", round + 1));
            let sample = match sample {
                Ok(sample) => sample,
                // A failure of another program must not discard the rounds that were measured.
                Err(error) if chosen[index].is_peer() && !common.is_interrupted() => {
                    eprintln!("{error:#}");
                    series[index].samples.clear();
                    series[index].absent = Some(format!("{error:#}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            eprintln!("round {}: {name}: {sample:.3} {}", round + 1, load.sample_unit());
            series[index].samples.push(sample);
        }
    }
    Ok(series)
}

/// One sample: the load beside one variant, which is stopped afterwards.
fn measure_once(
    common: &OverheadSetup,
    load: OverheadLoad,
    prepared: &PreparedLoad,
    variant: &OverheadVariant,
) -> Result<f64> {
    let bench = OverheadBench {
        bin: common.bin.clone(),
        object: common.object.clone(),
        scratch: tempfile::tempdir().context("cannot make a scratch directory")?,
        settle: common.settle,
    };
    let running = variant.start_beside(&bench, load)?;
    let sample = prepared.run_once(common.amount);
    if common.is_interrupted() {
        bail!("interrupted: everything is stopped and removed");
    }
    let sample = sample?;
    running.stop()?;
    Ok(sample)
}

/// The last CPU: the first one gets most interrupts.
pub(super) fn last_cpu() -> Result<u32> {
    let cpus = std::thread::available_parallelism().context("cannot count the CPUs")?.get();
    Ok(cpus as u32 - 1)
}
