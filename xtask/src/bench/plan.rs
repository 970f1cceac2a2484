//! `cargo xtask bench plan`: the CPU time of what reads and plans a machine, on made machines of 2
//! to 32 sockets, and on one with a directory for each of 1700 boxes.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use jiff::Zoned;
use uncore_trace_lab::large::{self, LargeSize};

use super::machine;
use crate::target;

/// What is measured. `doctor` ends with code 2 where a recording would fail, as in a tree that is
/// not the machine's own.
const COMMANDS: [(&str, &[&str]); 3] = [
    ("`record --dry-run`", &["record", "--dry-run", "-o", "run.parquet"]),
    ("`doctor`", &["doctor"]),
    ("`list`", &["list"]),
];

/// The machines, with what is said of their boxes.
const MACHINES: [(LargeSize, &str); 5] = [
    (LargeSize { sockets: 2, cores: 60, boxes: 1 }, "as a real machine has"),
    (LargeSize { sockets: 4, cores: 60, boxes: 1 }, "as a real machine has"),
    (LargeSize { sockets: 8, cores: 60, boxes: 2 }, "twice as many as a real machine has"),
    (LargeSize { sockets: 32, cores: 28, boxes: 0 }, "few"),
    // As on Arm, where a PMU of sysfs is one box.
    (LargeSize { sockets: 1, cores: 60, boxes: 16 }, "one for each unit of the hardware"),
];

/// Options of `cargo xtask bench plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs of each measurement; the shortest counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure the uncore-trace at PATH instead of building it
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// Measures and prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let bin = match &args.bin {
        Some(bin) => std::path::absolute(bin).context("--bin is no path")?,
        None => target::release_binary()?,
    };
    let names = COMMANDS.map(|(name, _)| name).join(" | ");
    println!("| machine | PMUs | {names} |\n|---|---|---|---|---|");
    for (size, boxes) in MACHINES {
        let dir = tempfile::tempdir().context("cannot make a directory")?;
        large::large_machine(size)?.fill_dir(dir.path())?;
        let pmus = dir.path().join("sys/bus/event_source/devices").read_dir()?.count();
        let (sockets, cpus) = (size.sockets, size.cpu_count());
        let mut row = format!("| {sockets} sockets, {cpus} CPUs | {boxes}: {pmus} |");
        for (_, arguments) in COMMANDS {
            let mut shortest = f64::INFINITY;
            for _ in 0..args.rounds {
                shortest = shortest.min(cpu_seconds(&bin, arguments, dir.path())?);
            }
            write!(row, " {shortest:.2} s |")?;
        }
        println!("{row}");
    }
    println!("\n{}, {}.", Zoned::now().strftime("%Y-%m-%d"), machine::describe_machine());
    Ok(())
}

/// The CPU time of one run, in user space and in the kernel.
fn cpu_seconds(bin: &Path, arguments: &[&str], root: &Path) -> Result<f64> {
    let ticks_before = children_ticks()?;
    let mut command = Command::new(bin);
    command.args(arguments).arg("--root").arg(root).current_dir(root);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("cannot run {}", bin.display()))?;
    ensure!(matches!(status.code(), Some(0 | 2)), "{arguments:?} on {}: {status}", root.display());
    let per_second = rustix::param::clock_ticks_per_second();
    Ok((children_ticks()? - ticks_before) as f64 / per_second as f64)
}

/// The CPU time of the children that have ended, in ticks: the fields `cutime` and `cstime`
/// (Documentation/filesystems/proc.rst).
fn children_ticks() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    // The second field is the name in parentheses, which may have blanks.
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    let fields: Vec<u64> =
        fields.split_whitespace().skip(13).take(2).filter_map(|field| field.parse().ok()).collect();
    ensure!(fields.len() == 2, "/proc/self/stat has no times of children");
    Ok(fields.iter().sum())
}
