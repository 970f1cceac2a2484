//! Installs Debian packages, also on a machine whose package lists are missing or old.
#![expect(clippy::print_stdout, reason = "a task tells what it does")]

use std::cell::OnceCell;
use std::env;
use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::{as_root, version_of};

/// The package manager of this machine. It renews the package lists at most once.
pub(crate) struct Apt {
    /// Where its programs are searched: a value of `PATH`.
    path: OsString,
    /// Set when the package lists were renewed: the error, if that failed.
    renewed: OnceCell<Result<(), String>>,
}

impl Apt {
    /// The package manager in `PATH`.
    pub(crate) fn new() -> Self {
        Self { path: env::var_os("PATH").unwrap_or_default(), renewed: OnceCell::new() }
    }

    /// Installs packages. Renews the package lists if a package is unknown or cannot be installed
    /// from the lists as they are, which happens when its version is gone from the archive.
    ///
    /// # Errors
    ///
    /// There is no apt here, a package is unknown also after the lists were renewed, or installing
    /// failed. A list that could not be renewed is part of the error.
    pub(crate) fn install_packages(&self, packages: &[&str]) -> Result<()> {
        if version_of(self.program_command("apt-get")).is_err() {
            bail!(
                "apt is not installed: install your distribution's packages for `{}`",
                packages.join(" ")
            );
        }
        let Err(first_error) = self.install_listed(packages) else { return Ok(()) };
        let mut error = first_error;
        if self.renewed.get().is_none() {
            println!("apt: updating the package lists ({error:#})");
            self.renew_lists();
            match self.install_listed(packages) {
                Ok(()) => return Ok(()),
                Err(second_error) => error = second_error,
            }
        }
        if let Some(Err(renewing)) = self.renewed.get() {
            bail!(
                "{error:#}, and the package lists cannot be updated ({renewing}): check the \
                 network and the sources in /etc/apt, then run `apt-get update`"
            );
        }
        let list = packages.join(" ");
        bail!("{error:#}, also with new package lists: install `{list}` another way")
    }

    /// Installs packages from the package lists as they are.
    fn install_listed(&self, packages: &[&str]) -> Result<()> {
        for package in packages {
            ensure!(self.has_package(package)?, "apt knows no package {package}");
        }
        let mut command = self.apt_get("install");
        command.args(["--yes", "--no-install-recommends"]);
        // Another apt may hold the lock, such as that of the daily upgrade.
        command.args(["-o", "DPkg::Lock::Timeout=600"]).args(packages);
        let status = command.status().context("cannot run apt-get")?;
        ensure!(status.success(), "apt-get install failed ({status})");
        Ok(())
    }

