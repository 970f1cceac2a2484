//! The description of a PMU family: the vocabulary of a catalog file.
//!
//! A file with an unknown key is refused, so that a misspelt filter is not silently ignored.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::budget::Budget;
use super::correction::Correction;
use super::devices_behind::BehindRule;
use super::domain::DomainRule;
use super::exact::ExactRule;
use super::filter::DefaultFilter;
use super::group::Group;
use super::link::LinkRule;
use super::metric::{Constant, DURATION_NS, Metric};
use super::near::NearRule;
use super::pattern::{matches_any, matches_any_event};
use super::ports::PortsRule;
use super::rules::{ExcludesRule, LeaderRule, MaskRule, NeedsRule, NoteRule, OneValueRule, is_of};
use super::scope::PmuScope;
use super::source::CauseRule;
use super::vendor::names_pmu;
use super::verified::Verification;
use super::witness::Witness;
use crate::discover::Pmu;
use crate::discover::event::EventAlias;
use crate::discover::format::FormatField;

/// How a family's PMUs relate to CPUs and to bare event names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PmuKind {
    /// Read on a reader CPU; counts for many CPUs.
    #[default]
    Uncore,
    /// A core's own counters; generic hardware event names and `rNNN` mean it.
    Core,
    /// Kept by the kernel in software; may be in a group with any other PMU.
    Software,
}

/// Description of the matching events.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AboutRule {
    /// Event names, case-insensitive; `*` matches anything.
    #[serde(deserialize_with = "non_empty_list")]
    pub events: Vec<String>,
    /// Description in one line.
    pub text: String,
}

/// Traffic that other events also count.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlapRule {
    /// Events of this family that count it; `*` matches anything.
    #[serde(deserialize_with = "non_empty_list")]
    pub events: Vec<String>,
    /// The other family, or this one.
    pub family: String,
    /// Events of `family` that count it.
    #[serde(deserialize_with = "non_empty_list")]
    pub others: Vec<String>,
    /// Whether the two are two views of one traffic, at one place: `-p auto` then leaves these
    /// events out if the others are counted.
    #[serde(default)]
    pub yields: bool,
    /// A note for the user, one line.
    pub note: String,
}

impl OverlapRule {
    /// Whether an event of this family counts what another event counts too.
    pub fn applies(&self, event: &str, other_family: &str, other_event: &str) -> bool {
        self.family == other_family
            && matches_any_event(&self.events, event)
            && matches_any_event(&self.others, other_event)
    }
}

/// Unit of the matching events.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitRule {
    /// Event names, case-insensitive; `*` matches anything.
    #[serde(deserialize_with = "non_empty_list")]
    pub events: Vec<String>,
    /// `bytes`, `requests`, `cycles`, `request_cycles`, `ns`.
    pub unit: String,
    /// Value in `unit` of one count; positive.
    #[serde(default = "unit_factor", deserialize_with = "positive_number")]
    pub factor: f64,
    /// The unit in `stat` of the family's events with this unit, if `perf stat` uses another one.
    pub stat: Option<StatUnit>,
}

/// A unit that only `stat` uses.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatUnit {
    /// Its name.
    pub unit: String,
    /// How many of it make one of the event's own unit; positive.
    #[serde(deserialize_with = "positive_number")]
    pub factor: f64,
}

fn unit_factor() -> f64 {
    1.0
}

/// An event that some kernels do not name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedEvent {
    /// Its name, followed by alternative names.
    #[serde(deserialize_with = "non_empty_list")]
    pub names: Vec<String>,
    /// Its terms, in the format of an event file.
    #[serde(deserialize_with = "deserialize_alias")]
    pub encoding: EventAlias,
    /// `perf_event_attr.type`, if it differs from that of the PMU.
    pub attr_type: Option<u32>,
    /// Processors that have it, in the form of [`Pmu::processor`], with the patterns of names.
    /// Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
}

