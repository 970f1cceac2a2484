//! Scans `fabric`: for each window, the counts from which a latency is computed, and each tenant's
//! bytes over the link.

use std::collections::HashMap;

use anyhow::Result;

use super::super::key::Columns;
use super::super::known::LineCache;
use super::super::links::Links;
use super::super::span::SelectedTime;
use super::super::sums::{Moments, MomentBytes, MomentRate};
use super::super::usage::UsageQuestion;
use super::classes::{Classes, Sums};
use super::{Evaluate, Subject};
use crate::schema::columns::nullable_value;
use crate::schema::fabric;
use crate::tables::reader::Recording;

/// Owners that wait for their reads: programs and devices.
const WAIT: [&str; 3] = ["task", "other_tasks", "device"];

/// The result of the scan.
#[derive(Debug)]
pub(super) struct Scanned<'a> {
    pub(super) subjects: Vec<Subject<'a>>,
    /// Owner and key of each tenant.
    pub(super) names: Vec<(String, String)>,
}

/// Sums the windows of the selected time.
pub(super) fn scan<'a>(
    recording: &Recording,
    links: &'a Links,
    question: &UsageQuestion<'_>,
    evaluate: Evaluate,
) -> Result<Scanned<'a>> {
    let mut windows = Windows::new(links, evaluate);
    let table = recording.open_table(&fabric::TABLE)?;
    let (from, to) = (question.from.as_ref(), question.to.as_ref());
    let Some(span) = SelectedTime::between_moments(recording, &table, from, to)? else {
        return Ok(windows.finish());
    };
    // A latency is computed from events that are no traffic.
    let question = &UsageQuestion { links: Some(links), ..question.clone() };
    let mut known = LineCache::new();
    for batch in
        table.scan_within(&question.columns_to_read(recording), "mono_ns", span.wanted.clone())?.decode_ahead()?
    {
        let batch = batch?;
        let columns = Columns::new(&batch, question)?;
        known.begin(&columns);
        for row in 0..columns.rows {
            let window = columns.window(row);
            if !span.wanted.contains(&window.end_ns) {
                continue;
            }
            windows.at(window.end_ns);
            let counter = columns.counter.value(row);
            windows.total(counter, columns.divided.and_then(|of| nullable_value(of.total, row)));
            if let Some((place, _)) = columns.link(row) {
                let who = known.get(columns.quick(row), || {
                    let owner = columns.owner(row);
                    WAIT.contains(&owner).then(|| windows.who(owner, columns.key(row)))
                });
                windows.moments.add_row(place, window, who, nullable_value(columns.value, row));
            }
        }
    }
    Ok(windows.finish())
}

/// The sums; rows come in the order of their windows.
#[derive(Debug)]
struct Windows<'a> {
    subjects: Vec<Subject<'a>>,
    names: Vec<(String, String)>,
    index: HashMap<(String, String), usize>,
    /// Bytes by link.
    moments: Moments,
    /// Counts in the current window of the counters of latencies; `None`: without a value.
    totals: HashMap<u32, Option<f64>>,
}

impl<'a> Windows<'a> {
    fn new(links: &'a Links, evaluate: Evaluate) -> Self {
        let mut subjects: Vec<Subject<'a>> = Vec::new();
        for (place, link) in links.links.iter().enumerate() {
            for metric in &link.latencies {
                let same = |its: &&mut Subject<'_>| {
                    its.link == place && its.metrics.iter().any(|other| other.name == metric.name)
                };
                match subjects.iter_mut().find(same) {
                    Some(subject) => subject.metrics.push(metric),
                    None => subjects.push(Subject {
                        link: place,
                        metrics: vec![metric],
                        evaluate,
                        inputs: Vec::new(),
                        all: Sums::default(),
                        unknown_windows: 0,
                        tenants: Vec::new(),
                    }),
                }
            }
        }
        for subject in &mut subjects {
            let inputs = subject.metrics.iter().flat_map(|metric| &metric.inputs);
            subject.inputs = inputs.filter_map(|input| input.counter).collect();
            subject.inputs.sort_unstable();
            subject.inputs.dedup();
        }
        Self {
            subjects,
            names: Vec::new(),
            index: HashMap::new(),
            moments: Moments::new(links.links.len()),
            totals: HashMap::new(),
        }
    }

    /// The number of a tenant.
    fn who(&mut self, owner: &str, key: String) -> usize {
        let name = (owner.to_owned(), key);
        *self.index.entry(name.clone()).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// Begins the window of the next row, if that is another one.
    fn at(&mut self, end_ns: i64) {
        if let Some(moved) = self.moments.begin_moment(end_ns) {
            self.end(&moved);
        }
    }

    /// Notes the total of a counter; it is the same in each of its rows.
    fn total(&mut self, counter: i32, total: Option<f64>) {
        if let Ok(counter) = u32::try_from(counter) {
            self.totals.entry(counter).or_insert(total);
        }
    }

    fn end(&mut self, moved: &[MomentBytes]) {
        for subject in &mut self.subjects {
            let Some(moved) = moved.get(subject.link).filter(|its| its.rate != MomentRate::Absent) else {
                continue;
            };
            let counts = subject.inputs.iter().map(|input| *self.totals.get(input)?);
            let counts: Option<Vec<f64>> = counts.collect();
            let Some(inputs) = counts.filter(|_| moved.known_rate().is_some()) else {
                subject.unknown_windows += 1;
                continue;
            };
            let window = |own: f64, others: f64| {
                let ns = moved.length_ns as f64;
                Sums { windows: 1, ns, own, others, inputs: inputs.clone() }
            };
            subject.all.add(&window(moved.value, 0.0));
            for (who, own) in moved.value_by_owner.iter().filter(|(_, own)| **own > 0.0) {
                // Rounding may make the remainder negative.
                let others = (moved.value - own).max(0.0);
                let least = subject.tenants.len().max(who + 1);
                subject.tenants.resize(least, None);
                let classes = subject.tenants[*who].get_or_insert_with(Classes::default);
                classes.add(&window(*own, others));
            }
        }
        self.totals.clear();
    }

    fn finish(mut self) -> Scanned<'a> {
        let last = self.moments.finish_moment();
        self.end(&last);
        Scanned { subjects: self.subjects, names: self.names }
    }
}
