//! The links that the counters of a plan count, and their peak rates.
//!
//! The catalog defines links ([`crate::catalog::link`]). There is one for each socket; for PMUs of
//! root ports, one for each part that is counted separately. The counters of one direction, from
//! several PMUs and events, add up to the bytes in that direction.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::functions_behind::few_functions as few_behind;
use super::io::{DevicesBelow, device_label};
use super::pmu_cpus::ReaderSpot;
use super::resolve::{ResolvedEvent, Resolver};
use super::{Counter, CounterRole, Plan};
use crate::catalog::family::Family;
use crate::catalog::link;
use crate::catalog::metric::{DURATION_NS, Input, PlannedMetric};
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::scope::PmuScope;
use crate::discover::Machine;
use crate::discover::speed::LinkSpeed;
use crate::discover::statistics::KernelCountedDevice;
use crate::schema::link::{Direction, Link, LinkCounter, PeakRate, PeakSource};
use crate::text::printable;

/// The properties that distinguish links.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LinkKey {
    family: String,
    link_kind: String,
    socket: Option<i16>,
    /// The part of a PMU of root ports.
    root_ports: Option<RootPorts>,
}

/// A part of a PMU of root ports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RootPorts {
    pmu: String,
    mask: Option<u64>,
    requester: Option<u64>,
    die: Option<u32>,
}

/// The links of a plan that is being made.
#[derive(Debug, Default)]
pub(super) struct LinkBuilder {
    links: Vec<(LinkKey, Link)>,
    /// The index of each of them in the list.
    indexes: HashMap<LinkKey, usize>,
}

impl LinkBuilder {
    /// Adds a counter to its link, if it counts the bytes of one. `below` is what is below its root
    /// ports.
    pub(super) fn add_counter(
        &mut self,
        machine: &Machine,
        event: &ResolvedEvent<'_>,
        spot: ReaderSpot,
        id: u32,
        below: Option<DevicesBelow<'_>>,
    ) {
        let Some(family) = event.words.family else { return };
        if event.encoded.unit != "bytes" {
            return;
        }
        let name = &event.encoded.event;
        let matched =
            family.links.iter().find_map(|link| Some((link, link.counted_direction(name)?)));
        let Some((rule, direction)) = matched else { return };
        let key = link_key(family, rule, event.words, spot, below.as_ref());
        let counted = LinkCounter { counter: id, direction };
        let known_index = self.indexes.get(&key).copied();
        if let Some((_, link)) = known_index.and_then(|index| self.links.get_mut(index)) {
            link.counters.push(counted);
            return;
        }
        // A device that may be below another PMU says nothing about this one.
        let below = below.filter(|below| !below.is_unsure);
        let functions = match &below {
            Some(below) => below.functions.clone(),
            None => few_behind(machine, event.words, spot.cpu),
        };
        let devices = device_label(machine, &functions);
        let statistics = event.words.pmu.statistics.as_ref();
        let devices = devices.or_else(|| Some(printable(&statistics?.device).into_owned()));
        let mut peaks: Vec<PeakRate> =
            below.iter().flat_map(|below| port_peaks(machine, below)).collect();
        peaks.extend(rule.peaks.iter().map(catalog_peak));
        peaks.extend(
            statistics.and_then(|device_statistics| line_rate(device_statistics, direction)),
        );
        if key.root_ports.is_none() {
            peaks.extend(calibrated_peaks(machine, &key));
        }
        let link = Link {
            name: link_name(&key, devices.as_deref()),
            kind: rule.name.clone(),
            subsystem: event.group.to_owned(),
            socket: spot.socket,
            devices,
            counters: vec![counted],
            peaks,
            latencies: Vec::new(),
        };
        self.indexes.insert(key.clone(), self.links.len());
        self.links.push((key, link));
    }

