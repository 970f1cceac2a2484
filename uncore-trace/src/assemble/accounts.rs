//! What devices count themselves, as entries of the windows in which it was read.
//!
//! A reading belongs to the window that ends before it, if it was made in the first half of the next
//! one: they are made when a second ends. One that arrives later belongs to a later window, which costs
//! precision only, as values are sums.

use std::collections::VecDeque;
use std::sync::Arc;

use super::output::Output;
use crate::entries::{Accounted, Entry};
use crate::schema::accounts;

/// Accounts that were read together.
#[derive(Debug)]
pub struct Reading {
    /// When, ns on `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The accounts.
    pub accounts: Vec<Accounted>,
}

/// The readings of windows that are not closed.
#[derive(Debug)]
pub(super) struct Accounts {
    start: u64,
    window_ns: u64,
    /// Oldest first.
    waiting: VecDeque<Arc<Reading>>,
}

impl Accounts {
    /// Before the first window, which begins at `start`.
    pub(super) const fn new(start: u64, window_ns: u64) -> Self {
        Self { start, window_ns, waiting: VecDeque::new() }
    }

    /// Takes a reading. Readings are in the order of time. The last one before the first window is what
    /// growth is counted from.
    pub(super) fn take(&mut self, reading: &Arc<Reading>) {
        if reading.time < self.start + self.window_ns / 2 {
            self.waiting.clear();
        }
        self.waiting.push_back(Arc::clone(reading));
    }

    /// Logs the readings of the window that ends at `end`; of the last one all.
    pub(super) fn close(&mut self, end: u64, is_last: bool, output: &mut Output<'_>) {
        let is_due = |its: &mut Arc<Reading>| is_last || its.time < end + self.window_ns / 2;
        while let Some(reading) = self.waiting.pop_front_if(is_due) {
            for accounted in &reading.accounts {
                output.entry(Entry::Account(accounted));
                if output.raw {
                    let Accounted { time, account, value } = accounted;
                    output.sink.rows.accounts.append(&accounts::Row {
                        mono_ns: end as i64,
                        read_ns: *time as i64,
                        bdf: &account.function.to_string(),
                        source: account.source.name(),
                        name: &account.name,
                        direction: account.direction.map(|its| its.name()),
                        unit: account.unit.name(),
                        pid: account.pid.map(u32::cast_signed),
                        client: account.client,
                        value: *value,
                    });
                }
            }
        }
    }
}
