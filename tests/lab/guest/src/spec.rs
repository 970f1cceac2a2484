//! The JSON a guest is told its task in: /lab/guest.json, and one file of work for each step.
//!
//! Guarantees that what was read is sound: an unknown field, a name that leaves its directory, a
//! share that is none are refused when the file is read, not when the value is used.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// /lab/guest.json.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guest {
    /// Kernel modules before the devices, files of /lab/modules, in this order.
    pub modules: Vec<String>,
    /// Devices of the model; a move names one by its place here.
    pub devices: Vec<Device>,
    /// Kernel modules after the devices.
    pub drivers: Vec<String>,
    /// PMUs that must be there before the steps.
    pub pmus: Vec<String>,
    /// The CPU for everything but tenants; none: all CPUs are for everybody.
    pub housekeeping: Option<usize>,
    /// What to run, in this order.
    pub steps: Vec<Step>,
}

/// A device of the model; the meaning of the fields stands in the model's abi.h.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// Kind of device.
    pub kind: u32,
    /// NUMA node it belongs to.
    pub node: u32,
    /// CPUs next to it, one bit each.
    pub cpus: u64,
    /// Arguments by kind; those left out are 0.
    pub arg: Vec<u64>,
    /// Text by kind.
    pub text: String,
}

/// One command whose results the host wants.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Names its directory in /out.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// When it is killed.
    #[serde(default = "two_minutes")]
    pub timeout_s: u32,
    /// Written to /lab/steps/NAME.json for the command to pass to `/init run`.
    #[serde(default)]
    pub work: Work,
}

/// What happens while a step's command runs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Work {
    /// Processes, all of which are ready before the first one starts.
    pub tenants: Vec<Tenant>,
    /// What is done to the machine meanwhile.
    pub actions: Vec<Action>,
    /// How long to wait after the last tenant has ended.
    pub settle_ms: u32,
}

/// A change of the machine.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Action {
    /// When, after the tenants' common start.
    #[serde(default)]
    pub after_ms: u32,
    /// What, and to whom.
    #[serde(flatten)]
    pub change: Change,
}

/// What an action does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Change {
    /// Takes a CPU out.
    Offline {
        /// Its number.
        cpu: u32,
    },
    /// Brings it back.
    Online {
        /// Its number.
        cpu: u32,
    },
    /// Tries to unload a module, which the kernel must refuse: it is in use.
    Held {
        /// As the kernel calls it.
        module: String,
    },
    /// Unloads a module.
    Unload {
        /// As the kernel calls it.
        module: String,
    },
    /// Loads a module.
    Load {
        /// Its file in /lab/modules.
        module: String,
    },
    /// Takes the driver from the device of a PMU.
    Unbind {
        /// The PMU.
        pmu: String,
    },
    /// Gives it back.
    Bind {
        /// The PMU.
        pmu: String,
    },
    /// Sets `kernel.perf_event_paranoid`.
    Paranoid {
        /// To this.
        level: i32,
    },
}

/// A process that uses CPU time and moves traffic in proportion to it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenant {
    /// Its cgroup below /lab; none: that of the process that started it.
    pub cgroup: Option<String>,
    /// Threads that run the flows, each in full.
    pub threads: u32,
    /// What its cgroup's `cpu.max` says; none: no limit.
    pub cpu_max: Option<String>,
    /// CPUs all threads are pinned to; none: those of the process that started it.
    pub cpus: Option<Vec<u32>>,
    /// When it starts, after the common start.
    pub start_ms: u32,
    /// The process does not exist before.
    pub late: bool,
    /// Moved first and once, whatever time it takes.
    pub once: Vec<Move>,
    /// Moved while it runs; the amount is per millisecond of CPU time of a thread.
    pub flows: Vec<Move>,
    /// In place of the CPUs and the flows: where each thread is, in turn.
    pub stays: Vec<Stay>,
    /// For how long, by the wall clock.
    pub duration_ms: u32,
    /// CPU time between two reports to the model.
    pub period_us: u32,
    /// Share of the time it runs; the rest it sleeps.
    pub duty: f64,
    /// CPU time between two sleeps, where it sleeps; none: a period.
    pub stint_us: Option<u32>,
    /// Scales of the flows by time since the start, over and over; none: always 1.
    pub phases: Vec<Phase>,
    /// Extra scale of some periods.
    pub burst: Option<Burst>,
    /// A kernel thread works for so long and moves the flows of a period in its place, each flow by
    /// itself; none: it moves them itself.
    pub kernel_us: Option<u32>,
    /// Requests that each thread sends in place of running its flows.
    pub disk: Option<Disk>,
    /// What the core PMU counts of the flows.
    pub witness: Option<Witness>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            cgroup: None,
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
            phases: Vec::new(),
            burst: None,
            kernel_us: None,
            disk: None,
            witness: None,
        }
    }
}

