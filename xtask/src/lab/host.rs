//! Packages that this machine needs to build and run guests, from its own suite; missing ones are
//! installed.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::print_progress;
use crate::apt::Apt;
use crate::command::{as_root, run_quietly, tool_version};

/// Packages of the programs for preparing and booting.
const PACKAGES: &[&str] = &[
    "acpica-tools",
    "bc",
    "bison",
    "cargo-web",
    "flex",
    "gcc",
    "gcc-aarch64-linux-gnu",
    "kmod",
    "libc6-dev",
    "libc6-dev-arm64-cross",
    "libelf-dev",
    "libssl-dev",
    "make",
    "qemu-efi-aarch64",
    "qemu-system-arm",
    "qemu-system-x86",
    "rustc-web",
    "xz-utils",
    "zstd",
];

/// Rust's library for guests is a package of their architecture, which dpkg must accept.
const GUEST_ARCH: &str = "arm64";
const GUEST_LIBRARY: &str = "libstd-rust-web-dev:arm64";

/// Installs missing packages.
pub(super) fn install_packages() -> Result<()> {
    tool_version("dpkg").context(
        "the lab uses kernels and tools of Debian, and dpkg is missing: run it on \
                  Debian",
    )?;
    let apt = Apt::new();
    let missing = missing_packages(PACKAGES)?;
    if !missing.is_empty() {
        print_progress(&format!("this machine: installing {}", missing.join(" ")));
        apt.install_packages(&missing)?;
    }
    if !missing_packages(&[GUEST_LIBRARY])?.is_empty() {
        print_progress(&format!("this machine: installing {GUEST_LIBRARY}"));
        add_architecture()?;
        apt.install_packages(&[GUEST_LIBRARY])?;
    }
    let missing: Vec<&str> = missing_packages(PACKAGES)?;
    ensure!(missing.is_empty(), "still not installed: {}", missing.join(" "));
    Ok(())
}

/// The packages that are not installed.
fn missing_packages<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    let output = Command::new("dpkg-query")
        .args([
            "--show",
            "--showformat=${Package} ${Package}:${Architecture} ${db:Status-Status}\\n",
        ])
        .args(packages)
        .output()
        .context("cannot run dpkg-query")?;
    // It fails if one package is unknown, but still reports the others.
    let text = String::from_utf8_lossy(&output.stdout);
    let installed = |wanted: &str| {
        text.lines().any(|line| {
            line.ends_with(" installed") && line.split(' ').take(2).any(|name| name == wanted)
        })
    };
    Ok(packages.iter().copied().filter(|package| !installed(package)).collect())
}

fn add_architecture() -> Result<()> {
    let known = run_quietly(Command::new("dpkg").arg("--print-foreign-architectures"))?;
    let native = run_quietly(Command::new("dpkg").arg("--print-architecture"))?;
    if known.lines().chain(native.lines()).any(|arch| arch == GUEST_ARCH) {
        return Ok(());
    }
    run_quietly(as_root("dpkg").args(["--add-architecture", GUEST_ARCH]))?;
    run_quietly(as_root("apt-get").args(["update", "--quiet=2"]))?;
    Ok(())
}
