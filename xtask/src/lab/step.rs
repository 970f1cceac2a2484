//! One test in a guest: a command, the traffic during it, and checks of the result.
//!
//! The guest reads `argv`, `work` and `timeout_s` (`tests/lab/guest/src/spec.rs`), the host
//! `checks` (`tests/lab/check.py`).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;
pub(crate) use uncore_trace_lab::spec::{
    Act, Action, Burst, Change, Disk, Hold, Move, Phase, Stay, Tenant, TimedAct, Witness, Work,
    Yields,
};

use super::mixes::MixCounter;
use super::pmu::LabFormula;

/// Time limit of a recording in the guest; emulation is slow.
const TIMEOUT_S: u32 = 240;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub name: String,
    pub argv: Vec<String>,
    pub timeout_s: u32,
    pub work: Work,
    pub checks: Vec<Check>,
}

/// The traffic that a counter must count.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Truth {
    pub device: u32,
    pub event: u32,
    /// Sources; absent: any.
    pub sources: Option<Vec<u64>>,
    /// Targets; absent: any.
    pub targets: Option<Vec<u64>>,
    /// Factor of the driver for one count of the hardware.
    pub factor: u64,
    /// How far a reading may be ahead of the true count.
    pub ahead: u64,
}

/// A check after a step.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "check", rename_all = "snake_case")]
pub(crate) enum Check {
    /// The command's exit code, and words in its output.
    Exit { code: u8, says: Vec<String> },
    /// It recorded everything, or all but what it could not keep up with: CPUs are emulated.
    Recorded,
    /// Words that the kernel must not have logged during the step.
    KernelSilent { about: Vec<String> },
    /// The counter with this number has exactly the true count: in sum, and at each reading.
    Exact { counter: u32, pmu: String, event: String, truth: Truth },
    /// The counter with this number differs from the true count: its encoding is wrong on purpose.
    Differs { counter: u32, pmu: String, event: String, truth: Truth },
    /// The value of a metric in `stat` equals that of the lab's formula.
    Metric {
        metric: String,
        formula: LabFormula,
        /// By event, for each instance.
        inputs: Vec<BTreeMap<String, Truth>>,
        pmus: Vec<String>,
        within: f64,
    },
    /// The value of a metric in `stat` is near this.
    Value { metric: String, value: f64, within: f64 },
    /// The scaled count of a multiplexed counter is near the true count.
    Near { counter: u32, pmu: String, event: String, truth: Truth, within: f64 },
    /// This many counters ran for only part of the time.
    TookTurns { counters: u32 },
    /// There are windows in which a counter never ran, and none of them has a count.
    NeverRan,
    /// In every window the shares sum to the total, and the totals sum to the readings.
    Conserved,
    /// Exactly these PMUs were opened, none of their counters twice, each on one of its CPUs; every
    /// reading was made there, and none failed.
    OnReaders { pmus: Vec<ReadOn> },
    /// Each of these CPUs read each counter of these PMUs of its socket at its switches, with
    /// success.
    ReadAtSwitches { pmus: String, sockets: Vec<Vec<u32>> },
    /// Causes that the table `loss` must have.
    Lost { causes: Vec<String> },
    /// The table `loss` has no other causes.
    LostOnly { causes: Vec<String> },
    /// The recorder's memory was never above this.
    Memory { most_mib: u32 },
    /// The counter with this number was read on one CPU and then on another, or stopped and
    /// started. It has exactly the true count except for the time in between, in which its driver
    /// does not count, and no window in between has a count.
    Resumed { counter: u32, pmu: String, event: String, truth: Truth },
    /// The trigger of the readings.
    Timer { timer: String },
    /// Every count that was divided was divided by this method.
    Method { method: String },
    /// At least and at most this fraction of an event's sum was divided by this method.
    Divided { event: String, method: String, least: f64, most: f64 },
    /// The tasks of each of these cgroups got their true traffic. With a method: of the sum that
    /// this method divided, they got their fraction of the true traffic.
    Given {
        event: String,
        truth: Truth,
        cgroups: Vec<String>,
        /// Whether the cgroups are compared as one.
        together: bool,
        within: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        method: Option<String>,
    },
    /// The mean confidence of the rows of each of these cgroups is at least this, from some time
    /// after the begin on.
    Confident { event: String, cgroups: Vec<String>, after_ms: u32, least: f64 },
    /// The `fabric` that was computed again from another step's raw tables equals the recorded one.
    SameRows { step: String, file: String },
    /// The tasks of each of these cgroups got at least this fraction of an event's sum.
    Shares { event: String, cgroups: Vec<String>, least: f64 },
    /// The tasks of each of these cgroups have this ratio of two events, and the count of the
    /// first, in ns, is at least their CPU time.
    Paced { event: String, other: String, ratio: f64, within: f64, cgroups: Vec<String> },
    /// Tasks of each of these cgroups have slices, and no two slices of a CPU overlap.
    Slices { cgroups: Vec<String> },
    /// The median of the errors of a cgroup in a window is at most this, and that of `residency` is
    /// far above.
    Attributed { counters: Vec<MixCounter>, median: f64 },
    /// Exactly these CPUs have a witness, which was read until the end.
    Witnesses { pmu: String, cpus: Vec<u32> },
    /// The verifier's work is near the figures in `docs/verifier.md`.
    Verified,
    /// Whether softirqs have time of their own, which they have not where they run in threads.
    Softirqs { any: bool },
    /// The recording that a trigger saved has all traffic of this cgroup.
    Kept { event: String, truth: Truth, cgroup: String },
    /// The table `holders` has who held this device, each begin and end when the log of the tenants
    /// says, or at most this much later.
    Holders { device: String, within_us: u32 },
    /// In each window, who held the device has its bytes, in equal parts; a hand-over is within a
    /// tick, which is not looked at where two hold it at the same time.
    Held { event: String, truth: Truth, within: f64, tick_ns: u64, shared: bool },
    /// Opening and closing a file takes at most this much longer than in another step, by the
    /// cgroup that does it, ns.
    OpenCost { than: String, most: BTreeMap<String, u32> },
    /// Nothing was written.
    NoRecording,
}

