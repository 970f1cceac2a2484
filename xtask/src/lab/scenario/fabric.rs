//! The recording that README.md shows, and that is in `samples/grace`: a job that reads the memory
//! of the other socket beside one that only computes, a service that is stopped and started again,
//! and two jobs that use a disk. Each cgroup gets its true traffic, with a high confidence.

use anyhow::{Context as _, Result};

use super::super::step::{
    Action, Change, Check, Disk, Move, Step, Tenant, Truth, Work, recording_dir,
};
use super::super::traffic;
use super::Setting;

/// Event for traffic of CPUs, and for that of the disk's root port.
const REMOTE: &str = "remote_socket_rd_data";
const FROM_DISK: &str = "wr_bytes_loc";
const TO_DISK: &str = "rd_bytes_loc";

/// Cgroup, its CPU, and reads of 32 bytes from the other socket per ms of CPU time.
const ON_CPUS: &[(&str, u32, u64)] =
    &[("train", 0, 600_000), ("train", 1, 600_000), ("web", 0, 40_000), ("build", 1, 0)];

/// The service ends at this time, and another process of it starts later, when a mark is set.
const RESTARTED: &str = "web";
const STOP_MS: u32 = 1800;
const START_MS: u32 = 2400;
const MARK: &str = "web restarts";
/// How long before that the mark is set, so that it comes before the process.
const MARK_BEFORE_MS: u32 = 100;

/// The backup runs for less than half of the time: it has nothing in most windows.
const BACKUP_MS: u32 = 1500;
const BACKUP_FOR_MS: u32 = 2000;

/// Fraction of the time in which a job that moves bytes runs, and its CPU time between two pauses.
const DUTY: f64 = 0.4;
const STINT_US: u32 = 2500;

const DURATION_MS: u32 = 5000;

/// Largest relative error of the sum of a cgroup.
const WITHIN: f64 = 0.1;

/// Least mean confidence after rates are estimated. README.md shows 0.84, over the
/// whole recording.
const CONFIDENCE: f64 = 0.85;
const LEARNT_AFTER_MS: u32 = 1000;

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let remote = FabricFlow::new(setting, "grace-scf", REMOTE)?;
    let read = FabricFlow::new(setting, "grace-pcie", FROM_DISK)?;
    let written = FabricFlow::new(setting, "grace-pcie", TO_DISK)?;
    let disk = |bytes, write_every| Disk {
        path: "/dev/vdb".to_owned(),
        bytes,
        write_every,
        pause_us: 400,
        read: Some(read.scaled(1)),
        written: Some(written.scaled(1)),
    };
    let mut tenants: Vec<Tenant> = ON_CPUS
        .iter()
        .map(|&(cgroup, cpu, counts)| Tenant {
            flows: if counts > 0 { vec![remote.scaled(counts)] } else { Vec::new() },
            duty: if counts > 0 { DUTY } else { 1.0 },
            stint_us: Some(STINT_US),
            period_us: 50,
            ..pinned_tenant(cgroup, cpu)
        })
        .collect();
    let web = tenants.iter_mut().find(|tenant| tenant.comm.as_deref() == Some(RESTARTED));
    let web = web.context("no tenant to start again")?;
    let restarted = Tenant {
        late: true,
        start_ms: START_MS,
        duration_ms: DURATION_MS - START_MS,
        ..web.clone()
    };
    web.duration_ms = STOP_MS;
    tenants.push(restarted);
    tenants.push(Tenant {
        disk: Some(disk(65536, 0)),
        start_ms: BACKUP_MS,
        duration_ms: BACKUP_FOR_MS,
        ..pinned_tenant("backup", 0)
    });
    tenants.push(Tenant { disk: Some(disk(16384, 1)), ..pinned_tenant("logger", 1) });
    let mut checks = vec![Check::Exit { code: 0, says: Vec::new() }, Check::Conserved];
    for (flow, cgroup) in [(&remote, "train"), (&read, "backup"), (&written, "logger")] {
        let (event, cgroups) = (flow.event.to_owned(), vec![format!("/lab/{cgroup}")]);
        checks.push(Check::Confident {
            event: event.clone(),
            cgroups: cgroups.clone(),
            after_ms: LEARNT_AFTER_MS,
            least: CONFIDENCE,
        });
        let truth = flow.truth.clone();
        checks.push(Check::Given {
            event,
            truth,
            cgroups,
            together: false,
            within: WITHIN,
            method: None,
        });
    }
    let mark = Change::Mark { text: MARK.to_owned() };
    let actions = vec![Action { after_ms: START_MS - MARK_BEFORE_MS, change: mark }];
    let work = Work { tenants, actions, settle_ms: 50 };
    let run = recording_dir("fabric");
    let says = [REMOTE, "/lab/train", "regression", FROM_DISK, "/lab/backup", "io"];
    let says = says.map(str::to_owned).to_vec();
    Ok(vec![
        Step::for_record("fabric", &["-p", "c2c,pcie"], work, checks),
        Step::plain_command(
            "fabric-report",
            &["/bin/uncore-trace", "report", &run, "--from", "1s", "--top", "3"],
            vec![Check::Exit { code: 0, says }],
        ),
    ])
}

fn pinned_tenant(cgroup: &str, cpu: u32) -> Tenant {
    Tenant {
        cgroup: Some(cgroup.to_owned()),
        comm: Some(cgroup.to_owned()),
        cpus: Some(vec![cpu]),
        duration_ms: DURATION_MS,
        ..Tenant::default()
    }
}

/// A flow of traffic, and the true count of a counter of socket 0.
struct FabricFlow {
    event: &'static str,
    unit_move: Move,
    truth: Truth,
}

impl FabricFlow {
    fn new(setting: &Setting<'_>, model: &str, event: &'static str) -> Result<Self> {
        let instance = setting.machine.instances_of(model).first().copied();
        let instance = instance.with_context(|| format!("no {model}"))?;
        let (_, truth) = traffic::spec_and_truth(instance, event)?;
        let unit_move = traffic::moves_of_event(instance, event).first().copied();
        let unit_move = unit_move.with_context(|| format!("nothing moves {event}"))?;
        Ok(Self { event, unit_move, truth })
    }

    fn scaled(&self, amount: u64) -> Move {
        Move { amount, ..self.unit_move }
    }
}
