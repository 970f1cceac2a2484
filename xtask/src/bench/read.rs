//! `cargo xtask bench read`: time and memory for reading a recording, compared with `DuckDB`.
//!
//! `uncore-trace/benches/pipeline.rs` generates the recordings. `report` and `check` stand beside a
//! `DuckDB` that groups the same rows by the same columns, with a thread for each CPU; `report`
//! must have its sums. `attribute` computes all rows again from the raw tables. No other program
//! does that, so it is compared with a `DuckDB` that only copies its rows. Each round measures
//! everything once.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use jiff::Zoned;
use serde::Deserialize;
use uncore_trace_ebpf::stamp::workspace_root;

use super::machine;
use super::stats::{self, Summary};
use crate::command::run_quietly;
use crate::{setup, target};

/// CPUs, cgroups and counters of the generated machine.
const MACHINE: [&str; 3] = ["64", "1000", "10"];
/// Rows of the smaller recording, which shows whether memory depends on the length.
const FEW: u64 = 1_000_000;

/// Options of `cargo xtask bench read`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rows of `fabric` in the larger recording; the other has a million
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Rounds: each measures every variant once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// Name of each variant in the table, and which of them `report` is compared with.
const VARIANTS: [(&str, Option<usize>); 7] = [
    ("`report --csv`", None),
    ("DuckDB, sum of `value`", Some(REPORT)),
    ("DuckDB, nine columns of `report`", Some(REPORT)),
    ("`check` of `fabric.parquet`", None),
    ("DuckDB, windows of `check`", Some(CHECK)),
    ("`attribute --method residency`", None),
    ("DuckDB copies the rows", Some(ATTRIBUTE)),
];
const REPORT: usize = 0;
const CHECK: usize = 3;
const ATTRIBUTE: usize = 5;

/// Time and memory of a run.
#[derive(Clone, Copy, Debug, Deserialize)]
struct RunCost {
    wall_s: f64,
    cpu_s: f64,
    peak_kib: u64,
}

/// The output of the generator.
#[derive(Debug, Deserialize)]
struct GeneratedRecording {
    rows: u64,
    fabric_bytes: u64,
    bytes: u64,
}

/// What the variants need.
struct ReadBench {
    bin: PathBuf,
    python: PathBuf,
    /// Holds the recording, and what is made of it.
    scratch: tempfile::TempDir,
}

/// Measures and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
        None => target::release_binary()?,
    };
    let python = setup::readers_python()?;
    let mut lines = Vec::new();
    for rows in [FEW, args.rows] {
        let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
        let bench = ReadBench { bin: bin.clone(), python: python.clone(), scratch };
        let recorded = bench.generate_recording(rows)?;
        eprintln!("{recorded:?}");
        let mut samples = [const { Vec::new() }; VARIANTS.len()];
        for round in 1..=args.rounds {
            for (index, ((name, _), samples)) in VARIANTS.iter().zip(&mut samples).enumerate() {
                let spent =
                    bench.measure_variant(index).with_context(|| format!("{name}, {rows} rows"))?;
                eprintln!("round {round}: {name}: {spent:?}");
                samples.push(spent);
            }
        }
        let compared = [bench.scratch_path("report.csv"), bench.scratch_path("sums.json")];
        bench.run_script("same", &compared).context("not the same answer")?;
        lines.extend(recording_lines(&recorded, &samples)?);
    }
    println!(
        "| rows of `fabric` | MB of it, of all | | wall time, s | min-max | CPU time, s | peak \
         memory | `uncore-trace` / DuckDB: wall | CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    println!("{}", lines.join("\n"));
    let date = Zoned::now().strftime("%Y-%m-%d");
    println!("\n{date}, {}; {} interleaved rounds.", machine::describe_machine(), args.rounds);
    Ok(())
}

impl ReadBench {
    fn scratch_path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Generates a recording with this number of rows.
    fn generate_recording(&self, rows: u64) -> Result<GeneratedRecording> {
        let mut command = target::cargo_command();
        command.args(["bench", "--locked", "--quiet", "--package=uncore-trace"]);
        command.args(["--bench=pipeline", "--"]).args(MACHINE);
        // The number of rows ends it; a day has more than any disk.
        command.args(["86400", "residency", &rows.to_string()]).arg(self.scratch_path("run"));
        eprintln!("making {rows} rows");
        parse_result(&run_quietly(&mut command)?)
    }