/// A PMU, and the CPUs of which one must read it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadOn {
    pub pmu: String,
    pub cpus: Vec<u32>,
}

/// The directory of a step's recording in the guest.
pub(crate) fn recording_dir(step: &str) -> String {
    format!("/out/{step}/run/")
}

impl Step {
    /// The part of the step for the guest: everything except the checks.
    pub(crate) fn guest_json(&self) -> Result<Value> {
        let mut step = serde_json::to_value(self).context("cannot write a step")?;
        if let Some(fields) = step.as_object_mut() {
            fields.remove("checks");
        }
        Ok(step)
    }

    /// Records with these options around the work.
    pub(crate) fn for_record(name: &str, options: &[&str], work: Work, checks: Vec<Check>) -> Self {
        Self::around_work(name, "record", options, &recording_dir(name), work, checks)
    }

    /// Counts with these options around the work; the results are JSON.
    pub(crate) fn for_stat(name: &str, options: &[&str], work: Work, checks: Vec<Check>) -> Self {
        let options: Vec<&str> = options.iter().chain(&["-j"]).copied().collect();
        Self::around_work(name, "stat", &options, &format!("/out/{name}/stat.json"), work, checks)
    }

    fn around_work(
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

    /// A command without work of its own, during traffic.
    pub(crate) fn beside_work(name: &str, argv: &[&str], work: Work, checks: Vec<Check>) -> Self {
        let file = format!("/lab/steps/{name}.json");
        let wrapper = ["/init", "beside", &file];
        let argv = wrapper.iter().chain(argv).map(|&arg| arg.to_owned()).collect();
        Self { name: name.to_owned(), argv, timeout_s: TIMEOUT_S, work, checks }
    }

    /// A command without traffic.
    pub(crate) fn plain_command(name: &str, argv: &[&str], checks: Vec<Check>) -> Self {
        let argv = argv.iter().map(|&arg| arg.to_owned()).collect();
        Self { name: name.to_owned(), argv, timeout_s: TIMEOUT_S, work: Work::default(), checks }
    }
}
