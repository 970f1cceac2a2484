//! Root directories for installing packages: Debian's essential packages and little more.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::apt::Apt;
use crate::command::{run_quietly, tool_version};
use crate::target;

/// The Debian release.
const SUITE: &str = "bookworm";

/// The packages of a root.
#[derive(Debug)]
pub(super) struct RootVariant {
    name: &'static str,
    options: [&'static str; 2],
}

impl RootVariant {
    /// Essential packages, and those with which the two packages create users.
    pub(super) const CLEAN: Self = Self {
        name: "clean",
        options: ["--variant=essential", "--include=passwd,systemd-standalone-sysusers"],
    };
    /// A root that boots with systemd, and takes packages of both kinds.
    pub(super) const SYSTEMD: Self = Self {
        name: "systemd-rpm",
        options: ["--variant=minbase", "--include=systemd-sysv,procps,rpm"],
    };
}

/// An archive older than this is created again.
const OLDEST: Duration = Duration::from_hours(7 * 24);

/// Paths that change with every package, which are not compared.
const NOTED_BY_PACKAGE_MANAGERS: [&str; 6] =
    ["var/lib/dpkg", "var/lib/systemd", "var/lib/rpm", "root/.rpmdb", "var/log", "var/cache"];

/// The archive of a root, which is created if it is missing.
pub(super) fn root_archive(variant: &RootVariant, apt: &Apt) -> Result<PathBuf> {
    let path = target::target_dir()?.join(format!("dist/root-{SUITE}-{}.tar", variant.name));
    let age = fs::metadata(&path).and_then(|data| data.modified()).ok();
    if age.is_some_and(|modified| modified.elapsed().is_ok_and(|age| age < OLDEST)) {
        return Ok(path);
    }
    if tool_version("mmdebstrap").is_err() {
        apt.install_packages(&["mmdebstrap"])?;
    }
    let new = path.with_extension("new.tar");
    run_quietly(
        Command::new("mmdebstrap")
            .args(["--quiet", "--mode=root"])
            .args(variant.options)
            .arg(SUITE)
            .arg(&new),
    )?;
    fs::rename(&new, &path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// A root in a temporary directory.
#[derive(Debug)]
pub(super) struct Root(TempDir);

impl Root {
    pub(super) fn new(archive: &Path) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory")?;
        run_quietly(
            Command::new("tar")
                .arg("--extract")
                .arg("--file")
                .arg(archive)
                .arg("-C")
                .arg(dir.path()),
        )?;
        Ok(Self(dir))
    }

    pub(super) fn root_path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a program inside the root.
    pub(super) fn run(&self, args: &[&str]) -> Result<String> {
        run_quietly(
            Command::new("chroot")
                .arg(self.root_path())
                .args(args)
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        )
    }

    pub(super) fn read(&self, path: &str) -> Result<String> {
        let path = self.root_path().join(path);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub(super) fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.root_path().join(path);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Paths of all files and directories inside, with their mode (type and permissions).
    pub(super) fn list_files(&self) -> Result<BTreeMap<String, u32>> {
        let mut modes = BTreeMap::new();
        let mut folders = vec![self.root_path().to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("cannot list {}", folder.display()))?;
            for entry in entries {
                let path =
                    entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
                let data = fs::symlink_metadata(&path)
                    .with_context(|| format!("cannot find {}", path.display()))?;
                let inside = path.strip_prefix(self.root_path()).unwrap_or(&path);
                let inside = inside.to_string_lossy().into_owned();
                if NOTED_BY_PACKAGE_MANAGERS.contains(&inside.as_str()) {
                    continue;
                }
                modes.insert(inside, data.mode());
                if data.is_dir() {
                    folders.push(path);
                }
            }
        }
        Ok(modes)
    }
}
