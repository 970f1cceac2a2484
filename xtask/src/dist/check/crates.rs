//! Tests of the packages for `cargo install`: the programs are built from them alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::super::PROGRAMS;
use super::check_version;
use crate::command::run_quietly;
use crate::target;

/// The published packages that are no programs.
const LIBRARIES: [&str; 3] = ["uncore-trace-common", "uncore-trace-ebpf", "uncore-trace-recording"];

/// Packs the crates, unpacks them into an empty directory, installs both programs from there, and
/// runs them.
pub(super) fn test_crates() -> Result<()> {
    let built = target::target_dir()?.join("dist/crates");
    super::super::empty_dir(&built)?;
    let names = || LIBRARIES.into_iter().chain(PROGRAMS);
    let mut package = target::cargo_command();
    package
        .args(["package", "--locked", "--no-verify", "--allow-dirty", "--quiet"])
        .args(names().flat_map(|name| ["--package", name]))
        .arg("--target-dir")
        .arg(&built);
    run_quietly(&mut package)?;
    // Outside of the repository, whose workspace cargo would find above the packages.
    let unpacked = tempfile::tempdir().context("cannot create a temporary directory")?;
    for name in names() {
        let packed = built.join("package").join(crate_name(name) + ".crate");
        run_quietly(Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(unpacked.path()))?;
    }
    let root = built.join("installed");
    for program in PROGRAMS {
        use_local_libraries(&unpacked.path().join(crate_name(program)).join("Cargo.lock"))?;
        let mut install = target::cargo_command();
        install
            .current_dir(unpacked.path())
            // Without optimization and debug information: neither shows what a package lacks.
            .args(["install", "--locked", "--quiet", "--debug", "--no-track"])
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .args(patches(unpacked.path()))
            .arg("--path")
            .arg(unpacked.path().join(crate_name(program)))
            .arg("--root")
            .arg(&root)
            .arg("--target-dir")
            .arg(&built);
        run_quietly(&mut install)?;
        let mut installed = Command::new(root.join("bin").join(program));
        check_version(program, &run_quietly(installed.arg("--version"))?)?;
    }
    run_quietly(Command::new(root.join("bin/uncore-trace")).arg("list"))?;
    fs::remove_dir_all(&built).with_context(|| format!("cannot remove {}", built.display()))
}

/// Name and version, as in the names of files.
fn crate_name(name: &str) -> String {
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}

/// Lets a lock file name the libraries without a registry: so cargo locks what it is given by
/// [`patches`].
fn use_local_libraries(lock: &Path) -> Result<()> {
    let text =
        fs::read_to_string(lock).with_context(|| format!("cannot read {}", lock.display()))?;
    fs::write(lock, without_registry(&text))
        .with_context(|| format!("cannot write {}", lock.display()))
}

fn without_registry(lock_text: &str) -> String {
    let mut is_library = false;
    let mut kept = String::new();
    for line in lock_text.lines() {
        if let Some(name) = line.strip_prefix("name = ") {
            is_library = LIBRARIES.contains(&name.trim_matches('"'));
        }
        if !is_library || !line.starts_with("source = ") && !line.starts_with("checksum = ") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Options of cargo that take the unpacked libraries in place of those of the registry.
fn patches(dir: &Path) -> Vec<String> {
    let patch = |name: &str| {
        let path = dir.join(crate_name(name));
        ["--config".to_owned(), format!("patch.crates-io.{name}.path={:?}", path.display())]
    };
    LIBRARIES.into_iter().flat_map(patch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_projects_own_libraries_lose_their_registry() {
        let package = |name: &str, origin: &str| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"0.1.0\"\n{origin}\n")
        };
        let origin = "source = \"registry\"\nchecksum = \"00\"\n";
        let lock = package("aya", origin) + &package(LIBRARIES[0], origin);
        let expected = package("aya", origin) + &package(LIBRARIES[0], "");
        assert_eq!(without_registry(&lock), expected);
    }
}
