//! Large machines, made from the captured two-socket machine of Sapphire Rapids: more sockets, CPUs
//! and boxes of each kind. What planning costs is measured on them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::fixtures;
use crate::tree::{Entry, Tree};

/// The captured machine.
const FROM: &str = "sapphire-rapids-2s";
const PMUS: &str = "sys/bus/event_source/devices";
const SYSTEM: &str = "sys/devices/system";

/// The boxes of each kind that a socket has.
const BOXES: [(&str, usize); 5] =
    [("imc", 16), ("iio", 12), ("iio_free_running", 12), ("cha", 60), ("upi", 4)];

/// The size of a machine.
#[derive(Clone, Copy, Debug)]
pub struct LargeSize {
    /// Number of sockets.
    pub sockets: usize,
    /// Cores of each socket, of two threads each.
    pub cores: usize,
    /// How many times the boxes that such a socket has; 0 for the few of the captured machine.
    pub boxes: usize,
}

impl LargeSize {
    /// The number of CPUs.
    #[must_use]
    pub const fn cpu_count(self) -> usize {
        self.sockets * self.cores * 2
    }
}

/// The files of a machine of this size. Its CPUs are numbered as Linux does: the first threads of
/// all cores, then the second ones.
///
/// # Errors
///
/// The captured machine cannot be read.
pub fn large_machine(size: LargeSize) -> Result<Tree> {
    let captured = fixtures::machine(FROM)?;
    let mut tree = Tree::default();
    for (path, entry) in captured.all_entries() {
        let is_mask = path.ends_with("cpumask");
        if !path.starts_with(SYSTEM) && !is_mask {
            tree.add(&path, entry.clone())?;
        }
        if is_mask {
            tree.add(&path, reader_mask(size))?;
        }
    }
    let mut first_type = 200;
    for (box_name, count) in BOXES {
        let files = files_of(&captured, box_name)?;
        for number in 0..count * size.boxes {
            let pmu = Path::new(PMUS).join(format!("uncore_{box_name}_{number}"));
            let is_new = captured.all_entries().all(|(path, _)| !path.starts_with(&pmu));
            for (name, entry) in files.iter().filter(|_| is_new) {
                let entry = match name.to_str() {
                    Some("type") => text_entry(&first_type.to_string()),
                    Some("cpumask") => reader_mask(size),
                    _ => entry.clone(),
                };
                tree.add(&pmu.join(name), entry)?;
            }
            first_type += 1;
        }
    }
    add_cpus(&mut tree, size)?;
    Ok(tree)
}

/// The files of the first box of a kind, by their path below its directory.
fn files_of(captured: &Tree, box_name: &str) -> Result<Vec<(PathBuf, Entry)>> {
    let dir = Path::new(PMUS).join(format!("uncore_{box_name}_0"));
    let files = captured.all_entries().filter_map(|(path, entry)| {
        Some((path.strip_prefix(&dir).ok()?.to_owned(), entry.clone()))
    });
    let files: Vec<_> = files.collect();
    (!files.is_empty()).then_some(files).with_context(|| format!("no {}", dir.display()))
}

fn add_cpus(tree: &mut Tree, size: LargeSize) -> Result<()> {
    let cpus = size.cpu_count();
    let half = cpus / 2;
    let system = Path::new(SYSTEM);
    for file in ["online", "possible", "present"] {
        tree.add(&system.join("cpu").join(file), text_entry(&format!("0-{}", cpus - 1)))?;
    }
    for cpu in 0..cpus {
        let topology = system.join(format!("cpu/cpu{cpu}/topology"));
        let socket = cpu % half / size.cores;
        for (file, number) in [("physical_package_id", socket), ("die_id", 0), ("core_id", cpu)] {
            tree.add(&topology.join(file), text_entry(&number.to_string()))?;
        }
    }
    for socket in 0..size.sockets {
        let (first_core, last_core) = (socket * size.cores, socket * size.cores + size.cores - 1);
        let cpus = format!("{first_core}-{last_core},{}-{}", half + first_core, half + last_core);
        tree.add(&system.join(format!("node/node{socket}/cpulist")), text_entry(&cpus))?;
    }
    Ok(())
}

/// The first CPU of each socket.
fn reader_mask(size: LargeSize) -> Entry {
    let first_cpus: Vec<_> =
        (0..size.sockets).map(|socket| (socket * size.cores).to_string()).collect();
    text_entry(&first_cpus.join(","))
}

fn text_entry(line: &str) -> Entry {
    Entry::File(format!("{line}\n").into_bytes())
}
