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
    for path in stamp::input_paths()? {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    // TARGET/PROFILE/build/PACKAGE/out: all profiles share one directory for the BPF target.
    let target_dir = out_dir.ancestors().nth(4).unwrap_or(&out_dir).join("bpf");
    let object_path = object(&target_dir)?;
    let compressed_path = out_dir.join("uncore-trace.bpf.o.z");
    compress_file(&object_path, &compressed_path).with_context(|| {
        format!("cannot compress {} to {}", object_path.display(), compressed_path.display())
    })
}

fn compress_file(source: &Path, target: &Path) -> io::Result<()> {
    let mut encoder = ZlibEncoder::new(File::create(target)?, Compression::best());
    io::copy(&mut File::open(source)?, &mut encoder)?;
    encoder.finish().map(drop)
}
