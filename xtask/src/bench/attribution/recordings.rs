//! Recordings of mixes: `DIR/ARRANGEMENT/SEED/MIX/` with `run/`, `truth.bin` and `mix.json`, which
//! has the counts that the counters must have.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::lab;
use crate::lab::machine::LabMachine;
use crate::lab::mixes::{Mix, PlannedMix};
use crate::lab::witness;

/// Where the recorder runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arrangement {
    /// On a CPU of its own, on a socket whose traffic nothing counts.
    Housekeeping,
    /// Among the tenants, from whom it takes CPU time.
    Shared,
    /// On a CPU of its own, and the core PMUs count misses.
    Witness,
}

impl Arrangement {
    /// Names the directory.
    pub(super) fn dir_name(self) -> &'static str {
        match self {
            Self::Housekeeping => "housekeeping",
            Self::Shared => "shared",
            Self::Witness => "witness",
        }
    }

    /// Options for the recording's own `fabric`, which is not used here: estimating rates and
    /// writing a window for each tick would keep an emulated CPU busy all the time.
    fn recorder_options(self) -> &'static [&'static str] {
        match self {
            Self::Housekeeping => &["--interval", "100ms", "--method", "residency"],
            Self::Shared => &["--interval", "1ms"],
            Self::Witness => {
                &["--interval", "100ms", "--method", "misses", "--catalog", witness::CATALOG]
            }
        }
    }

    /// The machine for a mix; `None` if it is recorded only in the other arrangement.
    fn machine_name(self, mix: &Mix) -> Option<&'static str> {
        match (self, mix.machine_name()) {
            (Self::Housekeeping | Self::Witness, None) => Some("grace-housekeeping"),
            (Self::Shared, None) => Some("grace-mixes"),
            (Self::Housekeeping | Self::Witness, mix_machine) => mix_machine,
            (Self::Shared, Some(_)) => None,
        }
    }
}

/// Mixes per guest: if a guest fails, all of them are lost.
const OF_A_GUEST: usize = 3;

const MIX: &str = "mix.json";

/// Where a mix's recording is.
pub(super) fn dataset_dir(data: &Path, arrangement: Arrangement, seed: u64, mix: &Mix) -> PathBuf {
    data.join(arrangement.dir_name()).join(seed.to_string()).join(mix.name)
}

/// Whether the recording exists and is complete.
pub(super) fn is_complete(dataset: &Path) -> bool {
    dataset.join(MIX).exists()
}

/// Records the missing mixes, some of them in one guest. After an error, those that could be
/// recorded are kept.
pub(super) fn record_missing_mixes(
    data: &Path,
    arrangement: Arrangement,
    mixes: &[&Mix],
    seed: u64,
    seconds: u32,
    verbose: bool,
) -> Result<()> {
    let mut by_machine: BTreeMap<&str, Vec<(&Mix, PathBuf)>> = BTreeMap::new();
    for mix in mixes {
        let destination = dataset_dir(data, arrangement, seed, mix);
        if let Some(machine) = arrangement.machine_name(mix).filter(|_| !is_complete(&destination))
        {
            by_machine.entry(machine).or_default().push((mix, destination));
        }
    }
    let guests = by_machine
        .iter()
        .flat_map(|(name, mixes)| mixes.chunks(OF_A_GUEST).map(move |mixes| (*name, mixes)));
    let of_guest = |(name, mixes): (&str, &[(&Mix, PathBuf)])| {
        let machine = LabMachine::read(&workspace_root().join("tests/lab"), name)?;
        let plan = |(mix, destination): &(&Mix, PathBuf)| {
            let (duration_ms, options) = (seconds * 1000, arrangement.recorder_options());
            let planned = mix.plan_recording(mix.name, &machine, seed, duration_ms, options)?;
            let planned = match arrangement {
                Arrangement::Witness => planned.with_misses(&machine, seed)?,
                _ => planned,
            };
            Ok((planned, destination.clone()))
        };
        let planned: Vec<(PlannedMix, PathBuf)> = mixes.iter().map(plan).collect::<Result<_>>()?;
        record_in_guest(&machine, &planned, seed, verbose)
    };
    let done: Vec<Result<()>> = guests.map(of_guest).collect();
    done.into_iter().collect()
}

/// Records in one guest.
fn record_in_guest(
    machine: &LabMachine,
    planned: &[(PlannedMix, PathBuf)],
    seed: u64,
    verbose: bool,
) -> Result<()> {
    let steps: Vec<_> = planned.iter().map(|(planned, _)| planned.step.clone()).collect();
    lab::record_steps(machine, &steps, verbose, |results| {
        let kept = planned.iter().map(|(planned, destination)| {
            let name = &planned.step.name;
            move_results(&results.join(name), destination, planned, seed)
                .with_context(|| format!("mix {name}"))
        });
        let kept: Vec<Result<()>> = kept.collect();
        kept.into_iter().collect()
    })
}

/// Moves the results of a step to their place.
fn move_results(
    results_dir: &Path,
    destination_dir: &Path,
    planned: &PlannedMix,
    seed: u64,
) -> Result<()> {
    let result = read_json(&results_dir.join("result.json"))?;
    let log = fs::read_to_string(results_dir.join("log.txt")).unwrap_or_default();
    let exit = result["exit"].as_i64();
    // 1: recorded, with losses, which are in the tables.
    ensure!(matches!(exit, Some(0 | 1)), "the recording ended with {exit:?}: {}", log.trim());
    fs::create_dir_all(destination_dir)
        .with_context(|| format!("cannot make {}", destination_dir.display()))?;
    for name in ["run", "truth.bin", "cgroups.json", "log.txt"] {
        let (result_path, destination_path) = (results_dir.join(name), destination_dir.join(name));
        if destination_path.is_dir() {
            fs::remove_dir_all(&destination_path)
                .with_context(|| format!("cannot remove {}", destination_path.display()))?;
        }
        // The two may be on different file systems.
        crate::command::run_quietly(
            std::process::Command::new("mv").args([&result_path, &destination_path]),
        )?;
    }
    let PlannedMix { step, counters } = planned;
    let mix_description = json!({ "seed": seed, "work": step.work, "counters": counters });
    let text = serde_json::to_string_pretty(&mix_description).context("cannot write JSON")?;
    // Last, because this file marks the recording as complete.
    fs::write(destination_dir.join(MIX), text)
        .with_context(|| format!("cannot write {}", destination_dir.display()))
}

/// The counts that the counters of a recording must have.
pub(super) fn expected_counts(dataset: &Path) -> Result<Value> {
    Ok(read_json(&dataset.join(MIX))?["counters"].take())
}

fn read_json(path: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}
