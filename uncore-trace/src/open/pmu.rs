//! The sysfs files of a PMU whose counters are open. When a driver is unloaded or unbound, its PMUs
//! are removed. After it returns, they may have another `type` and another name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bounds;
use crate::discover::CpuList;

/// The `type` of the PMU with this name; `None` if it does not exist.
pub(super) fn attr_type(root: &Path, pmu: &str) -> Option<u32> {
    bounds::system_text(pmu_directory(root, pmu).join("type")).ok()?.trim().parse().ok()
}

/// The CPUs on which the PMU is read, as its driver says.
pub(super) fn read_cpumask(root: &Path, pmu: &str) -> Option<CpuList> {
    let path = pmu_directory(root, pmu).join("cpumask");
    bounds::system_text(path).ok().and_then(|text| text.trim().parse().ok())
}

/// The PMU's directory below its device, if the driver says which device that is. Drivers number
/// PMUs in the order of probing, so the same name in another place is another PMU.
pub(super) fn device_directory(root: &Path, pmu: &str) -> Option<PathBuf> {
    fs::canonicalize(pmu_directory(root, pmu)).ok()
}

fn pmu_directory(root: &Path, pmu: &str) -> PathBuf {
    root.join("sys/bus/event_source/devices").join(pmu)
}
