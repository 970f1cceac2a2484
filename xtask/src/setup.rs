//! `cargo xtask setup`: installs what building the BPF programs and running the tests need.
//!
//! Each step first checks whether its tool is installed, so a second run changes nothing, and
//! `--check` only reports. Building and recording need none of it: stable Rust and a C compiler are
//! enough.
#![expect(clippy::print_stdout, reason = "a task tells what it does")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::build;

use crate::apt::Apt;
use crate::command::{run_checked, run_quietly, tool_version};
use crate::target;
use crate::venv::Venv;

/// The distribution's Rust with the source of `core`, and the LLVM that `bpf-linker` links. Both
/// must have the same major version of LLVM: rustc 1.96 is built with LLVM 22.
const BPF_PACKAGES: &[&str] = &["rustc-web", "cargo-web", "rust-web-src", "llvm-22-dev"];
const LLVM: &str = "/usr/lib/llvm-22";
const LLVM_FEATURE: &str = "llvm-22";

/// Versions that are installed if the tool is missing; they are pinned, so that new releases change
/// nothing. Another installed version is kept, because other projects may use it.
const BPF_LINKER: &str = "0.13.0";
const CARGO_FUZZ: &str = "0.13.2";

/// Instructions if the distribution has no such packages.
const BPF_BY_HAND: &str = "install it by hand: `rustup toolchain install nightly --component \
                           rust-src` and `cargo install bpf-linker`";

/// Readers with which recordings and exports are compared, and the object store for roll-ups. They
/// are pinned, so that a failure is due to a change of this project. Of moto only the requirements
/// of its S3 server are installed: all of `moto[server]` would be 180 MB more. With fsspec (3 MB)
/// `DuckDB` reads a bucket through obstore (16 MB). `mcp`, the SDK of the Model Context Protocol,
/// is 3 MB; with the 27 packages that it pulls in (pydantic, cryptography, starlette, uvicorn,
/// httpx2, opentelemetry-api and what these need) 41 MB, of which moto needs 19 anyway.
/// `opentelemetry-proto` (0.4 MB) has the definitions of OTLP, and `grpcio` (20 MB) is the other
/// side of the kubelet's client. `build`, `setuptools`, `twine` and `mypy` make and check the
/// archives of `python/`, and `matplotlib` draws its plots: 190 MB with what these need.
pub(crate) const READERS: Venv = Venv {
    name: "venv",
    packages: &[
        "build==1.6.1",
        "duckdb==2.0.0",
        "flask==3.1.3",
        "flask-cors==6.0.5",
        "fsspec==2026.9.0",
        "grpcio==1.85.1",
        "matplotlib==3.11.2",
        "mcp==2.3.0",
        "moto==5.2.5",
        "mypy==2.4.1",
        "obstore==0.12.1",
        "opentelemetry-proto==1.45.2",
        "pandas==3.1.1",
        "perfetto==0.59.1",
        "prometheus-client==0.26.0",
        "protobuf==7.36.2",
        "py-partiql-parser==0.6.3",
        "pyarrow==26.0.1",
        "pyyaml==6.0.3",
        "setuptools==84.2.1",
        "twine==7.0.0",
        "xxhash==4.1.0",
    ],
    modules: "build, duckdb, fsspec, grpc, matplotlib, mcp, moto.server, mypy, obstore, \
              opentelemetry.proto, pandas, perfetto, prometheus_client, pyarrow, twine, xxhash",
};

/// Options of `cargo xtask setup`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install nothing: report which tools exist, and fail if one is missing
    #[arg(long)]
    check: bool,
}

/// A tool: how to check whether it is installed, and how to install it.
struct SetupStep {
    name: &'static str,
    /// A short description of the installed version.
    find_version: fn() -> Result<String>,
    install: fn(&Apt) -> Result<()>,
}

