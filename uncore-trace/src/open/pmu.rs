//! What sysfs says of a PMU while its counters are open. A driver that is unloaded, or taken from its
//! device, takes its PMUs with it; when it is back they may have another `type`, and another name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::discover::CpuList;

/// The `type` of the PMU of that name; `None` while there is none.
pub(super) fn attr_type(root: &Path, pmu: &str) -> Option<u32> {
    let text = fs::read_to_string(directory(root, pmu).join("type")).ok()?;
    text.trim().parse().ok()
}

/// The CPUs that a PMU says it is read on.
pub(super) fn cpumask(root: &Path, pmu: &str) -> Option<CpuList> {
    let path = directory(root, pmu).join("cpumask");
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok())
}

/// The PMU's place below its device, where the driver says which that is. Drivers number their PMUs as
/// they find them: a PMU of the same name somewhere else is another one.
pub(super) fn place(root: &Path, pmu: &str) -> Option<PathBuf> {
    fs::canonicalize(directory(root, pmu)).ok()
}

fn directory(root: &Path, pmu: &str) -> PathBuf {
    root.join("sys/bus/event_source/devices").join(pmu)
}
