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
    pub(crate) fn apply_change(&mut self, change: &Change) -> Result<()> {
        match change {
            Change::Offline { cpu } => set_cpu_online(*cpu, "0"),
            Change::Online { cpu } => set_cpu_online(*cpu, "1"),
            Change::Held { module } => check_held(module),
            Change::Unload { module } => {
                unload_module(module).with_context(|| format!("unload {module}"))
            }
            Change::Load { module } => modules::load_modules(std::slice::from_ref(module)),
            Change::Unbind { pmu } => self.unbind_driver(pmu),
            Change::Bind { pmu } => self.bind_driver(pmu),
            Change::Paranoid { level } => {
                write_text(Path::new(PARANOID), OsStr::new(&level.to_string()))
            }
            Change::Mark { text } => set_mark(text),
        }
    }

    fn unbind_driver(&mut self, pmu: &str) -> Result<()> {
        let pmu_path = Path::new(PMUS).join(pmu);
        let device_path = fs::canonicalize(&pmu_path).with_context(|| format!("find {pmu}"))?;
        // The PMU's device is a child of the hardware device.
        let device = device_path.parent().with_context(|| format!("{pmu} has no device"))?;
        let name = device.file_name().with_context(|| format!("{pmu} has no device"))?.to_owned();
        let driver = device.join("driver");
        let driver = fs::canonicalize(&driver)
            .with_context(|| format!("find the driver of {pmu}, {}", driver.display()))?;
        write_text(&driver.join("unbind"), &name)?;
        self.unbound.insert(pmu.to_owned(), (driver, name));
        Ok(())
    }

    fn bind_driver(&self, pmu: &str) -> Result<()> {
        let (driver, name) =
            self.unbound.get(pmu).with_context(|| format!("{pmu} was not unbound"))?;
        write_text(&driver.join("bind"), name)
    }
}

fn set_mark(text: &str) -> Result<()> {
    let status = Command::new("/bin/uncore-trace").args(["mark", text]).status();
    let status = status.with_context(|| format!("run uncore-trace mark {text}"))?;
    ensure!(status.success(), "uncore-trace mark {text}: {status}");
    Ok(())
}

fn set_cpu_online(cpu: u32, online: &str) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    write_text(Path::new(&path), online.as_ref())
}

fn check_held(module: &str) -> Result<()> {
    match unload_module(module) {
        // The error for a module whose use count is not 0.
        Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("unload {module}, which is in use")),
        Ok(()) => bail!("{module} was unloaded although it is in use"),
    }
}

fn unload_module(module: &str) -> rustix::io::Result<()> {
    let name = CString::new(module).map_err(|_nul| Errno::INVAL)?;
    delete_module(&name, NOT_BLOCKING)
}

fn write_text(path: &Path, text: &OsStr) -> Result<()> {
    let shown = String::from_utf8_lossy(text.as_bytes());
    fs::write(path, text.as_bytes()).with_context(|| format!("write {shown} to {}", path.display()))
}
