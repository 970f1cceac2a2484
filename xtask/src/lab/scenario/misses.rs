//! Tenants with equal CPU time, 10:1 bytes, and misses in proportion: counts that CPUs cause are
//! divided by the misses of each task, with the error of its bytes per miss, and by another method
//! where a CPU has no witness. `auto` opens witnesses by itself, within its budget.
//!
//! The core PMU is described in a file given with `--catalog`.

use anyhow::{Context as _, Result};

use super::super::machine::Instance;
use super::super::step::{Action, Change, Check, Move, Step, Tenant, Truth, Work, recording_dir};
use super::super::{traffic, witness};
use super::Setting;

/// Directory of the family of the core PMU in the guest.
pub(crate) const CATALOG: &str = "/lab/catalog";

/// Name of its file, there and in `tests/lab/catalog`.
pub(crate) const FAMILY: &str = "lab_core.toml";

const MODEL: &str = "grace-scf";
const EVENT: &str = "remote_socket_rd_data";

const MISS: &str = witness::MISS;

/// Cgroup, counts of the fabric per ms, misses per ms: a count is 32 bytes and a line 64, times 0.9
/// to 1.1.
const TENANTS: &[(&str, u64, u64)] = &[
    ("heavy", 20_000, 9_000),
    ("heavier", 20_000, 11_000),
    ("light", 2_000, 1_100),
    ("lighter", 2_000, 900),
];

const METHOD: &str = "misses";

/// Largest relative error of a share divided by misses: factors of 0.9 and 1.1 until rates are
/// estimated, and the errors of a hundred windows on an emulated CPU. Measured: 10 to 25 %. By CPU
/// time, the heavy tenants would get 45 % too little and the light ones five times too much.
const WITHIN: f64 = 0.35;

/// Least fraction divided by misses. Windows whose boundary is read too late have another method,
/// and emulated CPUs are often late, most of all one that goes offline. Measured: 0.95 on a quiet
/// machine, and 0.22 of at most 0.8 on a busy one.
const LEAST: f64 = 0.3;
const LEAST_HOTPLUG: f64 = 0.1;

const DURATION_MS: u32 = 2500;

/// Where shares are compared: the error of a light tenant is what one of ten times its traffic
/// loses, and its mean is smaller over a longer time.
const COMPARED_MS: u32 = 6000;

/// As [`WITHIN`], with misses drawn from [`SEED`]: up to a third of the traffic has no misses, and
/// bytes per miss vary by a third.
const WITHIN_NOISY: f64 = 0.7;

const SEED: u64 = 7;

/// Bytes per count of the fabric.
const UNIT: f64 = 32.0;

pub(crate) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let lab = MissesLab::new(setting)?;
    let name = "misses";
    let mut checks = lab.shared_checks();
    checks.push(Check::Divided {
        event: EVENT.to_owned(),
        method: METHOD.to_owned(),
        least: LEAST,
        most: 1.0,
    });
    let run = recording_dir(name);
    let file = "attributed.parquet";
    let attributed_path = format!("/out/misses-attribute/{file}");
    let attribute = ["/bin/uncore-trace", "attribute", &run, "-o", &attributed_path];
    let check = ["/bin/uncore-trace", "check", &run];
    let exit = || vec![Check::Exit { code: 0, says: Vec::new() }];
    let same_rows = Check::SameRows { step: name.to_owned(), file: file.to_owned() };
    Ok(vec![
        lab.record_step(
            name,
            METHOD,
            Work { tenants: lab.socket_tenants(COMPARED_MS), ..settled_work() },
            checks,
        ),
        Step::plain_command("misses-attribute", &attribute, [exit(), vec![same_rows]].concat()),
        Step::plain_command("misses-check", &check, exit()),
        lab.both_step()?,
        lab.hotplug_step(),
        lab.absent_step(),
        lab.noisy_step()?,
        lab.auto_step("misses-auto", "50", &lab.cpus),
        lab.auto_step("misses-budget", "0", &[]),
    ])
}

fn settled_work() -> Work {
    Work { settle_ms: 50, ..Work::default() }
}

struct MissesLab<'a> {
    scf: &'a Instance,
    core: &'a Instance,
    spec: String,
    cpus: Vec<u32>,
}

