//! Puts the BPF object where `include_bytes!` finds it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result};
use uncore_trace_ebpf::build::{Origin, object};
use uncore_trace_ebpf::stamp;

fn main() -> Result<()> {
    for path in stamp::source_paths() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed={}", stamp::object_path().display());
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    // TARGET/PROFILE/build/PACKAGE/out: all profiles share one directory for the BPF target.
    let target_dir = out.ancestors().nth(4).unwrap_or(&out).join("bpf");
    let (object, origin) = object(&target_dir)?;
    if let Origin::Committed(reason) = origin {
        let line = reason.lines().next().unwrap_or_default();
        println!("cargo::warning=using the committed BPF object: {line}");
    }
    copy(&object, &out.join("uncore-trace.bpf.o"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
