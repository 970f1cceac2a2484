//! Renews the committed object, and checks whether it is up to date.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::build::{self, Toolchain};
use crate::stamp;

/// Compiles the object and writes it with its stamp. Returns whether anything changed.
pub fn renew_object(toolchain: &Toolchain, target_dir: &Path) -> Result<bool> {
    let object = stamp::read_file(&build::compile_object(toolchain, build::PROGRAM, target_dir)?)?;
    let renewed = stamp::stamp(&object, &toolchain.tool_versions()?)?;
    let changed = fs::read(stamp::stamp_path()).ok().as_deref() != Some(renewed.as_bytes());
    fs::write(stamp::object_path(), &object).context("cannot write the BPF object")?;
    fs::write(stamp::stamp_path(), renewed).context("cannot write the BPF object's stamp")?;
    Ok(changed)
}

/// Fails unless the sources compile, to the committed object. If the tools have other versions than
/// in the stamp, the bytes may differ and are not compared.
pub fn verify_object(toolchain: &Toolchain, target_dir: &Path) -> Result<()> {
    stamp::verify_sources()?;
    let object = stamp::read_file(&build::compile_object(toolchain, build::PROGRAM, target_dir)?)?;
    let versions = toolchain.tool_versions()?;
    let committed = fs::read_to_string(stamp::stamp_path()).context("cannot read the stamp")?;
    if committed.ends_with(&format!("{versions}\n"))
        && stamp::stamp(&object, &versions)? != committed
    {
        bail!("the committed BPF object is not what its sources compile to: run `cargo xtask bpf`");
    }
    Ok(())
}
