//! `cargo xtask dist`: builds the files of a release.
//!
//! For both architectures: static programs with separate debug files, archives of them with a script
//! that installs them, Debian and rpm packages, lists of the linked packages (SBOM), the files of a
//! container image, and the digests of all files. `--check` builds only for this machine's architecture, and installs, renders and runs the
//! result.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::apt::Apt;
use crate::lab::kernel::Arch;
use crate::target;

mod archive;
mod binary;
mod check;
mod licences;
mod packages;
mod sbom;

/// Options of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Build only for this architecture, amd64 or arm64 (may be repeated) [default: both; with
    /// --check, that of this machine]
    #[arg(long, value_name = "ARCH", value_parser = parse_arch)]
    arch: Vec<Arch>,
    /// Also install, render and run the results
    #[arg(long)]
    check: bool,
}

fn parse_arch(text: &str) -> Result<Arch> {
    match text {
        "amd64" => Ok(Arch::Amd64),
        "arm64" => Ok(Arch::Arm64),
        _ => bail!("write amd64 or arm64"),
    }
}

/// The packages whose programs are distributed: the tracer, which needs privileges, and the
/// uploader, which needs the network.
const PROGRAMS: [&str; 2] = ["uncore-trace", "uncore-trace-upload"];

/// The files of one architecture.
#[derive(Debug)]
struct ReleaseFiles {
    arch: Arch,
    /// In the order of [`PROGRAMS`].
    programs: [PathBuf; 2],
    deb: PathBuf,
    rpm: PathBuf,
}

/// Builds everything, and tests it with `--check`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let apt = Apt::new();
    let machine_arch = local_arch()?;
    let mut archs = match (args.arch.as_slice(), args.check) {
        ([], true) => vec![machine_arch],
        ([], false) => vec![Arch::Amd64, Arch::Arm64],
        (asked, _) => asked.to_vec(),
    };
    // This machine's architecture comes first: its program prints the completions without
    // emulation.
    archs.sort_by_key(|arch| *arch != machine_arch);
    let dir = target::target_dir()?.join("dist/made");
    empty_dir(&dir)?;
    let mut releases = Vec::new();
    for arch in archs {
        releases.push(build_release(arch, &dir, &apt)?);
    }
    let image = releases.first().context("no architecture was selected")?;
    packages::stage_image(image.arch, &image.programs, &dir.join("image"))?;
    archive::stage_installer(&dir)?;
    packages::write_digests(&dir)?;
    println!("dist: all files are in {}", dir.display());
    if args.check {
        check::run(&releases, &dir, &apt)?;
    }
    Ok(())
}

fn build_release(arch: Arch, dir: &Path, apt: &Apt) -> Result<ReleaseFiles> {
    let name = arch.debian_name();
    let built = time_step(&format!("{name}: built"), || binary::build_programs(arch, apt))?;
    let [tracer, uploader] =
        PROGRAMS.map(|program| binary::split_debug_info(arch, program, &built, dir));
    let programs = [tracer?, uploader?];
    packages::stage_files(arch, &programs, dir)?;
    archive::make_archive(arch, &programs, dir)?;
    time_step(&format!("{name}: listed what is linked"), || sbom::write_sboms(arch, dir))?;
    let (deb, rpm) = time_step(&format!("{name}: packed"), || packages::make_packages(arch, dir))?;
    for path in [&deb, &rpm] {
        let bytes = fs::metadata(path).map_or(0, |data| data.len());
        println!("dist: {}: {:.1} MB", path.display(), bytes as f64 / 1e6);
    }
    Ok(ReleaseFiles { arch, programs, deb, rpm })
}

/// The architecture of this machine.
fn local_arch() -> Result<Arch> {
    match env::consts::ARCH {
        "x86_64" => Ok(Arch::Amd64),
        "aarch64" => Ok(Arch::Arm64),
        unsupported => {
            bail!("there is no release for {unsupported}: run this on x86_64 or aarch64")
        }
    }
}

/// Creates the directory, or removes its content.
fn empty_dir(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// Runs a step and prints how long it took.
fn time_step<T>(title: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let done = step().with_context(|| title.split(':').next().unwrap_or(title).to_owned())?;
    println!("dist: {title} ({:.0} s)", started.elapsed().as_secs_f64());
    Ok(done)
}
