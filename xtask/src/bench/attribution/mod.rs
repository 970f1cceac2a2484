//! `cargo xtask bench attribution`: compares the shares of each method with the true traffic of
//! tenants in the lab.
//!
//! Every mix is recorded once for each seed and arrangement, tick by tick. `attribute` divides that
//! recording with every method in windows of every length, so methods and windows are compared on
//! the same counts. `tests/lab/attribution.py` defines the comparison.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the tables are the result")]

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::json;
use uncore_trace_ebpf::stamp::workspace_root;

use self::figures::{Cell, ComparisonOutput};
use self::recordings::Arrangement;
use self::tables::ArrangementView;
use crate::command::run_quietly;
use crate::lab::mixes::{self, Mix};
use crate::{setup, target};

mod figures;
mod goals;
mod recordings;
mod tables;

/// Options of `cargo xtask bench attribution`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seed of all mixes (may be given several times) [default: 1]
    #[arg(long, value_name = "N")]
    seed: Vec<u64>,
    /// All seeds from A to B - 1
    #[arg(long, value_name = "A..B", value_parser = parse_seed_range)]
    seeds: Option<Range<u64>>,
    /// Where the recorder runs: on a CPU of its own (housekeeping), on CPUs of the tenants
    /// (shared), or both in turn; witness: on a CPU of its own, while core PMUs count misses
    #[arg(long, value_enum, default_value_t = Arrangements::Both)]
    arrangement: Arrangements,
    /// Only these mixes
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    mixes: Vec<String>,
    /// Lengths of windows
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "1ms,10ms,100ms")]
    windows: Vec<String>,
    /// Methods, as for `attribute --method`
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = "residency,auto")]
    methods: Vec<String>,
    /// Time that each mix runs, in seconds; the log of moves is full after 7 s
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..=7))]
    seconds: u32,
    /// Keep the recordings in DIR, and use recordings that exist there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Only record, without dividing
    #[arg(long, requires = "data")]
    record_only: bool,
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

/// Which arrangements to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Arrangements {
    Housekeeping,
    Shared,
    Both,
    Witness,
}

impl Arrangements {
    fn chosen_arrangements(self) -> &'static [Arrangement] {
        match self {
            Self::Housekeeping => &[Arrangement::Housekeeping],
            Self::Shared => &[Arrangement::Shared],
            Self::Witness => &[Arrangement::Witness],
            Self::Both => &[Arrangement::Housekeeping, Arrangement::Shared],
        }
    }
}

impl Args {
    /// All seeds, each once.
    fn all_seeds(&self) -> Vec<u64> {
        let range = self.seeds.clone().unwrap_or_default();
        let seeds: BTreeSet<u64> = self.seed.iter().copied().chain(range).collect();
        if seeds.is_empty() { vec![1] } else { seeds.into_iter().collect() }
    }
}

fn parse_seed_range(text: &str) -> Result<Range<u64>, String> {
    let bounds =
        text.split_once("..").and_then(|(begin, end)| Some(begin.parse().ok()?..end.parse().ok()?));
    let range = bounds.filter(|range: &Range<u64>| !range.is_empty());
    range.ok_or_else(|| "two numbers with .. between them, the smaller one first".to_owned())
}

/// The whole result.
#[derive(Debug, Serialize)]
struct AttributionReport<'a> {
    date: String,
    command: String,
    seeds: &'a [u64],
    seconds: u32,
    cells: Vec<Cell>,
}

/// Records what is missing, divides, compares and prints.
pub(super) fn run(args: &Args) -> Result<()> {
    let chosen: Vec<&Mix> = match args.mixes.as_slice() {
        [] => mixes::ALL.iter().collect(),
        names => names.iter().map(|name| mixes::find_mix(name)).collect::<Result<_>>()?,
    };
    let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
    let data = args.data.as_deref().unwrap_or(scratch.path());
    let seeds = args.all_seeds();
    let failed = record_missing(args, &chosen, &seeds, data);
    if !args.record_only {
        compare_methods(args, &chosen, &seeds, data)?;
    }
    ensure!(failed == 0, "{failed} times a guest or a recording in it failed; see above");
    Ok(())
}

/// Records what is missing; reports failures and returns their number.
fn record_missing(args: &Args, chosen: &[&Mix], seeds: &[u64], data: &Path) -> usize {
    let mut failed = 0;
    for &seed in seeds {
        for &arrangement in args.arrangement.chosen_arrangements() {
            let done = recordings::record_missing_mixes(
                data,
                arrangement,
                chosen,
                seed,
                args.seconds,
                args.verbose,
            );
            if let Err(error) = done {
                eprintln!("seed {seed}, {}: {error:#}", arrangement.dir_name());
                failed += 1;
            }
        }
    }
    failed
}

