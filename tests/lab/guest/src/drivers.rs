//! Changes while a step's command runs: CPUs, modules, the drivers of PMUs, and marks.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::io::Errno;
use rustix::system::delete_module;
use uncore_trace_lab::spec::Change;

use crate::modules;

const PMUS: &str = "/sys/bus/event_source/devices";
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// `O_NONBLOCK`: fail at once if the module is in use. Linux has no other mode since 3.13.
const NOT_BLOCKING: i32 = 0o4000;

/// The drivers that were unbound from PMUs.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    /// By PMU: the directory of its driver and the name of its device.
    unbound: BTreeMap<String, (PathBuf, OsString)>,
}

impl Drivers {
    /// Makes a change.
    pub(crate) fn change(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Offline { cpu } => power(*cpu, "0"),
            Change::Online { cpu } => power(*cpu, "1"),
            Change::Held { module } => held(module),
            Change::Unload { module } => unload(module).with_context(|| format!("unload {module}")),
            Change::Load { module } => modules::load(std::slice::from_ref(module)),
            Change::Unbind { pmu } => self.unbind(pmu),
            Change::Bind { pmu } => self.bind(pmu),
            Change::Paranoid { level } => {
                write(Path::new(PARANOID), OsStr::new(&level.to_string()))
            }
            Change::Mark { text } => mark(text),
        }
    }

    fn unbind(&mut self, pmu: &str) -> Result<()> {
        let place = Path::new(PMUS).join(pmu);
        let place = fs::canonicalize(&place).with_context(|| format!("find {pmu}"))?;
        // The PMU's device is a child of the hardware device.
        let device = place.parent().with_context(|| format!("{pmu} has no device"))?;
        let name = device.file_name().with_context(|| format!("{pmu} has no device"))?.to_owned();
        let driver = device.join("driver");
        let driver = fs::canonicalize(&driver)
            .with_context(|| format!("find the driver of {pmu}, {}", driver.display()))?;
        write(&driver.join("unbind"), &name)?;
        self.unbound.insert(pmu.to_owned(), (driver, name));
        Ok(())
    }

    fn bind(&self, pmu: &str) -> Result<()> {
        let (driver, name) =
            self.unbound.get(pmu).with_context(|| format!("{pmu} was not unbound"))?;
        write(&driver.join("bind"), name)
    }
}

fn mark(text: &str) -> Result<()> {
    let status = Command::new("/bin/uncore-trace").args(["mark", text]).status();
    let status = status.with_context(|| format!("run uncore-trace mark {text}"))?;
    ensure!(status.success(), "uncore-trace mark {text}: {status}");
    Ok(())
}

fn power(cpu: u32, online: &str) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    write(Path::new(&path), online.as_ref())
}

fn held(module: &str) -> Result<()> {
    match unload(module) {
        // The error for a module whose use count is not 0.
        Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("unload {module}, which is in use")),
        Ok(()) => bail!("{module} was unloaded although it is in use"),
    }
}

fn unload(module: &str) -> rustix::io::Result<()> {
    let name = CString::new(module).map_err(|_nul| Errno::INVAL)?;
    delete_module(&name, NOT_BLOCKING)
}

fn write(path: &Path, text: &OsStr) -> Result<()> {
    let said = String::from_utf8_lossy(text.as_bytes());
    fs::write(path, text.as_bytes()).with_context(|| format!("write {said} to {}", path.display()))
}
