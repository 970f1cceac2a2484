//! The JSON files that describe a guest's task: /lab/guest.json, and one work file for each step.
//!
//! Guarantees that a spec is valid after it was read: unknown fields, names that leave their
//! directory and shares that are out of range are refused when the file is read.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// /lab/guest.json.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guest {
    /// Kernel modules to load before the devices are defined: files of /lab/modules, in this order.
    pub modules: Vec<String>,
    /// Devices of the model. A move refers to one by its index here.
    pub devices: Vec<Device>,
    /// Kernel modules to load after the devices were defined.
    pub drivers: Vec<String>,
    /// PMUs to wait for before the steps.
    pub pmus: Vec<String>,
    /// The CPU for everything but tenants; none: no CPU is reserved.
    pub housekeeping: Option<usize>,
    /// Steps to run, in this order.
    pub steps: Vec<Step>,
}

/// A device of the model. The model's abi.h defines the fields.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// Kind of device.
    pub kind: u32,
    /// NUMA node of the device.
    pub node: u32,
    /// Mask of the CPUs near it.
    pub cpus: u64,
    /// Arguments that depend on the kind; those left out are 0.
    pub arg: Vec<u64>,
    /// Text that depends on the kind.
    pub text: String,
}

/// One command whose results the host wants.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name of its directory in /out.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Time limit, after which it is killed.
    #[serde(default = "two_minutes")]
    pub timeout_s: u32,
    /// Written to /lab/steps/NAME.json for the command to pass to `/init run`.
    #[serde(default)]
    pub work: Work,
}

/// The workload and the changes of the machine while a step's command runs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Work {
    /// Processes. All are ready before the first one starts.
    pub tenants: Vec<Tenant>,
    /// Changes of the machine during this time.
    pub actions: Vec<Action>,
    /// Delay after the end of the last tenant.
    pub settle_ms: u32,
}

/// A change of the machine.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Action {
    /// Time after the tenants' common start.
    #[serde(default)]
    pub after_ms: u32,
    /// The change and its object.
    #[serde(flatten)]
    pub change: Change,
}

/// A change of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Change {
    /// Takes a CPU offline.
    Offline {
        /// Number of the CPU.
        cpu: u32,
    },
    /// Brings a CPU online.
    Online {
        /// Number of the CPU.
        cpu: u32,
    },
    /// Tries to unload a module that is in use. The kernel must refuse it.
    Held {
        /// The kernel's name for it.
        module: String,
    },
    /// Unloads a module.
    Unload {
        /// The kernel's name for it.
        module: String,
    },
    /// Loads a module.
    Load {
        /// Its file in /lab/modules.
        module: String,
    },
    /// Unbinds the driver from the device of a PMU.
    Unbind {
        /// The PMU.
        pmu: String,
    },
    /// Binds it again.
    Bind {
        /// The PMU.
        pmu: String,
    },
    /// Sets `kernel.perf_event_paranoid`.
    Paranoid {
        /// The new value.
        level: i32,
    },
    /// Sets a mark in the recording that runs.
    Mark {
        /// Its text.
        text: String,
    },
}

