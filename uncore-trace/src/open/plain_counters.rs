//! Counters of a plan that are read with read(2), without a BPF program: perf events, and the
//! kernel's statistics of devices.
//!
//! Guarantees: all counters are opened before the first is enabled, because opening an event resets
//! the others in some drivers (`ali_drw` is one). A counter that cannot be opened is reported and
//! does not affect the others. Dropping this closes all counters.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::limits;
use super::open_counter::{self, OpenCounter};
use super::session::Unopened;
use super::statistics::{DeviceStatistics, StatisticsSample};
use crate::count::Count;
use crate::plan::Counter;

/// The open counters.
#[derive(Debug)]
pub struct Counting {
    opened: Vec<OpenCounter>,
    unopened: Vec<Unopened>,
    statistics: DeviceStatistics,
    /// When the counters were enabled, ns, and what the statistics were then.
    start_sample: Option<StatisticsSample>,
    /// Counts of the statistics while the counters were enabled before.
    earlier_counts: BTreeMap<u32, Count>,
}

impl Counting {
    /// Opens `counters`, disabled. Sysfs is under `root`.
    ///
    /// # Errors
    ///
    /// None of the counters could be opened; the error has the reason of the first one.
    pub fn open(counters: &[Counter], root: &Path) -> Result<Self> {
        // One that has too few opens what it can.
        limits::raise_file_limit(limits::files_needed(counters, 0));
        let (opened, mut unopened) = open_counter::open_counters(counters);
        let (statistics, unread) = DeviceStatistics::open(counters, root);
        unopened.extend(unread);
        if let Some(failure) =
            unopened.first().filter(|_| opened.is_empty() && statistics.is_empty())
        {
            bail!("no counter could be opened: {}", failure.reason);
        }
        let (start_sample, earlier_counts) = (None, BTreeMap::new());
        Ok(Self { opened, unopened, statistics, start_sample, earlier_counts })
    }

    /// The counters that could not be opened.
    pub fn unopened(&self) -> &[Unopened] {
        &self.unopened
    }

    /// Enables all counters, one right after the other.
    pub fn enable(&mut self) -> Result<()> {
        self.start_sample = Some(self.statistics.read());
        self.opened
            .iter()
            .try_for_each(|counter| counter.event.enable())
            .context("cannot enable a counter")
    }

    /// Disables all counters, one right after the other. If one cannot be disabled, a warning is
    /// given and it is read as it is: the kernel revokes the events of a driver that is unloaded,
    /// and the counts of the others are still valid.
    pub fn disable(&mut self) {
        open_counter::disable_counters(&self.opened);
        self.earlier_counts = self.statistic_counts();
        self.start_sample = None;
    }

    /// Counts since the counters were opened, by id. A counter that the kernel has put into error
    /// state cannot be read and is left out.
    pub fn read(&self) -> impl Iterator<Item = (u32, Count)> {
        let events = self.opened.iter();
        let events = events.filter_map(|counter| Some((counter.id, counter.event.read().ok()?)));
        events.chain(self.statistic_counts())
    }

    /// The counts of the statistics while the counters were enabled. One that cannot be read is
    /// left out.
    fn statistic_counts(&self) -> BTreeMap<u32, Count> {
        let Some(start) = &self.start_sample else { return self.earlier_counts.clone() };
        let current = self.statistics.read();
        let enabled = current.end_ns - start.end_ns;
        let mut counts = BTreeMap::new();
        for ((id, current_bytes), (_, start_bytes)) in current.bytes.iter().zip(&start.bytes) {
            let (Some(bytes_now), Some(bytes_before)) = (*current_bytes, *start_bytes) else {
                continue;
            };
            // A device that begins anew begins at 0.
            let value = bytes_now.checked_sub(bytes_before).unwrap_or(bytes_now);
            let earlier = self.earlier_counts.get(id).copied().unwrap_or_default();
            counts.insert(*id, Count { value, enabled, running: enabled }.add_earlier(earlier));
        }
        counts
    }
}
