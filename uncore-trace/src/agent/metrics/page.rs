//! The page of metrics.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::counted::{Counted, Name};
use super::{Disk, Metrics, Own, Thing};
use crate::schema::loss;
use crate::units::name_of;

/// Label of the sum of owners without a series of their own.
const OTHER: &str = "other";

/// A label set.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Thing {
    fn labels<'a>(&'a self, socket: &'a str) -> Labels<'a> {
        match self {
            Self::Link { link, direction, .. } => {
                vec![("link", link.as_str()), ("direction", direction.as_str()), ("socket", socket)]
            }
            Self::Event { event, filter, .. } => {
                vec![("event", event.as_str()), ("filter", filter.as_str())]
            }
        }
    }

    fn socket(&self) -> String {
        match self {
            Self::Link { socket: Some(socket), .. } => socket.to_string(),
            _ => String::new(),
        }
    }

    /// The unit of an event; `None` of a link, which has bytes.
    fn unit(&self) -> Option<&str> {
        match self {
            Self::Link { .. } => None,
            Self::Event { unit, .. } => Some(unit),
        }
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

fn rates(counted: &Counted, end: fn((f64, f64)) -> f64) -> Vec<(Labels<'_>, f64)> {
    let shown = counted.shown.iter();
    let rates = shown.filter_map(|(name, series)| Some((name.labels(), end(series.rate?))));
    let mut rates: Vec<_> = rates.collect();
    rates.sort_by(|a, b| a.0.cmp(&b.0));
    rates
}

/// What a metric's name says of a unit, and the factor to that unit.
pub(super) fn unit_of(unit: &str) -> (String, f64) {
    match unit {
        "ns" => ("seconds".to_owned(), 1e-9),
        "" | "count" => (String::new(), 1.0),
        unit => (name_of(unit), 1.0),
    }
}

const OF_THINGS: [OfThings; 10] = [
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
        name: "uncore_trace_owner_confidence_ratio",
        help: "Part of an owner's bytes that is expected in shares within 10 % of the truth",
        links: true,
        kind: MetricType::Gauge,
        series: confidences,
    },
    OfThings {
        name: "uncore_trace_owner_low_bytes_per_second",
        help: "Lower end of the 90 % interval of an owner's bytes in the last window",
        links: true,
        kind: MetricType::Gauge,
        series: |counted| rates(counted, |rate| rate.0),
    },
    OfThings {
        name: "uncore_trace_owner_high_bytes_per_second",
        help: "Higher end of the 90 % interval of an owner's bytes in the last window",
        links: true,
        kind: MetricType::Gauge,
        series: |counted| rates(counted, |rate| rate.1),
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
        self.things(&mut encoder)?;
        self.canary(&mut encoder)?;
        self.lost(&mut encoder)?;
        self.own.gauges(&mut encoder)?;
        self.own.disks(&mut encoder)?;
        self.own(&mut encoder)?;
        let mut metric = encoder.encode_descriptor(
            "uncore_trace_build_info",
            "Version of the agent",
            None,
            MetricType::Gauge,
        )?;
        gauge(&mut metric, &vec![("version", env!("CARGO_PKG_VERSION"))], 1.0)
    }
}

impl Metrics {
    /// Links, events and their owners.
    fn things(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for of in OF_THINGS {
            let mut things: BTreeMap<String, Vec<(&Thing, &Counted)>> = BTreeMap::new();
            for (thing, counted) in &self.things {
                if thing.unit().is_none() == of.links {
                    let unit = thing.unit().map_or_else(String::new, |unit| unit_of(unit).0);
                    things.entry(unit).or_default().push((thing, counted));
                }
            }
            for (unit, things) in &things {
                let joint = if unit.is_empty() { "" } else { "_" };
                let name = format!("{}{joint}{unit}", of.name);
                let mut metric = encoder.encode_descriptor(&name, of.help, None, of.kind)?;
                for (thing, counted) in things {
                    let socket = thing.socket();
                    for (more, value) in (of.series)(counted) {
                        let mut labels = thing.labels(&socket);
                        labels.extend(more);
                        match of.kind {
                            MetricType::Counter => counter(&mut metric, &labels, value)?,
                            _ => gauge(&mut metric, &labels, value)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn canary(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ratios: Vec<_> = self.canary.ratios().collect();
        if ratios.is_empty() {
            return Ok(());
        }
        let (name, help) = (
            "uncore_trace_canary_credited_ratio",
            "Bytes that the canary was credited, over those that it moved",
        );
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for ((link, direction), ratio) in ratios {
            gauge(&mut metric, &vec![("link", link), ("direction", direction)], ratio)?;
        }
        Ok(())
    }

    fn lost(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(
            "uncore_trace_lost",
            "Losses by cause, as in the table loss; kind=loss: counts or owners are missing, kind=note: they are \
             less precise",
            None,
            MetricType::Counter,
        )?;
        for (cause, count) in &self.lost {
            let kind = if loss::is_precision(cause) { "note" } else { "loss" };
            let labels = vec![("cause", cause.as_str()), ("kind", kind)];
            counter(&mut metric, &labels, *count as f64)?;
        }
        Ok(())
    }

    /// Counters of the agent itself.
    fn own(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Own { cpu_s, resident_bytes, unwritten, kept, refused, joined, .. } = self.own;
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
        Ok(())
    }
}

type Bytes = fn(&Disk) -> u64;

impl Own {
    /// The last window, and the files that wait for the object store.
    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let unsent = self.unsent;
        for (name, help, value) in [
            (
                "uncore_trace_last_window_timestamp_seconds",
                "End of the last window of the roll-up, in seconds since 1970",
                self.last_window_s,
            ),
            (
                "uncore_trace_unsent_files",
                "Finished files of the roll-up that the object store has not confirmed",
                unsent.map(|its| its.files as f64),
            ),
            ("uncore_trace_unsent_bytes", "Their size", unsent.map(|its| its.bytes as f64)),
            (
                "uncore_trace_unsent_oldest_timestamp_seconds",
                "When the oldest of them was finished, in seconds since 1970",
                unsent.and_then(|its| its.oldest_s),
            ),
        ] {
            let Some(value) = value else { continue };
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge(&mut metric, &Vec::new(), value)?;
        }
        Ok(())
    }

    fn disks(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.disks.is_empty() {
            return Ok(());
        }
        for (name, help, bytes) in [
            (
                "uncore_trace_disk_free_bytes",
                "Bytes that the agent may still write on the disk of the ring or the roll-up",
                (|disk| disk.free_bytes) as Bytes,
            ),
            ("uncore_trace_disk_size_bytes", "Size of that disk", |disk| disk.size_bytes),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for disk in &self.disks {
                gauge(&mut metric, &vec![("of", disk.of)], bytes(disk) as f64)?;
            }
        }
        Ok(())
    }
}