    /// The links, with unique names and their latencies.
    pub(super) fn finish_links(self, resolver: &Resolver<'_>, plan: &Plan) -> Vec<Link> {
        let is_divided = |counter: &Counter| counter.role != CounterRole::Weight;
        let counted: BTreeSet<u32> = plan
            .counters
            .iter()
            .filter(|candidate| is_divided(candidate))
            .map(|candidate| candidate.id)
            .collect();
        let mut links = self.links;
        let mut latencies = Latencies::new(resolver, plan);
        for (key, link) in &mut links {
            link.counters.retain(|link_counter| counted.contains(&link_counter.counter));
            link.latencies = latencies.link_latencies(key);
        }
        links.retain(|(_, link)| !link.counters.is_empty());
        for addition in MORE {
            tell_apart(&mut links, addition);
        }
        links.into_iter().map(|(_, link)| link).collect()
    }
}

/// The addition to the name of a link if another link has the same name.
type NameAddition = fn(&LinkKey, usize) -> Option<String>;

/// In the order in which they are tried.
const MORE: [NameAddition; 4] = [
    |key, _| key.socket.map(|socket| format!("socket {socket}")),
    |key, _| key.root_ports.as_ref()?.mask.map(|mask| format!("ports {mask:#x}")),
    |key, _| {
        Some(key.root_ports.as_ref().map_or(&key.family, |root_ports| &root_ports.pmu).clone())
    },
    |_, index| Some(index.to_string()),
];

/// Adds to names that several links have, if that distinguishes them.
fn tell_apart(links: &mut [(LinkKey, Link)], addition: NameAddition) {
    let texts: Vec<_> =
        links.iter().enumerate().map(|(index, (key, _))| addition(key, index)).collect();
    let mut additions: HashMap<String, HashSet<&Option<String>>> = HashMap::new();
    for ((_, link), text) in links.iter().zip(&texts) {
        additions.entry(link.name.clone()).or_default().insert(text);
    }
    for ((_, link), text) in links.iter_mut().zip(&texts) {
        let differs = additions.get(&link.name).is_some_and(|distinct| distinct.len() > 1);
        if let Some(text) = text.as_ref().filter(|_| differs) {
            link.name = format!("{} ({text})", link.name);
        }
    }
}

fn link_key(
    family: &Family,
    rule: &link::LinkRule,
    words: PmuWords<'_>,
    spot: ReaderSpot,
    below: Option<&DevicesBelow<'_>>,
) -> LinkKey {
    let is_separate = below.is_some()
        || matches!(
            family.scope,
            Some(PmuScope::RootPort | PmuScope::RootComplex | PmuScope::Device)
        );
    let root_ports = is_separate.then(|| RootPorts {
        pmu: words.pmu.name.clone(),
        mask: below.and_then(|below| below.mask),
        requester: below.and_then(|below| below.requester),
        die: below.and_then(|below| below.die),
    });
    LinkKey {
        family: family.family.clone(),
        link_kind: rule.name.clone(),
        socket: spot.socket,
        root_ports,
    }
}

/// The name of a link: its kind, then what is below it, or its socket.
fn link_name(key: &LinkKey, devices: Option<&str>) -> String {
    let link_kind = &key.link_kind;
    match (devices, &key.root_ports, key.socket) {
        (Some(devices), _, _) => format!("{link_kind} {devices}"),
        (None, Some(root_ports), _) => format!("{link_kind} {}", root_ports.pmu),
        (None, None, Some(socket)) => format!("{link_kind} {socket}"),
        (None, None, None) => link_kind.clone(),
    }
}

fn catalog_peak(peak: &link::LinkPeak) -> PeakRate {
    PeakRate {
        direction: peak.direction,
        bytes_per_s: peak.gb_per_s * 1e9,
        source: PeakSource::Catalog,
        detail: peak.source.clone(),
    }
}

/// The line rate of an interface. Bytes between packets take a part of it.
fn line_rate(statistics: &KernelCountedDevice, direction: Direction) -> Option<PeakRate> {
    let bytes_per_s = statistics.bytes_per_s?;
    let detail = format!("line rate, {} Mb/s", bytes_per_s * 8.0 / 1e6);
    Some(PeakRate { direction, bytes_per_s, source: PeakSource::Sysfs, detail })
}

