//! The bytes of disks and interfaces, as the kernel counts them: files of sysfs, kept open.
//!
//! An open file of sysfs is read anew from its begin, so a process that may no longer open files
//! can read them too.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::session::Unopened;
use crate::bounds;
use crate::clock::mono_ns;
use crate::plan::{Counter, IoDirection};

/// Size of a sector in the file `stat`, bytes (Documentation/block/stat.rst, Linux 7.2).
const SECTOR: u64 = 512;

/// More than any of these files has.
const LEN: usize = 512;

/// A counter and its file.
#[derive(Debug)]
struct StatisticFile {
    counter: u32,
    file: File,
    /// Which of the file's numbers it is, from 0.
    field: usize,
    /// Bytes per count.
    unit: u64,
}

/// The counters of a plan that are read from sysfs.
#[derive(Debug, Default)]
pub struct DeviceStatistics {
    sources: Vec<StatisticFile>,
}

/// The bytes that the devices have moved so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatisticsSample {
    /// Time before the first was read, ns on `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// Time after the last was read, ns on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// By counter: bytes since the device exists, or `None` if the file cannot be read.
    pub bytes: Vec<(u32, Option<u64>)>,
}

impl DeviceStatistics {
    /// Opens the files of those of `counters` that are read from sysfs, which is below `root`. Also
    /// returns those that could not be opened.
    pub(super) fn open(counters: &[Counter], root: &Path) -> (Self, Vec<Unopened>) {
        let (mut sources, mut unopened) = (Vec::new(), Vec::new());
        for counter in counters.iter().filter(|candidate| candidate.is_statistic()) {
            let Some((path, field, unit)) = counter_file(counter, root) else { continue };
            match bounds::open_regular(&path) {
                Ok(file) => sources.push(StatisticFile { counter: counter.id, file, field, unit }),
                Err(error) => unopened.push(Unopened {
                    counter: counter.id,
                    reason: format!("cannot read {}: {error}", path.display()),
                }),
            }
        }
        (Self { sources }, unopened)
    }

    /// The ids of the counters.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.sources.iter().map(|source| source.counter)
    }

    /// Number of counters.
    pub const fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Reads all of them.
    pub fn read(&self) -> StatisticsSample {
        let begin_ns = mono_ns() as u64;
        let bytes = self.sources.iter().map(|source| (source.counter, source.read())).collect();
        StatisticsSample { begin_ns, end_ns: mono_ns() as u64, bytes }
    }
}

impl StatisticFile {
    fn read(&self) -> Option<u64> {
        let mut text = [0; LEN];
        let len = self.file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..len)?).ok()?;
        let count: u64 = text.split_ascii_whitespace().nth(self.field)?.parse().ok()?;
        Some(count.wrapping_mul(self.unit))
    }
}

/// The file of a counter, the place of its number in it, and the bytes of one count.
fn counter_file(counter: &Counter, root: &Path) -> Option<(PathBuf, usize, u64)> {
    let scope = counter.io.as_ref()?;
    let device = scope.devices.first()?;
    let (class, file, field, unit) = match (counter.family == "net", scope.direction) {
        // Sectors read and written.
        (false, IoDirection::Read) => ("block", "stat", 2, SECTOR),
        (false, IoDirection::Write) => ("block", "stat", 6, SECTOR),
        (true, IoDirection::Read) => ("net", "statistics/rx_bytes", 0, 1),
        (true, IoDirection::Write) => ("net", "statistics/tx_bytes", 0, 1),
    };
    Some((root.join("sys/class").join(class).join(device).join(file), field, unit))
}
