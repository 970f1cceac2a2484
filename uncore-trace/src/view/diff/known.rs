//! For how long each event, or each direction of a link, was counted: what makes its counts rates.
//!
//! A window in which a counter has no value is in no sum, so it is in no length of time either: a rate
//! is of the time that is known, as if the rest were like it. Guarantee: memory does not grow with the
//! recording's length.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::super::heat::{Heat, STEPS, Scale};
use super::super::key::{By, Columns};
use super::super::links::Links;
use super::super::span::Span;
use crate::schema::columns::get;
use crate::tables::reader::Table;

/// The time of one event, or of one direction of a link.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Its counters, and the end of the last window of each.
    counters: HashMap<i32, i64>,
    /// How many of the counters count which event with which filter.
    pub(super) counted: BTreeMap<String, usize>,
    /// Windows with a value, of all counters.
    windows: u64,
    /// Time of the windows with a value, ns, summed over the counters.
    time_ns: f64,
    /// The same over the steps of the span.
    heat: Heat,
}

impl Known {
    /// Length of the time that is known, seconds: the mean over the counters.
    pub(super) fn seconds(&self) -> f64 {
        self.time_ns / self.counters.len().max(1) as f64 / 1e9
    }

    /// Windows that are known: the mean over the counters.
    pub(super) fn windows(&self) -> u64 {
        self.windows / self.counters.len().max(1) as u64
    }

    /// As [`Self::seconds`], of each step of the span.
    pub(super) fn steps(&self) -> [f64; STEPS] {
        let counters = self.counters.len().max(1) as f64;
        let mut steps = [0.0; STEPS];
        for (step, time) in steps.iter_mut().zip(self.heat.steps()) {
            *step = time.unwrap_or(0.0) / counters / 1e9;
        }
        steps
    }

    /// Adds a window of a counter.
    pub(super) fn add(
        &mut self,
        counter: i32,
        end_ns: i64,
        length_ns: i64,
        scale: &Scale,
        is_known: bool,
    ) {
        // A window has a row for each owner: one of them is enough.
        if self.counters.insert(counter, end_ns) == Some(end_ns) || !is_known {
            return;
        }
        let length = length_ns.max(0) as f64;
        self.windows += 1;
        self.time_ns += length;
        self.heat.add(scale.place(end_ns, length_ns), Some(length));
    }
}

/// By the name and the unit of what was counted, as [`super::super::usage`] has them.
pub(super) type Times = HashMap<(String, String), Known>;

/// The time of everything that was counted in a span. Rows are in the order of their windows.
///
/// # Errors
///
/// The table cannot be read.
pub(super) fn times(table: &Table, span: &Span, by: By, links: Option<&Links>) -> Result<Times> {
    // Whose the rows are does not matter; by port, events have other names.
    let by = if by == By::Port { By::Port } else { By::Pmu };
    let scale = Scale::new(span.begin_ns, span.end_ns);
    let mut times: Vec<((String, String), Known)> = Vec::new();
    let mut of_counter: HashMap<i32, usize> = HashMap::new();
    for batch in table.scan_within(&by.columns(), "mono_ns", span.wanted.clone())? {
        let batch = batch?;
        let columns = Columns::new(&batch, by, None, links)?;
        for row in 0..columns.rows {
            let end_ns = columns.mono_ns.value(row);
            if !span.wanted.contains(&end_ns) || !columns.is_wanted(row) {
                continue;
            }
            let counter = columns.counter.value(row);
            let place = *of_counter.entry(counter).or_insert_with(|| {
                let name = (columns.what(row), columns.unit(row).to_owned());
                let place = times.iter().position(|(other, _)| *other == name);
                let place = place.unwrap_or_else(|| {
                    times.push((name, Known::default()));
                    times.len() - 1
                });
                *times[place].1.counted.entry(columns.event(row)).or_default() += 1;
                place
            });
            let is_known = get(columns.value, row).is_some();
            let length_ns = columns.window_ns.value(row);
            times[place].1.add(counter, end_ns, length_ns, &scale, is_known);
        }
    }
    Ok(times.into_iter().collect())
}
