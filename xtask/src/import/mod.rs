//! `cargo xtask import perfmon DIR`: the names and encodings of Intel's uncore events and the
//! formulas of metrics, from a checkout of intel/perfmon, as the checked-in files of
//! `uncore-trace/catalog/intel`.
//!
//! Takes names and numbers, no descriptions. An encoding is made as `scripts/create_perf_json.py`
//! of that repository makes it for perf's tables, with one difference: `Filter1` of Skylake-SP
//! fills the upper half of `config1`, since the driver writes that half to the register FILTER1 and
//! masks the lower one (`skx_cha_hw_config` and `hswep_cbox_enable_event` in
//! `arch/x86/events/intel/uncore_snbep.c`, Linux 7.2).
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

mod generated;
mod intel;
mod left_out;
mod metrics;
mod perf;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use self::metrics::Metrics;

/// What to import.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Import {
    /// Events of Intel's processors from a checkout of github.com/intel/perfmon
    Perfmon(Perfmon),
    /// Events and metrics of other vendors' uncore PMUs from the source of Linux
    Perf(Perf),
}

/// Options of `cargo xtask import perfmon`.
#[derive(Debug, clap::Args)]
pub(crate) struct Perfmon {
    /// The checkout
    dir: PathBuf,
    /// Change nothing, and fail if the committed data differs from the checkout
    #[arg(long)]
    check: bool,
}

/// Options of `cargo xtask import perf`.
#[derive(Debug, clap::Args)]
pub(crate) struct Perf {
    /// The directory of the source
    dir: PathBuf,
    /// Change nothing, and fail if the committed data differs from the source
    #[arg(long)]
    check: bool,
}

/// The directory of the generated files.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../uncore-trace/catalog");

/// Directories of the processors: servers, then clients.
const MODELS: [&str; 29] = [
    "JKT", "IVT", "HSX", "BDX", "BDW-DE", "SKX", "CLX", "ICX", "SNR", "SPR", "EMR", "GNR", "SRF",
    "CWF", "GRR", "SNB", "IVB", "HSW", "BDW", "SKL", "ICL", "RKL", "TGL", "ADL", "MTL", "LNL",
    "ARL", "PTL", "NVL",
];

/// Models whose power unit has no umask, but a field for the state.
const WITH_OCC_SEL: [&str; 5] = ["JKT", "IVT", "HSX", "BDX", "BDW-DE"];

/// Units whose PMU has another name (`unit_to_pmu` of `tools/perf/pmu-events/jevents.py`, Linux
/// 7.2), and those that the kernel calls otherwise (`uncore_snb.c`, `uncore_snbep.c`): of MDF it
/// has `mdf` of Sapphire Rapids and `mdf_sbo` since Granite Rapids.
const UNITS: [(&str, &str); 9] = [
    ("cbo", "cbox"),
    ("hac_cbo", "hac_cbox"),
    ("sbo", "sbox"),
    ("qpi ll", "qpi"),
    ("upi ll", "upi"),
    ("imph-u", "arb"),
    ("ncu", "clock"),
    ("mchbm", "mchbm uncore_hbm"),
    ("mdf", "mdf uncore_mdf_sbo"),
];

/// The PMU with the clock of the unit NCU on some models (`create_perf_json.py`). That of the first
/// two is of ARB in the tables, and of the first slice for the kernel.
const CLOCKS: [(&str, &str); 7] = [
    ("SNB", "cbox_0"),
    ("IVB", "cbox_0"),
    ("HSW", "cbox_0"),
    ("BDW", "cbox_0"),
    ("SKL", "cbox_0"),
    ("MTL", "cncu"),
    ("ARL", "cncu"),
];

/// Keys that say which cycles a counter counts, with their terms: those in which at least so many
/// of the event are there, those in which that begins, all others (`event_fields` of `jevents.py`,
/// Linux 7.2).
const CONDITIONS: [(&str, &str); 3] =
    [("CounterMask", "cmask"), ("EdgeDetect", "edge"), ("Invert", "inv")];

