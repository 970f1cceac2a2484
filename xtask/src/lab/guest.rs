//! Builds the programs for guests as static binaries.
//!
//! They are built with the distribution's compiler, whose library for the other architecture is a
//! package, so no other toolchain or system image is needed.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::kernel::Arch;
use super::print_progress;
use crate::command::run_quietly;
use crate::target;

/// The distribution's program, whatever is first in PATH.
const CARGO: &str = "/usr/bin/cargo";
const RUSTC: &str = "/usr/bin/rustc";

/// Builds that take less, in seconds, had nothing to do and print no line.
const NOTED: u64 = 3;

/// Programs for guests of one architecture.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    /// The program under test.
    pub uncore_trace: PathBuf,
    /// The guest's init with its tenants.
    pub lab_guest: PathBuf,
}

/// Builds both; cargo rebuilds only what changed.
pub(super) fn build_programs(arch: Arch) -> Result<Programs> {
    let target = target_of(arch).0;
    let build = target::target_dir()?.join("lab/build");
    let started = Instant::now();
    let mut cargo = Command::new(CARGO);
    cargo
        .current_dir(uncore_trace_ebpf::stamp::workspace_root())
        .args(["build", "--quiet", "--profile=lab", "--target", target])
        .args(["--package=uncore-trace", "--package=uncore-trace-lab"])
        .env("CARGO_TARGET_DIR", &build)
        .env("RUSTC", RUSTC);
    // The same flags for both architectures: this machine's is one of them, and different flags for
    // build scripts and macros would rebuild everything each time.
    for (target, linker) in [Arch::Arm64, Arch::Amd64].map(target_of) {
        let name = target.replace('-', "_");
        let upper = name.to_uppercase();
        cargo
            .env(format!("CARGO_TARGET_{upper}_LINKER"), linker)
            .env(format!("CARGO_TARGET_{upper}_RUSTFLAGS"), "-Ctarget-feature=+crt-static")
            .env(format!("CC_{name}"), linker);
    }
    // These variables would override the flags set here.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER"] {
        cargo.env_remove(name);
    }
    run_quietly(&mut cargo)
        .with_context(|| format!("the guest's programs do not build: {target}"))?;
    let seconds = started.elapsed().as_secs();
    if seconds >= NOTED {
        print_progress(&format!("programs for {}: built ({seconds} s)", arch.debian_name()));
    }
    let dir = build.join(target).join("lab");
    Ok(Programs { uncore_trace: dir.join("uncore-trace"), lab_guest: dir.join("lab-guest") })
}

/// Rust's name of an architecture, and the program that links for it.
fn target_of(arch: Arch) -> (&'static str, &'static str) {
    match arch {
        Arch::Arm64 => ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc"),
        Arch::Amd64 => ("x86_64-unknown-linux-gnu", "gcc"),
    }
}
