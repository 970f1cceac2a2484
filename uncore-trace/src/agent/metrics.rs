//! The metrics for Prometheus, computed from the rows of the roll-up.
//!
//! Guarantees: no counter goes down or jumps. The bytes of an owner without a series are counted in
//! `other`, and stay there when the owner gets a series. So the rates of all owners of a link and
//! of `unattributed` sum to the rate of the link. The number of series is bounded: [`NAMES`]
//! directions of links and events, each with as many owners as the configuration allows.

mod canary;
mod counted;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use arrow::array::{Float64Array, Int16Array, RecordBatch};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use self::canary::Ratio;
use self::counted::{Counted, Name};
use crate::schema::columns::{self, get};
use crate::schema::loss;
use crate::schema::owner::{OTHER_TASKS, TASK, UNATTRIBUTED};

/// Most directions of links and events with series; further ones are left out and counted.
pub const NAMES: usize = 1000;

/// Label of the sum of owners without a series of their own.
const OTHER: &str = "other";

/// A direction of a link, or an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Thing {
    Link { link: String, direction: String, socket: Option<i16> },
    Event { event: String, filter: String, unit: String },
}

/// Metrics of the agent itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Own {
    /// CPU time used, s.
    pub cpu_s: f64,
    /// Memory used, bytes.
    pub resident_bytes: u64,
    /// Rows of the roll-up that could not be written.
    pub unwritten: u64,
    /// Number of recordings that triggers saved.
    pub kept: u64,
    /// Number of triggers that were not served, because of the pause, the quota or an error.
    pub refused: u64,
    /// Shares that the roll-up summed in `other_tasks`.
    pub joined: u64,
}

/// Adds the losses of a part. A loss that lasts for the whole recording is reported in each part,
/// and is counted once.
pub fn add_lost(totals: &mut BTreeMap<String, u64>, lost: &BTreeMap<String, u64>) {
    for (cause, count) in lost {
        let total = totals.entry(cause.clone()).or_default();
        *total = if loss::does_hold(cause) { (*total).max(*count) } else { *total + count };
    }
}

/// All counters of the page.
#[derive(Debug, Clone)]
pub struct Metrics {
    owners: usize,
    things: BTreeMap<Thing, Counted>,
    /// Rows of links and events beyond [`NAMES`].
    left_out: u64,
    /// Shares whose owner had no series, and owners that lost theirs.
    joined: u64,
    lost: BTreeMap<String, u64>,
    own: Own,
    /// What the canary was credited.
    pub(super) canary: Ratio,
}

impl Metrics {
    /// No counts yet; `owners` is the number of owners of each link with series.
    pub fn new(owners: usize) -> Self {
        Self {
            owners,
            things: BTreeMap::new(),
            left_out: 0,
            joined: 0,
            lost: BTreeMap::new(),
            own: Own::default(),
            canary: Ratio::default(),
        }
    }

    /// Sets the number of owners of each link with series.
    pub fn set_owners(&mut self, owners: usize) {
        self.owners = owners;
    }

    /// Sets the losses since the agent began, by cause.
    pub fn set_lost(&mut self, lost: BTreeMap<String, u64>) {
        self.lost = lost;
    }

    /// Sets the metrics of the agent itself.
    pub fn set_own(&mut self, own: Own) {
        self.own = own;
    }