/// PMU, or several of them, and name of an event.
type PmuEventKey = (String, String);

/// Writes the files, or compares them.
pub(crate) fn run(import: &Import) -> Result<()> {
    let (dir, check, folder, files) = match import {
        Import::Perfmon(Perfmon { dir, check }) => (dir, check, "intel", perfmon_files(dir)?),
        Import::Perf(Perf { dir, check }) => (dir, check, "perf", perf::perf_files(dir)?),
    };
    for (name, content) in files {
        let file = Path::new(DATA).join(folder).join(name);
        if *check {
            let checked_in = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let (file, dir) = (file.display(), dir.display());
            ensure!(checked_in == content, "{file} differs from {dir}: import it again");
        } else {
            fs::write(&file, &content)
                .with_context(|| format!("cannot write {}", file.display()))?;
            println!("import: {name}: {} lines, {} bytes", content.lines().count(), content.len());
        }
    }
    Ok(())
}

/// Names and texts of the files.
fn perfmon_files(dir: &Path) -> Result<Vec<(&'static str, String)>> {
    let read = |file: &str| {
        let path = dir.join(file.trim_start_matches('/'));
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    // By processor; steppings of one model are merged.
    let mut events: BTreeMap<String, BTreeMap<PmuEventKey, String>> = BTreeMap::new();
    let mut models: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut versions = BTreeSet::new();
    for line in read("mapfile.csv")?.lines() {
        let columns: Vec<&str> = line.split(',').collect();
        let [processor, version, file, table_kind, ..] = columns[..] else { continue };
        let model = file.trim_start_matches('/').split('/').next().unwrap_or_default();
        let is_extra = table_kind == "uncore experimental";
        if !MODELS.contains(&model) || (table_kind != "uncore" && !is_extra) {
            continue;
        }
        if !is_extra {
            versions.insert(format!("{model} {version}"));
        }
        let processor: Vec<&str> = processor.split('-').take(3).collect();
        let processor = processor.join("-").to_ascii_lowercase();
        let model = MODELS.into_iter().find(|known| *known == model).unwrap_or_default();
        models.entry(processor.clone()).or_default().insert(model);
        let processor_events = events.entry(processor).or_default();
        let json: Value = serde_json::from_str(&read(file)?).with_context(|| file.to_owned())?;
        for event in json["Events"].as_array().with_context(|| format!("{file}: no events"))? {
            let name = text_field(event, "EventName");
            let Some((key, encoding)) =
                encode_event(event, model).with_context(|| format!("{file}: {name}"))?
            else {
                continue;
            };
            let known_encoding = processor_events.entry(key).or_insert_with(|| encoding.clone());
            ensure!(
                *known_encoding == encoding,
                "{file}: {name} is {encoding} here and {known_encoding} elsewhere"
            );
        }
    }
    let notice = read("LICENSE")?;
    let versions: Vec<_> = versions.into_iter().collect();
    let head = file_head(&notice, &versions.join(", "));
    let mut metrics: BTreeMap<&String, Metrics> = BTreeMap::new();
    for (processor, models) in &models {
        let none = BTreeMap::new();
        let events = events.get(processor).unwrap_or(&none);
        for model in models {
            metrics
                .entry(processor)
                .or_default()
                .extend(metrics::perf_metrics(dir, model, events)?);
        }
    }
    Ok(vec![
        ("events.txt", render_events(&events, &head)),
        ("metrics.txt", render_metrics(&metrics, &head)),
    ])
}

/// The comment at the begin of each file.
fn file_head(notice: &str, versions: &str) -> Vec<String> {
    let mut lines = vec![
        "# Made by `cargo xtask import perfmon DIR` from github.com/intel/perfmon: do not edit."
            .to_owned(),
        "# A section is the processors, a colon and the PMUs.".to_owned(),
        format!("# {versions}"),
        "#".to_owned(),
    ];
    lines.extend(notice.lines().map(|line| format!("# {line}").trim_end().to_owned()));
    lines
}

/// The metrics by the processors that have them, then by PMU: name, unit, how instances are
/// combined, formula.
fn render_metrics(metrics: &BTreeMap<&String, Metrics>, head: &[String]) -> String {
    let mut processors: BTreeMap<&[String; 5], Vec<&str>> = BTreeMap::new();
    for (processor, metrics) in metrics {
        for metric in metrics {
            processors.entry(metric).or_default().push(processor);
        }
    }
    let mut sections: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for ([pmu, name, unit, across, formula], processor_names) in processors {
        let section = sections.entry((processor_names.join(" "), pmu.clone())).or_default();
        section.push(format!("{name} {unit} {across} {formula}"));
    }
    render_sections(&sections, head)
}

/// The events by the processors that have them, then by PMU: name and encoding. A name that begins
/// with a dot has the begin of the name before it.
fn render_events(
    events: &BTreeMap<String, BTreeMap<PmuEventKey, String>>,
    head: &[String],
) -> String {
    let mut processors: BTreeMap<(&PmuEventKey, &String), Vec<&str>> = BTreeMap::new();
    for (processor, events) in events {
        for event in events {
            processors.entry(event).or_default().push(processor);
        }
    }
    let mut sections: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut begins: BTreeMap<(String, String), &str> = BTreeMap::new();
    for (((pmu, name), encoding), processor_names) in processors {
        let section = (processor_names.join(" "), pmu.clone());
        let (begin, end) = name.split_at(name.find('.').unwrap_or(name.len()));
        let is_same = begins.insert(section.clone(), begin) == Some(begin) && !end.is_empty();
        let name = if is_same { end } else { name };
        sections.entry(section).or_default().push(format!("{name} {encoding}"));
    }
    render_sections(&sections, head)
}

/// The sections below the comment.
fn render_sections(sections: &BTreeMap<(String, String), Vec<String>>, head: &[String]) -> String {
    let mut lines = head.to_vec();
    for ((processors, pmu), entries) in sections {
        lines.push(format!("\n[{processors}: {pmu}]"));
        lines.extend(entries.iter().cloned());
    }
    lines.join("\n") + "\n"
}

/// Key and encoding of an event; `None` if it cannot be opened by an encoding alone.
fn encode_event(event: &Value, model: &str) -> Result<Option<(PmuEventKey, String)>> {
    let name = text_field(event, "EventName");
    let filter = text_field(event, "Filter");
    let dropped = ["ha_addrmatch", "ha_opcodematch", "irpfilter"];
    let is_fixed = text_field(event, "Counter").eq_ignore_ascii_case("fixed");
    let unit = text_field(event, "Unit");
    // Before Sapphire Rapids, Linux has no such counters. It gives SANTA no fixed one.
    if (name.contains("BANDWIDTH_OUT") && model != "SPR")
        || (is_fixed && unit == "SANTA")
        || dropped.iter().any(|start| filter.to_ascii_lowercase().starts_with(start))
    {
        return Ok(None);
    }
    if text_field(event, "CounterType") == "FREERUN" {
        return free_running(name, unit)
            .map(Some)
            .with_context(|| format!("{name}: an unknown counter that needs no programming"));
    }
    let number = |key: &str| parse_number(text_field(event, key)).with_context(|| key.to_owned());
    let mut terms = vec![("event", number("EventCode")? | number("ExtSel")? << 8)];
    // Both fields are bits that UMaskExt has too: in `snr_uncore_iio` and later they are bits 36 to
    // 47 and 48 to 50 of the word whose upper half is UMaskExt (uncore_snbep.c, Linux 7.2).
    let extension = number("UMaskExt")?;
    let (port, class, wide) = match (number("PortMask")?, number("FCMask")?) {
        (0, 0) if unit == "IIO" => (extension >> 4 & 0xfff, extension >> 16 & 0x7, 0),
        (0, 0) => (0, 0, extension),
        (port, class) => (port, class, 0),
    };
    let umask = number("UMask")? | wide << 8;
    if is_fixed {
        terms = vec![("event", 0xff)];
    }
    let state = name.strip_prefix("UNC_P_POWER_STATE_OCCUPANCY.CORES_C");
    match state.filter(|_| WITH_OCC_SEL.contains(&model)) {
        Some("0") => terms.push(("occ_sel", 1)),
        Some("3") => terms.push(("occ_sel", 2)),
        Some("6") => terms.push(("occ_sel", 3)),
        Some(state) => bail!("unknown state C{state}"),
        None if !is_fixed => terms.push(("umask", umask)),
        None => {}
    }
    for (key, term) in CONDITIONS {
        terms.push((term, number(key)?));
    }
    terms.extend([("ch_mask", port), ("fc_mask", class)]);
    if filter == "Filter1" {
        terms.push(("config1", number("FILTER_VALUE")? << 32));
    }
    let set = terms.iter().filter(|(term, value)| *value != 0 || *term == "event");
    let encoding: Vec<_> = set.map(|(term, value)| format!("{term}={value:#x}")).collect();
    let unit = if is_fixed && unit == "ARB" { "NCU" } else { unit };
    let key = (pmu_of_unit(unit, model), name.to_ascii_lowercase());
    Ok(Some((key, encoding.join(","))))
}

/// The PMU of a unit, or several of them.
fn pmu_of_unit(unit: &str, model: &str) -> String {
    let unit = unit.to_ascii_lowercase();
    let clock = CLOCKS.iter().find(|(clock_model, _)| unit == "ncu" && *clock_model == model);
    let known = clock.or_else(|| UNITS.iter().find(|(known, _)| *known == unit));
    format!("uncore_{}", known.map_or(unit.as_str(), |entry| entry.1))
}

/// Key and encoding of a counter that needs no programming (`freerunning_counter_type_and_index` of
/// `create_perf_json.py`); those of each memory controller of clients are of a PMU.
fn free_running(name: &str, unit: &str) -> Option<(PmuEventKey, String)> {
    let counter_types = [
        ("TOTAL", 1),
        ("CLOCKTICKS", 1),
        ("RDCAS", 2),
        ("BANDWIDTH_IN", 2),
        ("WRCAS", 3),
        ("BANDWIDTH_OUT", 3),
    ];
    let (_, counter_type) = counter_types.into_iter().find(|(word, _)| name.contains(word))?;
    let digit_after = |word: &str| name.split_once(word)?.1.chars().next()?.to_digit(10);
    let umask = counter_type << 4 | digit_after(".PART").unwrap_or_default();
    let controller = digit_after("_MC").map(|number| format!("_{number}")).unwrap_or_default();
    let pmu = format!("uncore_{}_free_running{controller}", unit.to_ascii_lowercase());
    Some(((pmu, name.to_ascii_lowercase()), format!("event=0xff,umask={umask:#x}")))
}

/// A value of an event; empty if there is none.
fn text_field<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default().trim()
}

/// A number in hex or decimal; the first of several; 0 if there is none.
fn parse_number(text: &str) -> Result<u64> {
    let first_number = text.split(',').next().unwrap_or_default().trim();
    let digits = first_number.strip_prefix("0x").or_else(|| first_number.strip_prefix("0X"));
    let value = match digits {
        _ if first_number.is_empty() || first_number == "na" => return Ok(0),
        Some(digits) => u64::from_str_radix(digits, 16),
        None => first_number.parse(),
    };
    value.with_context(|| format!("{first_number:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_a_counter_are_terms() {
        let event = serde_json::json!({
            "EventName": "UNC_ARB_TRK_OCCUPANCY.CYCLES_OVER_HALF_FULL", "Unit": "ARB",
            "EventCode": "0x80", "UMask": "0x01", "CounterMask": "10", "EdgeDetect": "0",
            "Invert": "0", "Counter": "0,1"
        });
        let (key, encoding) = encode_event(&event, "IVB").unwrap().unwrap();
        assert_eq!(key.1, "unc_arb_trk_occupancy.cycles_over_half_full");
        assert_eq!(encoding, "event=0x80,umask=0x1,cmask=0xa");
    }
}
