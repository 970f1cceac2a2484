//! Recordings of mixes: `DIR/ARRANGEMENT/SEED/MIX/` with `run/`, `truth.bin` and `mix.json`, which says
//! what the counters must have seen.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::lab;
use crate::lab::machine::Machine;
use crate::lab::mixes::{Mix, Planned};

/// Where the recorder runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arrangement {
    /// On a CPU of its own, on a socket whose traffic nothing counts.
    Housekeeping,
    /// Among the tenants, from whom it takes CPU time.
    Shared,
}

impl Arrangement {
    /// Names the directory.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Housekeeping => "housekeeping",
            Self::Shared => "shared",
        }
    }

    /// How the recording's own table is made, which nothing here reads. To learn and to write a
    /// window each tick would keep an emulated CPU busy all the time.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Housekeeping => &["--interval", "100ms", "--method", "residency"],
            Self::Shared => &["--interval", "1ms"],
        }
    }

    fn machine(self) -> &'static str {
        match self {
            Self::Housekeeping => "grace-housekeeping",
            Self::Shared => "grace-mixes",
        }
    }
}

const MIX: &str = "mix.json";

/// Where a mix's recording is.
pub(super) fn dataset(data: &Path, arrangement: Arrangement, seed: u64, mix: &Mix) -> PathBuf {
    data.join(arrangement.name()).join(seed.to_string()).join(mix.name)
}

/// Whether a recording is there, whole.
pub(super) fn is_there(dataset: &Path) -> bool {
    dataset.join(MIX).exists()
}

/// Records the mixes that are not there, all in one guest. After an error those that could be
/// recorded are there.
pub(super) fn complete(
    data: &Path,
    arrangement: Arrangement,
    mixes: &[&Mix],
    seed: u64,
    seconds: u32,
    verbose: bool,
) -> Result<()> {
    let place = |mix: &Mix| dataset(data, arrangement, seed, mix);
    let missing: Vec<&Mix> = mixes.iter().copied().filter(|mix| !is_there(&place(mix))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let machine = Machine::read(&workspace_root().join("tests/lab"), arrangement.machine())?;
    let duration_ms = seconds * 1000;
    let planned =
        missing.iter().map(|mix| mix.plan(&machine, seed, duration_ms, arrangement.options()));
    let planned: Vec<Planned> = planned.collect::<Result<_>>()?;
    let steps: Vec<_> = planned.iter().map(|planned| planned.step.clone()).collect();
    let results = lab::record(&machine, &steps, verbose)?;
    let kept = missing.iter().zip(&planned).map(|(mix, planned)| {
        keep(&results.join(mix.name), &place(mix), planned, seed)
            .with_context(|| format!("mix {}", mix.name))
    });
    let kept: Vec<Result<()>> = kept.collect();
    kept.into_iter().collect()
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
