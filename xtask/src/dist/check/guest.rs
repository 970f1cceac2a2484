//! Emulated guests, and a test in one: the program of another architecture records.
//!
//! A guest has a Debian kernel of the lab, and all its files in the initramfs. The tests check the
//! text that it prints on its console.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::apt::Apt;
use crate::command::{last_lines, run_quietly};
use crate::lab;
use crate::lab::kernel::Arch;

/// A long-term kernel, which stays in the archive for years.
const SERIES: &str = "6.12";

/// Time limit of a guest, s. On an idle machine it takes 40 s, and with packages 4 minutes.
const LIMIT: &str = "1500";

/// The last line that a guest's script prints.
const END: &str = "uncore-trace check: done";

/// Records in a guest of the program's architecture that has only the program and busybox.
pub(super) fn test_program(arch: Arch, program: &Path, apt: &Apt) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let busybox = lab::busybox_path(arch)?;
    for (source, installed_name) in
        [(busybox.as_path(), "bin/busybox"), (program, "bin/uncore-trace")]
    {
        let target_path = dir.path().join(installed_name);
        write_file(&target_path, "")?;
        fs::copy(source, &target_path)
            .with_context(|| format!("cannot write {}", target_path.display()))?;
        make_executable(&target_path)?;
    }
    let init = dir.path().join("init");
    write_file(
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
    make_executable(&init)?;
    let console = boot_guest(arch, dir.path(), "rdinit=/init", apt)?;
    super::check_version(
        "uncore-trace",
        console.lines().find(|line| line.starts_with("uncore-trace ")).unwrap_or(&console),
    )?;
    // Exit code 1: records were lost because the emulated machine is slow.
    let recorded = console.contains("record=0") || console.contains("record=1");
    ensure!(
        recorded && console.contains("check=0"),
        "it cannot record:\n{}",
        last_lines(&console, 60)
    );
    Ok(())
}

/// Boots a guest with the files of `root`; returns its console output.
pub(super) fn boot_guest(arch: Arch, root: &Path, words: &str, apt: &Apt) -> Result<String> {
    let (program, package, machine, console) = match arch {
        Arch::Amd64 => ("qemu-system-x86_64", "qemu-system-x86", "q35", "ttyS0"),
        Arch::Arm64 => ("qemu-system-aarch64", "qemu-system-arm", "virt,gic-version=3", "ttyAMA0"),
    };
    for (tool, package) in [(program, package), ("cpio", "cpio")] {
        if crate::command::tool_version(tool).is_err() {
            apt.install_packages(&[package])?;
        }
    }
    let kernel = lab::kernel_image(SERIES, arch)?;
    let initrd = make_initrd(root)?;
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
    let console_text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        console_text.contains(END),
        "the guest ended early ({}): {error}{}",
        output.status,
        last_lines(&console_text, 40)
    );
    Ok(console_text)
}

/// Makes an initramfs of a directory, as the file `initrd` in a temporary directory.
fn make_initrd(root: &Path) -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let mut pack = Command::new("sh");
    pack.current_dir(root)
        .args(["-c", "find . | cpio --quiet -o -H newc | gzip -1 > \"$1\"", "sh"])
        .arg(dir.path().join("initrd"));
    run_quietly(&mut pack)?;
    Ok(dir)
}

pub(super) fn write_file(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn make_executable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change {}", path.display()))
}
