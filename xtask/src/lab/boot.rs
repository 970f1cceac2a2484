//! Boots one guest, from its specification to the directory with its results.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use uncore_trace_ebpf::stamp::workspace_root;

use super::acpi::{self, AcpiDevice};
use super::initrd::{self, FileContent, GuestFile};
use super::kernel::{self, Arch, Flavour, Kernel, Series};
use super::qemu::{self, Clock};
use super::{guest, modules, print_progress};
use crate::target;

/// The model's own module; all others of its directory are drivers.
const MODEL: &str = "uncore_model.ko";

/// Drivers that distributions build into the kernel but the guest gets as modules for the model:
/// their init functions, which are disabled.
const LEFT_OUT: &str =
    "hisi_ddrc_pmu_module_init,hisi_hha_pmu_module_init,hisi_l3c_pmu_module_init";

/// Older kernels start the second x86-64 CPU in steps in which the two CPUs wait for each other,
/// and hang if time is the number of executed instructions (arch/x86/kernel/smpboot.c; 6.5 starts
/// them in parallel).
const PARALLEL_START: Series = Series { major: 6, minor: 5 };

/// Modules that a guest needs to write its results.
const DISK_MODULES: &[&str] = &["virtio_pci", "virtio_blk"];

/// Options of the user who starts a guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// Whether to keep the initramfs and the disk beside the results.
    pub keep: bool,
    /// Whether to start a shell on the console instead of the steps.
    pub shell: bool,
    /// Whether to show the console.
    pub verbose: bool,
}

/// Specification of a guest: its machine and its work.
#[derive(Debug)]
pub(super) struct GuestSpec {
    /// Name of the directory of its results.
    pub name: String,
    /// The emulated architecture, and the flavour of its kernel.
    pub flavour: Flavour,
    /// The series of its kernel.
    pub series: Series,
    /// CPUs of all nodes.
    pub cpus: u32,
    /// NUMA nodes, one socket each.
    pub nodes: u32,
    /// Number of CPUs that its kernel uses, if not all.
    pub online: Option<u32>,
    /// Whether its CPUs alternate every few microseconds.
    pub fine: bool,
    /// Whether the timer interrupts of its CPUs are at different times, and so their slices.
    pub skewed: bool,
    /// QEMU's name of its CPU, if not the most capable one.
    pub cpu: Option<String>,
    /// Modules of the distribution that it loads.
    pub modules: Vec<String>,
    /// Size of its second disk, MiB; 0 for none.
    pub disk_mib: u64,
    /// Size of its `NVMe` disk, MiB; 0 for none.
    pub nvme_mib: u64,
    /// Devices of the ACPI namespace (arm64 only).
    pub acpi: Vec<AcpiDevice>,
    /// Files in addition to those of every guest.
    pub files: Vec<GuestFile>,
    /// Input of the guest's init; the modules to load are added to it.
    pub guest_json: Value,
    /// Time limit of the guest.
    pub limit: Duration,
}

/// Prepares and boots a guest. Returns the directory of its results: `console.txt` and the files
/// that it wrote.
pub(super) fn run_guest(machine: &GuestSpec, wishes: Wishes) -> Result<PathBuf> {
    boot_guest(machine, wishes).with_context(|| format!("guest {}", machine.name))
}