/// The rates of a link that were measured on this machine.
fn calibrated_peaks(machine: &Machine, key: &LinkKey) -> Vec<PeakRate> {
    let measured = machine.calibration.iter().flat_map(|calibration| &calibration.links);
    let mut matching = measured
        .filter(|candidate| candidate.kind == key.link_kind && candidate.socket == key.socket);
    let Some(result) = matching.next() else { return Vec::new() };
    let rates = [
        (Direction::In, result.in_per_s),
        (Direction::Out, result.out_per_s),
        (Direction::Both, result.both_per_s),
    ];
    let peak = |(direction, rate): (Direction, Option<f64>)| {
        let bytes_per_s = rate.filter(|rate| *rate > 0.0 && rate.is_finite())?;
        let detail = result.detail.clone();
        Some(PeakRate { direction, bytes_per_s, source: PeakSource::Calibrated, detail })
    };
    rates.into_iter().filter_map(peak).collect()
}

/// The total rate of the root ports with devices, in each direction; empty if the speed of one is
/// unknown.
fn port_peaks(machine: &Machine, below: &DevicesBelow<'_>) -> Vec<PeakRate> {
    let tops: BTreeSet<_> = below.functions.iter().map(|function| function.top).collect();
    let port_speed = |top| machine.devices.find_function(top)?.speed;
    let Some(speeds) = tops.iter().map(|top| port_speed(*top)).collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    if speeds.is_empty() {
        return Vec::new();
    }
    let bytes_per_s = speeds.iter().map(LinkSpeed::bytes_per_s).sum();
    let details: BTreeSet<String> = speeds.iter().map(ToString::to_string).collect();
    let detail = details.into_iter().collect::<Vec<_>>().join("; ");
    let peak = |direction| PeakRate {
        direction,
        bytes_per_s,
        source: PeakSource::Sysfs,
        detail: detail.clone(),
    };
    vec![peak(Direction::In), peak(Direction::Out)]
}

/// The metrics of latency whose inputs the plan counts, made once for all links.
struct Latencies<'p, 'a> {
    resolver: &'p Resolver<'a>,
    places_by_family: HashMap<&'p str, BTreeSet<MetricPlace<'p>>>,
    /// The first counter of an event at a place.
    ids: HashMap<(MetricPlace<'p>, &'p str), u32>,
    filters: Vec<&'p str>,
    by_name: HashMap<&'p str, Vec<PlannedMetric>>,
}

impl<'p, 'a> Latencies<'p, 'a> {
    fn new(resolver: &'p Resolver<'a>, plan: &'p Plan) -> Self {
        let mut places_by_family: HashMap<&str, BTreeSet<MetricPlace<'p>>> = HashMap::new();
        let mut ids = HashMap::new();
        for Counter { id, pmu, family, event, filter, cpu, socket, .. } in &plan.counters {
            let place = (pmu.as_str(), *cpu, filter.as_str(), *socket);
            places_by_family.entry(family).or_default().insert(place);
            ids.entry((place, event.as_str())).or_insert(*id);
        }
        let filters = plan.counters.iter().map(|counter| counter.filter.as_str()).collect();
        Self { resolver, places_by_family, ids, filters, by_name: HashMap::new() }
    }

    /// The metrics that the link's rule names as its latency, for its socket and root ports, if all
    /// their inputs are counted.
    fn link_latencies(&mut self, key: &LinkKey) -> Vec<PlannedMetric> {
        let families = &self.resolver.catalog.families;
        let rules = families
            .iter()
            .filter(|family| family.family == key.family)
            .flat_map(|family| &family.links);
        let names = rules.filter(|rule| rule.name == key.link_kind).flat_map(|rule| &rule.latency);
        let mut latencies = Vec::new();
        for name in names {
            if !self.by_name.contains_key(name.as_str()) {
                self.by_name.insert(name, self.counted_metrics(name));
            }
            let planned = self.by_name.get(name.as_str()).into_iter().flatten();
            latencies.extend(planned.filter(|metric| describes_link(metric, key)).cloned());
        }
        latencies
    }

