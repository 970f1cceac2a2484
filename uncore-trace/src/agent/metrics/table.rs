//! What the metrics are: the only list of their names, units, labels and series. The page
//! ([`super::page`]) and the request of OTLP ([`super::otlp`]) are made from it. [`super::own`] has
//! those of the agent itself.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::counted::{Counted, Name};
use super::{Metrics, Thing};
use crate::units::name_of;

/// Label of the sum of owners without a series of their own.
const OTHER: &str = "other";

/// A label set. An empty value is none.
pub(super) type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Whether values only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// A metric with all its series.
#[derive(Debug)]
pub(super) struct Metric<'a> {
    /// The name; that of a counter lacks `_total`.
    pub name: Cow<'static, str>,
    pub help: &'static str,
    /// The unit in UCUM.
    pub unit: Cow<'static, str>,
    pub kind: Kind,
    /// Whether the values are those at the end of the last window, and not those of now.
    pub is_of_window: bool,
    pub series: Vec<Series<'a>>,
}

/// A value with its labels.
#[derive(Debug)]
pub(super) struct Series<'a> {
    pub labels: Labels<'a>,
    /// The owner that the labels name.
    pub owner: Option<&'a Name>,
    pub value: f64,
    /// From when on a counter counts, ns since 1970.
    pub since_ns: i64,
}

impl<'a> Metric<'a> {
    /// A metric of the agent itself.
    pub(super) fn own(
        name: &'static str,
        help: &'static str,
        unit: &'static str,
        kind: Kind,
    ) -> Self {
        Self {
            name: name.into(),
            help,
            unit: unit.into(),
            kind,
            is_of_window: false,
            series: Vec::new(),
        }
    }

    /// The same with one more series of the agent, which began at this time.
    pub(super) fn with(mut self, labels: Labels<'a>, value: f64, since_ns: i64) -> Self {
        self.series.push(Series { labels, owner: None, value, since_ns });
        self
    }
}

impl Thing {
    fn labels(&self) -> Labels<'_> {
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

    /// The unit of an event; `None` of a link, which has bytes.
    fn unit(&self) -> Option<&str> {
        match self {
            Self::Link { .. } => None,
            Self::Event { unit, .. } => Some(unit),
        }
    }
}

/// Whose part of a link or event a series is.
#[derive(Debug, Clone, Copy)]
enum Whose<'a> {
    /// Not divided among owners.
    All,
    Owner(&'a Name),
    /// Owners without a series of their own.
    Other,
}

impl<'a> Whose<'a> {
    fn labels(self) -> Labels<'a> {
        let of = |[owner, device, cgroup, container, pod, job]: [&'a str; 6]| {
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
            Self::Owner(Name { owner, device, cgroup, container, pod, job }) => {
                of([owner, device, cgroup, container, pod, job])
            }
            Self::Other => of([OTHER, "", "", "", "", ""]),
        }
    }
}

/// A series of a link or event: whose it is, its value, and from when on it counts.
type Part<'a> = (Whose<'a>, f64, i64);

/// Links or events of one unit, which is written in UCUM.
type OfUnit<'a> = (String, Vec<(&'a Thing, &'a Counted)>);

/// A metric with series for links or events.
struct OfThings {
    name: &'static str,
    help: &'static str,
    links: bool,
    kind: Kind,
    /// The unit in UCUM; that of an event has another one.
    unit: &'static str,
    series: fn(&Counted) -> Vec<Part<'_>>,
}

fn owners(counted: &Counted) -> Vec<Part<'_>> {
    let mut names: Vec<_> = counted.shown.iter().collect();
    names.sort_by(|a, b| a.0.cmp(b.0));
    let shown = names.into_iter().map(|(name, its)| (Whose::Owner(name), its.total, its.since_ns));
    shown.chain([(Whose::Other, counted.other, counted.since_ns)]).collect()
}

/// Owners with what is known of them, in the order of their names.
fn known(
    counted: &Counted,
    value: impl Fn(&super::counted::Series) -> Option<f64>,
) -> Vec<Part<'_>> {
    let shown = counted.shown.iter();
    let mut known: Vec<_> =
        shown.filter_map(|(name, its)| Some((name, value(its)?, its.since_ns))).collect();
    known.sort_by(|a, b| a.0.cmp(b.0));
    known.into_iter().map(|(name, value, since)| (Whose::Owner(name), value, since)).collect()
}

/// What a metric's name says of a unit, and the factor to that unit.
pub(super) fn unit_of(unit: &str) -> (String, f64) {
    match unit {
        "ns" => ("seconds".to_owned(), 1e-9),
        "" | "count" => (String::new(), 1.0),
        unit => (name_of(unit), 1.0),
    }
}

/// The unit of an event in UCUM, after [`unit_of`].
///
/// Prometheus appends what a unit means to a name that lacks it. So only units whose word is in the
/// name are those of UCUM, and all others annotations, which have no meaning there: names are the same
/// over OTLP and on the page.
fn ucum(unit: &str) -> String {
    match unit {
        "bytes" => "By".to_owned(),
        "ns" => "s".to_owned(),
        "Joules" => "J".to_owned(),
        "" | "count" => "{count}".to_owned(),
        other => {
            // UCUM, section 6: ASCII from ! to ~ without braces.
            let plain = |c: char| if c.is_ascii_graphic() && !"{}".contains(c) { c } else { '_' };
            format!("{{{}}}", other.chars().map(plain).collect::<String>())
        }
    }
}

