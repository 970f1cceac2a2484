//! `cargo xtask lab`: the real uncore drivers of Debian's kernels in emulated guests, over a model
//! of their hardware.
//!
//! `tests/lab` describes the machines, the events of their PMUs, the model, and the programs of the
//! guest. This module prepares what a guest needs (cached outside of the source tree, by content),
//! boots it, copies its recordings out, and compares them with the true traffic of the guest's
//! tenants.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use uncore_trace_ebpf::stamp::workspace_root;

use self::boot::{GuestSpec, Wishes};
use self::initrd::{FileContent, GuestFile};
use self::kernel::{Flavour, Series};
use self::machine::LabMachine;
use self::scenario::{Setting, broken, misses};
use self::step::Step;
use crate::{setup, target};

mod acpi;
mod boot;
mod cache;
mod guest;
mod host;
mod initrd;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod mixes;
mod modules;
mod packages;
mod pmu;
mod qemu;
mod replay;
mod scenario;
mod sources;
pub(crate) mod step;
mod traffic;
mod verified;
mod version;
pub(crate) mod witness;

/// Time limit for the start and end of a guest, without its steps: it takes some 20 s on an idle
/// host.
const BOOT_LIMIT: Duration = Duration::from_mins(10);

/// Time limit of a step on average: emulation is slow.
const STEP_LIMIT: Duration = Duration::from_secs(40);

/// Additional time limit for each ms of work.
const WORK_LIMIT: Duration = Duration::from_millis(15);

/// Factor for the time limits of guests whose recordings are kept.
const BENCH_PATIENCE: u32 = 4;

/// Options of `cargo xtask lab`.
#[derive(Debug, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Args {
    /// Machines to test [default: all of tests/lab/machines]
    machines: Vec<String>,
    /// Only this scenario (may be given several times)
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Kernel series, e.g. 6.12 [default: the first in the machine's file]
    #[arg(long, value_name = "SERIES", conflicts_with = "kernels")]
    kernel: Option<String>,
    /// Test every kernel series that a machine's file names
    #[arg(long)]
    kernels: bool,
    /// Keep the initramfs and the disk of each guest beside the results
    #[arg(long)]
    keep: bool,
    /// Open a shell on the console of one machine instead of running the steps
    #[arg(long)]
    shell: bool,
    /// Only build the programs that the guests run
    #[arg(long, conflicts_with = "shell")]
    build: bool,
    /// Show the consoles
    #[arg(long, short)]
    verbose: bool,
}

/// Result of one machine on one kernel.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Verdict {
    passed: usize,
    failed: usize,
}

/// Runs the selected machines.
pub(crate) fn run(args: &Args) -> Result<()> {
    host::install_packages()?;
    cache::remove_unused()?;
    let _alone = lock_lab()?;
    let lab = workspace_root().join("tests/lab");
    let names = if args.machines.is_empty() {
        LabMachine::machine_names(&lab)?
    } else {
        args.machines.clone()
    };
    ensure!(!args.shell || names.len() == 1, "name one machine for a shell on it");
    let machines: Vec<LabMachine> =
        names.iter().map(|name| LabMachine::read(&lab, name)).collect::<Result<_>>()?;
    if args.build {
        return machines
            .iter()
            .try_for_each(|machine| guest::build_programs(machine.arch).map(drop));
    }
    let python = setup::readers_python()?;
    let mut verdicts = Vec::new();
    for machine in &machines {
        for series in selected_series(machine, args)? {
            let verdict = test_machine(machine, series, args, &python).unwrap_or_else(|error| {
                print_progress(&format!("{} on {series}: {error:#}", machine.name));
                Verdict { passed: 0, failed: 1 }
            });
            verdicts.push((machine.name.as_str(), series, verdict));
        }
    }
    if args.shell {
        return Ok(());
    }
    print_table(&verdicts);
    let sum = |count_of: fn(&Verdict) -> usize| {
        verdicts.iter().map(|(_, _, result)| count_of(result)).sum::<usize>()
    };
    let (passed, failed) = (sum(|verdict| verdict.passed), sum(|verdict| verdict.failed));
    print_progress(&format!("{passed} passed, {failed} failed"));
    ensure!(failed == 0, "{failed} of the lab's steps failed");
    Ok(())
}

/// The results by machine and kernel, in the order in which they ran.
fn print_table(verdicts: &[(&str, Series, Verdict)]) {
    let width = verdicts.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max(7);
    print_progress(&format!("{:width$}  kernel  passed  failed", "machine"));
    for (name, series, Verdict { passed, failed }) in verdicts {
        let series = series.to_string();
        print_progress(&format!("{name:width$}  {series:6}  {passed:6}  {failed:6}"));
    }
}