    /// The metric of this name on each PMU and CPU whose inputs are counted.
    fn counted_metrics(&self, name: &str) -> Vec<PlannedMetric> {
        let mut planned = Vec::new();
        for (family, metric) in
            self.resolver.all_metrics().filter(|(_, metric)| metric.name == name)
        {
            let Some(metric_places) = self.places_by_family.get(family.family.as_str()) else {
                continue;
            };
            let names: Vec<&str> = metric
                .formula
                .distinct_names()
                .into_iter()
                .filter(|name| *name != DURATION_NS)
                .collect();
            if !metric.inputs.is_empty() || names.iter().any(|name| !family.is_event(name)) {
                continue;
            }
            for &(pmu, cpu, filter, socket) in metric_places {
                let counter = |name: &str| {
                    let exact = self.ids.get(&((pmu, cpu, filter, socket), name));
                    // A clock is the same for all root ports.
                    exact.or_else(|| self.ids.get(&((pmu, cpu, "", socket), name))).copied()
                };
                let inputs: Vec<Input> = names
                    .iter()
                    .map(|name| Input { name: (*name).to_owned(), counter: counter(name) })
                    .collect();
                let is_own = |id: u32| self.filters.get(id as usize) == Some(&filter);
                let has_own = inputs.iter().filter_map(|input| input.counter).any(is_own);
                if !has_own || inputs.iter().any(|input| input.counter.is_none()) {
                    continue;
                }
                planned.push(PlannedMetric {
                    name: metric.name.clone(),
                    about: metric.about.clone(),
                    unit: metric.unit.clone(),
                    formula: metric.formula.to_string(),
                    across: metric.across,
                    family: family.family.clone(),
                    pmu: pmu.to_owned(),
                    filter: filter.to_owned(),
                    cpu,
                    socket,
                    per_cpu: false,
                    inputs,
                    constants: BTreeMap::new(),
                });
            }
        }
        planned
    }
}

/// The places of a plan at which a metric can be computed: PMU, CPU, filter and socket.
type MetricPlace<'p> = (&'p str, u32, &'p str, Option<i16>);

