//! What was made, used as its users do: installed and removed, run, rendered, verified.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Made, own, timed};
use crate::apt::Apt;
use crate::command::{quietly, version};
use crate::lab::kernel::Arch;

mod chart;
mod image;
mod installed;
mod root;
mod units;

/// Runs the packaged programs of other architectures.
const EMULATOR: (&str, &str) = ("qemu-aarch64-static", "qemu-user-static");

/// Tests everything; the packages are those of this machine's architecture.
pub(super) fn run(made: &[Made], dir: &Path, apt: &Apt) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "it installs packages, so it must be run as root"
    );
    quietly(Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(dir))?;
    for made in made {
        timed(&format!("{}: runs", made.arch.debian()), || runs(made, apt))?;
    }
    let own = own()?;
    for Made { deb, rpm, .. } in made.iter().filter(|made| made.arch == own) {
        let clean = timed("a clean root: made", || root::archive(apt))?;
        timed("deb: installed, removed, purged", || installed::deb(deb, &clean))?;
        timed("rpm: installed, removed", || installed::rpm(rpm, &clean, apt))?;
    }
    let image = dir.join("image");
    let program = image.join("uncore-trace");
    timed("units: verified, and run with their capabilities", || units::check(&program))?;
    let pod = timed("chart: rendered, validated", || chart::check(&program, apt))?;
    timed("image: built, and run as the chart's pod", || image::check(&image, &pod, apt))
}

/// That the stripped program is static, runs, and finds its debug information.
fn runs(made: &Made, apt: &Apt) -> Result<()> {
    let kind = quietly(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&made.program))?;
    ensure!(!kind.contains("(NEEDED)"), "{} needs libraries:\n{kind}", made.program.display());
    let notes =
        quietly(Command::new("readelf").arg("--string-dump=.gnu_debuglink").arg(&made.program))?;
    let debug = PathBuf::from(format!("{}.debug", made.program.display()));
    let name = debug.file_name().unwrap_or_default().to_string_lossy();
    ensure!(notes.contains(&*name), "{} does not name {name}", made.program.display());
    let mut command = if made.arch == own()? {
        Command::new(&made.program)
    } else {
        ensure!(made.arch == Arch::Arm64, "only arm64 is emulated here");
        if version(EMULATOR.0).is_err() {
            apt.install(&[EMULATOR.1])?;
        }
        let mut command = Command::new(EMULATOR.0);
        command.arg(&made.program);
        command
    };
    let said = quietly(command.arg("--version"))?;
    said_version(&said)?;
    println!("dist: {}: {}", made.arch.debian(), said.lines().next().unwrap_or_default());
    Ok(())
}

/// That a program said its version.
fn said_version(said: &str) -> Result<()> {
    let wanted = format!("uncore-trace {}", env!("CARGO_PKG_VERSION"));
    ensure!(said.starts_with(&wanted), "it should say {wanted}, and said {said:?}");
    Ok(())
}
