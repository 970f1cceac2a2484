//! Scans `fabric`: for each window, the counts from which a latency is computed, and each tenant's
//! bytes over the link.

use std::collections::HashMap;

use anyhow::Result;

use super::super::key::FabricColumns;
use super::super::line_cache::LineCache;
use super::super::links::Links;
use super::super::names::NameNumbers;
use super::super::question::ReportQuestion;
use super::super::sums::{MomentBytes, MomentRate, Moments};
use super::classes::{RateClasses, WindowSums};
use super::{Evaluate, OpenLatency};
use crate::schema::columns::nullable_value;
use crate::schema::fabric;
use crate::schema::metric::PlannedMetric;
use crate::tables::reader::Recording;

/// Owners that wait for their reads: programs and devices.
const WAIT: [&str; 3] = ["task", "other_tasks", "device"];

/// The result of the scan.
#[derive(Debug)]
pub(super) struct LatencyScan<'a> {
    pub(super) subjects: Vec<OpenLatency<'a>>,
    /// Owner and key of each tenant.
    pub(super) names: Vec<(String, String)>,
}

/// Sums the windows of the selected time.
pub(super) fn scan_windows<'a>(
    recording: &Recording,
    links: &'a Links,
    question: &ReportQuestion<'_>,
    evaluate: Evaluate,
) -> Result<LatencyScan<'a>> {
    let mut windows = LatencyWindows::new(links, evaluate);
    let table = recording.open_table(&fabric::TABLE)?;
    let Some(span) = question.selected_time(recording, &table)? else {
        return Ok(windows.finish());
    };
    // A latency is computed from events that are no traffic.
    let question = &ReportQuestion { links: Some(links), ..question.clone() };
    let mut known = LineCache::default();
    let read = question.columns_to_read(recording);
    for batch in table.scan_within(&read, "mono_ns", span.wanted.clone())?.decode_ahead()? {
        let batch = batch?;
        let columns = FabricColumns::new(&batch, question)?;
        known.begin_batch(&columns);
        for row in 0..columns.rows {
            let window = columns.row_window(row);
            if !span.wanted.contains(&window.end_ns) {
                continue;
            }
            windows.begin_window(window.end_ns);
            let total = columns.for_intervals.and_then(|sums| nullable_value(sums.total, row));
            windows.note_total(columns.counter.value(row), total);
            if let Some((link_index, _)) = columns.row_link(row) {
                let tenant = known.get(columns.quick_key(row), || {
                    let owner = columns.row_owner(row);
                    WAIT.contains(&owner).then(|| {
                        windows.tenants.number_of((owner.to_owned(), columns.line_key(row)))
                    })
                });
                let value = nullable_value(columns.value, row);
                windows.moments.add_row(link_index, window, tenant, value);
            }
        }
    }
    Ok(windows.finish())
}

/// The sums; rows come in the order of their windows.
#[derive(Debug)]
struct LatencyWindows<'a> {
    subjects: Vec<OpenLatency<'a>>,
    /// Owner and key of each tenant.
    tenants: NameNumbers<(String, String)>,
    /// Bytes by link.
    moments: Moments,
    /// Counts in the current window of the counters of latencies; `None`: without a value.
    totals: HashMap<u32, Option<f64>>,
}

impl<'a> LatencyWindows<'a> {
    fn new(links: &'a Links, evaluate: Evaluate) -> Self {
        let mut subjects: Vec<OpenLatency<'a>> = Vec::new();
        for (link_index, link) in links.links.iter().enumerate() {
            for metric in &link.latencies {
                let is_same_metric = |candidate: &&mut OpenLatency<'_>| {
                    let is_of_metric = |known: &&PlannedMetric| known.name == metric.name;
                    candidate.link_index == link_index && candidate.metrics.iter().any(is_of_metric)
                };
                match subjects.iter_mut().find(is_same_metric) {
                    Some(subject) => subject.metrics.push(metric),
                    None => subjects.push(OpenLatency {
                        link_index,
                        metrics: vec![metric],
                        evaluate,
                        inputs: Vec::new(),
                        overall: WindowSums::default(),
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
            tenants: NameNumbers::default(),
            moments: Moments::new(links.links.len()),
            totals: HashMap::new(),
        }
    }

    /// Begins the window of the next row, if that is another one.
    fn begin_window(&mut self, end_ns: i64) {
        if let Some(moved) = self.moments.begin_moment(end_ns) {
            self.close_window(&moved);
        }
    }

    /// Notes the total of a counter; it is the same in each of its rows.
    fn note_total(&mut self, counter: i32, total: Option<f64>) {
        if let Ok(counter) = u32::try_from(counter) {
            self.totals.entry(counter).or_insert(total);
        }
    }

    fn close_window(&mut self, moved: &[MomentBytes]) {
        for subject in &mut self.subjects {
            let Some(moved) = moved
                .get(subject.link_index)
                .filter(|candidate| candidate.rate != MomentRate::Absent)
            else {
                continue;
            };
            let counts = subject.inputs.iter().map(|input| *self.totals.get(input)?);
            let counts: Option<Vec<f64>> = counts.collect();
            let Some(inputs) = counts.filter(|_| moved.known_rate().is_some()) else {
                subject.unknown_windows += 1;
                continue;
            };
            let window = |tenant_bytes: f64, others_bytes: f64| WindowSums {
                windows: 1,
                ns: moved.length_ns as f64,
                own_bytes: tenant_bytes,
                other_bytes: others_bytes,
                inputs: inputs.clone(),
            };
            subject.overall.add(&window(moved.value, 0.0));
            for (tenant, own_bytes) in
                moved.value_by_owner.iter().filter(|(_, bytes)| **bytes > 0.0)
            {
                // Rounding may make the remainder negative.
                let other_bytes = (moved.value - own_bytes).max(0.0);
                subject.tenants.resize(subject.tenants.len().max(tenant + 1), None);
                let classes = subject.tenants[*tenant].get_or_insert_with(RateClasses::default);
                classes.add(&window(*own_bytes, other_bytes));
            }
        }
        self.totals.clear();
    }

    fn finish(mut self) -> LatencyScan<'a> {
        let last_moved = self.moments.finish_moment();
        self.close_window(&last_moved);
        LatencyScan { subjects: self.subjects, names: self.tenants.names }
    }
}
