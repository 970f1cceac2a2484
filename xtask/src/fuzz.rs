//! `cargo xtask fuzz`: runs the fuzz targets of `tests/fuzz` for a few seconds each.
//!
//! Runs start from inputs that were found before, in `target/fuzz/TARGET`, and from the real files
//! in [`SEEDS`]. An input that fails is written to `target/fuzz/TARGET-failed/`.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::stamp::workspace_root;
use uncore_trace_lab::capture::PMUS;
use uncore_trace_lab::fixtures;
use uncore_trace_lab::tree::Entry;

use crate::command::run_quietly;
use crate::target;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Targets to run [default: all of tests/fuzz/targets]
    targets: Vec<String>,
    /// Time that each target runs
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    seconds: u32,
    /// Only build all targets
    #[arg(long, conflicts_with_all = ["targets", "seconds"])]
    build: bool,
}

/// Valid files for a target.
enum Seeds {
    /// Those of a directory of the repository.
    Dir(&'static str),
    /// The files of this name of all captured PMUs.
    OfPmus(&'static str),
}

/// Each target with its seeds.
const SEEDS: &[(&str, Seeds)] = &[
    ("event_file", Seeds::OfPmus("events")),
    ("format_file", Seeds::OfPmus("format")),
    ("catalog_file", Seeds::Dir("uncore-trace/catalog")),
    ("event_text", Seeds::Dir("tests/fuzz/seeds/event_text")),
    ("formula", Seeds::Dir("tests/fuzz/seeds/formula")),
    ("log_entries", Seeds::Dir("tests/fuzz/seeds/log_entries")),
    ("ring_record", Seeds::Dir("tests/fuzz/seeds/ring_record")),
    ("timeline", Seeds::Dir("tests/fuzz/seeds/timeline")),
    ("parquet_file", Seeds::Dir("tests/fuzz/seeds/parquet_file")),
    ("cgroup_path", Seeds::Dir("tests/fuzz/seeds/cgroup_path")),
    ("runtime_file", Seeds::Dir("tests/fuzz/seeds/runtime_file")),
    ("btf", Seeds::Dir("tests/fuzz/seeds/btf")),
];

/// Longest input: a catalog file has a few kB.
const LONGEST: u32 = 4096;

/// The same for targets that run the time line or the attributor, where 8 bytes are a record:
/// inputs of 4096 bytes take a second each.
const LONGEST_OF_RECORDS: u32 = 512;

/// Time limit of one input, s: long enough beside other work on a slow machine.
const TIMEOUT: u32 = 20;

/// Prefix of the number of inputs in libFuzzer's statistics.
const EXECUTED: &str = "stat::number_of_executed_units:";

/// Builds the targets and runs them one after the other.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.build {
        run_quietly(&mut fuzz_command("build")).context("cannot build the fuzz targets")?;
        return Ok(());
    }
    let names: Vec<&str> = match args.targets.as_slice() {
        [] => SEEDS.iter().map(|(name, _)| *name).collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    for name in names {
        run_target(name, args.seconds).with_context(|| format!("fuzz target {name}"))?;
    }
    Ok(())
}

fn run_target(name: &str, seconds: u32) -> Result<()> {
    let known = SEEDS.iter().find(|(known, _)| *known == name);
    let known = known.map(|(_, seeds)| seeds);
    let names = || SEEDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let seeds = known.with_context(|| format!("unknown name; choose one of {}", names()))?;
    let corpus_dir = target::target_dir()?.join("fuzz").join(name);
    let failed = target::target_dir()?.join("fuzz").join(format!("{name}-failed"));
    for dir in [&corpus_dir, &failed] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let mut command = fuzz_command("run");
    command.arg(name).arg(&corpus_dir);
    let unpacked = tempfile::tempdir().context("cannot make a temporary directory")?;
    match seeds {
        Seeds::Dir(dir) => command.arg(workspace_root().join(dir)),
        Seeds::OfPmus(dir) => command.arg(write_pmu_seeds(dir, unpacked.path())?),
    };
    command.arg("--");
    command.arg(format!("-max_total_time={seconds}"));
    let longest = match name {
        "timeline" | "log_entries" => LONGEST_OF_RECORDS,
        _ => LONGEST,
    };
    command.arg(format!("-max_len={longest}"));
    // Long inputs from the start: libFuzzer would not reach them in a few seconds.
    command.arg("-len_control=0");
    command.arg(format!("-timeout={TIMEOUT}"));
    command.arg(format!("-artifact_prefix={}/", failed.display()));
    command.args(["-print_final_stats=1", "-verbosity=0"]);
    let output = run_quietly(&mut command)?;
    let inputs = output.lines().find_map(|line| line.strip_prefix(EXECUTED)).unwrap_or("?").trim();
    println!("fuzz: {name}: {inputs} inputs: ok");
    Ok(())
}

/// A command of cargo-fuzz, in the workspace. Without a sanitizer a stable compiler is enough, and
/// the parsers have no unsafe code. An unoptimized build takes a third of the time, and checks for
/// overflow.
fn fuzz_command(name: &str) -> Command {
    let mut command = target::cargo_command();
    command.args(["fuzz", name, "--fuzz-dir", "tests/fuzz", "--dev", "--sanitizer", "none"]);
    command.current_dir(workspace_root());
    command
}

/// Writes the distinct files that captured PMUs have in their directory `name` to `seed_dir`.
fn write_pmu_seeds<'a>(name: &str, seed_dir: &'a Path) -> Result<&'a Path> {
    let mut contents = BTreeSet::new();
    for machine in fixtures::names()? {
        for (path, entry) in fixtures::machine(&machine)?.all_entries() {
            if let Entry::File(bytes) = entry
                && path.starts_with(PMUS)
                && path.parent().is_some_and(|dir| dir.ends_with(name))
            {
                contents.insert(bytes.clone());
            }
        }
    }
    ensure!(!contents.is_empty(), "no captured PMU has {name}");
    for (number, bytes) in contents.iter().enumerate() {
        fs::write(seed_dir.join(number.to_string()), bytes).context("cannot write the seeds")?;
    }
    Ok(seed_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_of_all_captured_pmus() {
        for (name, text, least) in [("events", "event=0x2", 300), ("format", "config:0-7", 30)] {
            let dir = tempfile::tempdir().unwrap();
            write_pmu_seeds(name, dir.path()).unwrap();
            let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
            let texts: Vec<_> = files.map(|file| fs::read_to_string(file).unwrap()).collect();
            assert!(texts.len() >= least, "{name}: {}", texts.len());
            assert!(texts.iter().any(|found| found.trim() == text), "{name}: {texts:?}");
        }
        assert!(write_pmu_seeds("nothing", Path::new("/nonexistent")).is_err());
    }
}
