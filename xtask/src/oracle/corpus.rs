//! What is compared: texts of events made from what sysfs names, names of perf's tables, and
//! metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;

use fastrand::Rng;
use serde_json::Value;

use super::OracleMachine;

/// PMUs that are not of devices, or that perf opens on every CPU in ways of its own.
const SKIPPED: [&str; 14] = [
    "software",
    "tracepoint",
    "breakpoint",
    "kprobe",
    "uprobe",
    "cpu",
    "cpu_core",
    "cpu_atom",
    "msr",
    "intel_pt",
    "intel_bts",
    "ibs_op",
    "ibs_fetch",
    "tool",
];

const DEVICES: &str = "sys/bus/event_source/devices";

/// A text on a machine.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) machine: String,
    pub(super) subject: CaseSubject,
    pub(super) text: String,
}

/// What a text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaseSubject {
    /// `-e`
    Event,
    /// `-M`
    Metric,
}

impl Case {
    /// The case of `MACHINE TEXT` or `MACHINE -M METRIC`.
    pub(super) fn parse(typed: &str) -> Self {
        let (machine, text) = typed.split_once(' ').unwrap_or((typed, ""));
        let machine = machine.to_owned();
        match text.strip_prefix("-M ") {
            Some(metric) => Self { machine, subject: CaseSubject::Metric, text: metric.to_owned() },
            None => Self { machine, subject: CaseSubject::Event, text: text.to_owned() },
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let option = if self.subject == CaseSubject::Metric { "-M " } else { "" };
        write!(f, "{} {option}{}", self.machine, self.text)
    }
}

/// The names in a directory of a machine, sorted.
fn dir_names(machine: &OracleMachine, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(machine.root.join(dir)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The greatest value of a field of a PMU.
fn greatest_value(machine: &OracleMachine, pmu: &str, field: &str) -> Option<u64> {
    let path = machine.root.join(DEVICES).join(pmu).join("format").join(field);
    let text = fs::read_to_string(path).ok()?;
    let (_, ranges) = text.trim().split_once(':')?;
    let bits = |range: &str| {
        let (low_bit, high_bit) = range.split_once('-').unwrap_or((range, range));
        Some(high_bit.parse::<u32>().ok()?.checked_sub(low_bit.parse().ok()?)? + 1)
    };
    let width = ranges.split(',').map(bits).sum::<Option<u32>>()?;
    u64::MAX.checked_shr(64_u32.checked_sub(width)?)
}

/// The texts of a machine, of one PMU of each kind: events of sysfs, fields, words, modifiers and
/// patterns.
pub(super) fn event_texts(machine: &OracleMachine, random: &mut Rng) -> Vec<Case> {
    let mut kinds: BTreeMap<(String, Vec<String>), String> = BTreeMap::new();
    for pmu in dir_names(machine, DEVICES) {
        if SKIPPED.contains(&pmu.as_str()) || pmu.starts_with("armv8_pmuv3") {
            continue;
        }
        let is_event = |name: &String| {
            ![".unit", ".scale", ".snapshot", ".per-pkg"].iter().any(|end| name.ends_with(end))
        };
        let mut events = dir_names(machine, &format!("{DEVICES}/{pmu}/events"));
        events.retain(is_event);
        let stem = pmu.trim_end_matches(|c: char| c.is_ascii_hexdigit());
        kinds.entry((stem.to_owned(), events)).or_insert(pmu);
    }
    let mut texts = Vec::new();
    for ((stem, events), pmu) in &kinds {
        let formats = dir_names(machine, &format!("{DEVICES}/{pmu}/format"));
        let field =
            |name: String| greatest_value(machine, pmu, &name).map(|greatest| (name, greatest));
        let fields: Vec<(String, u64)> = formats.into_iter().filter_map(field).collect();
        let terms = events.iter().cloned().chain(make_terms(&fields, events, random));
        texts.extend(terms.map(|terms| format!("{pmu}/{terms}/")));
        let first_event = match (events.first(), fields.first()) {
            (Some(event), _) => event.clone(),
            (None, Some((field, _))) => format!("{field}=0x1"),
            (None, None) => "config=1".to_owned(),
        };
        for modifier in ["u", "k", "p", "h", "G", "H", "S", "D", "W", "I", "P"] {
            texts.push(format!("{pmu}/{first_event}/{modifier}"));
        }
        let short = pmu.strip_prefix("uncore_").unwrap_or(pmu);
        for pattern in [
            stem.clone(),
            stem.trim_end_matches('_').to_owned(),
            format!("{stem}*"),
            short.to_owned(),
            short.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_').to_owned(),
            pmu.to_ascii_uppercase(),
            format!("{pmu}0"),
        ] {
            if !pattern.is_empty() {
                texts.push(format!("{pattern}/{first_event}/"));
            }
        }
    }
    let machine = &machine.name;
    let case = |text| Case { machine: machine.clone(), subject: CaseSubject::Event, text };
    texts.into_iter().map(case).collect()
}

/// Terms of fields, config words and events of a PMU.
fn make_terms(fields: &[(String, u64)], events: &[String], random: &mut Rng) -> Vec<String> {
    let mut terms = ["config=0x304", "config=1,config1=2,config2=3", "r1f", "nosuch=1"]
        .map(str::to_owned)
        .to_vec();
    for (field, greatest) in fields {
        terms.push(format!("{field}={greatest:#x}"));
        terms.push(format!("{field}={}", random.u64(0..=*greatest)));
        if let Some(too_large) = greatest.checked_add(1) {
            terms.push(format!("{field}={too_large:#x}"));
        }
        if let Some((second, greatest)) = random.choice(fields) {
            terms.push(format!("{field}=0x1,{second}={:#x}", random.u64(0..=*greatest)));
        }
    }
    if let Some((field, _)) = fields.first() {
        terms.push(field.clone());
        terms.push(format!("{field}=0x1,name=foo"));
        terms.push(format!("{}=0x1", field.to_ascii_uppercase()));
        terms.push(format!("{field}=010"));
        terms.push(format!("{field}=zzz"));
    }
    if let Some(event) = random.choice(events) {
        if let Some((field, greatest)) = random.choice(fields) {
            let value = random.u64(0..=*greatest);
            terms.push(format!("{event},{field}={value:#x}"));
            terms.push(format!("{field}={value:#x},{event}"));
        }
        terms.push(format!("{event},config1=0x7"));
        terms.push(format!("event={event}"));
        terms.push(format!("{event},name=bar"));
        terms.push(event.to_ascii_uppercase());
    }
    terms
}

/// The events and metrics of perf's tables for the machine: the names that it lists.
pub(super) fn listed_cases(machine: &OracleMachine, listed: &[Value]) -> (Vec<Case>, Vec<Case>) {
    let case = |what, text: &str| Case {
        machine: machine.name.clone(),
        subject: what,
        text: text.to_owned(),
    };
    let event = |entry: &Value| {
        let name = entry["EventName"].as_str()?;
        let is_of_device = !SKIPPED.contains(&entry["Unit"].as_str()?);
        // Events of sysfs are listed as PMU/EVENT/.
        (is_of_device && !name.contains('/')).then(|| case(CaseSubject::Event, name))
    };
    let metric = |entry: &Value| Some(case(CaseSubject::Metric, entry["MetricName"].as_str()?));
    (listed.iter().filter_map(event).collect(), listed.iter().filter_map(metric).collect())
}
