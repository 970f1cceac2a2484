//! Compresses the BPF object (1 MB to 0.2 MB), and puts it where `include_bytes!` finds it.

use std::env;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use uncore_trace_ebpf::build::object;
use uncore_trace_ebpf::stamp;

fn main() -> Result<()> {
    // A quarter of the size of line tables that are not compressed, and the standard library reads
    // them. The static programs are linked otherwise, and have their line tables in another file.
    let is = |name, value| env::var_os(name).is_some_and(|found| found == value);
    if is("CARGO_CFG_TARGET_ENV", "gnu") && is("PROFILE", "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
    for path in stamp::source_paths() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let object_paths = [stamp::object_path(), stamp::stamp_path()];
    for path in object_paths.into_iter().chain(stamp::setting_paths()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    // TARGET/PROFILE/build/PACKAGE/out: all profiles share one directory for the BPF target.
    let target_dir = out.ancestors().nth(4).unwrap_or(&out).join("bpf");
    let object = object(&target_dir)?;
    let to = out.join("uncore-trace.bpf.o.z");
    compress(&object, &to)
        .with_context(|| format!("cannot compress {} to {}", object.display(), to.display()))
}

fn compress(from: &Path, to: &Path) -> io::Result<()> {
    let mut file = ZlibEncoder::new(File::create(to)?, Compression::best());
    io::copy(&mut File::open(from)?, &mut file)?;
    file.finish().map(drop)
}
