//! The process that pauses cgroups: waits, pauses one, thaws it, until its standard input ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::super::child::{self, Lines, tell};
use super::pace::Pace;
use super::place::{Freezer, RUN, Spared};
use crate::clock::mono_ns;
use crate::confine::{self, Needs};
use crate::priority;

/// What the recorder says first. Lines with lists of ids follow: the cgroups to pause.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Mount point of the cgroup v2 hierarchy.
    pub mount: PathBuf,
    /// Part of its time for which a cgroup is paused at most.
    pub budget: f64,
}

/// What the process tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Told {
    /// It can pause cgroups.
    Ready,
    /// It can pause none, or no more.
    Failed { why: String },
    /// It paused a cgroup.
    Paused { cgroup: String, ns: i64 },
}

pub(super) fn main() -> ExitCode {
    child::serve(c"uncore-probe", run, |why| Told::Failed { why })
}

fn run() -> Result<()> {
    let mut lines = Lines::default();
    let first = lines.wait(i64::MAX)?.context("there are no orders")?;
    let orders: Orders = serde_json::from_str(&first).context("cannot understand orders")?;
    let spared = Spared::new(&orders.mount)?;
    let freezer = Freezer::new(Path::new(RUN));
    freezer.check(&orders.mount)?;
    // A cgroup is frozen for as long as this process waits for a CPU.
    priority::raise_priority();
    let needs = Needs {
        reads: vec!["/proc".into()],
        writes: vec![orders.mount.clone(), RUN.into()],
        ..Needs::default()
    };
    confine::process(&needs);
    tell(&Told::Ready)?;
    let mut random = Rng::new();
    let mut pace = Pace::new(mono_ns(), orders.budget);
    let mut confused: Vec<u64> = Vec::new();
    let mut next = pace.next(mono_ns(), 1, &mut random);
    while !lines.has_ended {
        if let Some(line) = lines.wait(next)? {
            confused = serde_json::from_str(&line).context("cannot understand orders")?;
            continue;
        }
        if lines.has_ended {
            break;
        }
        let length = Pace::length(&mut random);
        let mut found: Vec<(u64, PathBuf)> = Vec::new();
        for id in pace.choose(mono_ns(), length, &confused, &mut random) {
            match spared.find(id) {
                Some(directory) => found.push((id, directory)),
                // It is gone or must not be paused: it is not looked for again.
                None => pace.paused(id, i64::MAX / 4),
            }
        }
        let directories: Vec<&Path> = found.iter().map(|its| its.1.as_path()).collect();
        let paused = freezer.pause(&directories, length)?;
        for ((id, directory), ns) in found.iter().zip(paused) {
            pace.paused(*id, ns);
            let below = directory.strip_prefix(&orders.mount).unwrap_or(directory);
            tell(&Told::Paused { cgroup: format!("/{}", below.to_string_lossy()), ns })?;
        }
        next = pace.next(mono_ns(), confused.len(), &mut random);
    }
    Ok(())
}