    /// Whether the package lists have a package. apt treats an unknown name as a regular
    /// expression: `g++` would match, and install, every package with a `g` in its name.
    fn has_package(&self, package: &str) -> Result<bool> {
        let output = self
            .program_command("apt-cache")
            .args(["show", "--no-all-versions", package])
            .output()
            .context("cannot run apt-cache")?;
        let name = package.split_once(':').map_or(package, |(name, _architecture)| name);
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().any(|line| line.strip_prefix("Package: ") == Some(name)))
    }

    /// Runs `apt-get update` and stores the result. A failure is no error yet, because the archive
    /// that failed may have none of the packages.
    fn renew_lists(&self) {
        let mut command = self.apt_get("update");
        // Without the option it also succeeds if no archive could be reached.
        let ended = command.args(["--quiet", "-o", "APT::Update::Error-Mode=any"]).status();
        self.renewed.get_or_init(|| match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("apt-get update failed: {status}")),
            Err(error) => Err(format!("cannot run apt-get: {error}")),
        });
    }

    fn apt_get(&self, verb: &str) -> Command {
        let mut command = as_root("apt-get");
        command.arg(verb).env("PATH", &self.path).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn program_command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("PATH", &self.path);
        command
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    /// A package manager that writes what it was asked into `log`. It knows the package `tool++`
    /// once the file `lists` exists, which `update` creates; its archive has the version in
    /// `archive` only, and installs it from lists that name this version.
    const APT_GET: &str = r#"
        case "$1" in
        --version) echo "apt 2.6.1" ;;
        update) echo update >> log; [ -e archive ] && cp archive lists ;;
        install) echo install >> log; cmp --silent lists archive ;;
        esac
    "#;
    const APT_CACHE: &str = r#"
        case "$3" in
        tool++) if [ -e lists ]; then echo "Package: tool++"; else echo "Package: toolbox"; fi ;;
        *) exit 100 ;;
        esac
    "#;

    /// A machine with the given package lists and archive.
    fn machine(lists: Option<&str>, archive: Option<&str>) -> (TempDir, Apt) {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = dir.path().join(name);
            let home = dir.path().display();
            let text = format!("#!/bin/sh\ncd {home}\nPATH=/usr/bin:/bin\n{text}");
            // A program that this process wrote itself may be "text file busy": a child that
            // another test forks has a copy of the descriptor until it executes its own program.
            let source = path.with_extension("sh");
            fs::write(&source, text).unwrap();
            let mut install = Command::new("install");
            assert!(install.args(["-m", "755"]).args([source, path]).status().unwrap().success());
        };
        script("apt-get", APT_GET);
        script("apt-cache", APT_CACHE);
        script("sudo", "exec \"${0%/*}/$@\"");
        for (name, version) in [("lists", lists), ("archive", archive)] {
            if let Some(version) = version {
                fs::write(dir.path().join(name), version).unwrap();
            }
        }
        let apt = Apt { path: dir.path().into(), renewed: OnceCell::new() };
        (dir, apt)
    }

    fn log(dir: &Path) -> String {
        fs::read_to_string(dir.join("log")).unwrap_or_default().replace('\n', " ")
    }

    #[test]
    fn good_lists_are_not_renewed() {
        let (dir, apt) = machine(Some("2"), Some("2"));
        apt.install_packages(&["tool++"]).unwrap();
        assert_eq!(log(dir.path()), "install ");
    }

    #[test]
    fn missing_lists_are_renewed() {
        let (dir, apt) = machine(None, Some("2"));
        apt.install_packages(&["tool++"]).unwrap();
        assert_eq!(log(dir.path()), "update install ");
    }

    #[test]
    fn lists_of_versions_that_are_gone_are_renewed() {
        let (dir, apt) = machine(Some("1"), Some("2"));
        apt.install_packages(&["tool++"]).unwrap();
        assert_eq!(log(dir.path()), "install update install ");
    }

    #[test]
    fn lists_are_renewed_once() {
        let (dir, apt) = machine(None, Some("2"));
        for _ in 0..2 {
            let error = format!("{:#}", apt.install_packages(&["other"]).unwrap_err());
            assert_eq!(
                error,
                "apt knows no package other, also with new package lists: install `other` another \
                 way"
            );
        }
        assert_eq!(log(dir.path()), "update ");
    }

    #[test]
    fn lists_that_cannot_be_renewed_are_named() {
        let (dir, apt) = machine(None, None);
        for _ in 0..2 {
            let error = format!("{:#}", apt.install_packages(&["tool++"]).unwrap_err());
            let begin =
                "apt knows no package tool++, and the package lists cannot be updated (apt-get";
            assert!(error.starts_with(begin), "{error}");
            assert!(error.ends_with("then run `apt-get update`"), "{error}");
        }
        assert_eq!(log(dir.path()), "update ");
    }

    #[test]
    fn another_package_manager_is_not_asked() {
        let dir = tempfile::tempdir().unwrap();
        let apt = Apt { path: dir.path().into(), renewed: OnceCell::new() };
        let error = apt.install_packages(&["one", "two"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "apt is not installed: install your distribution's packages for `one \
                           two`"
        );
    }
}
