//! Tests of the release files: installs, runs, renders and removes them as users do.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Made, PROGRAMS, own, packages, timed};
use crate::apt::Apt;
use crate::command::run_quietly;

mod chart;
mod guest;
mod image;
mod installed;
mod lifecycle;
mod lint;
mod root;
mod units;

/// Tests everything; of the packages, only those of this machine's architecture.
pub(super) fn run(made: &[Made], dir: &Path, apt: &Apt) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "run this as root, because it installs packages");
    run_quietly(Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(dir))?;
    let own = own()?;
    for Made { arch, programs, .. } in made {
        let name = arch.debian();
        timed(&format!("{name}: static, stripped"), || {
            programs.iter().try_for_each(|it| stripped(it))
        })?;
        let program = &programs[0];
        if *arch == own {
            for (name, program) in PROGRAMS.iter().zip(programs) {
                said_version(name, &run_quietly(Command::new(program).arg("--version"))?)?;
            }
        } else {
            timed(&format!("{name}: records in a guest"), || guest::program(*arch, program, apt))?;
        }
    }
    for Made { deb, rpm, .. } in made.iter().filter(|made| made.arch == own) {
        timed("packages: accepted by lintian and rpmlint", || lint::check(deb, rpm, apt))?;
        let (new_deb, new_rpm) = packages::newer(own)?;
        let clean = timed("a clean root: made", || root::archive(&root::Variant::CLEAN, apt))?;
        timed("deb: installed, upgraded, removed, purged", || {
            installed::deb([deb, &new_deb], &clean)
        })?;
        timed("rpm: installed, upgraded, removed", || {
            installed::rpm([rpm, &new_rpm], &clean, apt)
        })?;
        let packages = lifecycle::Packages { old: [deb, rpm], new: [&new_deb, &new_rpm] };
        timed("packages: their whole life in a guest", || lifecycle::check(&packages, apt))?;
    }
    let image = dir.join("image");
    let program = image.join("uncore-trace");
    timed("units: verified, and run with their capabilities", || units::check(&program))?;
    let pod = timed("chart: rendered, validated", || chart::check(&program, apt))?;
    timed("image: built, and run as the chart's pod", || image::check(&image, &pod, apt))
}

/// Checks that a program needs no libraries, and names its debug file.
fn stripped(program: &Path) -> Result<()> {
    let kind = run_quietly(Command::new("readelf").args(["--dynamic", "--wide"]).arg(program))?;
    ensure!(!kind.contains("(NEEDED)"), "{} needs libraries:\n{kind}", program.display());
    let mut notes = Command::new("readelf");
    let notes = run_quietly(notes.arg("--string-dump=.gnu_debuglink").arg(program))?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    ensure!(notes.contains(&format!("{name}.debug")), "{name} does not name its debug file");
    Ok(())
}

/// Checks that a program printed its name and version.
fn said_version(program: &str, said: &str) -> Result<()> {
    let wanted = format!("{program} {}", env!("CARGO_PKG_VERSION"));
    ensure!(said.starts_with(&wanted), "the version should be {wanted:?}, and is {said:?}");
    Ok(())
}
