//! What is known of one PMU family: the vocabulary of a catalog file.
//!
//! A file that says what this does not know is refused, so that a slip of the pen is not a filter that
//! is not set.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::budget::Budget;
use super::correction::Correction;
use super::filter::DefaultFilter;
use super::group::Group;
use super::link::Link;
use super::metric::{Constant, Metric};
use super::near::NearRule;
use super::pattern::{matches, matches_event};
use super::ports::Ports;
use super::rules::{Excludes, Leader, Mask, Needs, Note, OneValue, is_of};
use super::scope::Scope;
use super::source::Source;
use super::verified::Verified;
use super::witness::Witness;
use crate::discover::Pmu;
use crate::discover::event::EventAlias;
use crate::discover::format::Format;

/// How a family's PMUs relate to CPUs and to bare event names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Read on a reader CPU, counts for many.
    #[default]
    Uncore,
    /// A core's own counters; the generic hardware names and `rNNN` mean it.
    Core,
    /// Kept by the kernel in software; may stand in a group with any other PMU.
    Software,
}

/// What the events that match count.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AboutRule {
    /// Event names, `*` for anything, whatever their case.
    #[serde(deserialize_with = "some")]
    pub events: Vec<String>,
    /// One line, for people.
    pub text: String,
}

/// Traffic that other events count too.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// These events of the family count it, `*` for anything.
    #[serde(deserialize_with = "some")]
    pub events: Vec<String>,
    /// The other family, or this one.
    pub family: String,
    /// Its events that count it.
    #[serde(deserialize_with = "some")]
    pub others: Vec<String>,
    /// What the user should know, one line.
    pub note: String,
}

/// Unit of the events that match.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitRule {
    /// Event names, `*` for anything, whatever their case.
    #[serde(deserialize_with = "some")]
    pub events: Vec<String>,
    /// `bytes`, `requests`, `cycles`, `request_cycles`, `ns`.
    pub unit: String,
    /// Value in `unit` of one count; positive.
    #[serde(default = "one", deserialize_with = "positive")]
    pub factor: f64,
    /// What `stat` prints instead of `unit`, where `perf stat` has another unit for these events.
    pub stat: Option<StatUnit>,
}

/// A unit that only `stat` uses.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatUnit {
    /// Its name.
    pub unit: String,
    /// How many of it one of the event's own unit is; positive.
    #[serde(deserialize_with = "positive")]
    pub factor: f64,
}

fn one() -> f64 {
    1.0
}

/// An event that some kernels do not name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedEvent {
    /// Its name, then other names for it.
    #[serde(deserialize_with = "some")]
    pub names: Vec<String>,
    /// Its terms, in the form of an event file.
    #[serde(deserialize_with = "alias")]
    pub encoding: EventAlias,
    /// `perf_event_attr.type`, where it is not that of the PMU.
    pub attr_type: Option<u32>,
    /// Processors that have it, as [`Pmu::processor`] has them, same patterns as names. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
}

/// One PMU family.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// Its name.
    #[serde(deserialize_with = "named")]
    pub family: String,
    /// What it is, for people.
    pub about: String,
    /// How what is said of it was verified; every embedded family has it.
    pub verified: Option<Verified>,
    /// What it is, for planning.
    #[serde(default)]
    pub kind: Kind,
    /// PMU names: `#` is a number in decimal or hex, `*` is anything.
    #[serde(deserialize_with = "some")]
    pub names: Vec<String>,
    /// `identifier` texts, same patterns. Empty: not compared.
    #[serde(default)]
    pub identifiers: Vec<String>,
    /// Group of the events that no list of `opens` has.
    pub group: Group,
    /// Which CPUs are near it; the first rule that matches counts.
    #[serde(default)]
    pub near: Vec<NearRule>,
    /// Whether counters of a CPU of its own are read whenever that CPU changes hands, and not only
    /// when that is asked for: what they count is made by who runs, and reading them is cheap.
    #[serde(default)]
    pub at_switch: bool,
    /// Of a core PMU, the events that tell whose traffic it was, the best first.
    #[serde(default, rename = "witness")]
    pub witnesses: Vec<Witness>,
    /// Whether its events can be counted in a group with each other.
    #[serde(default = "yes")]
    pub groupable: bool,
    /// A family that counts the same traffic better: groups open this one only without it.
    pub yields_to: Option<String>,
    /// The events that each group opens, `*` for anything.
    #[serde(default)]
    pub opens: BTreeMap<Group, Vec<String>>,
    /// The groups whose events are opened once for each source that has a filter, in place of once
    /// for all: who causes what is then counted, and need not be guessed.
    #[serde(default)]
    pub split: Vec<Group>,
    /// Units; the first rule that matches counts.
    #[serde(default, rename = "unit")]
    pub units: Vec<UnitRule>,
    /// Filters set by default.
    #[serde(default, rename = "filter")]
    pub filters: Vec<DefaultFilter>,
    /// Fields that some kernels have no format file for.
    #[serde(default, rename = "format", deserialize_with = "formats")]
    pub formats: BTreeMap<String, Format>,
    /// Events that some kernels do not name.
    #[serde(default, rename = "event")]
    pub events: Vec<NamedEvent>,
    /// What sysfs says wrong of events; the first that matches counts.
    #[serde(default, rename = "correction")]
    pub corrections: Vec<Correction>,
    /// A family whose named events it has too.
    pub events_of: Option<String>,
    /// Terms that need another.
    #[serde(default)]
    pub needs: Vec<Needs>,
    /// Terms that exclude each other.
    #[serde(default)]
    pub excludes: Vec<Excludes>,
    /// Terms that select by their bits.
    #[serde(default, rename = "mask")]
    pub masks: Vec<Mask>,
    /// Terms that the hardware has once for all counters.
    pub one_value: Option<OneValue>,
    /// What the leader of a brace group must be.
    pub leader: Option<Leader>,
    /// What there is an instance for.
    pub scope: Option<Scope>,
    /// Processors it is of, as [`Pmu::processor`] has them, same patterns as names. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
    /// How many events it counts at once.
    #[serde(default, rename = "budget")]
    pub budgets: Vec<Budget>,
    /// Who causes what it counts.
    #[serde(default, rename = "source")]
    pub sources: Vec<Source>,
    /// What its events count; the first rule that matches counts.
    #[serde(default, rename = "about_event")]
    pub abouts: Vec<AboutRule>,
    /// Traffic that other events count too.
    #[serde(default, rename = "overlap")]
    pub overlaps: Vec<Overlap>,
    /// What the user must know when certain events are counted.
    #[serde(default, rename = "note")]
    pub notes: Vec<Note>,
    /// How its root ports are told apart.
    pub ports: Option<Ports>,
    /// What shares one limit, and the events that count the bytes over it.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    /// Names of formulas that are no events.
    #[serde(default, rename = "constant")]
    pub constants: Vec<Constant>,
    /// What is computed from its events.
    #[serde(default, rename = "metric")]
    pub metrics: Vec<Metric>,
    /// The file outside the program that it is from.
    #[serde(skip)]
    pub outside: Option<String>,
}

