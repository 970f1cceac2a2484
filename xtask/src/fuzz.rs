//! `cargo xtask fuzz`: runs the fuzz targets of `tests/fuzz` for a few seconds each.
//!
//! Inputs that were found before, in `target/fuzz/TARGET`, and the real files in [`SEEDS`] are where
//! it starts from; one that fails is left in `target/fuzz/TARGET-failed/`.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::command::quietly;
use crate::target;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Targets to run; none: all of tests/fuzz/targets
    targets: Vec<String>,
    /// How long each runs
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    seconds: u32,
}

/// Directories with files that each target must understand, `*` for any one name.
const SEEDS: &[(&str, &[&str])] = &[
    ("event_file", &["tests/fixtures/machines/*/sys/bus/event_source/devices/*/events"]),
    ("format_file", &["tests/fixtures/machines/*/sys/bus/event_source/devices/*/format"]),
    ("catalog_file", &["uncore-trace/catalog"]),
    ("event_text", &["tests/fuzz/seeds/event_text"]),
    ("formula", &["tests/fuzz/seeds/formula"]),
];

/// Longest input: a catalog file is a few kB.
const LONGEST: u32 = 4096;

/// How libFuzzer's statistics begin the number of inputs it tried.
const EXECUTED: &str = "stat::number_of_executed_units:";

/// Builds the targets and runs them one after the other.
pub fn run(args: &Args) -> Result<()> {
    let names: Vec<&str> = match args.targets.as_slice() {
        [] => SEEDS.iter().map(|(name, _)| *name).collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    for name in names {
        run_one(name, args.seconds).with_context(|| format!("fuzz target {name}"))?;
    }
    Ok(())
}

fn run_one(name: &str, seconds: u32) -> Result<()> {
    let known = SEEDS.iter().find(|(known, _)| *known == name);
    let known = known.map(|(_, seeds)| *seeds);
    let names = || SEEDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let seeds =
        known.with_context(|| format!("there is none of this name; there are {}", names()))?;
    let found = target::dir()?.join("fuzz").join(name);
    let failed = target::dir()?.join("fuzz").join(format!("{name}-failed"));
    for dir in [&found, &failed] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let mut command = target::cargo();
    // Without a sanitizer a stable compiler will do, and the parsers have no unsafe code. Unoptimized
    // it takes a third of the time to build, and the checks for overflow are on.
    command.args(["fuzz", "run", "--fuzz-dir", "tests/fuzz", "--dev", "--sanitizer", "none", name]);
    command.arg(&found);
    for pattern in seeds {
        let dirs = directories(&workspace_root(), pattern);
        ensure!(!dirs.is_empty(), "no directory {pattern}");
        command.args(dirs);
    }
    command.arg("--");
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-max_len={LONGEST}"));
    command.arg(format!("-artifact_prefix={}/", failed.display()));
    command.args(["-print_final_stats=1", "-verbosity=0"]).current_dir(workspace_root());
    let said = quietly(&mut command)?;
    let inputs = said.lines().find_map(|line| line.strip_prefix(EXECUTED)).unwrap_or("?").trim();
    println!("fuzz: {name}: {inputs} inputs: ok");
    Ok(())
}

/// The directories that a pattern names.
fn directories(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    for part in pattern.split('/') {
        found = found.into_iter().flat_map(|dir| below(&dir, part)).collect();
    }
    found
}

fn below(dir: &Path, part: &str) -> Vec<PathBuf> {
    let entries = match part {
        "*" => fs::read_dir(dir).into_iter().flatten().flatten().map(|it| it.path()).collect(),
        name => vec![dir.join(name)],
    };
    let mut dirs: Vec<PathBuf> = entries.into_iter().filter(|path| path.is_dir()).collect();
    dirs.sort();
    dirs
}