fn boot_guest(machine: &GuestSpec, wishes: Wishes) -> Result<PathBuf> {
    let lab = target::target_dir()?.join("lab");
    let (results, work) = (lab.join(&machine.name), lab.join(format!("{}.guest", machine.name)));
    for dir in [&results, &work] {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let kernel = kernel::resolve_kernel(machine.series, machine.flavour, needs_model(machine))?;
    let initrd = work.join("initrd");
    write_initrd(machine, &kernel, wishes.shell, &work, &initrd)?;
    let shell = if wishes.shell { "lab.shell loglevel=4" } else { "" };
    let online = machine.online.map(|cpus| format!("nr_cpus={cpus}")).unwrap_or_default();
    let skewed = if machine.skewed { "skew_tick=1" } else { "" };
    let words = format!("initcall_blacklist={LEFT_OUT} {skewed} {online} {shell}");
    let started = Instant::now();
    let run = qemu::QemuRun {
        arch: machine.flavour.arch,
        cpu: match (&machine.cpu, machine.flavour.arch) {
            (Some(cpu), _) => cpu,
            // Emulating the architected pointer authentication is very slow.
            (None, Arch::Arm64) => "max,pauth-impdef=on",
            (None, Arch::Amd64) => "max",
        },
        program: qemu::find_qemu(machine.flavour.arch, machine.fine)?,
        clock: match machine.flavour.arch {
            Arch::Amd64 if machine.series < PARALLEL_START => Clock::Host,
            _ if machine.fine => Clock::Fine,
            _ => Clock::Counted,
        },
        cpus: machine.cpus,
        nodes: machine.nodes,
        image: &kernel.image,
        initrd: &initrd,
        words: &words,
        limit: machine.limit,
        shell: wishes.shell,
        verbose: wishes.verbose,
        results: &results,
        disk: &work.join("disk"),
        second: (machine.disk_mib > 0).then(|| (work.join("second"), machine.disk_mib << 20)),
        nvme: (machine.nvme_mib > 0).then(|| (work.join("nvme"), machine.nvme_mib << 20)),
    };
    let outcome = run.run_to_end();
    if !wishes.keep {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    outcome?;
    let seconds = started.elapsed().as_secs();
    print_progress(&format!("{} on {}: ran ({seconds} s)", machine.name, kernel.release));
    Ok(results)
}

/// Whether a guest has devices of the model.
fn needs_model(machine: &GuestSpec) -> bool {
    machine.guest_json["devices"].as_array().is_some_and(|devices| !devices.is_empty())
}

/// Writes all files of the guest to an initramfs.
fn write_initrd(
    machine: &GuestSpec,
    kernel: &Kernel,
    shell: bool,
    work: &Path,
    initrd_path: &Path,
) -> Result<()> {
    let programs = guest::build_programs(machine.flavour.arch)?;
    let mut files: Vec<GuestFile> = vec![
        ("/init".to_owned(), FileContent::File(programs.lab_guest), 0o755),
        ("/bin/uncore-trace".to_owned(), FileContent::File(programs.uncore_trace), 0o755),
    ];
    if shell {
        let busybox = super::busybox_path(machine.flavour.arch)?;
        files.push(("/bin/busybox".to_owned(), FileContent::File(busybox), 0o755));
    }
    let json = add_modules(machine, kernel, &mut files)?;
    let json = serde_json::to_vec(&json).context("cannot write guest.json")?;
    files.push(("/lab/guest.json".to_owned(), FileContent::Bytes(json), 0o644));
    files.extend(machine.files.iter().cloned());
    let mut tables = Vec::new();
    if machine.flavour.arch == Arch::Arm64 {
        if !machine.acpi.is_empty() {
            tables.push(("ssdt", acpi::compile_ssdt(&machine.acpi, work)?));
        }
        if machine.nodes > 1 {
            tables.push(("srat", acpi::build_srat(machine.cpus, machine.nodes, qemu::NODE_MEMORY)));
        }
    } else if !machine.acpi.is_empty() {
        bail!("ACPI devices are for arm64 guests");
    }
    initrd::write_initrd_image(initrd_path, &tables, &files)
}

/// Adds the modules' files. Returns the input of init with their names.
fn add_modules(machine: &GuestSpec, kernel: &Kernel, files: &mut Vec<GuestFile>) -> Result<Value> {
    let mut json = machine.guest_json.clone();
    let fields = json.as_object_mut().context("guest.json is no object")?;
    let machine_modules = machine.modules.iter().map(String::as_str);
    let wanted: Vec<&str> = DISK_MODULES.iter().copied().chain(machine_modules).collect();
    let mut paths = modules::unpack_dependencies(kernel, &wanted)?;
    let mut module_names: Vec<String> = paths.iter().map(|path| file_name(path)).collect();
    if needs_model(machine) {
        let built = modules::build_drivers(kernel, &workspace_root().join("tests/lab/model"))?;
        let drivers: Vec<_> =
            built.iter().map(|path| file_name(path)).filter(|name| name != MODEL).collect();
        fields.insert("drivers".to_owned(), json!(drivers));
        module_names.push(MODEL.to_owned());
        // The model's arm-cmn replaces that of the distribution.
        paths.retain(|path| !drivers.contains(&file_name(path)));
        paths.extend(built);
    }
    fields.insert("modules".to_owned(), json!(module_names));
    files.extend(paths.into_iter().map(|path| {
        (format!("/lab/modules/{}", file_name(&path)), FileContent::File(path), 0o644)
    }));
    Ok(json)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