/// A process that uses CPU time and moves traffic in proportion to it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenant {
    /// Its cgroup below /lab; none: the cgroup of its parent process.
    pub cgroup: Option<String>,
    /// Name of its process; none: that of its program.
    pub comm: Option<String>,
    /// Number of threads. Each runs all flows.
    pub threads: u32,
    /// Value of its cgroup's `cpu.max`; none: no limit.
    pub cpu_max: Option<String>,
    /// CPUs to which all threads are pinned; none: the CPUs of its parent process.
    pub cpus: Option<Vec<u32>>,
    /// Start, after the common start.
    pub start_ms: u32,
    /// Create the process only at its start.
    pub late: bool,
    /// Moved once at the start, regardless of CPU time.
    pub once: Vec<Move>,
    /// Moved while it runs. The amount is per millisecond of CPU time of a thread.
    pub flows: Vec<Move>,
    /// Replaces the CPUs and the flows: each thread is on the CPUs of each stay in turn.
    pub stays: Vec<Stay>,
    /// Duration, in wall clock time.
    pub duration_ms: u32,
    /// CPU time between two reports to the model.
    pub period_us: u32,
    /// Fraction of the time in which it runs; the rest of the time it sleeps.
    pub duty: f64,
    /// CPU time between two sleeps; none: one period.
    pub stint_us: Option<u32>,
    /// Gives its CPU to another process at random times; none: only sleeps and the scheduler do.
    pub yields: Option<Yields>,
    /// Scales of the flows by time since the start, repeated; none: always 1.
    pub phases: Vec<Phase>,
    /// Additional scale of some periods.
    pub burst: Option<Burst>,
    /// A kernel thread works for this time and moves the flows of a period, each flow separately;
    /// none: the tenant moves them.
    pub kernel_us: Option<u32>,
    /// Requests that each thread sends. They replace the flows.
    pub disk: Option<Disk>,
    /// Counts of the core PMU that the flows cause.
    pub witness: Option<Witness>,
    /// The file of a device that it has open at times. Its flows move only then.
    pub hold: Option<Hold>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            cgroup: None,
            comm: None,
            threads: 1,
            cpu_max: None,
            cpus: None,
            start_ms: 0,
            late: false,
            once: Vec::new(),
            flows: Vec::new(),
            stays: Vec::new(),
            duration_ms: 0,
            period_us: 1000,
            duty: 1.0,
            stint_us: None,
            yields: None,
            phases: Vec::new(),
            burst: None,
            kernel_us: None,
            disk: None,
            witness: None,
            hold: None,
        }
    }
}

/// Traffic; the fields are those of struct `lab_move` in the model's abi.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Number of the device.
    pub device: u32,
    /// The hardware's number of the event.
    pub event: u32,
    /// Source of the traffic.
    #[serde(default)]
    pub source: u64,
    /// Target of the traffic.
    #[serde(default)]
    pub target: u64,
    /// Amount of the traffic, in units of the event.
    pub amount: u64,
}

/// A time in which flows have a scale.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Duration.
    pub ms: u32,
    /// Scale of all flows.
    pub scale: f64,
}

/// A time on given CPUs.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stay {
    /// Duration.
    pub ms: u32,
    /// The CPUs.
    pub cpus: Vec<u32>,
    /// Flows during this time, as in a tenant's `flows`.
    pub flows: Vec<Move>,
}

/// Periods that move more than others.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Distance between two such periods, in periods.
    pub every: u32,
    /// Scale of such a period, multiplied by that of the phase.
    pub factor: f64,
}

/// Times at which a thread gives its CPU away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Yields {
    /// Mean CPU time between two of them; the times are exponentially distributed.
    pub mean_us: u32,
    /// Seed of their random numbers.
    pub seed: u64,
}

/// Requests to a disk.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Path of the device file.
    pub path: String,
    /// Size of each request, a multiple of 4096.
    pub bytes: u32,
    /// Distance between two writes, in requests; 0: no writes.
    #[serde(default)]
    pub write_every: u32,
    /// Time between the end of a request and the next.
    #[serde(default)]
    pub pause_us: u32,
    /// Moved when a read is complete. The amount is per byte.
    pub read: Option<Move>,
    /// Moved when a write is complete. The amount is per byte.
    pub written: Option<Move>,
}

/// A device file, and what a process does with it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Path of the device file.
    pub path: String,
    /// In the order of their times.
    pub acts: Vec<TimedAct>,
}

/// What a process does at some time after its start.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct TimedAct {
    /// The time.
    pub after_ms: u32,
    /// What it does.
    #[serde(flatten)]
    pub act: Act,
}

/// What a process does with the file of a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Act {
    /// Opens it, once more if it has it already.
    Open,
    /// Opens and closes it with `O_PATH`, which is not the device.
    Path,
    /// Keeps a copy of one descriptor, and closes all others.
    Duplicate,
    /// Closes all of its files.
    Close,
    /// Starts a process that inherits a file.
    Fork {
        /// When that process ends.
        ms: u32,
    },
    /// Goes to another cgroup below /lab.
    Enter {
        /// Its name.
        cgroup: String,
    },
    /// Sends a file to the tenant that receives it.
    Send {
        /// Name of the receiver's socket.
        socket: String,
    },
    /// Waits for a file.
    Receive {
        /// Name of its socket.
        socket: String,
    },
    /// Opens and closes it many times.
    Storm {
        /// How often in each ms.
        per_ms: u32,
        /// How long.
        ms: u32,
    },
}

