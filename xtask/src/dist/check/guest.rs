//! Tests in emulated guests: the units under systemd, and the program of another architecture.
//!
//! A guest has a Debian kernel of the lab, and all its files in the initramfs. The tests check the
//! text that it prints on its console.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::root::{Root, Variant, archive};
use crate::apt::Apt;
use crate::command::{last_lines, quietly};
use crate::lab;
use crate::lab::kernel::Arch;

/// A long-term kernel, which stays in the archive for years.
const SERIES: &str = "6.12";

/// Time limit of a guest, s. It takes 40 s on an idle machine.
const LIMIT: &str = "900";

/// The last line that a guest's script prints.
const END: &str = "uncore-trace check: done";

/// Configuration of the agent in the guest, which has no PMU.
const CONFIG: &str = "\
[record]
groups = ['host']
[ring]
part = '4s'
keep = '3'
[rollup]
window = '1s'
[metrics]
listen = '127.0.0.1:9762'
[upload]
url = 'file:///var/lib/uncore-trace/bucket'
";
/// Makes the upload end when all files are sent.
const UPLOAD_DROP_IN: &str = "\
[Service]
Type=oneshot
ExecStart=
ExecStart=/usr/bin/uncore-trace upload --config /etc/uncore-trace/agent.toml --once
Restart=no
";
/// Unit that runs the script.
const CHECK: &str = "\
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
ExecStart=/bin/sh /check.sh
[Install]
WantedBy=multi-user.target
";
/// Debian's kernels refuse counters to `CAP_PERFMON` unless `kernel.perf_event_paranoid` is at most
/// 2. `systemctl start` returns when the agent reports that it records.
const SCRIPT: &str = "\
echo 2 > /proc/sys/kernel/perf_event_paranoid
systemctl start uncore-trace && echo agent=ready
sleep 12
echo user=$(ps -o user:20= -p $(systemctl show -P MainPID uncore-trace))
grep CapEff /proc/$(systemctl show -P MainPID uncore-trace)/status
systemctl reload uncore-trace
sleep 2
systemctl stop uncore-trace
systemctl show -p Result -p ExecMainStatus uncore-trace
mkdir /var/lib/uncore-trace/bucket
chown uncore-trace: /var/lib/uncore-trace/bucket
systemctl start uncore-trace-upload && echo upload=good
find /var/lib/uncore-trace/bucket -name '*.parquet' -printf 'sent=%f\\n'
journalctl --no-pager -o cat -u uncore-trace -u uncore-trace-upload
echo uncore-trace check: done
systemctl poweroff --force --force
";

/// Starts and stops the installed units in a guest with systemd.
pub(super) fn units(deb: &Path, apt: &Apt) -> Result<()> {
    let root = Root::new(&archive(&Variant::SYSTEMD, apt)?)?;
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.path().display())).arg("--install").arg(deb);
    quietly(&mut dpkg)?;
    let units = root.path().join("etc/systemd/system");
    for (path, text) in [
        ("../../uncore-trace/agent.toml", CONFIG),
        ("uncore-trace-upload.service.d/check.conf", UPLOAD_DROP_IN),
        ("check.service", CHECK),
        ("../../../check.sh", SCRIPT),
    ] {
        write(&units.join(path), text)?;
    }
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants).with_context(|| format!("cannot create {}", wants.display()))?;
    let link = wants.join("check.service");
    symlink("/etc/systemd/system/check.service", &link)
        .with_context(|| format!("cannot create {}", link.display()))?;
    let said =
        boot(super::own()?, root.path(), "rdinit=/lib/systemd/systemd systemd.show_status=0", apt)?;
    // 0xc000000004: CAP_DAC_READ_SEARCH (bit 2), CAP_PERFMON (38) and CAP_BPF (39).
    for wanted in [
        "agent=ready",
        "user=uncore-trace",
        "000000c000000004",
        "the configuration was read again and is applied",
        "Result=success",
        "upload=good",
        "sent=",
    ] {
        ensure!(
            said.contains(wanted),
            "the guest did not print {wanted}:\n{}",
            last_lines(&said, 60)
        );
    }
    Ok(())
}

/// Records in a guest of the program's architecture that has only the program and busybox.
pub(super) fn program(arch: Arch, program: &Path, apt: &Apt) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let busybox = lab::busybox(arch)?;
    for (from, to) in [(busybox.as_path(), "bin/busybox"), (program, "bin/uncore-trace")] {
        let to = dir.path().join(to);
        write(&to, "")?;
        fs::copy(from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        executable(&to)?;
    }
    let init = dir.path().join("init");
    write(
        &init,
        "#!/bin/busybox sh\n\
         busybox mkdir /proc /sys /dev /tmp\n\
         busybox mount -t proc proc /proc; busybox mount -t sysfs sys /sys\n\
         busybox mount -t devtmpfs dev /dev; busybox mount -t cgroup2 cg /sys/fs/cgroup\n\
         uncore-trace --version; busybox uname -m\n\
         uncore-trace record -p host -o /tmp/run/ --duration 2s; echo record=$?\n\
         uncore-trace check /tmp/run/; echo check=$?\n\
         echo uncore-trace check: done\n\
         busybox poweroff -f\n",
    )?;
    executable(&init)?;
    let said = boot(arch, dir.path(), "rdinit=/init", apt)?;
    super::said_version(
        "uncore-trace",
        said.lines().find(|line| line.starts_with("uncore-trace ")).unwrap_or(&said),
    )?;
    // Exit code 1: records were lost because the emulated machine is slow.
    let recorded = said.contains("record=0") || said.contains("record=1");
    ensure!(recorded && said.contains("check=0"), "it cannot record:\n{}", last_lines(&said, 60));
    Ok(())
}

/// Boots a guest with the files of `root`; returns its console output.
fn boot(arch: Arch, root: &Path, words: &str, apt: &Apt) -> Result<String> {
    let (program, package, machine, console) = match arch {
        Arch::Amd64 => ("qemu-system-x86_64", "qemu-system-x86", "q35", "ttyS0"),
        Arch::Arm64 => ("qemu-system-aarch64", "qemu-system-arm", "virt,gic-version=3", "ttyAMA0"),
    };
    for (tool, package) in [(program, package), ("cpio", "cpio")] {
        if crate::command::version(tool).is_err() {
            apt.install(&[package])?;
        }
    }
    let kernel = lab::kernel_image(SERIES, arch)?;
    let initrd = initrd(root)?;
    let mut qemu = Command::new("timeout");
    qemu.args([LIMIT, program, "-M", machine, "-accel", "tcg,thread=multi", "-cpu", "max"])
        .args(["-smp", "2", "-m", "3072", "-nographic", "-no-reboot", "-nic", "none", "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd.path().join("initrd"))
        .arg("-append")
        .arg(format!("console={console} quiet panic=-1 {words}"))
        .stdin(Stdio::null());
    let output = qemu.output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        said.contains(END),
        "the guest ended early ({}): {error}{}",
        output.status,
        last_lines(&said, 40)
    );
    Ok(said)
}

/// Makes an initramfs of a directory, as the file `initrd` in a temporary directory.
fn initrd(root: &Path) -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let mut pack = Command::new("sh");
    pack.current_dir(root)
        .args(["-c", "find . | cpio --quiet -o -H newc | gzip -1 > \"$1\"", "sh"])
        .arg(dir.path().join("initrd"));
    quietly(&mut pack)?;
    Ok(dir)
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn executable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change {}", path.display()))
}