/// One PMU family.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// Its name.
    #[serde(deserialize_with = "deserialize_name")]
    pub family: String,
    /// Description.
    pub about: String,
    /// How the description was verified; every embedded family has it.
    pub verified: Option<Verification>,
    /// Kind of PMU, for planning.
    #[serde(default)]
    pub kind: PmuKind,
    /// PMU names: `#` is a decimal or hex number, `*` matches anything.
    #[serde(deserialize_with = "non_empty_list")]
    pub names: Vec<String>,
    /// `identifier` texts, with the same patterns. Empty: not compared.
    #[serde(default)]
    pub identifiers: Vec<String>,
    /// Group of the events that are in no list of `opens`.
    pub group: Group,
    /// The kind of memory whose traffic it sees. The group `mem` notes each kind of this machine
    /// that it does not count.
    pub memory: Option<String>,
    /// Events that count the bytes of persistent memory on the same channels. The group `mem` opens
    /// them where the firmware describes such memory.
    #[serde(default)]
    pub persistent: Vec<String>,
    /// The CPUs near it; the first matching rule counts.
    #[serde(default)]
    pub near: Vec<NearRule>,
    /// What has one register, where the driver's `cpumask` lists more CPUs; the first matching rule
    /// counts.
    #[serde(default, rename = "domain")]
    pub domains: Vec<DomainRule>,
    /// The events whose counts by task are known exactly; the first matching rule counts.
    #[serde(default)]
    pub exact: Vec<ExactRule>,
    /// The events that can be witnesses, best first: of each CPU for a core PMU, else ports.
    #[serde(default, rename = "witness")]
    pub witnesses: Vec<Witness>,
    /// Whether its events can be in one group.
    #[serde(default = "default_true")]
    pub groupable: bool,
    /// Whether opening an event sets the counts of others, which are open, to 0.
    #[serde(default)]
    pub opening_resets: bool,
    /// A family that counts the same traffic better: a group or metric opens this family only if
    /// that one has no events for it here.
    pub yields_to: Option<String>,
    /// The events that each group opens; `*` matches anything.
    #[serde(default)]
    pub opens: BTreeMap<Group, Vec<String>>,
    /// Groups whose events are opened once per source with a filter. The causes are then counted
    /// separately and need not be estimated.
    #[serde(default)]
    pub split: Vec<Group>,
    /// Units; the first matching rule counts.
    #[serde(default, rename = "unit")]
    pub units: Vec<UnitRule>,
    /// Default filters.
    #[serde(default, rename = "filter")]
    pub filters: Vec<DefaultFilter>,
    /// Fields that some kernels have no format file for.
    #[serde(default, rename = "format", deserialize_with = "deserialize_formats")]
    pub formats: BTreeMap<String, FormatField>,
    /// Events that some kernels do not name.
    #[serde(default, rename = "event")]
    pub events: Vec<NamedEvent>,
    /// Errors of sysfs; the first match counts.
    #[serde(default, rename = "correction")]
    pub corrections: Vec<Correction>,
    /// Whether the events of perf's tables are its named events too, so that patterns select them.
    #[serde(default)]
    pub imports: bool,
    /// A family whose named events it also has.
    pub events_of: Option<String>,
    /// What tables of perf put before the names of its events: `PREFIX.EVENT`.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// Terms that require another term.
    #[serde(default)]
    pub needs: Vec<NeedsRule>,
    /// Terms that exclude each other.
    #[serde(default)]
    pub excludes: Vec<ExcludesRule>,
    /// Masks: terms that select by their bits.
    #[serde(default, rename = "mask")]
    pub masks: Vec<MaskRule>,
    /// Terms that the hardware has once for all counters.
    pub one_value: Option<OneValueRule>,
    /// Requirements for the leader of a brace group.
    pub leader: Option<LeaderRule>,
    /// The hardware unit that has one PMU instance.
    pub scope: Option<PmuScope>,
    /// Its processors, in the form of [`Pmu::processor`], with the patterns of names. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
    /// Limits on the number of events.
    #[serde(default, rename = "budget")]
    pub budgets: Vec<Budget>,
    /// Causes of what it counts.
    #[serde(default, rename = "source")]
    pub sources: Vec<CauseRule>,
    /// Descriptions of its events; the first matching rule counts.
    #[serde(default, rename = "about_event")]
    pub abouts: Vec<AboutRule>,
    /// Traffic that other events also count.
    #[serde(default, rename = "overlap")]
    pub overlaps: Vec<OverlapRule>,
    /// Notes for certain events.
    #[serde(default, rename = "note")]
    pub notes: Vec<NoteRule>,
    /// How its root ports are distinguished.
    pub ports: Option<PortsRule>,
    /// The devices whose traffic it counts if it has no root ports: those of the first rule that
    /// has any.
    #[serde(default)]
    pub behind: Vec<BehindRule>,
    /// Its links, with the events that count their bytes.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkRule>,
    /// Names in formulas that are not events.
    #[serde(default, rename = "constant")]
    pub constants: Vec<Constant>,
    /// Metrics of its events.
    #[serde(default, rename = "metric")]
    pub metrics: Vec<Metric>,
    /// The user's file that it comes from.
    #[serde(skip)]
    pub outside: Option<String>,
}

pub(super) fn default_true() -> bool {
    true
}

fn deserialize_alias<'de, D: Deserializer<'de>>(from: D) -> Result<EventAlias, D::Error> {
    let alias = EventAlias::parse(&String::deserialize(from)?);
    alias.map_err(|error| D::Error::custom(format!("{error:#}")))
}

/// Terms that must all have values.
pub(super) fn deserialize_values<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<EventAlias, D::Error> {
    let alias = deserialize_alias(from)?;
    if let Some(term) = alias.asked_terms().next() {
        return Err(D::Error::custom(format!("{term} has no value, expected {term}=N")));
    }
    Ok(alias)
}