    fn measure_variant(&self, variant: usize) -> Result<RunCost> {
        let fabric = self.scratch_path("run/fabric.parquet");
        let tool_args = |args: &[&str], output_path: &Path| {
            let mut words = vec![output_path.to_owned(), self.bin.clone()];
            words.extend(args.iter().map(PathBuf::from));
            words
        };
        let run = self.scratch_path("run");
        let run = run.to_str().context("the scratch directory has no UTF-8 name")?;
        let (verb, args) = match variant {
            REPORT => {
                ("run", tool_args(&["report", "--csv", run], &self.scratch_path("report.csv")))
            }
            1 => ("ask", vec!["sums".into(), fabric, self.scratch_path("sums.json")]),
            2 => ("ask", vec!["columns".into(), fabric, self.scratch_path("columns.json")]),
            CHECK => {
                let fabric = fabric.to_str().context("the scratch directory has no UTF-8 name")?;
                ("run", tool_args(&["check", fabric], &self.scratch_path("check.txt")))
            }
            4 => ("ask", vec!["check".into(), fabric, self.scratch_path("check.json")]),
            ATTRIBUTE => {
                let attributed = self.scratch_path("again.parquet");
                let attributed_text =
                    attributed.to_str().context("the scratch directory has no UTF-8 name")?;
                let args =
                    ["attribute", "--method", "residency", "--force", run, "-o", attributed_text];
                ("run", tool_args(&args, &self.scratch_path("attribute.txt")))
            }
            _ => ("copy", vec![fabric, self.scratch_path("copy.parquet")]),
        };
        parse_result(&self.run_script(verb, &args)?)
    }

    /// Runs a command of `read.py`.
    fn run_script(&self, verb: &str, args: &[PathBuf]) -> Result<String> {
        let script = workspace_root().join("xtask/src/bench/read.py");
        run_quietly(Command::new(&self.python).arg(script).arg(verb).args(args))
    }
}

fn parse_result<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T> {
    let line = text.lines().find(|line| line.starts_with('{')).context("no result")?;
    serde_json::from_str(line).context("cannot read the result")
}

/// The lines of one recording.
fn recording_lines(recorded: &GeneratedRecording, samples: &[Vec<RunCost>]) -> Result<Vec<String>> {
    let series_of = |index: usize, figure: fn(&RunCost) -> f64| -> Vec<f64> {
        samples[index].iter().map(figure).collect()
    };
    let (wall, cpu) = (|spent: &RunCost| spent.wall_s, |spent: &RunCost| spent.cpu_s);
    let [fabric_mb, total_mb] =
        [recorded.fabric_bytes, recorded.bytes].map(|bytes| bytes as f64 / 1e6);
    let mut lines = Vec::new();
    for (index, (name, ours)) in VARIANTS.iter().enumerate() {
        let summary = |figure| {
            Summary::from_values(series_of(index, figure)).context("no rounds were measured")
        };
        let Summary { median, min, max } = summary(wall)?;
        let mib = summary(|spent| spent.peak_kib as f64 / 1024.0)?.median;
        let ratio = |figure: fn(&RunCost) -> f64| {
            let ratio = ours.and_then(|ours| {
                stats::median_ratio(&series_of(ours, figure), &series_of(index, figure))
            });
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
        };
        lines.push(format!(
            "| {} | {fabric_mb:.0}, {total_mb:.0} | {name} | {median:.2} | {min:.2}-{max:.2} | \
             {:.2} | {mib:.0} MiB | {} | {} |",
            recorded.rows,
            summary(cpu)?.median,
            ratio(wall),
            ratio(cpu)
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_compared_round_by_round() {
        let recorded = GeneratedRecording { rows: 1000, fabric_bytes: 3_000_000, bytes: 5_000_000 };
        let spent = |wall_s| RunCost { wall_s, cpu_s: wall_s / 2.0, peak_kib: 2048 };
        let times: [[f64; 3]; VARIANTS.len()] =
            [[2.0, 4.0, 2.0], [1.0, 2.0, 2.0], [1.0; 3], [4.0; 3], [2.0; 3], [9.0; 3], [3.0; 3]];
        let samples = times.map(|walls| walls.map(spent).to_vec());
        let lines = recording_lines(&recorded, &samples).unwrap();
        assert_eq!(
            lines[0],
            "| 1000 | 3, 5 | `report --csv` | 2.00 | 2.00-4.00 | 1.00 | 2 MiB |  |  |"
        );
        assert_eq!(
            lines[1],
            "| 1000 | 3, 5 | DuckDB, sum of `value` | 2.00 | 1.00-2.00 | 1.00 | 2 MiB | 2.00 | \
             2.00 |"
        );
        for (line, ends) in [(4, "| 2.00 | 2.00 |"), (6, "| 3.00 | 3.00 |")] {
            assert!(lines[line].ends_with(ends), "{}", lines[line]);
        }
    }
}
