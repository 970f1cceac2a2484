//! The series of a recording: their names, labels and lines.
//!
//! Label names are chosen so that Prometheus does not rename them: `owner_pod`, because scrape
//! targets often have a label `pod`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::schema::metadata;
use crate::text::printable;
use crate::units::unit_identifier;
use crate::view::export::parts::CountDescription;
use crate::view::export::survey::{ExportSurvey, TenantOrOthers};

/// Kinds of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum SeriesKind {
    /// The total.
    Total,
    /// The share of a line: a tenant, or the other tasks.
    TenantLine(usize),
    /// Time in which the count is not known.
    Unknown,
}

/// A metric family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetricFamily {
    /// Name, without `_total`.
    pub name: String,
    /// Suffix with the unit; empty without one.
    unit: String,
    help: &'static str,
}

/// A series: one metric with its labels.
#[derive(Debug)]
pub(super) struct MetricSeries {
    /// Metric family of the series.
    pub family: MetricFamily,
    /// Index in `ExportNames::counts`.
    pub count_index: usize,
    /// What the samples of the series count.
    pub kind: SeriesKind,
    /// Factor for sums.
    pub scale: f64,
    /// Begin of the first window, `CLOCK_MONOTONIC`, ns.
    pub begin_ns: i64,
    /// End of the last window, `CLOCK_MONOTONIC`, ns.
    pub end_ns: i64,
    /// `{NAME="VALUE",...}`.
    labels: String,
}

/// Kinds of metric families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FamilyKind {
    Totals,
    TenantShares,
    UnknownTime,
}

/// All series, grouped by metric family.
pub(super) fn list_series(
    survey: &ExportSurvey,
    pairs: &BTreeMap<String, String>,
) -> Vec<MetricSeries> {
    let machine = [("host", metadata::HOST), ("cluster", metadata::CLUSTER)];
    let machine = machine.into_iter().filter_map(|(name, key)| Some((name, pairs.get(key)?)));
    let machine: Vec<(&str, String)> = machine
        .map(|(name, value)| (name, printable(value).into_owned()))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let mut all_series = Vec::new();
    for (count_index, count) in survey.names.counts().iter().enumerate() {
        let counters_of_count =
            survey.counters.values().filter(|counter| counter.count_index == count_index);
        let times: Vec<(i64, i64)> =
            counters_of_count.map(|counter| (counter.begin_ns, counter.end_ns)).collect();
        let begin_ns =
            times.iter().map(|(first_begin_ns, _)| *first_begin_ns).min().unwrap_or_default();
        let end_ns = times.iter().map(|(_, last_end_ns)| *last_end_ns).max().unwrap_or_default();
        let lines = survey.lines[count_index].iter().enumerate();
        let lines = lines.map(|(line_number, line)| {
            (
                FamilyKind::TenantShares,
                SeriesKind::TenantLine(line_number),
                owner_labels(survey, *line),
            )
        });
        let total = [(FamilyKind::Totals, SeriesKind::Total, Vec::new())];
        let unknown = [(FamilyKind::UnknownTime, SeriesKind::Unknown, Vec::new())];
        for (family_kind, series_kind, owner) in total.into_iter().chain(lines).chain(unknown) {
            let (family, scale) = family_and_scale(family_kind, count);
            let labels = machine.iter().chain(&count.labels).chain(&owner);
            let labels = format_labels(labels.map(|(name, value)| (*name, value.as_str())));
            all_series.push((
                family_kind,
                MetricSeries {
                    family,
                    count_index,
                    kind: series_kind,
                    scale,
                    begin_ns,
                    end_ns,
                    labels,
                },
            ));
        }
    }
    // The most important families come first; the sort is stable and keeps the order of lines.
    all_series.sort_by(|(a_kind, a), (b_kind, b)| {
        (a_kind, &a.family.name, a.count_index).cmp(&(b_kind, &b.family.name, b.count_index))
    });
    all_series.into_iter().map(|(_, series)| series).collect()
}

/// Metric family and factor of a count.
fn family_and_scale(
    family_kind: FamilyKind,
    description: &CountDescription,
) -> (MetricFamily, f64) {
    let (unit, scale) = match description.unit.as_str() {
        "ns" => ("seconds".to_owned(), 1e-9),
        "" | "count" => (String::new(), 1.0),
        unit => (unit_identifier(unit), 1.0),
    };
    let stem = if unit.is_empty() { "events" } else { &unit };
    match family_kind {
        FamilyKind::Totals => {
            let help = "What was counted.";
            (MetricFamily { name: format!("uncore_trace_counted_{stem}"), unit, help }, scale)
        }
        FamilyKind::TenantShares => {
            let help = "Each owner's part of what was counted. The owner other is all tasks that \
                        have no series of their own.";
            (MetricFamily { name: format!("uncore_trace_owned_{stem}"), unit, help }, scale)
        }
        FamilyKind::UnknownTime => {
            let help = "Time in which counts are not known, summed over the counters.";
            let (name, unit) = ("uncore_trace_unknown_seconds", "seconds");
            (MetricFamily { name: name.to_owned(), unit: unit.to_owned(), help }, 1e-9)
        }
    }
}

/// The labels of a line.
fn owner_labels(survey: &ExportSurvey, line: TenantOrOthers) -> Vec<(&'static str, String)> {
    let TenantOrOthers::Tenant(tenant) = line else { return vec![("owner", "other".to_owned())] };
    let tenant = &survey.names.tenants()[tenant];
    let labels = [
        ("owner", &tenant.owner),
        ("owner_cgroup", &tenant.cgroup),
        ("owner_container", &tenant.container),
        ("owner_pod", &tenant.pod),
        ("owner_job", &tenant.job),
    ];
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    labels.map(|(name, value)| (name, value.clone())).collect()
}

/// Labels as text. Empty values must be left out before: in Prometheus they equal a missing label.
fn format_labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut seen = BTreeSet::new();
    let labels = labels.filter(|(name, _)| seen.insert(*name));
    let labels: Vec<String> =
        labels.map(|(name, value)| format!("{name}=\"{}\"", escape_label_value(value))).collect();
    format!("{{{}}}", labels.join(","))
}

/// The value of a label, with backslash, quote and line feed escaped.
fn escape_label_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl MetricFamily {
    /// Writes type, unit and help of the family.
    pub(super) fn write_header(&self, output: &mut impl Write) -> io::Result<()> {
        let Self { name, unit, help } = self;
        writeln!(output, "# TYPE {name} counter")?;
        if !unit.is_empty() {
            writeln!(output, "# UNIT {name} {unit}")?;
        }
        writeln!(output, "# HELP {name} {help}")
    }
}

impl MetricSeries {
    /// Writes one sample, at a time in ms since 1970.
    pub(super) fn write_sample(
        &self,
        wall_ms: i64,
        value: f64,
        output: &mut impl Write,
    ) -> io::Result<()> {
        let Self { family, labels, .. } = self;
        let (seconds, millis) = (wall_ms.div_euclid(1000), wall_ms.rem_euclid(1000));
        writeln!(output, "{}_total{labels} {value} {seconds}.{millis:03}", family.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let labels = [("owner_cgroup", "/a\\b\"c\nd"), ("pmu", "x")];
        assert_eq!(format_labels(labels.into_iter()), r#"{owner_cgroup="/a\\b\"c\nd",pmu="x"}"#);
    }
}