/// Optional terms that must all have values.
pub(super) fn deserialize_optional_values<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<EventAlias>, D::Error> {
    deserialize_values(from).map(Some)
}

/// A text that must not be empty.
fn deserialize_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Err(D::Error::custom("an empty name")) } else { Ok(text) }
}

/// A list that must not be empty.
pub(super) fn non_empty_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::deserialize(from)?;
    if list.is_empty() { Err(D::Error::custom("an empty list, expected a name")) } else { Ok(list) }
}

pub(super) fn positive_number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    if value > 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(D::Error::custom(format!("{value} is not a positive number")))
}

fn deserialize_formats<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, FormatField>, D::Error> {
    let texts = BTreeMap::<String, String>::deserialize(from)?;
    texts
        .into_iter()
        .map(|(name, text)| Ok((name, FormatField::from_str(&text).map_err(D::Error::custom)?)))
        .collect()
}

impl Family {
    /// Whether `pmu` belongs to this family: by name, and by identifier if both have one. A driver
    /// that is older than the hardware may give a PMU the name of its predecessor.
    pub fn recognises_pmu(&self, pmu: &Pmu) -> bool {
        matches_any(&self.names, &pmu.name)
            && self.identifiers_agree(pmu)
            && is_of(&self.processors, pmu)
    }

    /// Whether the identifiers agree, if both have one.
    pub fn identifiers_agree(&self, pmu: &Pmu) -> bool {
        let Some(identifier) = &pmu.identifier else { return true };
        self.identifiers.is_empty() || matches_any(&self.identifiers, identifier)
    }

    /// The name of an event without a prefix.
    pub fn without_prefix<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (prefix, event) = name.split_once('.')?;
        self.prefixes
            .iter()
            .any(|known_prefix| known_prefix.eq_ignore_ascii_case(prefix))
            .then_some(event)
    }

    /// Unit and factor of an event; `None` if not in the catalog.
    pub fn event_unit(&self, event: &str) -> Option<(&str, f64)> {
        let rule = self.units.iter().find(|rule| matches_any_event(&rule.events, event))?;
        Some((&rule.unit, rule.factor))
    }

    /// The unit in `stat` of events with this unit, if it is another one. The name of an event does
    /// not say it, because the user may have given it.
    pub fn stat_unit(&self, unit: &str) -> Option<&StatUnit> {
        self.units.iter().filter(|rule| rule.unit == unit).find_map(|rule| rule.stat.as_ref())
    }

    /// Description of an event; `None` if not in the catalog.
    pub fn about_event(&self, event: &str) -> Option<&str> {
        let rule = self.abouts.iter().find(|rule| matches_any_event(&rule.events, event))?;
        Some(&rule.text)
    }

    /// The metrics with this name for the processor of `pmu`: its forms, of which the first whose
    /// events exist counts. A form for any processor is not for those of an earlier form.
    pub fn metric_forms(&self, name: &str, pmu: &Pmu) -> Vec<&Metric> {
        let is_candidate = |metric: &&Metric| {
            metric.name == name
                && is_of(&metric.processors, pmu)
                && (metric.pmus.is_empty()
                    || metric.pmus.iter().any(|pmu_name| names_pmu(pmu_name, pmu)))
        };
        let mut forms: Vec<&Metric> = Vec::new();
        for metric in self.metrics.iter().filter(is_candidate) {
            let is_for_others = forms.iter().any(|form| !form.processors.is_empty());
            if !(is_for_others && metric.processors.is_empty()) {
                forms.push(metric);
            }
        }
        forms
    }

    /// Whether two PMUs of the same processor have the same metrics: some are of PMUs with certain
    /// names.
    pub fn has_same_metrics(&self, first: &Pmu, second: &Pmu) -> bool {
        let mut name_lists: Vec<&[String]> =
            self.metrics.iter().map(|metric| metric.pmus.as_slice()).collect();
        // Most metrics have the names of the one before.
        name_lists.dedup();
        let is_named =
            |names: &[String], pmu: &Pmu| names.iter().any(|pmu_name| names_pmu(pmu_name, pmu));
        name_lists.iter().all(|names| is_named(names, first) == is_named(names, second))
    }

    /// The first constant with this name for the processor of `pmu`.
    pub fn find_constant(&self, name: &str, pmu: &Pmu) -> Option<&Constant> {
        let is_wanted =
            |constant: &&Constant| constant.name == name && is_of(&constant.processors, pmu);
        self.constants.iter().find(is_wanted)
    }

    /// Whether a name in a formula is an event: neither the counted time nor a constant.
    pub fn is_event(&self, name: &str) -> bool {
        name != DURATION_NS && !self.constants.iter().any(|constant| constant.name == name)
    }

    /// The group of an event that was given by name.
    pub fn event_group(&self, event: &str) -> Group {
        let mut groups = self.opens.iter();
        let opened = groups.find(|(_, globs)| matches_any_event(globs, event));
        opened.map_or(self.group, |(group, _)| *group)
    }
}
