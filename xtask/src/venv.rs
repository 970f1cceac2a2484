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
    pub(crate) fn python(&self) -> Result<PathBuf> {
        Ok(self.dir()?.join("bin/python"))
    }

    fn dir(&self) -> Result<PathBuf> {
        Ok(target::dir()?.join(self.name))
    }

    /// The pinned versions, as in the file that is written when all of them are installed.
    fn pins(&self) -> String {
        self.packages.join("\n") + "\n"
    }

    /// A short description of the installed packages.
    ///
    /// # Errors
    ///
    /// It does not exist or is not complete.
    pub(crate) fn look(&self) -> Result<String> {
        let dir = self.dir()?;
        let installed = fs::read_to_string(dir.join("pins.txt"))
            .with_context(|| format!("no complete environment in {}", dir.display()))?;
        ensure!(installed == self.pins(), "other versions are pinned now");
        let python = self.python()?;
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
    pub(crate) fn install(&self, apt: &Apt) -> Result<()> {
        let dir = self.dir()?;
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
        self.fill(Command::new(self.python()?).args(["-m", "pip"]))
    }

    /// Makes the environment again with the `pip` of another one, which takes less time and space.
    ///
    /// # Errors
    ///
    /// One of the packages cannot be installed.
    pub(crate) fn install_by(&self, helper: &Venv) -> Result<()> {
        let mut python = Command::new("python3");
        run_checked(python.args(["-m", "venv", "--clear", "--without-pip"]).arg(self.dir()?))?;
        self.fill(
            Command::new(helper.python()?).args(["-m", "pip", "--python"]).arg(self.python()?),
        )
    }

    /// Installs the packages with a command that begins as `pip`.
    fn fill(&self, pip: &mut Command) -> Result<()> {
        run_checked(
            pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(self.packages),
        )?;
        let path = self.dir()?.join("pins.txt");
        fs::write(&path, self.pins()).with_context(|| format!("cannot write {}", path.display()))
    }
}
