//! `cargo xtask bench pipeline`: how fast records are processed to files, and in how much memory,
//! for machines of other sizes. `uncore-trace/benches/pipeline.rs` generates the records.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use anyhow::{Context as _, Result};
use jiff::Zoned;
use serde::Deserialize;

use super::machine;
use crate::command::run_quietly;
use crate::target;

/// CPUs, cgroups, counters, and recorded seconds: fewer seconds for more CPUs.
type PipelineSize = (u32, u32, u32, u32);

const SIZES: [PipelineSize; 8] = [
    (2, 100, 10, 20),
    (2, 100_000, 10, 20),
    (64, 1_000, 10, 5),
    (64, 1_000, 200, 1),
    (288, 1_000, 40, 1),
    (288, 100_000, 40, 1),
    (1024, 10_000, 10, 1),
    (1024, 100_000, 40, 1),
];

/// The same for method `auto`, and the goals: CPU seconds for a second recorded, MiB, and rows of
/// `fabric` a second.
const LEARNING: [(PipelineSize, [f64; 3]); 3] = [
    ((64, 100, 10, 20), [0.3, 96.0, f64::INFINITY]),
    ((144, 200, 40, 10), [1.0, 160.0, 150e3]),
    ((352, 1000, 200, 1), [3.5, 400.0, 400e3]),
];

/// Bytes.
const MIB: f64 = 1_048_576.0;

/// The goal for memory, in bytes: a base, and for each CPU and each cgroup.
const BASE: f64 = 64.0 * MIB;
const A_CPU: f64 = 16.0 * 1024.0;
const A_CGROUP: f64 = 256.0;

/// Options of `cargo xtask bench pipeline`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Method of attribution: residency, or auto, which learns rates
    #[arg(long, default_value = "residency", value_parser = ["residency", "auto"])]
    method: String,
    /// Only machines with at most this many CPUs
    #[arg(long, default_value_t = 1024)]
    cpus: u32,
    /// Records come this many times as fast as on a real machine, and the recorder does less if
    /// that is too fast [default: as fast as they are processed]
    #[arg(long, value_name = "TIMES")]
    speed: Option<f64>,
}

/// The output of the bench for a size.
#[derive(Clone, Debug, Default, Deserialize)]
struct BenchResult {
    rows: u64,
    wall_s: f64,
    cpu_s: f64,
    fabric_bytes: u64,
    bytes: u64,
    peak_kib: u64,
    /// How far it was behind the records, at most and at the end, s.
    behind_s: [f64; 2],
    /// The most that was left out, in words.
    relief: String,
}

/// Measures all sizes and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    println!(
        "| CPUs | cgroups | counters | CPU seconds for a second | rows of `fabric` a second | \
         times as fast as they come | bytes a row | MB an hour | peak memory | of the bound |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let speed = args.speed.map(|speed| speed.to_string());
    let learns = args.method == "auto";
    let learning = LEARNING.into_iter().filter(|_| learns).map(|(size, goals)| (size, Some(goals)));
    let residency_sizes = SIZES.into_iter().filter(|_| !learns).map(|size| (size, None));
    let sizes = learning.chain(residency_sizes).filter(|(size, _)| size.0 <= args.cpus);
    for ((cpus, cgroups, counters, seconds), goals) in sizes {
        let mut command = target::cargo_command();
        command.args([
            "bench",
            "--locked",
            "--quiet",
            "--package=uncore-trace",
            "--bench=pipeline",
        ]);
        let size = [cpus, cgroups, counters, seconds].map(|number| number.to_string());
        command.arg("--").args(&size).arg(&args.method).args(&speed);
        eprintln!("{} CPUs, {} cgroups, {} counters", size[0], size[1], size[2]);
        let text = run_quietly(&mut command)?;
        let line = text.lines().find(|line| line.starts_with('{')).context("no result")?;
        let bench_result: BenchResult =
            serde_json::from_str(line).context("cannot read the result")?;
        println!("{}", result_row([cpus, cgroups, counters, seconds], &bench_result, goals));
        if args.speed.is_some() {
            let [most_behind, last_behind] = bench_result.behind_s;
            eprintln!(
                "at most {most_behind:.1} s behind, at the end {last_behind:.1} s; {}",
                bench_result.relief
            );
        }
    }
    println!();
    println!("{}, {}", machine::describe_machine(), Zoned::now().date());
    Ok(())
}

fn result_row(
    [cpus, cgroups, counters, seconds]: [u32; 4],
    result: &BenchResult,
    goals: Option<[f64; 3]>,
) -> String {
    let peak = result.peak_kib as f64 * 1024.0;
    let bound = BASE + A_CPU * f64::from(cpus) + A_CGROUP * f64::from(cgroups);
    let bound = goals.map_or(bound, |[_, mib, _]| mib * MIB);
    let recorded = f64::from(seconds);
    let goal = |text: String| goals.map_or(String::new(), |_| format!(" (goal {text})"));
    let [cpu_goal, _, rows_goal] = goals.unwrap_or_default();
    format!(
        "| {cpus} | {cgroups} | {counters} | {:.2}{} | {:.0} k{} | {:.2} | {:.1} | {:.0} | {:.0} \
         MiB | {:.2} |",
        result.cpu_s / recorded,
        goal(cpu_goal.to_string()),
        result.rows as f64 / recorded / 1e3,
        if rows_goal.is_finite() { goal(format!("{} k", rows_goal / 1e3)) } else { String::new() },
        recorded / result.wall_s,
        result.fabric_bytes as f64 / result.rows.max(1) as f64,
        result.bytes as f64 / recorded * 3600.0 / 1e6,
        peak / MIB,
        peak / bound,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_ratios_to_what_comes_and_to_the_bound() {
        let found = BenchResult {
            rows: 1000,
            wall_s: 2.0,
            cpu_s: 3.0,
            fabric_bytes: 5000,
            bytes: 100_000,
            peak_kib: 32 * 1024,
            ..BenchResult::default()
        };
        let expected = "| 2 | 0 | 10 | 0.30 | 0 k | 5.00 | 5.0 | 36 | 32 MiB | 0.50 |";
        assert_eq!(result_row([2, 0, 10, 10], &found, None), expected);
        let expected =
            "| 2 | 0 | 10 | 0.30 (goal 1) | 0 k (goal 2 k) | 5.00 | 5.0 | 36 | 32 MiB | 0.50 |";
        assert_eq!(result_row([2, 0, 10, 10], &found, Some([1.0, 64.0, 2e3])), expected);
    }
}
