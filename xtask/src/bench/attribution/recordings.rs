//! Recordings of mixes: `DIR/SEED/MIX/` with `run/`, `truth.bin` and `mix.json`, which says what the
//! counters must have seen.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::lab;
use crate::lab::machine::Machine;
use crate::lab::mixes::{Mix, Planned};

/// The machine of all mixes.
const MACHINE: &str = "grace-mixes";

const MIX: &str = "mix.json";

/// Where a mix's recording is.
pub(super) fn dataset(data: &Path, seed: u64, mix: &Mix) -> PathBuf {
    data.join(seed.to_string()).join(mix.name)
}

/// Records the mixes that are not there, all in one guest.
pub(super) fn complete(
    data: &Path,
    mixes: &[&Mix],
    seed: u64,
    seconds: u32,
    verbose: bool,
) -> Result<()> {
    let missing = mixes.iter().filter(|mix| !dataset(data, seed, mix).join(MIX).exists());
    let missing: Vec<&Mix> = missing.copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let machine = Machine::read(&workspace_root().join("tests/lab"), MACHINE)?;
    let planned = missing.iter().map(|mix| mix.plan(&machine, seed, seconds * 1000));
    let planned: Vec<Planned> = planned.collect::<Result<_>>()?;
    let steps: Vec<_> = planned.iter().map(|planned| planned.step.clone()).collect();
    let results = lab::record(&machine, &steps, verbose)?;
    for (mix, planned) in missing.iter().zip(&planned) {
        keep(&results.join(mix.name), &dataset(data, seed, mix), planned, seed)
            .with_context(|| format!("mix {} of seed {seed}", mix.name))?;
    }
    Ok(())
}

/// Moves what a step left to where it is kept.
fn keep(from: &Path, to: &Path, planned: &Planned, seed: u64) -> Result<()> {
    let result = read(&from.join("result.json"))?;
    let log = fs::read_to_string(from.join("log.txt")).unwrap_or_default();
    let exit = result["exit"].as_i64();
    // 1: recorded, with losses, which stand in the tables.
    ensure!(matches!(exit, Some(0 | 1)), "the recording ended with {exit:?}: {}", log.trim());
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for name in ["run", "truth.bin", "cgroups.json", "log.txt"] {
        let (from, to) = (from.join(name), to.join(name));
        if to.is_dir() {
            fs::remove_dir_all(&to).with_context(|| format!("cannot remove {}", to.display()))?;
        }
        // The two may be on different file systems.
        crate::command::quietly(std::process::Command::new("mv").args([&from, &to]))?;
    }
    let Planned { step, counters } = planned;
    let about = json!({ "seed": seed, "work": step.work, "counters": counters });
    let text = serde_json::to_string_pretty(&about).context("cannot write JSON")?;
    // The last: what is there is whole.
    fs::write(to.join(MIX), text).with_context(|| format!("cannot write {}", to.display()))
}

/// What the counters of a recording must have seen.
pub(super) fn counters(dataset: &Path) -> Result<Value> {
    Ok(read(&dataset.join(MIX))?["counters"].take())
}

fn read(path: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}