/// Counts of a core PMU that are proportional to the flows.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// Number of the device of the core PMU.
    pub device: u32,
    /// Number of its event.
    pub event: u32,
    /// Counts for one unit of each flow, in the order of the flows.
    pub per_count: Vec<f64>,
    /// Standard deviation of the factor that is applied to the counts of a period.
    pub noise: f64,
    /// Seed of these factors.
    pub seed: u64,
}

impl Guest {
    /// Reads /lab/guest.json.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let guest: Self = serde_json::from_str(text)?;
        for step in &guest.steps {
            ensure!(is_name(&step.name), "step {:?} cannot name a directory", step.name);
            ensure!(!step.argv.is_empty(), "step {} has no command", step.name);
            step.work.check_work().with_context(|| format!("step {}", step.name))?;
        }
        Ok(guest)
    }
}

impl Work {
    /// Reads the file of a step.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let work: Self = serde_json::from_str(text)?;
        work.check_work()?;
        Ok(work)
    }

    fn check_work(&self) -> Result<()> {
        for (number, tenant) in self.tenants.iter().enumerate() {
            tenant.check_tenant().with_context(|| format!("tenant {number}"))?;
        }
        Ok(())
    }
}

impl Tenant {
    fn check_tenant(&self) -> Result<()> {
        if let Some(cgroup) = &self.cgroup {
            ensure!(cgroup.split('/').all(is_name), "{cgroup:?} cannot name a cgroup");
        }
        // The kernel cuts longer names (TASK_COMM_LEN).
        let fits = |comm: &String| (1..16).contains(&comm.len()) && !comm.contains('\0');
        ensure!(self.comm.as_ref().is_none_or(fits), "{:?} cannot name a process", self.comm);
        ensure!(self.threads > 0, "it needs a thread");
        ensure!(self.period_us > 0, "it needs a period above 0 us");
        ensure!(self.duty > 0.0 && self.duty <= 1.0, "duty {} is no share", self.duty);
        ensure!(self.stint_us != Some(0), "it needs a stint above 0 us");
        ensure!(
            self.yields.is_none_or(|yielding| yielding.mean_us > 0),
            "it needs yields above 0 us"
        );
        // With flows that never run, a scenario would pass without testing anything.
        ensure!(self.flows.is_empty() || self.duration_ms > 0, "flows need a duration_ms");
        if let Some(disk) = &self.disk {
            ensure!(self.flows.is_empty(), "it has a disk: its flows would never run");
            ensure!(disk.bytes > 0 && disk.bytes.is_multiple_of(4096), "{disk:?} is none");
            ensure!(self.duration_ms > 0, "a disk needs a duration_ms");
        }
        if let Some(witness) = &self.witness {
            let stays = self.stays.iter().map(|stay| stay.flows.len());
            let mut flows = stays.chain(self.stays.is_empty().then_some(self.flows.len()));
            ensure!(
                flows.all(|flows| flows == witness.per_count.len()),
                "{witness:?}: not one for each flow"
            );
            witness.check_witness()?;
        }
        ensure!(self.cpu_max.is_none() || self.cgroup.is_some(), "a cpu_max is a cgroup's");
        let late = |hold: &Hold| hold.acts.iter().any(|timed| timed.after_ms > self.duration_ms);
        ensure!(!self.hold.as_ref().is_some_and(late), "it ends before it has done everything");
        ensure!(
            self.stays.is_empty() || self.flows.is_empty(),
            "it stays: its flows would never run"
        );
        ensure!(self.stays.is_empty() || self.duration_ms > 0, "stays need a duration_ms");
        for stay in &self.stays {
            ensure!(stay.ms > 0 && !stay.cpus.is_empty(), "stay {stay:?} is none");
        }
        let scale = |value: f64| (0.0..=1000.0).contains(&value);
        for phase in &self.phases {
            ensure!(phase.ms > 0 && scale(phase.scale), "phase {phase:?} is none");
        }
        if let Some(burst) = &self.burst {
            ensure!(burst.every > 0 && scale(burst.factor), "burst {burst:?} is none");
        }
        Ok(())
    }
}

impl Witness {
    fn check_witness(&self) -> Result<()> {
        let sound = |per_count: &f64| *per_count >= 0.0 && per_count.is_finite();
        ensure!(self.per_count.iter().all(sound), "{self:?}: no counts");
        ensure!((0.0..=0.5).contains(&self.noise), "{self:?}: noise is 0 to 0.5");
        Ok(())
    }
}

