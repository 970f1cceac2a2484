//! `cargo xtask dist`: what is given to others.
//!
//! Static programs of both architectures with a file of debug information beside each, Debian and rpm
//! packages of them, lists of what is linked, what an image is made of, and the digests of all. `--check`
//! makes those of this machine's architecture, and installs, renders and runs them as their users do.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::apt::Apt;
use crate::lab::kernel::Arch;
use crate::target;

mod binary;
mod check;
mod licences;
mod packages;
mod sbom;

/// Options of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this architecture, amd64 or arm64 (may be given several times) [default: both; with --check this
    /// machine's]
    #[arg(long, value_name = "ARCH", value_parser = arch)]
    arch: Vec<Arch>,
    /// Install, render and run what was made
    #[arg(long)]
    check: bool,
}

fn arch(text: &str) -> Result<Arch> {
    match text {
        "amd64" => Ok(Arch::Amd64),
        "arm64" => Ok(Arch::Arm64),
        _ => bail!("write amd64 or arm64"),
    }
}

/// The packages whose programs are distributed: the first has privileges, the second a network.
const PROGRAMS: [&str; 2] = ["uncore-trace", "uncore-trace-upload"];

/// What was made for one architecture.
#[derive(Debug)]
struct Made {
    arch: Arch,
    /// Of [`PROGRAMS`].
    programs: [PathBuf; 2],
    deb: PathBuf,
    rpm: PathBuf,
}

/// Makes everything; with `--check` tests it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let apt = Apt::new();
    let own = own()?;
    let mut archs = match (args.arch.as_slice(), args.check) {
        ([], true) => vec![own],
        ([], false) => vec![Arch::Amd64, Arch::Arm64],
        (asked, _) => asked.to_vec(),
    };
    // Completions are printed by a program that runs here.
    archs.sort_by_key(|arch| *arch != own);
    let dir = target::dir()?.join("dist/made");
    empty(&dir)?;
    let mut made = Vec::new();
    for arch in archs {
        made.push(make(arch, &dir, &apt)?);
    }
    let image = made.first().context("no architecture was asked for")?;
    packages::image(image.arch, &image.programs, &dir.join("image"))?;
    packages::digests(&dir)?;
    println!("dist: all of it is in {}", dir.display());
    if args.check {
        check::run(&made, &dir, &apt)?;
    }
    Ok(())
}

fn make(arch: Arch, dir: &Path, apt: &Apt) -> Result<Made> {
    let name = arch.debian();
    let built = timed(&format!("{name}: built"), || binary::build(arch, apt))?;
    let [tracer, uploader] = PROGRAMS.map(|program| binary::split(arch, program, &built, dir));
    let programs = [tracer?, uploader?];
    packages::stage(arch, &programs, dir)?;
    timed(&format!("{name}: listed what is linked"), || sbom::write(arch, dir))?;
    let (deb, rpm) = timed(&format!("{name}: packed"), || packages::pack(arch, dir))?;
    for path in [&deb, &rpm] {
        let bytes = fs::metadata(path).map_or(0, |data| data.len());
        println!("dist: {}: {:.1} MB", path.display(), bytes as f64 / 1e6);
    }
    Ok(Made { arch, programs, deb, rpm })
}

/// The architecture of this machine.
fn own() -> Result<Arch> {
    match env::consts::ARCH {
        "x86_64" => Ok(Arch::Amd64),
        "aarch64" => Ok(Arch::Arm64),
        other => bail!("{other} is not among what is distributed: run it on x86_64 or aarch64"),
    }
}

/// The directory, with nothing in it.
fn empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// Does a step and says how long it took.
fn timed<T>(what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let done = step().with_context(|| what.split(':').next().unwrap_or(what).to_owned())?;
    println!("dist: {what} ({:.0} s)", started.elapsed().as_secs_f64());
    Ok(done)
}
