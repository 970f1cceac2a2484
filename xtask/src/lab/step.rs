//! One thing that is tried in a guest: a command, what moves meanwhile, and what must be true of it.
//!
//! The guest reads `argv`, `work` and `timeout_s` (`tests/lab/guest/src/spec.rs`), the host
//! `checks` (`tests/lab/check.py`).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;
pub(crate) use uncore_trace_lab::spec::{
    Action, Burst, Change, Disk, Move, Phase, Stay, Tenant, Witness, Work,
};

use super::mixes::Counted;
use super::pmu::Formula;

/// How long a recording may take before the guest gives it up; emulation is slow.
const TIMEOUT_S: u32 = 240;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub name: String,
    pub argv: Vec<String>,
    pub timeout_s: u32,
    pub work: Work,
    pub checks: Vec<Check>,
}

/// Which moves a counter must have seen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Truth {
    pub device: u32,
    pub event: u32,
    /// Absent: from anywhere.
    pub sources: Option<Vec<u64>>,
    /// Absent: to anywhere.
    pub targets: Option<Vec<u64>>,
    /// What the driver makes of one of the hardware's counts.
    pub factor: u64,
    /// How far a single reading may be ahead of what moved.
    pub ahead: u64,
}

/// Something that must be true after a step.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "check", rename_all = "snake_case")]
pub(crate) enum Check {
    /// The command's exit code, and words that its output must hold.
    Exit { code: u8, says: Vec<String> },
    /// Words that the kernel must not have logged meanwhile.
    KernelSilent { about: Vec<String> },
    /// The counter with this number counted exactly what moved: in sum, and at each reading.
    Exact { counter: u32, pmu: String, event: String, truth: Truth },
    /// The counter with this number did not: the encoding is wrong on purpose.
    Differs { counter: u32, pmu: String, event: String, truth: Truth },
    /// What `stat` printed for a metric is what the lab's formula makes of what moved.
    Metric {
        metric: String,
        formula: Formula,
        /// By event, for each instance.
        inputs: Vec<BTreeMap<String, Truth>>,
        pmus: Vec<String>,
        within: f64,
    },
    /// What `stat` printed for a metric is near this.
    Value { metric: String, value: f64, within: f64 },
    /// The scaled count of a counter that shared its hardware is near what moved.
    Near { counter: u32, pmu: String, event: String, truth: Truth, within: f64 },
    /// So many counters ran, but only part of the time.
    TookTurns { counters: u32 },
    /// There are windows in which a counter never ran, and none of them has a count.
    NeverRan,
    /// In every window the parts add up to the whole, and the wholes to what was counted.
    Conserved,
    /// Exactly these PMUs were opened, none of their counters twice, each on one of its CPUs; every
    /// reading was made there, and none failed.
    OnReaders { pmus: Vec<ReadOn> },
    /// Rows of the loss table that must be there.
    Lost { causes: Vec<String> },
    /// The counter with this number was read on one CPU and then on another, or stopped and started.
    /// It counted exactly what moved but for the time between, in which its driver does not count,
    /// and no window between has a count.
    Resumed { counter: u32, pmu: String, event: String, truth: Truth },
    /// What made the readings.
    Timer { timer: String },
    /// Every count that was divided was divided by this method.
    Method { method: String },
    /// This part of an event's sum, at least and at most, was divided by this method.
    Divided { event: String, method: String, least: f64, most: f64 },
    /// The tasks of each of these cgroups got what they moved. With a method: of what that method
    /// divided they got the part that they have of all that moved.
    Given {
        event: String,
        truth: Truth,
        cgroups: Vec<String>,
        within: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        method: Option<String>,
    },
    /// The average confidence of the rows of each of these cgroups is at least this, from some time
    /// after the begin on.
    Confident { event: String, cgroups: Vec<String>, after_ms: u32, least: f64 },
    /// The timeline that was made again, of another step's raw tables, is the one recorded there.
    SameRows { step: String, file: String },
    /// The tasks of each of these cgroups got this part of an event's sum at the least.
    Shares { event: String, cgroups: Vec<String>, least: f64 },
    /// The tasks of each of these cgroups counted so many of the one event for one of the other, and
    /// of the first, a nanosecond each, no less than the time they ran.
    Paced { event: String, other: String, ratio: f64, within: f64, cgroups: Vec<String> },
    /// Tasks of each of these cgroups have slices, and no CPU ran two at once.
    Slices { cgroups: Vec<String> },
    /// Of the errors of a cgroup in a window, the median is at most this, and `residency` would be
    /// far off.
    Attributed { counters: Vec<Counted>, median: f64 },
    /// These CPUs, and no others, have a witness that was read to the end.
    Witnesses { pmu: String, cpus: Vec<u32> },
    /// The kernel's verifier looked at about as much as `docs/verifier.md` says.
    Verified,
    /// What a trigger kept holds all that this cgroup moved.
    Kept { event: String, truth: Truth, cgroup: String },
    /// Nothing was written.
    NoRecording,
}

/// A PMU and the CPUs one of which must own it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadOn {
    pub pmu: String,
    pub cpus: Vec<u32>,
}

/// Where a step's recording is in the guest.
pub(crate) fn recording(step: &str) -> String {
    format!("/out/{step}/run/")
}

impl Step {
    /// What the guest gets of it: everything but the checks.
    pub(crate) fn of_guest(&self) -> Result<Value> {
        let mut step = serde_json::to_value(self).context("cannot write a step")?;
        if let Some(fields) = step.as_object_mut() {
            fields.remove("checks");
        }
        Ok(step)
    }

    /// A recording with these options around the work.
    pub(crate) fn record(name: &str, options: &[&str], work: Work, checks: Vec<Check>) -> Self {
        Self::around(name, "record", options, &recording(name), work, checks)
    }

    /// Counts with these options around the work; the results are JSON.
    pub(crate) fn stat(name: &str, options: &[&str], work: Work, checks: Vec<Check>) -> Self {
        let options: Vec<&str> = options.iter().chain(&["-j"]).copied().collect();
        Self::around(name, "stat", &options, &format!("/out/{name}/stat.json"), work, checks)
    }

    fn around(
        name: &str,
        command: &str,
        options: &[&str],
        output: &str,
        work: Work,
        checks: Vec<Check>,
    ) -> Self {
        let mut argv = vec!["/bin/uncore-trace", command];
        argv.extend(options);
        let file = format!("/lab/steps/{name}.json");
        argv.extend(["-o", output, "--", "/init", "run", &file]);
        let argv = argv.into_iter().map(str::to_owned).collect();
        Self { name: name.to_owned(), argv, timeout_s: TIMEOUT_S, work, checks }
    }

    /// A command that starts no work of its own, while something moves.
    pub(crate) fn beside(name: &str, argv: &[&str], work: Work, checks: Vec<Check>) -> Self {
        let file = format!("/lab/steps/{name}.json");
        let around = ["/init", "beside", &file];
        let argv = around.iter().chain(argv).map(|&arg| arg.to_owned()).collect();
        Self { name: name.to_owned(), argv, timeout_s: TIMEOUT_S, work, checks }
    }

    /// Another command, with nothing moving.
    pub(crate) fn command(name: &str, argv: &[&str], checks: Vec<Check>) -> Self {
        let argv = argv.iter().map(|&arg| arg.to_owned()).collect();
        Self { name: name.to_owned(), argv, timeout_s: TIMEOUT_S, work: Work::default(), checks }
    }
}