    /// Adds the rows of a window of the roll-up.
    ///
    /// # Errors
    ///
    /// The batch has not the columns of the table.
    pub fn window(&mut self, batch: &RecordBatch) -> Result<()> {
        let words = |name| columns::words(batch, name);
        let (links, directions) = (words("link")?, words("direction")?);
        let sockets: &Int16Array = columns::column(batch, "socket")?;
        let (events, filters, units) = (words("event")?, words("filter")?, words("unit")?);
        let (owners, comms) = (words("owner")?, words("comm")?);
        let (cgroups, containers, pods) = (words("cgroup")?, words("container")?, words("pod")?);
        let values: &Float64Array = columns::f64s(batch, "value")?;
        let (peaks, peak_directions) = (columns::f64s(batch, "peak")?, words("peak_direction")?);
        let confidences = columns::f32s(batch, "confidence")?;
        for counted in self.things.values_mut() {
            counted.shown.values_mut().for_each(|series| series.sure = (0.0, 0.0));
        }
        for row in 0..batch.num_rows() {
            let Some(value) = get(values, row).map(|value| value.max(0.0)) else { continue };
            let text = |word: columns::Words<'_>| word.get(row).unwrap_or_default().to_owned();
            if let (Some(link), Some(direction)) = (links.get(row), directions.get(row)) {
                self.canary.credited((link, direction), cgroups.get(row), value);
            }
            let thing = match links.get(row) {
                Some(link) => Thing::Link {
                    link: link.to_owned(),
                    direction: text(directions),
                    socket: get(sockets, row),
                },
                None => {
                    Thing::Event { event: text(events), filter: text(filters), unit: text(units) }
                }
            };
            if self.things.len() >= NAMES && !self.things.contains_key(&thing) {
                self.left_out += 1;
                continue;
            }
            let counted = self.things.entry(thing).or_default();
            counted.total += value;
            // A peak for the sum of both directions is not the peak of one.
            let is_own = peak_directions.get(row) == directions.get(row);
            counted.peak = get(peaks, row).filter(|_| is_own).or(counted.peak);
            let kind = owners.get(row).unwrap_or_default();
            if kind == UNATTRIBUTED {
                counted.unattributed += value;
                continue;
            }
            if kind == OTHER_TASKS {
                counted.other += value;
                self.joined += 1;
                continue;
            }
            let name = Name {
                owner: kind.to_owned(),
                // Interrupts are not told apart: there are many, with few bytes each.
                device: if kind == crate::schema::owner::DEVICE {
                    text(comms)
                } else {
                    String::new()
                },
                cgroup: if kind == TASK { text(cgroups) } else { String::new() },
                container: text(containers),
                pod: text(pods),
            };
            let is_joined = counted.add(name, value, get(confidences, row), self.owners);
            self.joined += u64::from(is_joined);
        }
        for counted in self.things.values_mut() {
            self.joined += counted.settle(self.owners);
        }
        Ok(())
    }

    /// The page in the OpenMetrics format.
    ///
    /// # Errors
    ///
    /// It cannot be formatted.
    pub fn page(&self) -> Result<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut page = String::new();
        encode(&mut page, &registry)?;
        Ok(page)
    }
}

/// A label set.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Thing {
    fn labels<'a>(&'a self, socket: &'a str) -> Labels<'a> {
        match self {
            Self::Link { link, direction, .. } => {
                vec![("link", link.as_str()), ("direction", direction.as_str()), ("socket", socket)]
            }
            Self::Event { event, filter, unit } => {
                vec![
                    ("event", event.as_str()),
                    ("filter", filter.as_str()),
                    ("unit", unit.as_str()),
                ]
            }
        }
    }

    fn socket(&self) -> String {
        match self {
            Self::Link { socket: Some(socket), .. } => socket.to_string(),
            _ => String::new(),
        }
    }

    const fn is_link(&self) -> bool {
        matches!(self, Self::Link { .. })
    }
}

impl Name {
    fn labels(&self) -> Labels<'_> {
        vec![
            ("owner", self.owner.as_str()),
            ("owner_device", self.device.as_str()),
            ("owner_cgroup", self.cgroup.as_str()),
            ("owner_container", self.container.as_str()),
            ("owner_pod", self.pod.as_str()),
        ]
    }
}

fn counter(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: f64) -> fmt::Result {
    let none: Option<&Exemplar<Labels<'_>, f64>> = None;
    metric.encode_family(labels)?.encode_counter(&value, none)
}

fn gauge(metric: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: f64) -> fmt::Result {
    metric.encode_family(labels)?.encode_gauge(&value)
}

