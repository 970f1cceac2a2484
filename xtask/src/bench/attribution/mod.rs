//! `cargo xtask bench attribution`: what each method says of mixes of tenants in the lab, held
//! against what they moved.
//!
//! Every mix is recorded once a seed, tick by tick. `attribute` divides that recording by every
//! method in windows of every length, so that methods and windows are compared on the same counts;
//! `tests/lab/attribution.py` says what is compared with what.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the tables are the result")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::json;
use uncore_trace_ebpf::stamp::workspace_root;

use self::figures::{Cell, Figures};
use crate::command::quietly;
use crate::lab::mixes::{self, Mix};
use crate::{setup, target};

mod figures;
mod recordings;
mod tables;

/// Options of `cargo xtask bench attribution`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seed of all mixes (may be given several times)
    #[arg(long, value_name = "N", default_values_t = [1])]
    seed: Vec<u64>,
    /// Only these mixes
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    mixes: Vec<String>,
    /// Lengths of windows
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "1ms,10ms,100ms")]
    windows: Vec<String>,
    /// What `attribute --method` takes
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "residency,regression,auto"
    )]
    methods: Vec<String>,
    /// Time that each mix runs, in seconds; the log of what moved is full after 7
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..=7))]
    seconds: u32,
    /// Keep the recordings in DIR, and use those that are there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Divide with the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// Write all figures to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show the consoles of the guests
    #[arg(long, short)]
    verbose: bool,
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Report<'a> {
    date: String,
    command: String,
    seeds: &'a [u64],
    seconds: u32,
    cells: Vec<Cell>,
}

/// Records what is not there, divides, compares and prints.
pub(super) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<&Mix> = match args.mixes.as_slice() {
        [] => mixes::ALL.iter().collect(),
        names => names.iter().map(|name| mixes::find(name)).collect::<Result<_>>()?,
    };
    let python = setup::python()?;
    let bin = match &args.bin {
        Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
        None => target::release()?,
    };
    let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
    let data = args.data.as_deref().unwrap_or(scratch.path());
    for &seed in &args.seed {
        recordings::complete(data, &chosen, seed, args.seconds, args.verbose)?;
    }
    let mut cells = Vec::new();
    for mix in &chosen {
        let made = divide(args, mix, data, &bin)?;
        cells.extend(figures::of_mix(mix, &python, &made)?);
        eprintln!("{}: compared", mix.name);
    }
    let report = Report {
        date: jiff::Zoned::now().strftime("%Y-%m-%d").to_string(),
        command: command(args),
        seeds: &args.seed,
        seconds: args.seconds,
        cells,
    };
    print!("{}", tables::markdown(&report, &chosen, &args.methods, &args.windows));
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).context("writing JSON")?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What makes the same recordings and tables again.
fn command(args: &Args) -> String {
    let mut words = vec!["cargo xtask bench attribution".to_owned()];
    words.extend(args.seed.iter().map(|seed| format!("--seed {seed}")));
    if !args.mixes.is_empty() {
        words.push(format!("--mixes {}", args.mixes.join(",")));
    }
    words.join(" ")
}

/// The tables of a mix: the directory holds them until they were compared.
#[derive(Debug)]
struct Prepared {
    task: serde_json::Value,
    dir: tempfile::TempDir,
}

/// Divides a mix's recordings by every method in every window.
fn divide(args: &Args, mix: &Mix, data: &Path, bin: &Path) -> Result<Prepared> {
    let dir = tempfile::tempdir().context("cannot make a scratch directory")?;
    let mut datasets = Vec::new();
    for &seed in &args.seed {
        let dataset = recordings::dataset(data, seed, mix);
        let mut made = serde_json::Map::new();
        for method in &args.methods {
            for window in &args.windows {
                let file = dir.path().join(format!("{seed}-{method}-{window}.parquet"));
                let mut command = Command::new(bin);
                command.arg("attribute").arg(dataset.join("run")).arg("-o").arg(&file);
                command.args(["--method", method, "--interval", window]);
                quietly(&mut command)?;
                made.insert(Cell::label(method, window), json!(file));
            }
        }
        let counters = recordings::counters(&dataset)?;
        datasets.push(json!({ "dir": dataset, "counters": counters, "made": made }));
    }
    Ok(Prepared { task: json!({ "datasets": datasets }), dir })
}

impl Prepared {
    /// Runs the comparison.
    fn compared(&self, python: &Path) -> Result<Figures> {
        let task = self.dir.path().join("task.json");
        let text = serde_json::to_vec(&self.task).context("cannot write the task")?;
        fs::write(&task, text).with_context(|| format!("cannot write {}", task.display()))?;
        let script = workspace_root().join("tests/lab/attribution.py");
        let output = Command::new(python).arg(&script).arg(&task).output();
        let output = output.with_context(|| format!("cannot run {}", python.display()))?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {error}", script.display());
        serde_json::from_slice(&output.stdout).context("the comparison printed no figures")
    }
}