/// Divides all recordings, compares, and prints.
fn compare_methods(args: &Args, chosen: &[&Mix], seeds: &[u64], data: &Path) -> Result<()> {
    let python = setup::readers_python()?;
    let bin = match &args.bin {
        Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
        None => target::release_binary()?,
    };
    let mut cells = Vec::new();
    for &arrangement in args.arrangement.chosen_arrangements() {
        for mix in chosen {
            let dataset_of_seed =
                |&seed: &u64| recordings::dataset_dir(data, arrangement, seed, mix);
            let datasets: Vec<PathBuf> = seeds.iter().map(dataset_of_seed).collect();
            let complete_datasets: Vec<_> =
                datasets.into_iter().filter(|dataset| recordings::is_complete(dataset)).collect();
            if complete_datasets.is_empty() {
                continue;
            }
            let prepared = divide_recordings(args, &complete_datasets, &bin)?;
            cells.extend(figures::of_mix(arrangement, mix, &python, &prepared)?);
            eprintln!("{} {}: compared", arrangement.dir_name(), mix.name);
        }
    }
    let report = AttributionReport {
        date: jiff::Zoned::now().strftime("%Y-%m-%d").to_string(),
        command: reproducing_command(args),
        seeds,
        seconds: args.seconds,
        cells,
    };
    for &arrangement in args.arrangement.chosen_arrangements() {
        let view = ArrangementView { cells: &report.cells, arrangement, mixes: chosen };
        print!("{}", tables::render_tables(&report, view, &args.methods, &args.windows));
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report).context("writing JSON")?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The command that makes the same recordings and tables again.
fn reproducing_command(args: &Args) -> String {
    let mut words = vec!["cargo xtask bench attribution".to_owned()];
    words.extend(args.seed.iter().map(|seed| format!("--seed {seed}")));
    words.extend(args.seeds.iter().map(|Range { start, end }| format!("--seeds {start}..{end}")));
    if !args.mixes.is_empty() {
        words.push(format!("--mixes {}", args.mixes.join(",")));
    }
    words.join(" ")
}

/// The tables of a mix, in a directory that is removed after the comparison.
#[derive(Debug)]
struct PreparedComparison {
    task: serde_json::Value,
    dir: tempfile::TempDir,
}

/// Divides recordings of a mix by every method in every window.
fn divide_recordings(
    args: &Args,
    recording_dirs: &[PathBuf],
    bin: &Path,
) -> Result<PreparedComparison> {
    let dir = tempfile::tempdir().context("cannot make a scratch directory")?;
    let mut datasets = Vec::new();
    for (number, dataset) in recording_dirs.iter().enumerate() {
        let (mut divided_tables, mut reports) = (serde_json::Map::new(), serde_json::Map::new());
        for method in &args.methods {
            for window in &args.windows {
                let file = dir.path().join(format!("{number}-{method}-{window}.parquet"));
                let mut command = Command::new(bin);
                command.arg("attribute").arg(dataset.join("run")).arg("-o").arg(&file);
                command.args(["--method", method, "--interval", window]);
                run_quietly(&mut command)?;
                let mut command = Command::new(bin);
                command.args(["report", "--by", "cgroup", "--json"]).arg(&file);
                let report = file.with_extension("json");
                fs::write(&report, run_quietly(&mut command)?)
                    .with_context(|| format!("cannot write {}", report.display()))?;
                divided_tables.insert(Cell::cell_label(method, window), json!(file));
                reports.insert(Cell::cell_label(method, window), json!(report));
            }
        }
        let counters = recordings::expected_counts(dataset)?;
        datasets.push(
            json!({ "dir": dataset, "counters": counters, "made": divided_tables, "reports": reports }),
        );
    }
    Ok(PreparedComparison { task: json!({ "datasets": datasets }), dir })
}

impl PreparedComparison {
    /// Runs the comparison.
    fn run_comparison(&self, python: &Path) -> Result<ComparisonOutput> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_seeds_ends_before_its_end() {
        assert_eq!(parse_seed_range("100..120").unwrap().count(), 20);
        for wrong in ["100", "2..1", "1..1", "a..b"] {
            assert!(parse_seed_range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_are_those_known_by_hand() {
        let Ok(python) = setup::readers_python() else {
            eprintln!("skipped: run `cargo xtask setup` for Python");
            return;
        };
        let script = workspace_root().join("tests/lab/attribution_test.py");
        let output = Command::new(python).arg("-B").arg(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
