//! Runs a guest in QEMU's software emulation and copies its results out.
//!
//! The guest powers off at the end, or the time limit ends it. It writes its results as a tar
//! stream to its first virtio disk; a line on its console says that it completed.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::kernel::Arch;
use super::packages::{self, DebianPackage};
use super::{acpi, version};
use crate::command::{last_lines, run_quietly};

/// UEFI, without which an arm64 kernel gets no ACPI tables.
const FIRMWARE: &str = "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd";

/// The line on the console when the guest has completed all steps.
const SUCCESS: &str = "lab: success";

/// The guest's clock is the number of instructions it has executed ([`NS_PER_INSTRUCTION`] each,
/// and the time until the next timer when all of its CPUs are idle), so that a busy host does not
/// stop a CPU in the middle of a step: with an independent clock, a CPU of a guest stood still for
/// up to 0.9 s.
const CLOCK: &str = "shift=1,sleep=off";

/// The clock of a machine with fine turns: twice as many instructions per time, since handling a
/// tick takes time of one CPU while the three others are stopped.
const FINE_CLOCK: &str = "shift=0,sleep=off";

/// CPUs that share one thread change turns at the next timer of the emulated machine; until then
/// the others stand still, even inside an interrupt handler or a reading. A filter on an unused
/// network has a timer and does nothing else: so the four CPUs share its interval, us (QEMU's
/// accel/tcg/tcg-accel-ops-rr.c and net/filter-buffer.c).
const FINE_US: u32 = 20;

/// Shortest turn of each CPU of a machine with many CPUs, ns: changing turns takes QEMU as long as
/// some hundred instructions.
const SHORTEST_TURN_NS: u32 = 2500;

/// Before this version the first CPU could use up the time of all until the next timer ("accel/tcg:
/// split CPU time more fairly").
const FINE_SINCE: (u32, u32) = (8, 1);

/// Nanoseconds per instruction of that clock: two to the power of its shift.
pub(super) const NS_PER_INSTRUCTION: u32 = 2;

/// Console lines in an error message.
const SHOWN: usize = 40;

/// Size of the disk for results. The file is sparse.
const DISK: u64 = 2 << 30;

/// Memory of each node.
pub(super) const NODE_MEMORY: u64 = 1 << 30;

/// Interval between checks for the end of the guest.
const POLL: Duration = Duration::from_millis(50);

/// The source of the guest's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The host's clock.
    Host,
    /// The number of executed instructions.
    Counted,
    /// As `Counted`, and CPUs alternate every few microseconds.
    Fine,
}

/// The machine's own QEMU, or one with support for fine turns from the backports of its suite.
pub(super) fn find_qemu(arch: Arch, fine: bool) -> Result<PathBuf> {
    let name = match arch {
        Arch::Arm64 => "qemu-system-aarch64",
        Arch::Amd64 => "qemu-system-x86_64",
    };
    if !fine || own_version(name)? >= FINE_SINCE {
        return Ok(PathBuf::from(name));
    }
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let number = release.lines().find_map(|line| line.strip_prefix("VERSION_ID="));
    let backport = format!("~bpo{}+", number.unwrap_or_default().trim_matches('"'));
    let package = match arch {
        Arch::Arm64 => "qemu-system-arm",
        Arch::Amd64 => "qemu-system-x86",
    };
    let host = run_quietly(Command::new("dpkg").arg("--print-architecture"))?;
    let of_suite = |candidate: &DebianPackage| {
        candidate.name == package
            && candidate.arch == host.trim()
            && candidate.version.contains(&backport)
    };
    let versions = packages::find_packages(of_suite)?;
    let Some(newest) =
        versions.into_iter().max_by(|a, b| version::compare_versions(&a.version, &b.version))
    else {
        let (major, minor) = FINE_SINCE;
        bail!("{name} is older than {major}.{minor} and {package} has no version {backport}");
    };
    let root = packages::unpacked_tree(package, &[newest], |_| Ok(()))?;
    Ok(root.join("usr/bin").join(name))
}

/// Major and minor version of the installed program.
fn own_version(name: &str) -> Result<(u32, u32)> {
    let output = run_quietly(Command::new(name).arg("--version"))?;
    let version = output.split("version ").nth(1).unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).with_context(|| format!("{name} says {output:?}"))
}

