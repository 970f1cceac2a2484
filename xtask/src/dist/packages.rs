//! Debian and rpm packages, the files of a container image, and digests.
//!
//! `uncore-trace/Cargo.toml` lists the files of the packages. Generated files are put into the
//! directory `packaged` beside the program, where both packaging tools find them.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use uncore_trace_ebpf::stamp::workspace_root;

use super::PROGRAMS;
use super::binary::{PROFILE, target_of};
use super::licences;
use crate::command::{run_checked, run_quietly, version_of};
use crate::lab::kernel::Arch;
use crate::target;

/// The packaging tools.
const CARGO_DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0", subcommand: &[] };
const CARGO_RPM: Tool = Tool { name: "cargo-generate-rpm", version: "0.21.1", subcommand: &[] };

/// The certificates for the image, taken from this machine.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A version that is newer than every other.
pub(super) const NEWER: &str = "9999.0.0";

/// The configuration that the packages install.
pub(super) const CONFIG: &str = "packaging/agent.toml";

/// A tool that is installed if it is missing.
pub(super) struct Tool {
    pub name: &'static str,
    pub version: &'static str,
    /// Arguments before the options.
    pub subcommand: &'static [&'static str],
}

impl Tool {
    /// Path of its program. Exactly this version is installed, because other versions write
    /// different packages.
    pub(super) fn installed_program(&self) -> Result<PathBuf> {
        let root = target::target_dir()?.join("dist/tools");
        let path = root.join("bin").join(self.name);
        let mut command = Command::new(&path);
        command.args(self.subcommand);
        let installed_version = version_of(command).unwrap_or_default();
        if installed_version.split(' ').next_back() == Some(self.version) {
            return Ok(path);
        }
        println!("dist: installing {} {}", self.name, self.version);
        // Low optimization halves the time to build the tool, which itself runs only for seconds.
        run_checked(
            target::cargo_command()
                .args(["install", "--locked", "--quiet", "--force", self.name])
                .args(["--version", self.version, "--root"])
                .arg(&root)
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
                .env("CARGO_PROFILE_RELEASE_LTO", "false")
                .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
        )?;
        Ok(path)
    }
}

/// Puts the programs and the generated files where the packaging tools find them.
pub(super) fn stage_files(arch: Arch, programs: &[PathBuf; 2], dir: &Path) -> Result<()> {
    let staged = staging_dir(arch)?;
    super::empty_dir(&staged)?;
    install_programs(programs, &staged)?;
    let completions = dir.join("completions");
    if !completions.exists() {
        write_completions(arch, &programs[0], &completions)?;
    }
    for name in file_names(&completions)? {
        copy_file(&completions.join(&name), &staged.join(&name))?;
    }
    copy_file(&workspace_root().join(CONFIG), &staged.join("agent.toml"))?;
    write_changelogs(&staged)?;
    let licences = licences::licence_text(target_of(arch))?;
    write_file(&staged.join("third-party-licences.txt"), &licences)
}

/// Writes the lists of changes that a Debian package has: that of the program, and Debian's own
/// with one entry.
fn write_changelogs(staged: &Path) -> Result<()> {
    let manifest = workspace_root().join("uncore-trace/Cargo.toml");
    let text = fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let manifest: toml::Table = text.parse().context("cannot parse the manifest")?;
    let package = manifest.get("package");
    let maintainer = package.and_then(|manifest_table| {
        manifest_table.get("metadata")?.get("deb")?.get("maintainer")?.as_str()
    });
    let time = commit_time().and_then(|time| time.parse().ok()).unwrap_or_default();
    let time = jiff::Timestamp::from_second(time).context("the commit has no time")?;
    let (program_changes, debian_changes) =
        (staged.join("changelog"), staged.join("changelog.Debian"));
    copy_file(&workspace_root().join("CHANGELOG.md"), &program_changes)?;
    write_file(
        &debian_changes,
        &format!(
            "uncore-trace ({}-1) unstable; urgency=medium\n\n  * The changes are in \
             changelog.gz.\n\n -- {}  {}\n",
            env!("CARGO_PKG_VERSION"),
            maintainer.context("the manifest names no maintainer")?,
            time.strftime("%a, %d %b %Y %H:%M:%S +0000"),
        ),
    )?;
    run_quietly(
        Command::new("gzip")
            .args(["--best", "--no-name", "--force"])
            .args([program_changes, debian_changes]),
    )
    .map(drop)
}

/// Writes the completions for each shell. A program of another architecture is emulated.
fn write_completions(arch: Arch, program: &Path, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (shell, name) in
        [("bash", "uncore-trace.bash"), ("zsh", "_uncore-trace"), ("fish", "uncore-trace.fish")]
    {
        let mut command = Command::new(program);
        if arch != super::local_arch()? {
            command = Command::new(format!("qemu-{}-static", arch.uname_machine()));
            command.arg(program);
        }
        let text = run_quietly(command.args(["completions", shell]))?;
        write_file(&dir.join(name), &text)?;
    }
    Ok(())
}

