//! The archive of the static programs, which `install.sh` and `cargo binstall` install.
//!
//! Below its directory it has the layout of a prefix such as `/usr/local`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use uncore_trace_ebpf::stamp::workspace_root;

use super::PROGRAMS;
use super::packages::{CONFIG, commit_time, copy_file, file_names, staging_dir};
use crate::command::run_quietly;
use crate::lab::kernel::Arch;
use crate::target;

/// The script that installs an archive, and its place in a release.
pub(super) const INSTALLER: &str = "install.sh";

/// Completions: the staged file, and its place below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("uncore-trace.bash", "share/bash-completion/completions/uncore-trace"),
    ("_uncore-trace", "share/zsh/site-functions/_uncore-trace"),
    ("uncore-trace.fish", "share/fish/vendor_completions.d/uncore-trace.fish"),
];

/// Where licences and other texts are below a prefix.
const DOC: &str = "share/doc/uncore-trace";

/// Name of the archive, and of the only directory in it, without `.tar.gz`.
fn archive_name(arch: Arch) -> String {
    format!("uncore-trace-{}-{}", env!("CARGO_PKG_VERSION"), arch.uname_machine())
}

/// Makes the archive of the staged files in `dir`. The same files make the same archive.
pub(super) fn make_archive(arch: Arch, programs: &[PathBuf; 2], dir: &Path) -> Result<()> {
    let name = archive_name(arch);
    let parent = target::target_dir()?.join("dist/archive");
    super::empty_dir(&parent)?;
    let tree = parent.join(&name);
    let (root, staged) = (workspace_root(), staging_dir(arch)?);
    for (program, built) in PROGRAMS.iter().zip(programs) {
        place_file(built, &tree.join("bin").join(program))?;
    }
    for (completion, destination) in COMPLETIONS {
        place_file(&staged.join(completion), &tree.join(destination))?;
    }
    let manual = root.join("docs/man");
    for page in file_names(&manual)? {
        place_file(&manual.join(&page), &tree.join("share/man/man1").join(&page))?;
    }
    for path in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", CONFIG] {
        let file_name = Path::new(path).file_name().unwrap_or_default();
        place_file(&root.join(path), &tree.join(DOC).join(file_name))?;
    }
    let licences = "third-party-licences.txt";
    place_file(&staged.join(licences), &tree.join(DOC).join(licences))?;
    let tarball = parent.join(format!("{name}.tar"));
    let time = commit_time().unwrap_or_else(|| "0".to_owned());
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=ustar", "--owner=0", "--group=0"])
        .args(["--numeric-owner", "--mode=u=rwX,go=rX"])
        .arg(format!("--mtime=@{time}"))
        .arg("--file")
        .arg(&tarball)
        .arg("--directory")
        .arg(&parent)
        .arg(&name);
    run_quietly(&mut tar)?;
    run_quietly(Command::new("gzip").args(["--best", "--no-name", "--force"]).arg(&tarball))?;
    let compressed = format!("{name}.tar.gz");
    copy_file(&parent.join(&compressed), &dir.join(&compressed))
}

/// Puts the script that installs the archives into `dir`.
pub(super) fn stage_installer(dir: &Path) -> Result<()> {
    copy_file(&workspace_root().join(INSTALLER), &dir.join(INSTALLER))
}

/// Copies a file, and creates the directory for it.
fn place_file(source: &Path, destination: &Path) -> Result<()> {
    let dir = destination.parent().context("a file has no directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    copy_file(source, destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a key for `cargo binstall`, with its variables replaced.
    fn expand_binstall(package: &str, key: &str, arch: Arch) -> String {
        let manifest = workspace_root().join(package).join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
        let template = &manifest["package"]["metadata"]["binstall"][key];
        template
            .as_str()
            .unwrap()
            .replace("{ version }", env!("CARGO_PKG_VERSION"))
            .replace("{ target-arch }", arch.uname_machine())
            .replace("{ bin }", package)
    }

    #[test]
    fn binstall_finds_the_programs_in_the_archives() {
        for arch in [Arch::Amd64, Arch::Arm64] {
            let name = archive_name(arch);
            for program in PROGRAMS {
                let version = env!("CARGO_PKG_VERSION");
                let url = expand_binstall(program, "pkg-url", arch);
                assert_eq!(url, format!("{{ repo }}/releases/download/v{version}/{name}.tar.gz"));
                let path = expand_binstall(program, "bin-dir", arch);
                assert_eq!(path, format!("{name}/bin/{program}"));
                assert_eq!(expand_binstall(program, "pkg-fmt", arch), "tgz");
            }
        }
    }
}