/// In this order, because building the linker needs the packages.
const STEPS: &[SetupStep] = &[
    SetupStep {
        name: "C compiler",
        find_version: || tool_version("cc"),
        install: |apt| apt.install_packages(&["gcc", "libc6-dev"]),
    },
    SetupStep {
        name: "C++ compiler",
        find_version: || tool_version("c++"),
        install: |apt| apt.install_packages(&["g++"]),
    },
    SetupStep {
        name: "git",
        find_version: || tool_version("git"),
        install: |apt| apt.install_packages(&["git"]),
    },
    SetupStep {
        name: "perf",
        find_version: || tool_version("perf"),
        install: |apt| apt.install_packages(&["linux-perf"]),
    },
    SetupStep {
        name: "losetup",
        find_version: || tool_version("losetup"),
        install: |apt| apt.install_packages(&["mount"]),
    },
    SetupStep {
        name: "mkfs.ext4",
        find_version: || version_by_v("mkfs.ext4"),
        install: |apt| apt.install_packages(&["e2fsprogs"]),
    },
    SetupStep {
        name: "ip",
        find_version: || version_by_v("ip"),
        install: |apt| apt.install_packages(&["iproute2"]),
    },
    SetupStep {
        name: "tmux",
        find_version: || version_by_v("tmux"),
        install: |apt| apt.install_packages(&["tmux"]),
    },
    SetupStep {
        name: "fio",
        find_version: || tool_version("fio"),
        install: |apt| apt.install_packages(&["fio"]),
    },
    SetupStep {
        name: "setcap",
        find_version: find_setcap,
        install: |apt| apt.install_packages(&["libcap2-bin"]),
    },
    SetupStep {
        name: "curl",
        find_version: || tool_version("curl"),
        install: |apt| apt.install_packages(&["curl"]),
    },
    // Checks install.sh in the tests.
    SetupStep {
        name: "shellcheck",
        find_version: || tool_version("shellcheck"),
        install: |apt| apt.install_packages(&["shellcheck"]),
    },
    // Reads profiles in the tests.
    SetupStep {
        name: "Go",
        find_version: || run_quietly(Command::new("go").arg("version")),
        install: |apt| apt.install_packages(&["golang-go"]),
    },
    // Opens the pages of `report --html` in the tests.
    SetupStep {
        name: "Chromium",
        find_version: || tool_version("chromium"),
        install: |apt| apt.install_packages(&["chromium"]),
    },
    SetupStep { name: "cargo-fuzz", find_version: find_fuzz, install: install_fuzz },
    SetupStep { name: "BPF toolchain", find_version: find_bpf, install: install_bpf },
    SetupStep {
        name: "Python readers",
        find_version: || READERS.installed_packages(),
        install: |apt| READERS.install_venv(apt),
    },
];

/// Runs all steps; with `--check` changes nothing.
pub(crate) fn run(args: &Args) -> Result<()> {
    let apt = Apt::new();
    let mut missing = Vec::new();
    for step in STEPS {
        match (step.find_version)() {
            Ok(installed) => println!("setup: {}: {installed}", step.name),
            Err(error) if args.check => {
                println!("setup: {}: missing: {error:#}", step.name);
                missing.push(step.name);
            }
            Err(error) => {
                println!("setup: {}: installing ({error:#})", step.name);
                (step.install)(&apt).with_context(|| format!("cannot install: {}", step.name))?;
                let installed = (step.find_version)()
                    .with_context(|| format!("{} is still not usable", step.name))?;
                println!("setup: {}: {installed}", step.name);
            }
        }
    }
    ensure!(missing.is_empty(), "missing: {}; run `cargo xtask setup`", missing.join(", "));
    Ok(())
}

/// The first line that a tool without `--version` prints with `-V`.
fn version_by_v(tool: &str) -> Result<String> {
    let text = run_quietly(Command::new(tool).arg("-V"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn find_setcap() -> Result<String> {
    let output = Command::new("setcap").arg("-h").output().context("cannot run setcap")?;
    ensure!(output.status.success(), "setcap -h failed: {}", output.status);
    Ok("setcap".to_owned())
}

fn find_fuzz() -> Result<String> {
    let mut command = target::cargo_command();
    let output = command.args(["fuzz", "--version"]).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo has no command fuzz");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn install_fuzz(_apt: &Apt) -> Result<()> {
    run_checked(target::cargo_command().args([
        "install",
        "--locked",
        "cargo-fuzz",
        "--version",
        CARGO_FUZZ,
    ]))
}

fn find_bpf() -> Result<String> {
    Ok(build::toolchain()?.tool_versions()?.replace('\n', ", "))
}

/// Installs the packages, if the distribution has them, then the linker that matches their LLVM.
fn install_bpf(apt: &Apt) -> Result<()> {
    let has_linker = linker_path().is_some_and(|path| path.is_file());
    apt.install_packages(BPF_PACKAGES).context(BPF_BY_HAND)?;
    if has_linker {
        return Ok(());
    }
    ensure!(Path::new(LLVM).is_dir(), "no {LLVM} after installing llvm-22-dev");
    let path = env::var_os("PATH").unwrap_or_default();
    let bin = PathBuf::from(LLVM).join("bin");
    let path = env::join_paths(std::iter::once(bin).chain(env::split_paths(&path)))
        .context("a directory of PATH has a colon in its name")?;
    let mut command = target::cargo_command();
    command
        .args(["install", "--locked", "bpf-linker", "--version", BPF_LINKER])
        .args(["--no-default-features", "--features", LLVM_FEATURE])
        .env("LLVM_PREFIX", LLVM)
        .env("PATH", path);
    run_checked(&mut command)
}

/// Path at which `cargo install` puts the linker.
fn linker_path() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))?;
    Some(home.join("bin/bpf-linker"))
}

/// The Python with the readers; an error says how to install it.
pub(crate) fn readers_python() -> Result<PathBuf> {
    READERS.installed_packages().context("run `cargo xtask setup` first")?;
    READERS.python_path()
}
