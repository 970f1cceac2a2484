//! Compiles the BPF programs, or takes the committed object.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use crate::stamp;

/// The program that `uncore-trace` loads.
pub const PROGRAM: &str = "uncore-trace-ebpf";

/// A compiler with the source of `core`, and a BPF linker.
#[derive(Clone, Debug)]
pub struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
    sysroot: PathBuf,
    linker: PathBuf,
}

impl Toolchain {
    /// The versions on which the bytes of the object depend: `rustc` and `bpf-linker`, one line
    /// each.
    pub fn tool_versions(&self) -> Result<String> {
        Ok(format!(
            "{}\n{}",
            first_line(Command::new(&self.rustc).arg("--version"))?,
            first_line(Command::new(&self.linker).arg("--version"))?,
        ))
    }
}

/// Finds a BPF toolchain: the distribution's Rust with its source package, or rustup's nightly
/// with `rust-src`; either needs `bpf-linker`.
///
/// # Errors
///
/// Something is missing; the message names it in one line.
pub fn toolchain() -> Result<Toolchain> {
    let linker = linker().context("bpf-linker is not installed: run `cargo xtask setup`")?;
    let mut tried = Vec::new();
    for (cargo, rustc) in compiler_candidates() {
        let Ok(sysroot) = first_line(Command::new(&rustc).args(["--print", "sysroot"])) else {
            continue;
        };
        let sysroot = PathBuf::from(sysroot);
        if sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").exists() {
            return Ok(Toolchain { cargo, rustc, sysroot, linker });
        }
        tried.push(rustc.display().to_string());
    }
    bail!(
        "no Rust compiler with the source of `core` (tried: {}): run `cargo xtask setup`",
        tried.join(", ")
    )
}

/// Compiles one binary of this package for the BPF target. Returns the path of the object.
pub fn compile_object(toolchain: &Toolchain, bin: &str, target_dir: &Path) -> Result<PathBuf> {
    let root = stamp::workspace_root();
    let mut command = Command::new(&toolchain.cargo);
    command
        .current_dir(&root)
        .args(["build", "--quiet", "--profile=bpf", "--locked", "-Z", "build-std=core"])
        .args(["--target", "bpfel-unknown-none", "--package", env!("CARGO_PKG_NAME")])
        .args(["--bin", bin, "--target-dir"])
        .arg(target_dir);
    // A build script inherits variables that the outer cargo (or clippy) sets for its own compiler.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_") && text != "CARGO_HOME" || text.starts_with("RUST") {
            command.env_remove(&name);
        }
    }
    let linker_dir = toolchain.linker.parent().unwrap_or(Path::new("/"));
    command
        .env("RUSTC", &toolchain.rustc)
        // `build-std` is the only unstable feature that is used; this enables it in stable
        // compilers.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(toolchain, &root)?)
        .env("PATH", prepend_path(linker_dir, env::var_os("PATH"))?);
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("compiling {bin} for BPF failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(target_dir.join("bpfel-unknown-none/bpf").join(bin))
}

/// The object to embed: the committed one if its sources have not changed, else a compiled one.
///
/// # Errors
///
/// The sources have changed, and there is no BPF toolchain or they do not compile.
pub fn object(target_dir: &Path) -> Result<PathBuf> {
    let Err(stale) = stamp::verify_sources() else { return Ok(stamp::object_path()) };
    let toolchain = toolchain().with_context(|| format!("{stale:#}"))?;
    compile_object(&toolchain, PROGRAM, target_dir)
}

/// Debug information is needed for BTF; it must not have paths of this machine.
fn rust_flags(toolchain: &Toolchain, root: &Path) -> Result<String> {
    let mut flags = vec!["-Cdebuginfo=2".to_owned(), "-Clink-arg=--btf".to_owned()];
    let mut remap = |from: &Path, replacement: &str| {
        flags.push(format!("--remap-path-prefix={}={replacement}", from.display()));
    };
    remap(&toolchain.sysroot.join("lib/rustlib/src/rust"), "rust");
    let home = env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    let registries = home.join("registry/src");
    if registries.is_dir() {
        for entry in fs::read_dir(&registries)
            .with_context(|| format!("cannot read {}", registries.display()))?
        {
            remap(&entry?.path(), "registry");
        }
    }
    // With an empty string rustc would leave a leading slash.
    remap(root, ".");
    Ok(flags.join("\x1f"))
}

/// Distributions first: their compiler and source of `core` always match.
fn compiler_candidates() -> Vec<(PathBuf, PathBuf)> {
    let mut compilers = vec![(PathBuf::from("/usr/bin/cargo"), PathBuf::from("/usr/bin/rustc"))];
    let nightly = |tool: &str| {
        first_line(Command::new("rustup").args(["which", "--toolchain", "nightly", tool]))
            .map(PathBuf::from)
    };
    if let (Ok(cargo), Ok(rustc)) = (nightly("cargo"), nightly("rustc")) {
        compilers.push((cargo, rustc));
    }
    compilers
}

fn linker() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let default = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let cargo_bins = home.into_iter().chain(default).map(|home| home.join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(cargo_bins)
        .map(|dir| dir.join("bpf-linker"))
        .find(|linker| linker.is_file())
}

fn prepend_path(dir: &Path, path: Option<OsString>) -> Result<OsString> {
    let path = path.unwrap_or_default();
    env::join_paths(std::iter::once(dir.to_owned()).chain(env::split_paths(&path)))
        .context("a directory of PATH holds a colon")
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
