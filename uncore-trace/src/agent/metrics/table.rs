//! What the metrics are: the only list of their names, units, labels and series. The page
//! ([`super::page`]) and the request of OTLP ([`super::otlp`]) are made from it.
//! [`super::agent_metrics`] has those of the agent itself.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::agent_metrics::AGENT_METRICS;
use super::traffic_counts::{OwnerName, OwnerSeries, TrafficCounts};
use super::{MeteredTraffic, MetricsPage};
use crate::units::unit_identifier;

/// Label of the sum of owners without a series of their own.
const OTHER: &str = "other";

/// The labels of a series. An empty value stands for no label.
pub(super) type SeriesLabels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Whether values only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
}

/// A metric with all its series.
#[derive(Debug)]
pub(super) struct PageMetric<'a> {
    /// The name; that of a counter lacks `_total`.
    pub name: Cow<'static, str>,
    pub help: &'static str,
    /// The unit in UCUM.
    pub unit: Cow<'static, str>,
    pub metric_type: MetricKind,
    /// Whether the values are those at the end of the last window, and not those of now.
    pub is_of_window: bool,
    pub series: Vec<LabelledValue<'a>>,
}

/// A value with its labels.
#[derive(Debug)]
pub(super) struct LabelledValue<'a> {
    pub labels: SeriesLabels<'a>,
    /// The owner that the labels name.
    pub owner: Option<&'a OwnerName>,
    pub value: f64,
    /// From when on a counter counts, ns since 1970.
    pub since_ns: i64,
}

/// A list of metrics: the kind, name and unit in UCUM of each, its help, and what makes its series.
macro_rules! list_metrics {
    ($list:ident: $($kind:ident $name:literal $unit:literal $help:literal = $series:expr;)*) => {
        &[$($list {
            name: $name,
            help: $help,
            metric_type: MetricKind::$kind,
            unit: $unit,
            series: $series,
        },)*]
    };
}

pub(super) use list_metrics;

impl MeteredTraffic {
    fn traffic_labels(&self) -> SeriesLabels<'_> {
        match self {
            Self::Link { link, direction, socket } => {
                let socket = socket.map_or_else(String::new, |socket| socket.to_string());
                vec![
                    ("link", link.into()),
                    ("direction", direction.into()),
                    ("socket", socket.into()),
                ]
            }
            Self::Event { event, filter, .. } => {
                vec![("event", event.into()), ("filter", filter.into())]
            }
        }
    }

    /// What the name of a metric of this unit says of the unit, and the unit in UCUM; `None` if the
    /// metric has no series of such traffic.
    fn metric_unit(&self, unit: &str) -> Option<(String, String)> {
        match self {
            Self::Link { .. } => (!unit.is_empty()).then(|| (String::new(), unit.to_owned())),
            Self::Event { unit: own, .. } => {
                unit.is_empty().then(|| (unit_of(own).0, ucum_unit(own)))
            }
        }
    }
}

/// Whose part of a link or event a series is.
#[derive(Debug, Clone, Copy)]
enum SeriesOwner<'a> {
    /// Not divided among owners.
    All,
    Owner(&'a OwnerName),
    /// Owners without a series of their own.
    Other,
}

impl<'a> SeriesOwner<'a> {
    fn owner_labels(self) -> SeriesLabels<'a> {
        let name_owner = |[owner, device, cgroup, container, pod, job]: [&'a str; 6]| {
            vec![
                ("owner", owner.into()),
                ("owner_device", device.into()),
                ("owner_cgroup", cgroup.into()),
                ("owner_container", container.into()),
                ("owner_pod", pod.into()),
                ("owner_job", job.into()),
            ]
        };
        match self {
            Self::All => Vec::new(),
            Self::Owner(OwnerName { owner, device, cgroup, container, pod, job }) => {
                name_owner([owner, device, cgroup, container, pod, job])
            }
            Self::Other => name_owner([OTHER, "", "", "", "", ""]),
        }
    }
}

/// A series of a link or event: whose it is, its value, and from when on it counts.
type OwnerValue<'a> = (SeriesOwner<'a>, f64, i64);

/// Links or events of one unit, which is written in UCUM.
type TrafficOfUnit<'a> = (String, Vec<(&'a MeteredTraffic, &'a TrafficCounts)>);

/// A metric with series for links or events.
struct TrafficMetric {
    name: &'static str,
    help: &'static str,
    metric_type: MetricKind,
    /// The unit of links in UCUM. Empty: the metric is of events, each of which has its own unit.
    unit: &'static str,
    series: fn(&TrafficCounts) -> Vec<OwnerValue<'_>>,
}

fn owner_totals(counted: &TrafficCounts) -> Vec<OwnerValue<'_>> {
    let mut totals = owner_values(counted, |series| Some(series.total));
    totals.push((SeriesOwner::Other, counted.other_owners, counted.since_ns));
    totals
}

/// A value that is not divided among owners, if it is known.
fn whole_value(counted: &TrafficCounts, value: Option<f64>) -> Vec<OwnerValue<'_>> {
    value.into_iter().map(|value| (SeriesOwner::All, value, counted.since_ns)).collect()
}

