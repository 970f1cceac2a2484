//! Copies what discovery and planning read of a machine into a directory that `--root` takes: the
//! form of the fixtures in `tests/fixtures/machines`.
//!
//! Guarantees that nothing else is copied: PMUs, CPU numbers, NUMA nodes, the kernel's release and
//! where cgroups are mounted; no other mount, no process, no address.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

const PMUS: &str = "sys/bus/event_source/devices";
const SYSTEM: &str = "sys/devices/system";

/// Files of a PMU.
const PMU_FILES: &[&str] = &[
    "type",
    "cpumask",
    "cpus",
    "associated_cpus",
    "identifier",
    "ali_drw_pmu_identifier",
    "peer",
    "perf_event_mux_interval_ms",
];

/// Directories of a PMU, with all of their files.
const PMU_DIRS: &[&str] = &["format", "events", "caps"];

/// Files of the whole machine.
const MACHINE_FILES: &[&str] = &[
    "proc/sys/kernel/osrelease",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
];

/// Files of each CPU and each NUMA node, by what their directories begin with.
const PARTS: &[(&str, &str, &[&str])] = &[
    ("cpu", "cpu", &["topology/physical_package_id", "topology/die_id"]),
    ("node", "node", &["cpulist"]),
];

/// Copies from `root` to `to`, which must not exist yet. Returns how many PMUs there were.
///
/// # Errors
///
/// `to` exists or cannot be written, or `root` has no list of PMUs. What a machine does not have
/// is left out.
pub fn capture(root: &Path, to: &Path) -> Result<usize> {
    ensure!(!to.exists(), "{} exists: name a new directory", to.display());
    let pmus = names(&root.join(PMUS))
        .with_context(|| format!("cannot list the PMUs in {}", root.join(PMUS).display()))?;
    for pmu in &pmus {
        let dir = Path::new(PMUS).join(pmu);
        for file in PMU_FILES {
            copy(root, to, &dir.join(file))?;
        }
        for part in PMU_DIRS {
            for file in names(&root.join(&dir).join(part)).unwrap_or_default() {
                copy(root, to, &dir.join(part).join(file))?;
            }
        }
    }
    for file in MACHINE_FILES {
        copy(root, to, Path::new(file))?;
    }
    for (dir, prefix, files) in PARTS {
        let dir = Path::new(SYSTEM).join(dir);
        for name in names(&root.join(&dir)).unwrap_or_default() {
            let number = name.strip_prefix(prefix).unwrap_or("none");
            if number.bytes().all(|byte| byte.is_ascii_digit()) {
                for file in *files {
                    copy(root, to, &dir.join(&name).join(file))?;
                }
            }
        }
    }
    cgroup_mounts(root, to)?;
    Ok(pmus.len())
}

/// The mounts of cgroup file systems; all others are nobody's business.
fn cgroup_mounts(root: &Path, to: &Path) -> Result<()> {
    let file = Path::new("proc/self/mountinfo");
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return Ok(());
    };
    let is_cgroup =
        |line: &&str| line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("cgroup"));
    let mut lines: Vec<&str> = text.lines().filter(is_cgroup).collect();
    // So that the last one ends too.
    lines.push("");
    write(&to.join(file), lines.join("\n").as_bytes())
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Copies a file's bytes, if it can be read: sysfs files say nothing true about their length.
fn copy(root: &Path, to: &Path, file: &Path) -> Result<()> {
    match fs::read(root.join(file)) {
        Ok(bytes) => write(&to.join(file), &bytes),
        Err(_absent) => Ok(()),
    }
}

fn write(path: &PathBuf, bytes: &[u8]) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_copied_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("capture-{}", std::process::id()));
        let (root, to) = (dir.join("root"), dir.join("to"));
        for (file, text) in [
            ("sys/bus/event_source/devices/x_0/type", "9\n"),
            ("sys/bus/event_source/devices/x_0/events/a.scale", "0.5"),
            ("sys/bus/event_source/devices/x_0/uevent", "secret"),
            ("sys/devices/system/cpu/cpu3/topology/die_id", "1\n"),
            ("sys/devices/system/cpu/cpufreq/policy", "secret"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("proc/self/mountinfo", "1 0 / /cg rw - cgroup2 c rw\n2 0 / /home rw - ext4 x rw\n"),
        ] {
            write(&root.join(file), text.as_bytes()).unwrap();
        }
        assert_eq!(capture(&root, &to).unwrap(), 1);
        let read = |file: &str| fs::read_to_string(to.join(file)).unwrap();
        assert_eq!(read("sys/bus/event_source/devices/x_0/events/a.scale"), "0.5");
        assert_eq!(read("sys/devices/system/cpu/cpu3/topology/die_id"), "1\n");
        assert_eq!(read("sys/devices/system/node/node0/cpulist"), "0-3\n");
        assert_eq!(read("proc/self/mountinfo"), "1 0 / /cg rw - cgroup2 c rw\n");
        assert!(!to.join("sys/bus/event_source/devices/x_0/uevent").exists());
        assert!(!to.join("sys/devices/system/cpu/cpufreq").exists());
        assert!(capture(&root, &to).unwrap_err().to_string().contains("exists"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