/// A lock that is held until the end of the run: two runs would remove each other's results.
fn lock_lab() -> Result<File> {
    let dir = target::target_dir()?.join("lab");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        print_progress("waiting for another run with the same target directory");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// The selected kernels for a machine.
fn selected_series(machine: &LabMachine, args: &Args) -> Result<Vec<Series>> {
    Ok(match &args.kernel {
        Some(series) => vec![series.parse()?],
        None if args.kernels => machine.series.clone(),
        None => machine.series.iter().copied().take(1).collect(),
    })
}

/// Boots a machine, runs its steps, and checks the results.
fn test_machine(
    machine: &LabMachine,
    series: Series,
    args: &Args,
    python: &Path,
) -> Result<Verdict> {
    let machine = &machine.for_series(series);
    let steps = scenario::selected_steps(&Setting { machine, series }, &args.scenario)?;
    ensure!(!steps.is_empty() || args.shell, "none of its scenarios was selected");
    print_progress(&format!(
        "{} ({}): {} steps on {series}",
        machine.name,
        machine.about,
        steps.len()
    ));
    let wishes = Wishes { keep: args.keep, shell: args.shell, verbose: args.verbose };
    let results = boot::run_guest(&guest_spec(machine, series, &steps)?, wishes)?;
    if args.shell {
        return Ok(Verdict::default());
    }
    replay::replay_steps(&results, &steps)?;
    verified::write_differences(&results, &steps)?;
    check_results(&results, &steps, python)
}

/// Boots a machine of the lab once, with its first kernel, and runs steps on it. `keep` gets the
/// directory of the results, with one directory for each step; it is removed when this returns.
pub(crate) fn record_steps<T>(
    machine: &LabMachine,
    steps: &[Step],
    verbose: bool,
    keep: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    host::install_packages()?;
    cache::remove_unused()?;
    let _alone = lock_lab()?;
    let series = machine.series.first().copied().context("its file names no kernel")?;
    let wishes = Wishes { keep: false, shell: false, verbose };
    let mut spec = guest_spec(&machine.for_series(series), series, steps)?;
    // Other work of the host slows the guest down, and nobody waits for it.
    spec.limit *= BENCH_PATIENCE;
    spec.skewed = true;
    // Separate from the results of the machine's checks.
    spec.name.push_str("-bench");
    // The next run removes what was not copied.
    keep(&boot::run_guest(&spec, wishes)?)
}

/// Runs a scenario of a machine with its first kernel; `keep` gets the directory of the results, as
/// in [`record_steps`].
pub(crate) fn run_scenario<T>(
    machine: &str,
    scenario: &str,
    keep: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let machine = LabMachine::read(&workspace_root().join("tests/lab"), machine)?;
    let series = machine.series.first().copied().context("its file names no kernel")?;
    let on_series = machine.for_series(series);
    let steps =
        scenario::selected_steps(&Setting { machine: &on_series, series }, &[scenario.to_owned()])?;
    record_steps(&machine, &steps, false, keep)
}

/// Runs a scenario of a machine with its first kernel; all of its checks must pass. Gives the
/// directory of the results, with one directory for each step.
pub(crate) fn run_checked_scenario(machine: &str, scenario: &str) -> Result<PathBuf> {
    let (machines, scenarios) = (vec![machine.to_owned()], vec![scenario.to_owned()]);
    run(&Args { machines, scenario: scenarios, ..Args::default() })?;
    let lab_machine = LabMachine::read(&workspace_root().join("tests/lab"), machine)?;
    let series = lab_machine.series.first().copied().context("its file names no kernel")?;
    Ok(target::target_dir()?.join("lab").join(guest_name(machine, series)))
}

/// Runs a scenario on every kernel of each machine that has it; `keep` gets the directory of the
/// only step.
pub(crate) fn on_each_kernel(
    scenario: &str,
    mut keep: impl FnMut(&Path) -> Result<()>,
) -> Result<()> {
    let lab = workspace_root().join("tests/lab");
    for name in LabMachine::machine_names(&lab)? {
        let lab_machine = LabMachine::read(&lab, &name)?;
        if !lab_machine.scenarios.iter().any(|name| name == scenario) {
            continue;
        }
        for &series in &lab_machine.series {
            let machine = LabMachine { series: vec![series], ..lab_machine.clone() };
            let setting = Setting { machine: &machine.for_series(series), series };
            let steps = scenario::selected_steps(&setting, &[scenario.to_owned()])?;
            record_steps(&machine, &steps, false, |results| keep(&results.join(scenario)))?;
        }
    }
    Ok(())
}

/// The name of a guest, and of the directory of its results.
fn guest_name(machine: &str, series: Series) -> String {
    format!("{machine}-{series}")
}

fn guest_spec(machine: &LabMachine, series: Series, steps: &[Step]) -> Result<GuestSpec> {
    let devices: Vec<_> =
        machine.instances.iter().map(machine::Instance::model_definition).collect();
    let pmus: Vec<&str> = machine.instances.iter().map(|instance| instance.name.as_str()).collect();
    let housekeeping = machine.housekeeping_cpu();
    let nodes = machine.sockets + u32::from(housekeeping.is_some());
    let longest = |step: &Step| step.work.tenants.iter().map(|tenant| tenant.duration_ms).max();
    let work_ms = steps.iter().filter_map(longest).sum();
    let json: Vec<Value> = steps.iter().map(Step::guest_json).collect::<Result<_>>()?;
    Ok(GuestSpec {
        name: guest_name(&machine.name, series),
        flavour: Flavour { arch: machine.arch, realtime: machine.realtime },
        series,
        cpus: nodes * machine.cpus_per_socket,
        nodes,
        // All sockets have the same number of CPUs; of the last one, only the first CPU is used.
        online: housekeeping.map(|cpu| cpu + 1),
        fine: machine.fine,
        skewed: false,
        cpu: machine.cpu.clone(),
        modules: machine.modules.clone(),
        disk_mib: machine.disk_mib,
        nvme_mib: machine.nvme_mib,
        acpi: machine.instances.iter().filter_map(machine::Instance::acpi_device).collect(),
        files: vec![broken_catalog()?, core_pmu_catalog(), agent_config()],
        guest_json: json!({
            "devices": devices,
            "pmus": pmus,
            "housekeeping": housekeeping,
            "steps": json,
        }),
        limit: BOOT_LIMIT + STEP_LIMIT * steps.len() as u32 + WORK_LIMIT * work_ms,
    })
}

/// The file of a family with one wrong bit.
fn broken_catalog() -> Result<GuestFile> {
    let (file, original, corrupted) = broken::FAMILY;
    let path = workspace_root().join("uncore-trace/catalog").join(file);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read the family {}", path.display()))?;
    ensure!(text.contains(original), "{} does not say {original}", path.display());
    let bytes = text.replace(original, corrupted).into_bytes();
    Ok((format!("{}/{file}", broken::CATALOG), FileContent::Bytes(bytes), 0o644))
}

/// The family of the model's core PMU.
fn core_pmu_catalog() -> GuestFile {
    let path = workspace_root().join("tests/lab/catalog").join(misses::FAMILY);
    (format!("{}/{}", misses::CATALOG, misses::FAMILY), FileContent::File(path), 0o644)
}

/// The configuration of the scenario `agent`.
fn agent_config() -> GuestFile {
    let path = workspace_root().join("tests/lab/agent.toml");
    ("/lab/agent.toml".to_owned(), FileContent::File(path), 0o644)
}

/// Compares the results with the true traffic, and prints the differences.
fn check_results(results: &PathBuf, steps: &[Step], python: &Path) -> Result<Verdict> {
    let file = results.join("steps.json");
    let text = serde_json::to_string_pretty(steps).context("cannot write the steps")?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = Command::new(python);
    command.arg(workspace_root().join("tests/lab/check.py")).arg(results);
    let status = command.status().with_context(|| format!("cannot run {}", python.display()))?;
    let verdict = results.join("verdict.json");
    let text = fs::read_to_string(&verdict)
        .with_context(|| format!("the checks of {} ended early: {status}", results.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a verdict", verdict.display()))
}

/// The headers of musl for an architecture, from the newest suite: Rust's own library has none.
pub(crate) fn musl_headers(arch: kernel::Arch) -> Result<PathBuf> {
    let package = packages::newest_package("musl-dev", arch.debian_name())?;
    let root = packages::unpacked_tree("musl", &[package], |_| Ok(()))?;
    let headers = root.join(format!("usr/include/{}-linux-musl", arch.uname_machine()));
    ensure!(headers.is_dir(), "the package musl-dev has no {}", headers.display());
    Ok(headers)
}

/// A static busybox for guests of an architecture.
pub(crate) fn busybox_path(arch: kernel::Arch) -> Result<PathBuf> {
    let package = packages::newest_package("busybox-static", arch.debian_name())?;
    let root = packages::unpacked_tree("busybox", &[package], |_| Ok(()))?;
    let mut candidates =
        ["usr/bin/busybox", "bin/busybox"].iter().map(|relative| root.join(relative));
    candidates.find(|path| path.is_file()).context("no busybox in its package")
}

/// The newest kernel of a series, to boot.
pub(crate) fn kernel_image(series: &str, arch: kernel::Arch) -> Result<PathBuf> {
    Ok(kernel::resolve_kernel(series.parse()?, Flavour { arch, realtime: false }, false)?.image)
}

/// Prints a line about the progress.
fn print_progress(text: &str) {
    println!("lab: {text}");
}

/// Runs a step and prints how long it took.
fn time_step<T>(title: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let done = step()?;
    print_progress(&format!("{title} ({} s)", started.elapsed().as_secs()));
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_housekeeping_cpu_is_the_only_one_of_its_socket() {
        let lab = workspace_root().join("tests/lab");
        let guest_of = |name| {
            let machine = LabMachine::read(&lab, name).unwrap();
            let series = machine.series[0];
            guest_spec(&machine.for_series(series), series, &[]).unwrap()
        };
        let own = guest_of("grace-housekeeping");
        assert_eq!((own.cpus, own.nodes, own.online), (6, 3, Some(5)));
        assert_eq!(own.guest_json["housekeeping"], 4);
        let shared = guest_of("grace-mixes");
        assert_eq!((shared.cpus, shared.nodes, shared.online), (4, 2, None));
        assert!(shared.guest_json["housekeeping"].is_null());
    }
}
