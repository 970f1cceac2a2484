//! The part of a page about the whole recording: machine, options, and counters.

use std::collections::BTreeMap;
use std::io;

use super::super::html::json::Json;
use super::super::links::Links;
use super::planned::{PagePlan, PlannedCounter};
use crate::clock::Snapshot;
use crate::schema::metadata;
use crate::text::printable;
use crate::units;

/// Both clocks at one moment; `None` if the metadata have none.
pub(super) fn clocks_at_begin(pairs: &BTreeMap<String, String>) -> Option<Snapshot> {
    let clocks: Vec<Snapshot> = serde_json::from_str(pairs.get(metadata::CLOCKS)?).ok()?;
    clocks.first().copied()
}

/// Name of the machine; `None` if it has none, which the kernel writes as `(none)` (`UTS_NODENAME`,
/// include/linux/uts.h).
pub(super) fn host_name(pairs: &BTreeMap<String, String>) -> Option<String> {
    let host = pairs.get(metadata::HOST).filter(|host| !host.is_empty() && *host != "(none)");
    Some(printable(host?).into_owned())
}

/// Names and values of the known facts.
pub(super) fn recording_facts(
    pairs: &BTreeMap<String, String>,
    plan: Option<&PagePlan>,
) -> Vec<(&'static str, String)> {
    let pair = |key: &str| pairs.get(key).map(|value| printable(value).into_owned());
    let time = |key: &str| {
        let ns: f64 = pairs.get(key)?.parse().ok()?;
        Some(units::human(ns, "ns"))
    };
    let list = |values: Vec<String>| (!values.is_empty()).then(|| values.join(", "));
    let catalog = pairs.get(metadata::CATALOG);
    let catalog = catalog.and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
    let catalog = catalog
        .and_then(|files| list(files.iter().map(|file| printable(file).into_owned()).collect()));
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
        (
            "recorded by",
            pair(metadata::TOOL_VERSION).map(|version| format!("uncore-trace {version}")),
        ),
        ("boot", pair(metadata::BOOT_ID)),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Text of a column for a counter.
type CounterCell<'a> = &'a dyn Fn(&PlannedCounter) -> String;

/// The counters, as a list for each column.
pub(super) fn write_counters(
    json: &mut Json<'_>,
    plan: &PagePlan,
    links: &Links,
) -> io::Result<()> {
    let shown = |text: &str| printable(text).into_owned();
    let link = |counter: &PlannedCounter| {
        let (link_index, direction) = counter.link_and_direction(links)?;
        Some(shown(&links.direction_label(link_index, direction)))
    };
    let column: [(&str, CounterCell<'_>); 10] = [
        ("counter", &|planned| planned.id.to_string()),
        ("PMU", &|planned| shown(&planned.pmu)),
        ("event", &|planned| shown(&planned.event)),
        ("filter", &|planned| shown(&planned.filter)),
        ("link", &|planned| link(planned).unwrap_or_default()),
        ("encoding", &PlannedCounter::encoding_text),
        ("unit", &|planned| shown(&planned.unit)),
        ("one count is", &|planned| {
            planned.scale.map_or_else(String::new, |scale| scale.to_string())
        }),
        ("read on CPU", &|planned| planned.cpu.map_or_else(String::new, |cpu| cpu.to_string())),
        ("role", &|planned| shown(&planned.role)),
    ];
    json.write_list(column, |json, (name, cell)| {
        json.write_object(|json| {
            json.write_key("name")?.write_value(name)?;
            json.write_key("cells")?
                .write_list(&plan.counters, |json, counter| json.write_value(&cell(counter)))
        })
    })
}