pub(super) fn yes() -> bool {
    true
}

fn alias<'de, D: Deserializer<'de>>(from: D) -> Result<EventAlias, D::Error> {
    let alias = EventAlias::parse(&String::deserialize(from)?);
    alias.map_err(|error| D::Error::custom(format!("{error:#}")))
}

/// Terms that all have a value.
pub(super) fn values<'de, D: Deserializer<'de>>(from: D) -> Result<EventAlias, D::Error> {
    let alias = alias(from)?;
    if let Some(term) = alias.asked().next() {
        return Err(D::Error::custom(format!("{term} has no value, expected {term}=N")));
    }
    Ok(alias)
}

/// Terms that all have a value, where there are any.
pub(super) fn optional_values<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<EventAlias>, D::Error> {
    values(from).map(Some)
}

/// A text that is not empty.
fn named<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Err(D::Error::custom("an empty name")) } else { Ok(text) }
}

/// A list that is not empty.
pub(super) fn some<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::deserialize(from)?;
    if list.is_empty() { Err(D::Error::custom("an empty list, expected a name")) } else { Ok(list) }
}

pub(super) fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    if value > 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(D::Error::custom(format!("{value} is not a positive number")))
}

fn formats<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Format>, D::Error> {
    let texts = BTreeMap::<String, String>::deserialize(from)?;
    texts
        .into_iter()
        .map(|(name, text)| Ok((name, Format::from_str(&text).map_err(D::Error::custom)?)))
        .collect()
}

impl Family {
    /// Whether `pmu` is of this family: by name, and by identifier where both have one. A driver
    /// that is older than the hardware can give a PMU the name of its predecessor.
    pub fn recognises(&self, pmu: &Pmu) -> bool {
        self.names.iter().any(|pattern| matches(pattern, &pmu.name))
            && self.identifies(pmu)
            && is_of(&self.processors, pmu)
    }

    /// Whether the identifiers, where both have one, agree.
    pub fn identifies(&self, pmu: &Pmu) -> bool {
        let Some(identifier) = &pmu.identifier else { return true };
        self.identifiers.is_empty()
            || self.identifiers.iter().any(|pattern| matches(pattern, identifier))
    }

    /// Unit and factor of an event; `None` where the catalog does not know.
    pub fn unit(&self, event: &str) -> Option<(&str, f64)> {
        self.unit_rule(event).map(|rule| (rule.unit.as_str(), rule.factor))
    }

    /// The unit in which `stat` prints an event, where it is not the event's own.
    pub fn stat_unit(&self, event: &str) -> Option<&StatUnit> {
        self.unit_rule(event)?.stat.as_ref()
    }

    fn unit_rule(&self, event: &str) -> Option<&UnitRule> {
        self.units.iter().find(|rule| rule.events.iter().any(|glob| matches_event(glob, event)))
    }

    /// What an event counts; `None` where the catalog does not say.
    pub fn about_event(&self, event: &str) -> Option<&str> {
        let of = |rule: &&AboutRule| rule.events.iter().any(|glob| matches_event(glob, event));
        self.abouts.iter().find(of).map(|rule| rule.text.as_str())
    }

    /// The metric of this name that is for the processor of `pmu`: the first that is.
    pub fn metric(&self, name: &str, pmu: &Pmu) -> Option<&Metric> {
        let its = |metric: &&Metric| metric.name == name && is_of(&metric.processors, pmu);
        self.metrics.iter().find(its)
    }

    /// The constant of this name that is for the processor of `pmu`: the first that is.
    pub fn constant(&self, name: &str, pmu: &Pmu) -> Option<&Constant> {
        let its = |constant: &&Constant| constant.name == name && is_of(&constant.processors, pmu);
        self.constants.iter().find(its)
    }

    /// The group an event belongs to when it was asked for by name.
    pub fn group_of(&self, event: &str) -> Group {
        let of = |globs: &[String]| globs.iter().any(|glob| matches_event(glob, event));
        self.opens.iter().find(|(_, globs)| of(globs)).map_or(self.group, |(group, _)| *group)
    }
}
