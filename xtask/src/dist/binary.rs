//! Static programs: built with musl, stripped, each with a separate debug file.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::stamp::workspace_root;

use super::PROGRAMS;
use crate::apt::Apt;
use crate::command::{run_quietly, tool_version};
use crate::lab;
use crate::lab::kernel::Arch;
use crate::target;

/// Upper limit of the size of a stripped program, in bytes.
const LARGEST: u64 = 20_000_000;

/// The build profile in `Cargo.toml`, which is also the name of its output directory.
pub(super) const PROFILE: &str = "dist";

/// Names for one architecture.
struct ArchNames {
    /// Rust's target.
    target: &'static str,
    /// Prefix of the names of the cross compiler and tools.
    tools: &'static str,
    /// The Debian package of the compiler.
    package: &'static str,
}

fn arch_names(arch: Arch) -> ArchNames {
    match arch {
        Arch::Amd64 => ArchNames {
            target: "x86_64-unknown-linux-musl",
            tools: "x86_64-linux-gnu-",
            package: "gcc-x86-64-linux-gnu",
        },
        Arch::Arm64 => ArchNames {
            target: "aarch64-unknown-linux-musl",
            tools: "aarch64-linux-gnu-",
            package: "gcc-aarch64-linux-gnu",
        },
    }
}

/// Rust's target of an architecture.
pub(super) fn target_of(arch: Arch) -> &'static str {
    arch_names(arch).target
}

/// Builds the programs; returns their directory.
pub(super) fn build_programs(arch: Arch, apt: &Apt) -> Result<PathBuf> {
    let ArchNames { target, tools, package } = arch_names(arch);
    let compiler = format!("{tools}gcc");
    if tool_version(&compiler).is_err() {
        apt.install_packages(&[package])?;
    }
    add_target(target)?;
    let headers = lab::musl_headers(arch)?;
    let compiler_headers = run_quietly(Command::new(&compiler).arg("-print-file-name=include"))?;
    let (compiler_headers, headers) = (compiler_headers.trim(), headers.display());
    let upper = target.to_uppercase().replace('-', "_");
    let build = target::target_dir()?;
    let status = target::cargo_command()
        .args(["build", "--locked", "--quiet", "--profile", PROFILE, "--target", target])
        .args(PROGRAMS.iter().flat_map(|program| ["--package", program]))
        .env("CARGO_TARGET_DIR", &build)
        .env(format!("CARGO_TARGET_{upper}_LINKER"), &compiler)
        .env(format!("CARGO_TARGET_{upper}_RUSTFLAGS"), rustc_flags()?)
        .env(format!("CC_{}", target.replace('-', "_")), &compiler)
        // The compiler's default headers are those of glibc.
        .env(
            format!("CFLAGS_{}", target.replace('-', "_")),
            format!("-nostdinc -isystem {headers} -isystem {compiler_headers}"),
        )
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .context("cannot run cargo build")?;
    ensure!(status.success(), "building for {target} failed: {status}");
    Ok(build.join(target).join(PROFILE))
}

/// Flags of rustc: a static program without local paths, linked by the lld that rustup installs.
/// lld merges identical functions and packs relocations, which makes the program smaller.
fn rustc_flags() -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let mut rustc = Command::new("rustc");
    rustc.current_dir(workspace_root()).args(["--print", "target-libdir"]);
    let linker = Path::new(run_quietly(&mut rustc)?.trim()).with_file_name("bin/gcc-ld");
    ensure!(
        linker.is_dir(),
        "this Rust toolchain has no linker in {}: use one from rustup",
        linker.display()
    );
    let (home, root, linker) = (home.display(), workspace_root(), linker.display());
    Ok(format!(
        "-Ctarget-feature=+crt-static -Clink-arg=-B{linker} -Clink-arg=-fuse-ld=lld \
         -Clink-arg=-Wl,--icf=all -Clink-arg=-Wl,-z,pack-relative-relocs \
         --remap-path-prefix={home}=/cargo --remap-path-prefix={}=/uncore-trace",
        root.display()
    ))
}

/// Installs the target's standard library with rustup, if it is missing.
fn add_target(target: &str) -> Result<()> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(workspace_root()).args(["--print", "target-libdir", "--target", target]);
    let dir = run_quietly(&mut rustc)?;
    if Path::new(dir.trim()).is_dir() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.current_dir(workspace_root()).args(["target", "add", target]);
    run_quietly(&mut rustup).map(drop).with_context(|| {
        format!(
            "this Rust toolchain has no standard library for {target}: install it as your \
             distribution documents"
        )
    })
}

/// Puts a built program, stripped, and its debug file into `dir`; returns the program's path.
pub(super) fn split_debug_info(
    arch: Arch,
    program: &str,
    built: &Path,
    dir: &Path,
) -> Result<PathBuf> {
    let tool = |name: &str| Command::new(format!("{}{name}", arch_names(arch).tools));
    let built = &built.join(program);
    let name = format!("{program}-{}-{}", env!("CARGO_PKG_VERSION"), arch.uname_machine());
    let (program, debug) = (dir.join(&name), dir.join(format!("{name}.debug")));
    run_quietly(
        tool("objcopy")
            .args(["--only-keep-debug", "--compress-debug-sections"])
            .args([built, &debug]),
    )?;
    run_quietly(tool("strip").args(["--strip-all", "-o"]).args([&program, built]))?;
    // Name and checksum of the debug file, which debuggers look for beside the program.
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run_quietly(tool("objcopy").arg(link).arg(&program))?;
    let size = |path: &Path| {
        let data = fs::metadata(path);
        data.map(|data| data.len()).with_context(|| format!("cannot find {}", path.display()))
    };
    let bytes = size(&program)?;
    println!(
        "dist: {name}: {:.1} MB, {:.1} MB before it was stripped, {:.1} MB of debug information",
        bytes as f64 / 1e6,
        size(built)? as f64 / 1e6,
        size(&debug)? as f64 / 1e6
    );
    check_size(bytes).with_context(|| name.clone())?;
    Ok(program)
}

fn check_size(bytes: u64) -> Result<()> {
    ensure!(
        bytes < LARGEST,
        "the program has {bytes} bytes, and must have less than {LARGEST}: make it smaller"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_program_is_refused() {
        check_size(LARGEST - 1).unwrap();
        let error = check_size(LARGEST).unwrap_err().to_string();
        assert_eq!(
            error,
            "the program has 20000000 bytes, and must have less than 20000000: make it smaller"
        );
    }
}
