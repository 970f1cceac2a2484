//! The part of a page about the whole recording: machine, options, and counters.

use std::collections::BTreeMap;
use std::io;

use super::super::html::json::Json;
use super::super::links::Links;
use super::planned::{Counter, Planned};
use crate::clock::Snapshot;
use crate::schema::metadata;
use crate::text::printable;
use crate::units;

/// Both clocks at one moment; `None` if the metadata have none.
pub(super) fn clock(pairs: &BTreeMap<String, String>) -> Option<Snapshot> {
    let clocks: Vec<Snapshot> = serde_json::from_str(pairs.get(metadata::CLOCKS)?).ok()?;
    clocks.first().copied()
}

/// Name of the machine; `None` if it has none, which the kernel writes as `(none)` (`UTS_NODENAME`,
/// include/linux/uts.h).
pub(super) fn host(pairs: &BTreeMap<String, String>) -> Option<String> {
    let host = pairs.get(metadata::HOST).filter(|host| !host.is_empty() && *host != "(none)");
    Some(printable(host?).into_owned())
}

/// Names and values of the known facts.
pub(super) fn facts(
    pairs: &BTreeMap<String, String>,
    plan: Option<&Planned>,
) -> Vec<(&'static str, String)> {
    let pair = |key: &str| pairs.get(key).map(|value| printable(value).into_owned());
    let time = |key: &str| {
        let ns: f64 = pairs.get(key)?.parse().ok()?;
        Some(units::human(ns, "ns"))
    };
    let list = |found: Vec<String>| (!found.is_empty()).then(|| found.join(", "));
    let catalog = pairs.get(metadata::CATALOG);
    let catalog = catalog.and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
    let catalog =
        catalog.and_then(|files| list(files.iter().map(|it| printable(it).into_owned()).collect()));
    let mut pmus: Vec<String> = plan.map_or_else(Vec::new, |plan| {
        plan.counters.iter().map(|counter| printable(&counter.pmu).into_owned()).collect()
    });
    pmus.sort();
    pmus.dedup();
    let cpus = pairs.get(metadata::CPU_TIME);
    let cpus = cpus.and_then(|text| serde_json::from_str::<Vec<serde_json::Value>>(text).ok());
    let facts = [
        ("command line", pair(metadata::COMMAND_LINE)),
        ("machine", pair(metadata::HOST)),
        ("cluster", pair(metadata::CLUSTER)),
        ("kernel", pair(metadata::KERNEL)),
        ("CPUs", cpus.map(|cpus| cpus.len().to_string())),
        ("PMUs", list(pmus)),
        ("counters are read every", time(metadata::TICK_NS)),
        ("a window is", time(metadata::INTERVAL_NS)),
        ("method of attribution", pair(metadata::METHOD)),
        ("files of the catalog", catalog),
        ("recorded by", pair(metadata::TOOL_VERSION).map(|it| format!("uncore-trace {it}"))),
        ("boot", pair(metadata::BOOT_ID)),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Text of a column for a counter.
type Cell<'a> = &'a dyn Fn(&Counter) -> String;

/// The counters, as a list for each column.
pub(super) fn counters(json: &mut Json<'_>, plan: &Planned, links: &Links) -> io::Result<()> {
    let shown = |text: &str| printable(text).into_owned();
    let link = |counter: &Counter| {
        let (place, direction) = counter.way(links)?;
        Some(shown(&links.label(place, direction)))
    };
    let column: [(&str, Cell<'_>); 10] = [
        ("counter", &|it| it.id.to_string()),
        ("PMU", &|it| shown(&it.pmu)),
        ("event", &|it| shown(&it.event)),
        ("filter", &|it| shown(&it.filter)),
        ("link", &|it| link(it).unwrap_or_default()),
        ("encoding", &Counter::encoding),
        ("unit", &|it| shown(&it.unit)),
        ("one count is", &|it| it.scale.map_or_else(String::new, |scale| scale.to_string())),
        ("read on CPU", &|it| it.cpu.map_or_else(String::new, |cpu| cpu.to_string())),
        ("role", &|it| shown(&it.role)),
    ];
    json.list(column, |json, (name, cell)| {
        json.object(|json| {
            json.key("name")?.value(name)?;
            json.key("cells")?.list(&plan.counters, |json, counter| json.value(&cell(counter)))
        })
    })
}