/// Owners with what is known of them, in the order of their names.
fn owner_values(
    counted: &TrafficCounts,
    value: impl Fn(&OwnerSeries) -> Option<f64>,
) -> Vec<OwnerValue<'_>> {
    let shown = counted.series.iter();
    let mut values: Vec<_> =
        shown.filter_map(|(name, series)| Some((name, value(series)?, series.since_ns))).collect();
    values.sort_by(|a, b| a.0.cmp(b.0));
    values
        .into_iter()
        .map(|(name, value, since)| (SeriesOwner::Owner(name), value, since))
        .collect()
}

/// What a metric's name says of a unit, and the factor to that unit.
pub(super) fn unit_of(unit: &str) -> (String, f64) {
    match unit {
        "ns" => ("seconds".to_owned(), 1e-9),
        "" | "count" => (String::new(), 1.0),
        unit => (unit_identifier(unit), 1.0),
    }
}

/// The unit of an event in UCUM, after [`unit_of`].
///
/// Prometheus appends what a unit means to a name that lacks it. So only units whose word is in the
/// name are those of UCUM, and all others annotations, which have no meaning there: names are the
/// same over OTLP and on the page.
fn ucum_unit(unit: &str) -> String {
    match unit {
        "bytes" => "By".to_owned(),
        "ns" => "s".to_owned(),
        "Joules" => "J".to_owned(),
        "" | "count" => "{count}".to_owned(),
        annotation => {
            // UCUM, section 6: ASCII from ! to ~ without braces.
            let plain_char =
                |c: char| if c.is_ascii_graphic() && !"{}".contains(c) { c } else { '_' };
            format!("{{{}}}", annotation.chars().map(plain_char).collect::<String>())
        }
    }
}

const TRAFFIC_METRICS: &[TrafficMetric] = list_metrics! { TrafficMetric:
    Counter "uncore_trace_link_bytes" "By" "Bytes transferred over a link"
        = |counted| whole_value(counted, Some(counted.total));
    Gauge "uncore_trace_link_peak_bytes_per_second" "By/s" "Peak bandwidth of a link"
        = |counted| whole_value(counted, counted.peak);
    Counter "uncore_trace_unattributed_bytes" "By"
        "Bytes of no known owner that were transferred over a link"
        = |counted| whole_value(counted, Some(counted.unattributed));
    Counter "uncore_trace_owner_bytes" "By"
        "Bytes of each owner that were transferred over a link; owner=other: of all owners without \
         a series of their own"
        = owner_totals;
    Gauge "uncore_trace_owner_confidence_ratio" "1"
        "Part of an owner's bytes that is expected in shares within 10 % of the truth"
        = |counted| owner_values(counted, OwnerSeries::confident_part);
    Gauge "uncore_trace_owner_low_bytes_per_second" "By/s"
        "Lower end of the 90 % interval of an owner's rate in the last window"
        = |counted| owner_values(counted, |series| series.rate_bounds.map(|rate| rate.0));
    Gauge "uncore_trace_owner_high_bytes_per_second" "By/s"
        "Higher end of the 90 % interval of an owner's rate in the last window"
        = |counted| owner_values(counted, |series| series.rate_bounds.map(|rate| rate.1));
    Counter "uncore_trace_event" "" "Counts of an event that belongs to no link"
        = |counted| whole_value(counted, Some(counted.total));
    Counter "uncore_trace_unattributed_event" "" "Counts of an event that have no known owner"
        = |counted| whole_value(counted, Some(counted.unattributed));
    Counter "uncore_trace_owner_event" ""
        "Counts of an event for each owner; owner=other: for all owners without a series of their \
         own"
        = owner_totals;
};

impl MetricsPage {
    /// All metrics.
    pub(super) fn all_metrics(&self) -> Vec<PageMetric<'_>> {
        let mut table = self.traffic_metrics();
        table.extend(self.canary_metric());
        table.extend(AGENT_METRICS.iter().filter_map(|metric| metric.collect_series(self)));
        table
    }

    /// Links, events and their owners.
    fn traffic_metrics(&self) -> Vec<PageMetric<'_>> {
        let mut table = Vec::new();
        for metric in TRAFFIC_METRICS {
            // By the unit as names have it.
            let mut by_unit: BTreeMap<String, TrafficOfUnit<'_>> = BTreeMap::new();
            for (traffic, counted) in &self.traffic {
                if let Some((unit, ucum)) = traffic.metric_unit(metric.unit) {
                    by_unit.entry(unit).or_insert((ucum, Vec::new())).1.push((traffic, counted));
                }
            }
            for (unit, (ucum, traffic_list)) in by_unit {
                let joint = if unit.is_empty() { "" } else { "_" };
                let series = traffic_list.into_iter().flat_map(|(traffic, counted)| {
                    (metric.series)(counted).into_iter().map(|(series_owner, value, since_ns)| {
                        let mut labels = traffic.traffic_labels();
                        labels.extend(series_owner.owner_labels());
                        let owner = match series_owner {
                            SeriesOwner::Owner(name) => Some(name),
                            SeriesOwner::All | SeriesOwner::Other => None,
                        };
                        LabelledValue { labels, owner, value, since_ns }
                    })
                });
                table.push(PageMetric {
                    name: format!("{}{joint}{unit}", metric.name).into(),
                    help: metric.help,
                    unit: ucum.into(),
                    metric_type: metric.metric_type,
                    is_of_window: true,
                    series: series.collect(),
                });
            }
        }
        table
    }
}
