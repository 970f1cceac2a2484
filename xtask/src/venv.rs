//! Python environments with pinned packages, in the target directory.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::apt::Apt;
use crate::command::run_checked;
use crate::target;

/// An environment; it is made again if its packages have other versions.
#[derive(Debug)]
pub(crate) struct Venv {
    /// Name of its directory.
    pub name: &'static str,
    /// Arguments of pip install, as `NAME==VERSION`.
    pub packages: &'static [&'static str],
    /// The modules that must import.
    pub modules: &'static str,
}

impl Venv {
    /// Its Python.
    pub(crate) fn python_path(&self) -> Result<PathBuf> {
        Ok(self.venv_dir()?.join("bin/python"))
    }

    fn venv_dir(&self) -> Result<PathBuf> {
        Ok(target::target_dir()?.join(self.name))
    }

    /// The pinned versions, as in the file that is written when all of them are installed.
    fn pin_text(&self) -> String {
        self.packages.join("\n") + "\n"
    }

    /// A short description of the installed packages.
    ///
    /// # Errors
    ///
    /// It does not exist or is not complete.
    pub(crate) fn installed_packages(&self) -> Result<String> {
        let dir = self.venv_dir()?;
        let installed = fs::read_to_string(dir.join("pins.txt"))
            .with_context(|| format!("no complete environment in {}", dir.display()))?;
        ensure!(installed == self.pin_text(), "other versions are pinned now");
        let python = self.python_path()?;
        let output = Command::new(&python)
            .args(["-c", &format!("import {}", self.modules)])
            .output()
            .with_context(|| format!("cannot run {}", python.display()))?;
        let error = String::from_utf8_lossy(&output.stderr);
        let error = error.trim().lines().last().unwrap_or_default();
        ensure!(output.status.success(), "the packages do not import: {error}");
        Ok(format!("{} in {}", self.packages.join(", "), dir.display()))
    }

    /// Makes the environment again.
    ///
    /// # Errors
    ///
    /// Python or one of the packages cannot be installed.
    pub(crate) fn install_venv(&self, apt: &Apt) -> Result<()> {
        let dir = self.venv_dir()?;
        // `python3 -m venv` exists everywhere; `ensurepip` is a separate package in Debian.
        let has_venv = Command::new("python3")
            .args(["-c", "import venv, ensurepip"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !has_venv {
            apt.install_packages(&["python3", "python3-venv"])?;
        }
        run_checked(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
        self.install_packages(Command::new(self.python_path()?).args(["-m", "pip"]))
    }

    /// Makes the environment again with the `pip` of another one, which takes less time and space.
    ///
    /// # Errors
    ///
    /// One of the packages cannot be installed.
    pub(crate) fn install_by(&self, helper: &Venv) -> Result<()> {
        let mut python = Command::new("python3");
        run_checked(python.args(["-m", "venv", "--clear", "--without-pip"]).arg(self.venv_dir()?))?;
        self.install_packages(
            Command::new(helper.python_path()?)
                .args(["-m", "pip", "--python"])
                .arg(self.python_path()?),
        )
    }

    /// Installs the packages with a command that begins as `pip`.
    fn install_packages(&self, pip: &mut Command) -> Result<()> {
        run_checked(
            pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(self.packages),
        )?;
        let path = self.venv_dir()?.join("pins.txt");
        fs::write(&path, self.pin_text())
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