/// Traffic; the fields are those of struct `lab_move` in the model's abi.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Number of the device.
    pub device: u32,
    /// The hardware's number of what happens.
    pub event: u32,
    /// Where it comes from.
    #[serde(default)]
    pub source: u64,
    /// Where it goes.
    #[serde(default)]
    pub target: u64,
    /// How much.
    pub amount: u64,
}

/// A time with a scale of its own.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// How long.
    pub ms: u32,
    /// Scale of all flows.
    pub scale: f64,
}

/// A time on some CPUs.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stay {
    /// How long.
    pub ms: u32,
    /// Where.
    pub cpus: Vec<u32>,
    /// What is moved there, as in a tenant's `flows`.
    pub flows: Vec<Move>,
}

/// Periods that move more.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Every how many periods.
    pub every: u32,
    /// Scale of that period, on top of the phase's.
    pub factor: f64,
}

/// Requests to a disk.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The device's file.
    pub path: String,
    /// Of each request, a multiple of 4096.
    pub bytes: u32,
    /// Every how many requests one is a write; 0: never.
    #[serde(default)]
    pub write_every: u32,
    /// Time between the end of a request and the next.
    #[serde(default)]
    pub pause_us: u32,
    /// Moved when a read is complete; the amount is for each byte.
    pub read: Option<Move>,
    /// The same of a write.
    pub written: Option<Move>,
}

/// Counts of a core PMU that go with what the flows move.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// Number of the device of the core PMU.
    pub device: u32,
    /// The number of its event.
    pub event: u32,
    /// How often it is counted for one of each flow's amounts, in the order of the flows.
    pub per_count: Vec<f64>,
    /// Standard deviation of the factor by which the counts of a period are off.
    pub noise: f64,
    /// Decides these factors.
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
            step.work.check().with_context(|| format!("step {}", step.name))?;
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
        work.check()?;
        Ok(work)
    }

    fn check(&self) -> Result<()> {
        for (number, tenant) in self.tenants.iter().enumerate() {
            tenant.check().with_context(|| format!("tenant {number}"))?;
        }
        Ok(())
    }
}

impl Tenant {
    fn check(&self) -> Result<()> {
        if let Some(cgroup) = &self.cgroup {
            ensure!(cgroup.split('/').all(is_name), "{cgroup:?} cannot name a cgroup");
        }
        ensure!(self.threads > 0, "it needs a thread");
        ensure!(self.period_us > 0, "it needs a period above 0 us");
        ensure!(self.duty > 0.0 && self.duty <= 1.0, "duty {} is no share", self.duty);
        ensure!(self.stint_us != Some(0), "it needs a stint above 0 us");
        // Flows that never run would make a scenario pass that tests nothing.
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
            witness.check()?;
        }
        ensure!(self.cpu_max.is_none() || self.cgroup.is_some(), "a cpu_max is a cgroup's");
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
    fn check(&self) -> Result<()> {
        let sound = |per_count: &f64| *per_count >= 0.0 && per_count.is_finite();
        ensure!(self.per_count.iter().all(sound), "{self:?}: no counts");
        ensure!((0.0..=0.5).contains(&self.noise), "{self:?}: noise is 0 to 0.5");
        Ok(())
    }
}

fn two_minutes() -> u32 {
    120
}

/// Whether it can be one component of a path that stays where it is put.
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