/// Whether a metric describes the same thing as the link.
fn describes_link(metric: &PlannedMetric, key: &LinkKey) -> bool {
    let same_part = key.root_ports.as_ref().is_none_or(|ports| {
        let set = metric.filter.split(',').filter_map(|term| term.split_once("=0x"));
        let masks: Vec<_> = set.filter_map(|(_, hex)| u64::from_str_radix(hex, 16).ok()).collect();
        metric.pmu == ports.pmu
            && ports.mask.is_none_or(|mask| masks.is_empty() || masks.contains(&mask))
            && ports.requester.is_none_or(|id| masks.contains(&id))
    });
    same_part && (metric.socket == key.socket || metric.socket.is_none() || key.socket.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::discover::captured_machine;
    use crate::plan::{PlanRequest, plan};

    fn links(machine: &str, groups: &str, per_port: bool) -> (Plan, Vec<Link>) {
        let request = PlanRequest {
            groups: groups.split(',').map(str::to_owned).collect(),
            per_port,
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
            ..PlanRequest::default()
        };
        let plan =
            plan(&captured_machine(machine), &Catalog::load_embedded().unwrap(), &request).unwrap();
        let links = plan.links.clone();
        (plan, links)
    }

    fn names(links: &[Link]) -> Vec<&str> {
        links.iter().map(|link| link.name.as_str()).collect()
    }

    #[test]
    fn each_socket_has_its_links() {
        let (plan, links) = links("grace-2s", "mem,latency", false);
        assert_eq!(names(&links), ["memory 0", "GPU memory 0", "memory 1", "GPU memory 1"]);
        for link in &links {
            let ways: Vec<_> =
                link.counters.iter().map(|link_counter| link_counter.direction).collect();
            assert_eq!(ways, [Direction::In, Direction::Out], "{}", link.name);
            for counted in &link.counters {
                let counter = &plan.counters[counted.counter as usize];
                assert_eq!((counter.id, counter.socket), (counted.counter, link.socket));
            }
        }
        let latencies: Vec<_> =
            links.iter().map(|link| link.latencies.iter().map(|its| its.cpu).collect()).collect();
        let of_memory = |link: usize| Vec::<u32>::clone(&latencies[link]);
        assert_eq!((of_memory(0).len(), of_memory(1).len(), of_memory(2).len()), (1, 0, 1));
        assert_ne!(of_memory(0), of_memory(2));
        let peaks = &links[0].peaks;
        assert!(peaks.iter().all(|peak| peak.source == PeakSource::Catalog), "{peaks:?}");
    }

    #[test]
    fn root_ports_that_are_counted_apart_are_links_of_their_own() {
        for machine in ["grace-2s", "t410-2s"] {
            let (plan, links) = links(machine, "pcie", true);
            let distinct: BTreeSet<&str> = names(&links).into_iter().collect();
            assert_eq!(distinct.len(), links.len(), "{:?}", names(&links));
            let mut counted: Vec<u32> = links
                .iter()
                .flat_map(|link| &link.counters)
                .map(|link_counter| link_counter.counter)
                .collect();
            counted.sort_unstable();
            let bytes = plan
                .counters
                .iter()
                .filter(|counter| counter.unit == "bytes")
                .map(|byte_counter| byte_counter.id);
            assert_eq!(counted, bytes.collect::<Vec<_>>());
            for link in &links {
                let link_counters = link
                    .counters
                    .iter()
                    .map(|link_counter| &plan.counters[link_counter.counter as usize]);
                let parts: BTreeSet<_> =
                    link_counters.map(|counter| (&counter.pmu, &counter.filter)).collect();
                assert_eq!(parts.len(), 1, "{}: {parts:?}", link.name);
            }
        }
    }

    /// Every counter that a group of traffic opens is on a link, so that views can show its
    /// utilisation.
    #[test]
    fn every_counter_of_bytes_is_on_one_link_with_a_name_of_its_own() {
        for machine in MACHINES {
            let (plan, links) = links(machine, "all", false);
            let distinct: BTreeSet<&str> = names(&links).into_iter().collect();
            assert_eq!(distinct.len(), links.len(), "{machine}: {:?}", names(&links));
            println!("{machine}: {:?}", names(&links));
            for counter in &plan.counters {
                let all_counted = links.iter().flat_map(|link| &link.counters);
                let link_count =
                    all_counted.filter(|link_counter| link_counter.counter == counter.id).count();
                let traffic = ["mem", "pcie", "c2c", "mesh"].contains(&counter.subsystem.as_str());
                let bytes = counter.unit == "bytes" && counter.role != CounterRole::Weight;
                assert!(link_count <= 1, "{machine}: {} {}", counter.pmu, counter.event);
                let is_missing = traffic && bytes && link_count == 0;
                assert!(!is_missing, "{machine}: {} {}", counter.pmu, counter.event);
            }
        }
    }

    /// Captured machines with counters of traffic.
    const MACHINES: [&str; 18] = [
        "all-drivers-acpi",
        "altra-2s",
        "ampereone",
        "cmn-s3",
        "grace-2s",
        "icelake-2s",
        "kunpeng-920",
        "kunpeng-hip09",
        "monaka",
        "power9-2s",
        "sapphire-rapids-2s",
        "skylake-sp-2s",
        "t410-2s",
        "yitian",
        "zen2",
        "zen3-2s",
        "zen4-2s",
        "zen5-2s",
    ];
}
