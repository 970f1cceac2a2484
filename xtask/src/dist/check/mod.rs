//! Tests of the release files: installs, runs, renders and removes them as users do.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{PROGRAMS, ReleaseFiles, local_arch, packages, time_step};
use crate::apt::Apt;
use crate::command::run_quietly;

mod chart;
mod crates;
mod guest;
mod image;
mod installed;
mod lifecycle;
mod lint;
mod root;
mod script;
mod units;

/// Tests everything; of the packages, only those of this machine's architecture.
pub(super) fn run(releases: &[ReleaseFiles], dir: &Path, apt: &Apt) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "run this as root, because it installs packages");
    run_quietly(
        Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(dir),
    )?;
    let machine_arch = local_arch()?;
    for ReleaseFiles { arch, programs, .. } in releases {
        let name = arch.debian_name();
        time_step(&format!("{name}: static, stripped"), || {
            programs.iter().try_for_each(|path| check_stripped(path))
        })?;
        let program = &programs[0];
        if *arch == machine_arch {
            for (name, program) in PROGRAMS.iter().zip(programs) {
                check_version(name, &run_quietly(Command::new(program).arg("--version"))?)?;
            }
        } else {
            time_step(&format!("{name}: records in a guest"), || {
                guest::test_program(*arch, program, apt)
            })?;
        }
    }
    for ReleaseFiles { deb, rpm, .. } in
        releases.iter().filter(|release| release.arch == machine_arch)
    {
        time_step("packages: accepted by lintian and rpmlint", || {
            lint::lint_packages(deb, rpm, apt)
        })?;
        let (new_deb, new_rpm) = packages::make_newer_packages(machine_arch)?;
        let clean =
            time_step("a clean root: made", || root::root_archive(&root::RootVariant::CLEAN, apt))?;
        time_step("deb: installed, upgraded, removed, purged", || {
            installed::test_deb([deb, &new_deb], &clean)
        })?;
        time_step("rpm: installed, upgraded, removed", || {
            installed::test_rpm([rpm, &new_rpm], &clean, apt)
        })?;
        let packages = lifecycle::Packages { old: [deb, rpm], new: [&new_deb, &new_rpm] };
        time_step("packages: installed, upgraded, removed, purged in a guest", || {
            lifecycle::check_lifecycle(&packages, apt)
        })?;
    }
    if releases.iter().any(|release| release.arch == machine_arch) {
        time_step("archive: installed by the script", || script::test_script(dir))?;
    }
    time_step("crates: packed, and installed from the packages", crates::test_crates)?;
    let image = dir.join("image");
    let program = image.join("uncore-trace");
    time_step("units: verified, and run with their capabilities", || units::check_units(&program))?;
    let pod = time_step("chart: rendered, validated", || chart::check_chart(&program, apt))?;
    time_step("image: built, and run as the chart's pod", || image::check_image(&image, &pod, apt))
}

/// Checks that a program needs no libraries, and names its debug file.
fn check_stripped(program: &Path) -> Result<()> {
    let dynamic_section =
        run_quietly(Command::new("readelf").args(["--dynamic", "--wide"]).arg(program))?;
    ensure!(
        !dynamic_section.contains("(NEEDED)"),
        "{} needs libraries:\n{dynamic_section}",
        program.display()
    );
    let mut notes = Command::new("readelf");
    let notes = run_quietly(notes.arg("--string-dump=.gnu_debuglink").arg(program))?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    ensure!(notes.contains(&format!("{name}.debug")), "{name} does not name its debug file");
    Ok(())
}

/// Checks that a program printed its name and version.
fn check_version(program: &str, output: &str) -> Result<()> {
    let wanted = format!("{program} {}", env!("CARGO_PKG_VERSION"));
    ensure!(output.starts_with(&wanted), "the version should be {wanted:?}, and is {output:?}");
    Ok(())
}