fn two_minutes() -> u32 {
    120
}

/// Whether it is one component of a path that cannot leave its directory.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_guest_is_read() {
        let guest = Guest::parse(
            r#"{"modules": ["uncore_model.ko"],
                "devices": [{"kind": 1, "node": 0, "cpus": 3, "arg": [18446744073709551615, 2]}],
                "drivers": ["arm_cspmu_module.ko"],
                "pmus": ["nvidia_scf_pmu_0"], "housekeeping": 4,
                "steps": [{"name": "scf-1", "argv": ["/bin/true"], "work": {
                    "tenants": [{"cgroup": "a", "cpus": [1], "duration_ms": 10,
                                 "flows": [{"device": 0, "event": 4, "amount": 64}],
                                 "phases": [{"ms": 200, "scale": 1}], "burst":
                                 {"every": 10, "factor": 5}}],
                    "actions": [{"after_ms": 300, "do": "offline", "cpu": 1}],
                    "settle_ms": 50}}]}"#,
        )
        .unwrap();
        assert_eq!(guest.housekeeping, Some(4));
        assert_eq!(guest.devices[0].arg, [u64::MAX, 2]);
        let step = &guest.steps[0];
        assert_eq!(step.timeout_s, 120);
        assert_eq!(step.work.actions[0].change, Change::Offline { cpu: 1 });
        assert_eq!(step.work.tenants[0].flows[0].amount, 64);
        assert_eq!(step.work.tenants[0].threads, 1);
    }

    #[test]
    fn work_survives_being_written() {
        let text = r#"{"tenants": [{"once": [{"device": 1, "event": 2, "source": 3, "target": 4,
                       "amount": 5}]}], "actions": [{"do": "online", "cpu": 2}, {"do": "load",
                       "module": "arm-cmn.ko"}, {"do": "unbind", "pmu": "arm_cmn_0"}]}"#;
        let work = Work::parse(text).unwrap();
        assert_eq!(Work::parse(&serde_json::to_string(&work).unwrap()).unwrap(), work);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for tenant in [
            r#"{"cgroup": "../a"}"#,
            r#"{"cgroup": "a//b"}"#,
            r#"{"comm": "longer than fifteen"}"#,
            r#"{"threads": 0}"#,
            r#"{"period_us": 0}"#,
            r#"{"duty": 0}"#,
            r#"{"stint_us": 0}"#,
            r#"{"duty": 1.5}"#,
            r#"{"flows": [{"device": 0, "event": 0, "amount": 1}]}"#,
            r#"{"phases": [{"ms": 0, "scale": 1}]}"#,
            r#"{"burst": {"every": 0, "factor": 1}}"#,
            r#"{"disk": {"path": "/dev/vdb", "bytes": 4095}, "duration_ms": 1}"#,
            r#"{"cpu": [1]}"#,
            r#"{"witness": {"device": 0, "event": 1, "per_count": [1], "noise": 0, "seed": 1}}"#,
            r#"{"witness": {"device": 0, "event": 1, "per_count": [], "noise": 0.6, "seed": 1}}"#,
            r#"{"cpu_max": "1 2"}"#,
            r#"{"stays": [{"ms": 0, "cpus": [1], "flows": []}], "duration_ms": 1}"#,
            r#"{"stays": [{"ms": 1, "cpus": [], "flows": []}], "duration_ms": 1}"#,
            r#"{"stays": [{"ms": 1, "cpus": [1], "flows": []}]}"#,
        ] {
            let text = format!(r#"{{"tenants": [{tenant}]}}"#);
            assert!(Work::parse(&text).is_err(), "{tenant}");
        }
        for action in [
            r#"{"do": "offline"}"#,
            r#"{"do": "offline", "cpu": 1, "pmu": "a"}"#,
            r#"{"do": "unload", "cpu": 1}"#,
            r#"{"do": "burn", "cpu": 1}"#,
        ] {
            let text = format!(r#"{{"actions": [{action}]}}"#);
            assert!(Work::parse(&text).is_err(), "{action}");
        }
        for step in [r#"{"name": "a/b", "argv": ["x"]}"#, r#"{"name": "a", "argv": []}"#] {
            let text = format!(r#"{{"steps": [{step}]}}"#);
            assert!(Guest::parse(&text).is_err(), "{step}");
        }
    }
}
