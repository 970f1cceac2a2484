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
pub struct Size {
    /// Number of sockets.
    pub sockets: usize,
    /// Cores of each socket, of two threads each.
    pub cores: usize,
    /// How many times the boxes that such a socket has; 0 for the few of the captured machine.
    pub boxes: usize,
}

impl Size {
    /// The number of CPUs.
    #[must_use]
    pub const fn cpus(self) -> usize {
        self.sockets * self.cores * 2
    }
}

/// The files of a machine of this size. Its CPUs are numbered as Linux does: the first threads of
/// all cores, then the second ones.
///
/// # Errors
///
/// The captured machine cannot be read.
pub fn machine(size: Size) -> Result<Tree> {
    let from = fixtures::machine(FROM)?;
    let mut made = Tree::default();
    for (path, entry) in from.entries() {
        let is_mask = path.ends_with("cpumask");
        if !path.starts_with(SYSTEM) && !is_mask {
            made.add(&path, entry.clone())?;
        }
        if is_mask {
            made.add(&path, readers(size))?;
        }
    }
    let mut first_type = 200;
    for (kind, count) in BOXES {
        let files = files_of(&from, kind)?;
        for number in 0..count * size.boxes {
            let pmu = Path::new(PMUS).join(format!("uncore_{kind}_{number}"));
            let is_new = from.entries().all(|(path, _)| !path.starts_with(&pmu));
            for (name, entry) in files.iter().filter(|_| is_new) {
                let entry = match name.to_str() {
                    Some("type") => text(&first_type.to_string()),
                    Some("cpumask") => readers(size),
                    _ => entry.clone(),
                };
                made.add(&pmu.join(name), entry)?;
            }
            first_type += 1;
        }
    }
    add_cpus(&mut made, size)?;
    Ok(made)
}

/// The files of the first box of a kind, by their path below its directory.
fn files_of(from: &Tree, kind: &str) -> Result<Vec<(PathBuf, Entry)>> {
    let dir = Path::new(PMUS).join(format!("uncore_{kind}_0"));
    let files = from.entries().filter_map(|(path, entry)| {
        Some((path.strip_prefix(&dir).ok()?.to_owned(), entry.clone()))
    });
    let files: Vec<_> = files.collect();
    (!files.is_empty()).then_some(files).with_context(|| format!("no {}", dir.display()))
}

fn add_cpus(made: &mut Tree, size: Size) -> Result<()> {
    let cpus = size.cpus();
    let half = cpus / 2;
    let system = Path::new(SYSTEM);
    for file in ["online", "possible", "present"] {
        made.add(&system.join("cpu").join(file), text(&format!("0-{}", cpus - 1)))?;
    }
    for cpu in 0..cpus {
        let topology = system.join(format!("cpu/cpu{cpu}/topology"));
        let socket = cpu % half / size.cores;
        for (file, number) in [("physical_package_id", socket), ("die_id", 0), ("core_id", cpu)] {
            made.add(&topology.join(file), text(&number.to_string()))?;
        }
    }
    for socket in 0..size.sockets {
        let (first, last) = (socket * size.cores, socket * size.cores + size.cores - 1);
        let cpus = format!("{first}-{last},{}-{}", half + first, half + last);
        made.add(&system.join(format!("node/node{socket}/cpulist")), text(&cpus))?;
    }
    Ok(())
}

/// The first CPU of each socket.
fn readers(size: Size) -> Entry {
    let first: Vec<_> = (0..size.sockets).map(|socket| (socket * size.cores).to_string()).collect();
    text(&first.join(","))
}

fn text(line: &str) -> Entry {
    Entry::File(format!("{line}\n").into_bytes())
}