const OF_THINGS: [OfThings; 10] = [
    OfThings {
        name: "uncore_trace_link_bytes",
        help: "Bytes that went over a link",
        links: true,
        kind: Kind::Counter,
        unit: "By",
        series: |counted| vec![(Whose::All, counted.total, counted.since_ns)],
    },
    OfThings {
        name: "uncore_trace_link_peak_bytes_per_second",
        help: "The most that goes over a link",
        links: true,
        kind: Kind::Gauge,
        unit: "By/s",
        series: |counted| {
            counted.peak.into_iter().map(|peak| (Whose::All, peak, counted.since_ns)).collect()
        },
    },
    OfThings {
        name: "uncore_trace_unattributed_bytes",
        help: "Bytes over a link without a known owner",
        links: true,
        kind: Kind::Counter,
        unit: "By",
        series: |counted| vec![(Whose::All, counted.unattributed, counted.since_ns)],
    },
    OfThings {
        name: "uncore_trace_owner_bytes",
        help: "Bytes over a link by owner; other: all owners without a series of their own",
        links: true,
        kind: Kind::Counter,
        unit: "By",
        series: owners,
    },
    OfThings {
        name: "uncore_trace_owner_confidence_ratio",
        help: "Part of an owner's bytes that is expected in shares within 10 % of the truth",
        links: true,
        kind: Kind::Gauge,
        unit: "1",
        series: |counted| known(counted, |its| (its.sure.1 > 0.0).then(|| its.sure.0 / its.sure.1)),
    },
    OfThings {
        name: "uncore_trace_owner_low_bytes_per_second",
        help: "Lower end of the 90 % interval of an owner's bytes in the last window",
        links: true,
        kind: Kind::Gauge,
        unit: "By/s",
        series: |counted| known(counted, |its| its.rate.map(|rate| rate.0)),
    },
    OfThings {
        name: "uncore_trace_owner_high_bytes_per_second",
        help: "Higher end of the 90 % interval of an owner's bytes in the last window",
        links: true,
        kind: Kind::Gauge,
        unit: "By/s",
        series: |counted| known(counted, |its| its.rate.map(|rate| rate.1)),
    },
    OfThings {
        name: "uncore_trace_event",
        help: "Counts of an event that belongs to no link",
        links: false,
        kind: Kind::Counter,
        unit: "",
        series: |counted| vec![(Whose::All, counted.total, counted.since_ns)],
    },
    OfThings {
        name: "uncore_trace_unattributed_event",
        help: "Counts of an event without a known owner",
        links: false,
        kind: Kind::Counter,
        unit: "",
        series: |counted| vec![(Whose::All, counted.unattributed, counted.since_ns)],
    },
    OfThings {
        name: "uncore_trace_owner_event",
        help: "Counts of an event by owner; other: all owners without a series of their own",
        links: false,
        kind: Kind::Counter,
        unit: "",
        series: owners,
    },
];

impl Metrics {
    /// All metrics.
    pub(super) fn table(&self) -> Vec<Metric<'_>> {
        let mut table = self.things();
        table.extend(self.canary());
        table.push(self.lost());
        table.extend(self.own.gauges());
        table.extend(self.own.disks());
        table.extend(self.own());
        let build = ("uncore_trace_build_info", "Version of the agent");
        let version = vec![("version", env!("CARGO_PKG_VERSION").into())];
        table.push(Metric::own(build.0, build.1, "", Kind::Gauge).with(version, 1.0, 0));
        table
    }

    /// Links, events and their owners.
    fn things(&self) -> Vec<Metric<'_>> {
        let mut table = Vec::new();
        for of in OF_THINGS {
            // By the unit as names have it.
            let mut things: BTreeMap<String, OfUnit<'_>> = BTreeMap::new();
            for (thing, counted) in &self.things {
                if thing.unit().is_none() == of.links {
                    let (unit, ucum) = thing.unit().map_or_else(
                        || (String::new(), of.unit.to_owned()),
                        |unit| (unit_of(unit).0, ucum(unit)),
                    );
                    things.entry(unit).or_insert((ucum, Vec::new())).1.push((thing, counted));
                }
            }
            for (unit, (ucum, things)) in things {
                let joint = if unit.is_empty() { "" } else { "_" };
                let series = things.into_iter().flat_map(|(thing, counted)| {
                    (of.series)(counted).into_iter().map(|(whose, value, since_ns)| {
                        let mut labels = thing.labels();
                        labels.extend(whose.labels());
                        let owner = match whose {
                            Whose::Owner(name) => Some(name),
                            Whose::All | Whose::Other => None,
                        };
                        Series { labels, owner, value, since_ns }
                    })
                });
                table.push(Metric {
                    name: format!("{}{joint}{unit}", of.name).into(),
                    help: of.help,
                    unit: ucum.into(),
                    kind: of.kind,
                    is_of_window: true,
                    series: series.collect(),
                });
            }
        }
        table
    }
}
