//! Events of every kernel, on kernels from the oldest supported one on: two tenants in two cgroups
//! get their shares, with each kind of timer, and each recording passes `check`. `doctor` says why
//! a kernel has no pinned timer: it is too old, or has `PREEMPT_RT`.
//!
//! No device moves data, so only invariants and CPU times are verified.

use anyhow::Result;

use super::super::step::{Check, Step, Tenant, Work, recording_dir};
use super::Setting;

/// How long the tenants run.
const DURATION_MS: u32 = 1500;

/// Least fraction of the time of two CPUs for each tenant: three busy threads share them for most
/// of the recording.
const LEAST: f64 = 0.1;

/// The first series with `BPF_F_TIMER_CPU_PIN` (kernel/bpf/helpers.c).
const PINNED_TIMER: &str = "6.7";

/// Longer than the default: an emulated CPU needs a fifth of its time for ticks of 1 ms.
const TICK: [&str; 2] = ["--tick", "5ms"];

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let realtime = setting.machine.realtime;
    let pinned = setting.is_since(PINNED_TIMER)? && !realtime;
    let timer = if pinned { "pinned" } else { "run-on-cpu" };
    let mut steps = vec![doctor_step(pinned, realtime)];
    if !pinned {
        steps.push(refused_step(realtime));
    }
    // With PREEMPT_RT softirqs run in threads.
    let softirqs = Check::Softirqs { any: !realtime };
    let alone = std::slice::from_ref(&softirqs);
    steps.extend(recorded_steps("default", &[], timer, alone));
    let options = ["--timer", "run-on-cpu"];
    steps.extend(recorded_steps("run-on-cpu", &options, "run-on-cpu", alone));
    let slices = [Check::Slices { cgroups: cgroup_paths() }, softirqs.clone()];
    steps.extend(recorded_steps("slices", &["--slices"], timer, &slices));
    let options = ["--sample-on", "sched", "--min-gap", "0"];
    steps.extend(recorded_steps("exact", &options, timer, alone));
    Ok(steps)
}

/// A feature that the kernel lacks is reported before anything is recorded.
fn doctor_step(pinned: bool, realtime: bool) -> Step {
    let timer = match (pinned, realtime) {
        (true, _) => "has the pinned BPF timer",
        (_, true) => "PREEMPT_RT, which refuses the BPF timer",
        (false, false) => "no pinned BPF timer (6.7)",
    };
    let says = [timer, "record works here"].map(str::to_owned).to_vec();
    let checks = vec![Check::Exit { code: 0, says }];
    Step::plain_command("host-doctor", &["/bin/uncore-trace", "doctor"], checks)
}

/// A timer that was selected by name is not replaced by another one.
fn refused_step(realtime: bool) -> Step {
    let mut says = vec!["--timer run-on-cpu".to_owned()];
    if realtime {
        // What the verifier says (`process_timer_func`, kernel/bpf/verifier.c, Linux 7.2).
        says.push("bpf_timer cannot be used for PREEMPT_RT".to_owned());
    }
    let checks = vec![Check::Exit { code: 2, says }, Check::NoRecording];
    Step::for_record("host-pinned", &["-p", "host", "--timer", "pinned"], Work::default(), checks)
}

/// A recording around the tenants, and the product's own opinion of it.
fn recorded_steps(name: &str, options: &[&str], timer: &str, extra_checks: &[Check]) -> [Step; 2] {
    let name = format!("host-{name}");
    let mut checks = vec![
        Check::Exit { code: 0, says: Vec::new() },
        Check::Conserved,
        Check::Timer { timer: timer.to_owned() },
        Check::Method { method: "exact".to_owned() },
        Check::Shares { event: "cpu-clock".to_owned(), cgroups: cgroup_paths(), least: LEAST },
    ];
    checks.extend_from_slice(extra_checks);
    let options: Vec<&str> = ["-p", "host"].iter().chain(&TICK).chain(options).copied().collect();
    let verdict = Step::plain_command(
        &format!("{name}-check"),
        &["/bin/uncore-trace", "check", &recording_dir(&name)],
        vec![Check::Exit { code: 0, says: Vec::new() }],
    );
    [Step::for_record(&name, &options, tenant_work(), checks), verdict]
}

/// Paths of the tenants' cgroups, as in the tables.
fn cgroup_paths() -> Vec<String> {
    ["/lab/pinned", "/lab/free"].map(str::to_owned).to_vec()
}

fn tenant_work() -> Work {
    let pinned = Tenant {
        cgroup: Some("pinned".to_owned()),
        cpus: Some(vec![1]),
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    let free = Tenant {
        cgroup: Some("free".to_owned()),
        threads: 2,
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    Work { tenants: vec![pinned, free], settle_ms: 50, ..Work::default() }
}
