//! The results of `uncore-trace calibrate` for this machine: the peak rates of its memories.
//!
//! Guarantee: results from another machine, or from this one with other memory, are not used.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Cpus;
use super::processor::Processor;
use super::read::{Problems, read_bytes};
use crate::bounds;

/// Path of the file, below the root.
pub const FILE: &str = "var/lib/uncore-trace/calibration.json";

/// What identifies the measured machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineIdentity {
    /// `/sys/class/dmi/id/product_name`; empty if the firmware does not say.
    pub product: String,
    /// The processor's name; empty if the kernel does not say.
    pub processor: String,
    /// Number of possible CPUs.
    pub cpus: usize,
    /// Number of NUMA nodes with CPUs.
    pub nodes: usize,
    /// Memory in GiB, rounded up, because the kernel reserves a varying part of it.
    pub memory_gib: u64,
}

/// The peak rates of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredPeak {
    /// Kind of link in the catalog: `memory`.
    pub kind: String,
    /// Its socket.
    pub socket: Option<i16>,
    /// Bytes per second towards the CPUs.
    pub in_per_s: Option<f64>,
    /// Bytes per second from the CPUs.
    pub out_per_s: Option<f64>,
    /// Bytes per second in both directions together.
    pub both_per_s: Option<f64>,
    /// How it was measured, as text.
    pub detail: String,
}

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The machine on which it was measured.
    pub machine: MachineIdentity,
    /// The results.
    pub links: Vec<MeasuredPeak>,
}

impl MachineIdentity {
    /// The identity of the machine below `root`.
    pub(super) fn read(root: &Path, processor: Option<&Processor>, cpus: &Cpus) -> Self {
        let text = |path: &str| {
            String::from_utf8_lossy(&read_bytes(&root.join(path)).unwrap_or_default()).into_owned()
        };
        let kib = text("proc/meminfo").lines().find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let nodes: std::collections::BTreeSet<_> =
            cpus.cpu_locations().values().filter_map(|location| location.node).collect();
        Self {
            product: text("sys/class/dmi/id/product_name").trim().to_owned(),
            processor: processor.map(|known| known.name.clone()).unwrap_or_default(),
            cpus: cpus.possible.iter().count(),
            nodes: nodes.len(),
            memory_gib: kib.unwrap_or_default().div_ceil(1 << 20),
        }
    }
}

impl Calibration {
    /// The results for the machine below `root`; `None` if there are none. A file that cannot be
    /// used is a problem.
    pub(super) fn read(
        root: &Path,
        identity: &MachineIdentity,
        problems: &mut Problems,
    ) -> Option<Self> {
        let path = root.join(FILE);
        let text = problems.text_up_to(&path, bounds::TEXT)?;
        let calibration: Self = problems.keep_read(&path, serde_json::from_str(&text))?;
        if calibration.machine == *identity {
            return Some(calibration);
        }
        let why = "it was measured on another machine, or with other memory: peaks in it are not \
                   used; run uncore-trace calibrate";
        problems.note_problem(&path, &why);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(memory_gib: u64) -> MachineIdentity {
        MachineIdentity {
            product: "Board".to_owned(),
            processor: "0x00000000410fd4f0".to_owned(),
            cpus: 72,
            nodes: 1,
            memory_gib,
        }
    }

    #[test]
    fn only_what_was_measured_here_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let read = |identity: &MachineIdentity| {
            let mut problems = Problems::default();
            let calibration = Calibration::read(dir.path(), identity, &mut problems);
            (calibration, problems.0)
        };
        assert_eq!(read(&identity(480)), (None, Vec::new()));
        let calibration = Calibration { machine: identity(480), links: Vec::new() };
        std::fs::write(&path, serde_json::to_string(&calibration).unwrap()).unwrap();
        assert_eq!(read(&identity(480)), (Some(calibration), Vec::new()));
        let (none, problems) = read(&identity(240));
        assert_eq!((none, problems.len()), (None, 1));
        assert!(problems[0].contains("another machine"), "{problems:?}");
        std::fs::write(&path, "{").unwrap();
        let (none, problems) = read(&identity(480));
        assert_eq!((none, problems.len()), (None, 1));
    }
}
