//! Counters of a plan that are read with read(2), without a BPF program.
//!
//! Guarantees: all counters are opened before the first is enabled, because opening an event resets
//! the others in some drivers (`ali_drw` is one). A counter that cannot be opened is reported and
//! does not affect the others. Dropping this closes all counters.

use anyhow::{Context as _, Result, bail};

use super::open_counter::{self, OpenCounter};
use super::session::Unopened;
use crate::count::Count;
use crate::plan::Counter;

/// The open counters.
#[derive(Debug)]
pub struct Counting {
    opened: Vec<OpenCounter>,
    unopened: Vec<Unopened>,
}

impl Counting {
    /// Opens `counters`, disabled.
    ///
    /// # Errors
    ///
    /// None of the counters could be opened; the error has the reason of the first one.
    pub fn open(counters: &[Counter]) -> Result<Self> {
        open_counter::raise_file_limit(counters.len());
        let (opened, unopened) = open_counter::open(counters);
        if opened.is_empty() {
            let first = unopened.first().map(|unopened| unopened.reason.as_str());
            bail!("no counter could be opened: {}", first.unwrap_or("the plan is empty"));
        }
        Ok(Self { opened, unopened })
    }

    /// The counters that could not be opened.
    pub fn unopened(&self) -> &[Unopened] {
        &self.unopened
    }

    /// Enables all counters, one right after the other.
    pub fn enable(&self) -> Result<()> {
        self.opened
            .iter()
            .try_for_each(|counter| counter.event.enable())
            .context("cannot enable a counter")
    }

    /// Disables all counters, one right after the other. If one cannot be disabled, a warning is
    /// given and it is read as it is: the kernel revokes the events of a driver that is unloaded,
    /// and the counts of the others are still valid.
    pub fn disable(&self) {
        open_counter::disable(&self.opened);
    }

    /// Counts since the counters were opened, by id. A counter that the kernel has put into error
    /// state cannot be read and is left out.
    pub fn read(&self) -> impl Iterator<Item = (u32, Count)> {
        self.opened.iter().filter_map(|counter| Some((counter.id, counter.event.read().ok()?)))
    }
}