/// One run of a guest.
#[derive(Debug)]
pub(super) struct QemuRun<'a> {
    /// The emulated architecture.
    pub arch: Arch,
    /// Path of QEMU.
    pub program: PathBuf,
    /// QEMU's name of the CPU, with its features.
    pub cpu: &'a str,
    pub clock: Clock,
    /// CPUs of all nodes.
    pub cpus: u32,
    /// NUMA nodes, one socket each.
    pub nodes: u32,
    /// The kernel.
    pub image: &'a Path,
    /// The initramfs.
    pub initrd: &'a Path,
    /// More words for the kernel's command line.
    pub words: &'a str,
    /// Time limit of the guest.
    pub limit: Duration,
    /// Whether the console is this terminal, without a time limit.
    pub shell: bool,
    /// Whether the console is shown.
    pub verbose: bool,
    /// Directory of the console's text and the results.
    pub results: &'a Path,
    /// The output disk's file.
    pub disk: &'a Path,
    /// File and size of a second, empty disk.
    pub second: Option<(PathBuf, u64)>,
    /// File and size of an empty `NVMe` disk, which is below a root port.
    pub nvme: Option<(PathBuf, u64)>,
}

impl QemuRun<'_> {
    /// Boots the guest, waits for its end, and unpacks the results.
    pub(super) fn run_to_end(&self) -> Result<()> {
        let disk = File::create(self.disk).and_then(|disk| disk.set_len(DISK));
        disk.with_context(|| format!("cannot create {}", self.disk.display()))?;
        for (path, size) in self.second.iter().chain(&self.nvme) {
            let disk = File::create(path).and_then(|disk| disk.set_len(*size));
            disk.with_context(|| format!("cannot create {}", path.display()))?;
        }
        let mut command = self.build_command()?;
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let outcome = self.wait_for_end(child);
        let console = self.console_text();
        let shown = || {
            format!(
                "the last lines of the console, {}:\n{}",
                self.console_path().display(),
                last_lines(&console, SHOWN)
            )
        };
        if let Err(error) = outcome {
            bail!("{error:#}; {}", shown());
        }
        if !console.lines().any(|line| line.trim_end() == SUCCESS) {
            let reported_cause =
                console.lines().rev().find_map(|line| line.strip_prefix("lab: failure: "));
            bail!("the guest {}; {}", reported_cause.unwrap_or("did not come to its end"), shown());
        }
        run_quietly(
            Command::new("tar")
                .args(["--extract", "--no-same-owner", "--file"])
                .arg(self.disk)
                .arg("--directory")
                .arg(self.results),
        )
        .context("cannot unpack the results of the guest")?;
        Ok(())
    }

    fn console_path(&self) -> PathBuf {
        self.results.join("console.txt")
    }

    /// The console so far, without control characters.
    fn console_text(&self) -> String {
        let bytes = fs::read(self.console_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }

    fn build_command(&self) -> Result<Command> {
        let console = match self.arch {
            Arch::Arm64 => "ttyAMA0",
            Arch::Amd64 => "ttyS0",
        };
        let mut command = Command::new(&self.program);
        match self.arch {
            Arch::Arm64 => {
                ensure!(Path::new(FIRMWARE).is_file(), "no firmware {FIRMWARE}");
                command.args(["-M", "virt,gic-version=3", "-bios", FIRMWARE]);
            }
            Arch::Amd64 => {
                command.args(["-M", "q35"]);
            }
        }
        command.args(["-accel", "tcg,thread=single"]);
        match self.clock {
            Clock::Host => &mut command,
            Clock::Counted => command.args(["-icount", CLOCK]),
            Clock::Fine => command.args(["-icount", FINE_CLOCK]),
        };
        command.args(["-cpu", self.cpu]).arg("-smp").arg(self.smp_topology()?);
        self.add_memory(&mut command);
        command.arg("-kernel").arg(self.image).arg("-initrd").arg(self.initrd);
        // A panic restarts the machine at once, and QEMU ends when the machine restarts.
        command
            .args(["-no-reboot", "-append"])
            .arg(format!("console={console} panic=-1 rdinit=/init {}", self.words));
        command.args(["-nodefaults", "-display", "none"]);
        command
            .arg("-drive")
            .arg(with_path("if=none,id=out,format=raw,cache=unsafe,file=", self.disk)?);
        command.args(["-device", "virtio-blk-pci,drive=out"]);
        if let Some((path, _)) = &self.second {
            let drive = "if=none,id=second,format=raw,cache=unsafe,file=";
            command.arg("-drive").arg(with_path(drive, path)?);
            command.args(["-device", "virtio-blk-pci,drive=second"]);
        }
        if let Some((path, _)) = &self.nvme {
            let drive = "if=none,id=nvme,format=raw,cache=unsafe,file=";
            command.arg("-drive").arg(with_path(drive, path)?);
            command.args(["-device", "pcie-root-port,id=above,chassis=1"]);
            command.args(["-device", "nvme,serial=lab,drive=nvme,bus=above"]);
        }
        if self.clock == Clock::Fine {
            command.args(["-netdev", "hubport,id=nobody,hubid=0", "-object"]);
            let turns = fine_us(self.cpus);
            command.arg(format!("filter-buffer,id=turns,netdev=nobody,interval={turns}"));
        }
        if self.shell {
            let chardev = "stdio,id=console,signal=off,logfile=";
            command.arg("-chardev").arg(with_path(chardev, &self.console_path())?);
        } else {
            command.arg("-chardev").arg(with_path("file,id=console,path=", &self.console_path())?);
            command.stdin(Stdio::null());
        }
        command.args(["-serial", "chardev:console"]);
        Ok(command)
    }

    /// A socket for each node.
    fn smp_topology(&self) -> Result<String> {
        let Self { cpus, nodes, .. } = self;
        ensure!(*nodes > 0 && cpus % nodes == 0, "{cpus} CPUs do not divide over {nodes} nodes");
        Ok(format!("{cpus},sockets={nodes},cores={},threads=1", cpus / nodes))
    }

    fn add_memory(&self, command: &mut Command) {
        command.arg("-m").arg(format!("{}M", (u64::from(self.nodes) * NODE_MEMORY) >> 20));
        if self.nodes == 1 {
            return;
        }
        for node in 0..self.nodes {
            let cpus: Vec<String> = (0..self.cpus)
                .filter(|cpu| acpi::node_of(*cpu, self.cpus, self.nodes) == node)
                .map(|cpu| format!(",cpus={cpu}"))
                .collect();
            command
                .arg("-object")
                .arg(format!("memory-backend-ram,id=ram{node},size={}M", NODE_MEMORY >> 20))
                .arg("-numa")
                .arg(format!("node,nodeid={node},memdev=ram{node}{}", cpus.concat()));
        }
    }

    /// Waits for the end of QEMU, or ends it at the time limit.
    fn wait_for_end(&self, mut child: Child) -> Result<()> {
        let started = Instant::now();
        let mut shown = 0;
        let status = loop {
            let status = child.try_wait().context("cannot wait for QEMU")?;
            if self.verbose && !self.shell {
                shown = show_new_bytes(&self.console_path(), shown)?;
            }
            if let Some(status) = status {
                break status;
            }
            if !self.shell && started.elapsed() > self.limit {
                child.kill().context("cannot end QEMU")?;
                child.wait().context("cannot wait for QEMU")?;
                bail!("the guest was stopped after the limit of {} s", self.limit.as_secs());
            }
            thread::sleep(POLL);
        };
        ensure!(status.success(), "QEMU failed: {status}");
        Ok(())
    }
}

/// Time in which each of this many CPUs has a turn, us.
fn fine_us(cpus: u32) -> u32 {
    FINE_US.max(cpus * SHORTEST_TURN_NS / 1000)
}

/// A QEMU option that ends with a path. A comma in it is doubled, because a single one would end
/// it.
fn with_path(option: &str, path: &Path) -> Result<String> {
    let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(format!("{option}{}", path.replace(',', ",,")))
}

/// Shows the bytes of a file after the given offset, and returns the new offset.
fn show_new_bytes(path: &Path, offset: u64) -> Result<u64> {
    // QEMU has not created it yet.
    let Ok(mut file) = File::open(path) else { return Ok(offset) };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(&bytes)
        .and_then(|()| stdout.flush())
        .context("cannot write to the terminal")?;
    Ok(offset + bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_not_shorter_than_it_takes_to_change_them() {
        assert_eq!([4, 6, 8, 24].map(fine_us), [20, 20, 20, 60]);
    }
}