impl<'a> MissesLab<'a> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        let instance = |model: &str| {
            let candidate = setting.machine.instances_of(model).first().copied();
            candidate.with_context(|| format!("no {model}"))
        };
        let (scf, core) = (instance(MODEL)?, instance(witness::CORE)?);
        let cpus = (0..setting.machine.cpu_count()).filter(|&cpu| scf.is_near(cpu)).collect();
        Ok(Self { scf, core, spec: traffic::spec_and_truth(scf, EVENT)?.0, cpus })
    }

    /// A flow of bytes, and of the corresponding misses.
    fn tenant_moves(&self, counts: u64, misses: u64) -> Vec<Move> {
        let flow = |instance: &Instance, event: &str, amount| {
            let flows = traffic::moves_of_event(instance, event).into_iter().take(1);
            flows.map(|flow| Move { amount, ..flow }).collect::<Vec<_>>()
        };
        [flow(self.core, MISS, misses), flow(self.scf, EVENT, counts)].concat()
    }

    /// Tenants on the CPUs of one socket, with equal CPU time.
    fn socket_tenants(&self, duration_ms: u32) -> Vec<Tenant> {
        let tenant = |&(cgroup, counts, misses): &(&str, u64, u64)| Tenant {
            cgroup: Some(cgroup.to_owned()),
            cpus: Some(self.cpus.clone()),
            flows: self.tenant_moves(counts, misses),
            start_ms: 100,
            duration_ms,
            ..Tenant::default()
        };
        TENANTS.iter().map(tenant).collect()
    }

    fn shared_checks(&self) -> Vec<Check> {
        let cgroup = |&(cgroup, ..): &(&str, u64, u64)| format!("/lab/{cgroup}");
        let (heavy, light) = TENANTS.split_at(2);
        let given_check = |truth, tenants: &[(&str, u64, u64)], together| Check::Given {
            event: EVENT.to_owned(),
            truth,
            cgroups: tenants.iter().map(cgroup).collect(),
            together,
            within: WITHIN,
            method: Some(METHOD.to_owned()),
        };
        // A busy emulated machine does not tell the light tenants apart, which have a fortieth of
        // the bytes each, with confidences of 0.2 and 0.3: one got half too much, the other one a
        // third too little.
        let given_checks = |truth: Truth| {
            [given_check(truth.clone(), heavy, false), given_check(truth, light, true)]
        };
        let truth = traffic::spec_and_truth(self.scf, EVENT).ok().map(|(_, truth)| truth);
        let exit = Check::Exit { code: 0, says: Vec::new() };
        let given = truth.map(given_checks).into_iter().flatten();
        [exit, Check::Conserved].into_iter().chain(given).collect()
    }

    fn record_step(&self, name: &str, method: &str, work: Work, checks: Vec<Check>) -> Step {
        let options = [
            "--catalog",
            CATALOG,
            "-e",
            &self.spec,
            "--method",
            method,
            "--tick",
            "2ms",
            "--interval",
            "20ms",
        ];
        Step::for_record(name, &options, work, checks)
    }

    /// The misses are also selected as an event: they are counted once, and exactly.
    fn both_step(&self) -> Result<Step> {
        let (spec, truth) = traffic::spec_and_truth(self.core, MISS)?;
        let tenant = Tenant {
            cgroup: Some("one".to_owned()),
            cpus: Some(vec![0]),
            flows: self.tenant_moves(1000, 500),
            duration_ms: 500,
            ..Tenant::default()
        };
        let work = Work { tenants: vec![tenant], ..settled_work() };
        let pmu = self.core.name.clone();
        // Counter 0 is that of the fabric, 1 that of CPU 0.
        let exact = Check::Exact { counter: 1, pmu, event: MISS.to_owned(), truth };
        let checks = vec![Check::Exit { code: 0, says: Vec::new() }, Check::Conserved, exact];
        let options = [
            "--catalog",
            CATALOG,
            "-e",
            &self.spec,
            "-e",
            &spec,
            "--tick",
            "5ms",
            "--interval",
            "20ms",
        ];
        Ok(Step::for_record("misses-both", &options, work, checks))
    }

    /// A CPU without a witness for a while.
    fn hotplug_step(&self) -> Step {
        let cpu = self.cpus.last().copied().unwrap_or_default();
        let actions = vec![
            Action { after_ms: 800, change: Change::Offline { cpu } },
            Action { after_ms: 1600, change: Change::Online { cpu } },
        ];
        let work = Work { tenants: self.socket_tenants(DURATION_MS), actions, ..settled_work() };
        let divided = Check::Divided {
            event: EVENT.to_owned(),
            method: METHOD.to_owned(),
            least: LEAST_HOTPLUG,
            // One of two CPUs is missing for a fifth of the time, and so are its counts.
            most: 0.88,
        };
        // The witness of the CPU stops with it, which is a loss row.
        let checks = vec![Check::Exit { code: 1, says: Vec::new() }, Check::Conserved, divided];
        self.record_step("misses-hotplug", METHOD, work, checks)
    }

    /// Misses with random variation, and traffic without misses.
    fn noisy_step(&self) -> Result<Step> {
        let mut tenants = self.socket_tenants(COMPARED_MS);
        let core = self.core.device;
        for tenant in &mut tenants {
            tenant.flows.retain(|flow| flow.device != core);
        }
        witness::give_witnesses(&mut tenants, self.core, |_| UNIT, SEED)?;
        let divided = Check::Divided {
            event: EVENT.to_owned(),
            method: METHOD.to_owned(),
            least: LEAST,
            most: 1.0,
        };
        let mut checks = self.shared_checks();
        checks.push(divided);
        for check in &mut checks {
            if let Check::Given { within, .. } = check {
                *within = WITHIN_NOISY;
            }
        }
        Ok(self.record_step("misses-noisy", METHOD, Work { tenants, ..settled_work() }, checks))
    }

    /// Misses are not selected: these CPUs have witnesses anyway, within the budget.
    fn auto_step(&self, name: &str, budget: &str, cpus: &[u32]) -> Step {
        let checks = vec![
            Check::Exit { code: 0, says: Vec::new() },
            Check::Conserved,
            Check::Witnesses { pmu: self.core.name.clone(), cpus: cpus.to_vec() },
        ];
        let work = Work { tenants: self.socket_tenants(DURATION_MS), ..settled_work() };
        let mut step = self.record_step(name, "auto", work, checks);
        let position = step.argv.iter().position(|arg| arg == "--method").unwrap_or_default();
        let option = ["--witness-budget", budget].map(str::to_owned);
        step.argv.splice(position..position, option);
        step
    }

    /// Without the file, no event is known to count misses here.
    fn absent_step(&self) -> Step {
        let says = "choose --method regression".to_owned();
        let checks = vec![Check::Exit { code: 2, says: vec![says] }, Check::NoRecording];
        let options = ["-e", &self.spec, "--method", "misses"];
        Step::for_record("misses-absent", &options, settled_work(), checks)
    }
}
