//! A plan's counters to be read with read(2), without any BPF program.
//!
//! Guarantees: counters are opened disabled, all of them before the first is enabled (opening an
//! event of some drivers resets the others, and `ali_drw` is one); what cannot be opened is named
//! and leaves the others alone; dropping this closes them all.

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
    /// Not one of them could be opened: says why the first could not.
    pub fn open(counters: &[Counter]) -> Result<Self> {
        open_counter::raise_file_limit(counters.len());
        let (opened, unopened) = open_counter::open(counters);
        if opened.is_empty() {
            let first = unopened.first().map(|unopened| unopened.reason.as_str());
            bail!("no counter could be opened: {}", first.unwrap_or("the plan is empty"));
        }
        Ok(Self { opened, unopened })
    }

    /// Those that could not be opened.
    pub fn unopened(&self) -> &[Unopened] {
        &self.unopened
    }

    /// Enables all, one right after the other.
    pub fn enable(&self) -> Result<()> {
        self.opened
            .iter()
            .try_for_each(|counter| counter.event.enable())
            .context("cannot enable a counter")
    }

    /// Disables all, one right after the other. One that cannot be is warned of and read as it is:
    /// the kernel revokes the events of a driver that goes, and the others' counts stay good.
    pub fn disable(&self) {
        open_counter::disable(&self.opened);
    }

    /// What each counted since it was opened, by its id. One that the kernel has put into an error
    /// state cannot be read and is left out.
    pub fn read(&self) -> impl Iterator<Item = (u32, Count)> {
        self.opened.iter().filter_map(|counter| Some((counter.id, counter.event.read().ok()?)))
    }
}