/// A metric with series for links or events.
struct OfThings {
    name: &'static str,
    help: &'static str,
    links: bool,
    kind: MetricType,
    /// Labels beyond those of the link or event, and the value, for each series.
    series: fn(&Counted) -> Vec<(Labels<'_>, f64)>,
}

fn owners(counted: &Counted) -> Vec<(Labels<'_>, f64)> {
    let mut names: Vec<_> = counted.shown.iter().collect();
    names.sort_by(|a, b| a.0.cmp(b.0));
    let shown = names.into_iter().map(|(name, series)| (name.labels(), series.total));
    let other = [
        ("owner", OTHER),
        ("owner_device", ""),
        ("owner_cgroup", ""),
        ("owner_container", ""),
        ("owner_pod", ""),
    ];
    shown.chain([(other.to_vec(), counted.other)]).collect()
}

fn confidences(counted: &Counted) -> Vec<(Labels<'_>, f64)> {
    let sure = counted.shown.iter().filter(|(_, series)| series.sure.1 > 0.0);
    let mut sure: Vec<_> =
        sure.map(|(name, series)| (name.labels(), series.sure.0 / series.sure.1)).collect();
    sure.sort_by(|a, b| a.0.cmp(&b.0));
    sure
}

const OF_THINGS: [OfThings; 8] = [
    OfThings {
        name: "uncore_trace_link_bytes",
        help: "Bytes that went over a link",
        links: true,
        kind: MetricType::Counter,
        series: |counted| vec![(Vec::new(), counted.total)],
    },
    OfThings {
        name: "uncore_trace_link_peak_bytes_per_second",
        help: "The most that goes over a link",
        links: true,
        kind: MetricType::Gauge,
        series: |counted| counted.peak.into_iter().map(|peak| (Vec::new(), peak)).collect(),
    },
    OfThings {
        name: "uncore_trace_unattributed_bytes",
        help: "Bytes over a link without a known owner",
        links: true,
        kind: MetricType::Counter,
        series: |counted| vec![(Vec::new(), counted.unattributed)],
    },
    OfThings {
        name: "uncore_trace_owner_bytes",
        help: "Bytes over a link by owner; other: all owners without a series of their own",
        links: true,
        kind: MetricType::Counter,
        series: owners,
    },
    OfThings {
        name: "uncore_trace_owner_confidence",
        help: "Part of an owner's bytes that is expected in shares within 10 % of the truth",
        links: true,
        kind: MetricType::Gauge,
        series: confidences,
    },
    OfThings {
        name: "uncore_trace_event",
        help: "Counts of an event that belongs to no link",
        links: false,
        kind: MetricType::Counter,
        series: |counted| vec![(Vec::new(), counted.total)],
    },
    OfThings {
        name: "uncore_trace_unattributed_event",
        help: "Counts of an event without a known owner",
        links: false,
        kind: MetricType::Counter,
        series: |counted| vec![(Vec::new(), counted.unattributed)],
    },
    OfThings {
        name: "uncore_trace_owner_event",
        help: "Counts of an event by owner; other: all owners without a series of their own",
        links: false,
        kind: MetricType::Counter,
        series: owners,
    },
];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for OfThings { name, help, links, kind, series } in OF_THINGS {
            let mut things =
                self.things.iter().filter(|(thing, _)| thing.is_link() == links).peekable();
            if things.peek().is_none() {
                continue;
            }
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for (thing, counted) in things {
                let socket = thing.socket();
                for (more, value) in series(counted) {
                    let mut labels = thing.labels(&socket);
                    labels.extend(more);
                    match kind {
                        MetricType::Counter => counter(&mut metric, &labels, value)?,
                        _ => gauge(&mut metric, &labels, value)?,
                    }
                }
            }
        }
        let ratios: Vec<_> = self.canary.ratios().collect();
        if !ratios.is_empty() {
            let (name, help) = (
                "uncore_trace_canary_credited_ratio",
                "Bytes that the canary was credited, over those that it moved",
            );
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for ((link, direction), ratio) in ratios {
                gauge(&mut metric, &vec![("link", link), ("direction", direction)], ratio)?;
            }
        }
        let mut metric = encoder.encode_descriptor(
            "uncore_trace_lost",
            "Losses by cause, as in the table loss",
            None,
            MetricType::Counter,
        )?;
        for (cause, count) in &self.lost {
            counter(&mut metric, &vec![("cause", cause.as_str())], *count as f64)?;
        }
        let Own { cpu_s, resident_bytes, unwritten, kept, refused, joined } = self.own;
        for (name, help, kind, value) in [
            ("uncore_trace_cpu_seconds", "CPU time of the agent", MetricType::Counter, cpu_s),
            (
                "uncore_trace_resident_bytes",
                "Memory of the agent",
                MetricType::Gauge,
                resident_bytes as f64,
            ),
            (
                "uncore_trace_unwritten_rows",
                "Rows of the roll-up that could not be written",
                MetricType::Counter,
                unwritten as f64,
            ),
            (
                "uncore_trace_kept",
                "Number of times that a part of the ring was saved",
                MetricType::Counter,
                kept as f64,
            ),
            (
                "uncore_trace_triggers_refused",
                "Triggers and requests that saved nothing, because of the pause, the quota or an error",
                MetricType::Counter,
                refused as f64,
            ),
            (
                "uncore_trace_owners_joined",
                "Shares without a row of their own in the roll-up, or a series of their own here, and owners that lost \
                 their series",
                MetricType::Counter,
                (joined + self.joined) as f64,
            ),
            (
                "uncore_trace_rows_without_series",
                "Rows of links and events without series, beyond the limit",
                MetricType::Counter,
                self.left_out as f64,
            ),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match kind {
                MetricType::Counter => counter(&mut metric, &Vec::new(), value)?,
                _ => gauge(&mut metric, &Vec::new(), value)?,
            }
        }
        let mut metric = encoder.encode_descriptor(
            "uncore_trace_build_info",
            "Version of the agent",
            None,
            MetricType::Gauge,
        )?;
        gauge(&mut metric, &vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)
    }
}

#[cfg(test)]
mod tests;
