//! `cargo xtask bpf`: compiles the committed BPF object again, or checks that it is up to date.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use uncore_trace_ebpf::{build, committed, stamp};

/// Renews the object, or with `check` fails if it is not what its sources compile to.
pub(crate) fn run(check: bool) -> Result<()> {
    let toolchain = build::toolchain()?;
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| stamp::workspace_root().join("target"), PathBuf::from)
        .join("bpf");
    if check {
        committed::verify_object(&toolchain, &target).context("the BPF object is stale")?;
        println!("bpf: the committed object is up to date");
    } else if committed::renew_object(&toolchain, &target)? {
        println!("bpf: wrote {}", stamp::object_path().display());
    } else {
        println!("bpf: nothing changed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package takes its object without looking at sources; in the repository that would hide
    /// that the object is stale.
    #[test]
    fn the_repository_is_not_taken_for_a_package() {
        assert!(!stamp::is_package().unwrap());
        assert!(stamp::input_paths().unwrap().len() > 5);
    }
}