pub(super) fn staging_dir(arch: Arch) -> Result<PathBuf> {
    Ok(target::target_dir()?.join(target_of(arch)).join(PROFILE).join("packaged"))
}

/// Makes both packages.
pub(super) fn make_packages(arch: Arch, dir: &Path) -> Result<(PathBuf, PathBuf)> {
    pack_as(arch, dir, &[], &[])
}

/// Makes both packages of the version [`NEWER`], with another configuration: for tests of upgrades.
pub(super) fn make_newer_packages(arch: Arch) -> Result<(PathBuf, PathBuf)> {
    let dir = target::target_dir()?.join("dist/newer");
    super::empty_dir(&dir)?;
    let config = staging_dir(arch)?.join("agent.toml");
    let text =
        fs::read_to_string(&config).with_context(|| format!("cannot read {}", config.display()))?;
    write_file(&config, &format!("{text}# A newer version.\n"))?;
    let version = format!("version = \"{NEWER}\"");
    let of_deb = ["--fast", "--deb-version", &format!("{NEWER}-1")];
    let new_packages = pack_as(arch, &dir, &of_deb, &["-s", &version]);
    write_file(&config, &text)?;
    new_packages
}

/// Makes both packages with more options of the tools.
fn pack_as(arch: Arch, dir: &Path, of_deb: &[&str], of_rpm: &[&str]) -> Result<(PathBuf, PathBuf)> {
    let target_dir = target::target_dir()?;
    let time = commit_time();
    let run = |tool: &Tool| -> Result<Command> {
        let mut command = Command::new(tool.installed_program()?);
        command
            .current_dir(workspace_root())
            .args(["--package", "uncore-trace", "--profile", PROFILE, "--target", target_of(arch)])
            .arg("--output")
            .arg(dir)
            .env("CARGO_TARGET_DIR", &target_dir);
        if let Some(time) = &time {
            command.env("SOURCE_DATE_EPOCH", time);
        }
        Ok(command)
    };
    run_quietly(run(&CARGO_DEB)?.args(["--no-build", "--no-strip", "--locked"]).args(of_deb))?;
    let mut rpm = run(&CARGO_RPM)?;
    rpm.args(of_rpm).args(["--auto-req", "no", "--target-dir"]).arg(&target_dir);
    run_quietly(&mut rpm)?;
    let [deb, rpm] =
        [format!("_{}.deb", arch.debian_name()), format!(".{}.rpm", arch.uname_machine())];
    Ok((find_by_ending(dir, &deb)?, find_by_ending(dir, &rpm)?))
}

/// Time of the last commit, s since 1970, if git knows it: the timestamp in the packages, so that
/// the same sources make the same packages.
pub(super) fn commit_time() -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(workspace_root()).args(["log", "-1", "--format=%ct"]);
    let time = run_quietly(&mut git).unwrap_or_default();
    (!time.trim().is_empty()).then(|| time.trim().to_owned())
}

/// The only file in a directory whose name ends in `end`.
fn find_by_ending(dir: &Path, end: &str) -> Result<PathBuf> {
    let names: Vec<String> =
        file_names(dir)?.into_iter().filter(|name| name.ends_with(end)).collect();
    ensure!(names.len() == 1, "{} should have one *{end}, and has {names:?}", dir.display());
    Ok(dir.join(names.concat()))
}

/// Puts the files that `packaging/Containerfile` copies into `dir`.
pub(super) fn stage_image(arch: Arch, programs: &[PathBuf; 2], dir: &Path) -> Result<()> {
    let doc = dir.join("doc");
    fs::create_dir_all(&doc).with_context(|| format!("cannot create {}", doc.display()))?;
    let root = workspace_root();
    install_programs(programs, dir)?;
    copy_file(&root.join(CONFIG), &dir.join("agent.toml"))?;
    copy_file(Path::new(CERTIFICATES), &dir.join("ca-certificates.crt"))?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy_file(&root.join(name), &doc.join(name))?;
    }
    copy_file(
        &staging_dir(arch)?.join("third-party-licences.txt"),
        &doc.join("third-party-licences.txt"),
    )
}

/// Writes the digests of all files to `SHA256SUMS`, in the format of `sha256sum --check`.
pub(super) fn write_digests(dir: &Path) -> Result<()> {
    let mut text = String::new();
    for name in file_names(dir)? {
        let path = dir.join(&name);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for byte in Sha256::digest(&bytes) {
            write!(text, "{byte:02x}").context("cannot write a digest")?;
        }
        writeln!(text, "  {name}").context("cannot write a digest")?;
    }
    write_file(&dir.join("SHA256SUMS"), &text)
}

/// The names of the files in a directory, sorted.
pub(super) fn file_names(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Copies the programs into a directory under their installed names.
fn install_programs(programs: &[PathBuf; 2], dir: &Path) -> Result<()> {
    PROGRAMS.iter().zip(programs).try_for_each(|(name, from)| copy_file(from, &dir.join(name)))
}

pub(super) fn copy_file(source: &Path, destination: &Path) -> Result<()> {
    fs::copy(source, destination)
        .map(drop)
        .with_context(|| format!("cannot copy {} to {}", source.display(), destination.display()))
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
