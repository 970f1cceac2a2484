//! The catalog: what is known of each PMU family beyond what sysfs says.
//!
//! One TOML file per family in `catalog/`, embedded. A new family is one file and one line in
//! [`FILES`], or a file that [`Catalog::overlay`] lays over them. Names and encodings that sysfs has
//! always win over those here.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::budget::Budget;
use super::metric::{Constant, Metric};
use super::ports::Ports;
use super::source::Source;
use crate::discover::Pmu;
use crate::discover::event::EventAlias;
use crate::discover::format::Format;

/// The embedded families, in the order of listings.
const FILES: &[&str] = &[
    include_str!("../../catalog/nvidia_scf.toml"),
    include_str!("../../catalog/nvidia_pcie.toml"),
    include_str!("../../catalog/nvidia_nvlink_c2c0.toml"),
    include_str!("../../catalog/nvidia_nvlink_c2c1.toml"),
    include_str!("../../catalog/nvidia_cnvlink.toml"),
    include_str!("../../catalog/nvidia_ucf.toml"),
    include_str!("../../catalog/nvidia_pcie_rc.toml"),
    include_str!("../../catalog/nvidia_pcie_tgt.toml"),
    include_str!("../../catalog/nvidia_cmem_latency.toml"),
    include_str!("../../catalog/nvidia_nvlink_c2c.toml"),
    include_str!("../../catalog/nvidia_nvclink.toml"),
    include_str!("../../catalog/nvidia_nvdlink.toml"),
    include_str!("../../catalog/dwc_rootport.toml"),
    include_str!("../../catalog/pcie_bdf.toml"),
    include_str!("../../catalog/arm_cmn.toml"),
    include_str!("../../catalog/ali_drw.toml"),
    include_str!("../../catalog/intel_imc.toml"),
    include_str!("../../catalog/intel_imc_free_running.toml"),
    include_str!("../../catalog/intel_iio.toml"),
    include_str!("../../catalog/intel_iio_free_running.toml"),
    include_str!("../../catalog/intel_cha.toml"),
    include_str!("../../catalog/intel_upi.toml"),
    include_str!("../../catalog/amd_umc.toml"),
    include_str!("../../catalog/amd_df_zen4.toml"),
    include_str!("../../catalog/amd_df_zen5.toml"),
    include_str!("../../catalog/amd_df.toml"),
    include_str!("../../catalog/arm_core.toml"),
    include_str!("../../catalog/core.toml"),
    include_str!("../../catalog/msr.toml"),
    include_str!("../../catalog/software.toml"),
];

/// What a user asks for with `-p`: one vocabulary over all vendors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Memory traffic.
    Mem,
    /// Last-level and system caches.
    Cache,
    /// Traffic of PCIe devices.
    Pcie,
    /// Links between chips and sockets.
    C2c,
    /// The on-chip network.
    Mesh,
    /// Requests in flight, for latencies.
    Latency,
    /// Core PMUs.
    Core,
    /// Kernel counters, there on every machine.
    Host,
}

impl Group {
    /// Every group with its name.
    pub const ALL: [(Self, &str); 8] = [
        (Self::Mem, "mem"),
        (Self::Cache, "cache"),
        (Self::Pcie, "pcie"),
        (Self::C2c, "c2c"),
        (Self::Mesh, "mesh"),
        (Self::Latency, "latency"),
        (Self::Core, "core"),
        (Self::Host, "host"),
    ];

    /// The group of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(group, _)| *group)
    }

    /// Its name, as typed after `-p`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(group, _)| *group == self).map_or("", |(_, name)| *name)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a family's PMUs relate to CPUs and to bare event names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Read on an owner CPU, counts for many.
    #[default]
    Uncore,
    /// A core's own counters; the generic hardware names and `rNNN` mean it.
    Core,
    /// Kept by the kernel in software; may stand in a group with any other PMU.
    Software,
}

/// The CPUs whose traffic a PMU counts, where the driver does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sees {
    /// The owner's package.
    Socket,
    /// The owner's NUMA node.
    Node,
    /// Every CPU.
    All,
}

/// What there is one instance of a PMU for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// A processor package.
    Socket,
    /// A PCIe root complex.
    #[serde(rename = "root complex")]
    RootComplex,
    /// A PCIe root port.
    #[serde(rename = "root port")]
    RootPort,
    /// A mesh: a die.
    Mesh,
    /// A NUMA node.
    Node,
    /// A memory channel, or a part of one.
    Channel,
    /// A slice of the last-level cache.
    Slice,
    /// A link between sockets.
    Link,
    /// A CPU.
    Cpu,
}

impl Scope {
    /// Its name, as catalog files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::RootComplex => "root complex",
            Self::RootPort => "root port",
            Self::Mesh => "mesh",
            Self::Node => "node",
            Self::Channel => "channel",
            Self::Slice => "slice",
            Self::Link => "link",
            Self::Cpu => "cpu",
        }
    }
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
pub struct Twice {
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
}

fn one() -> f64 {
    1.0
}

/// A filter that is set where the user sets none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultFilter {
    /// What is set: all of it or, once one of these terms is given, none of it.
    #[serde(deserialize_with = "values")]
    pub terms: EventAlias,
    /// The events it is for, `*` for anything; empty: all.
    #[serde(default)]
    pub events: Vec<String>,
    /// Other terms that keep it from being set.
    #[serde(default)]
    pub unless: Vec<String>,
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
}

/// A term that counts nothing without another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// The term.
    pub term: String,
    /// What it needs.
    pub with: String,
}

/// Two terms of which only one may be given.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excludes {
    /// One.
    pub term: String,
    /// The other.
    pub other: String,
}

/// Terms in which all counters of a PMU must agree.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneValue {
    /// The terms.
    pub terms: Vec<String>,
    /// Events that have none of them, `*` for anything.
    #[serde(default)]
    pub except: Vec<String>,
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
    /// Whose traffic it counts, where the driver does not say.
    pub sees: Option<Sees>,
    /// Whether counters of a CPU of its own are read whenever that CPU changes hands, and not only
    /// when that is asked for: what they count is made by who runs, and reading them is cheap.
    #[serde(default)]
    pub at_switch: bool,
    /// Whether its events can be counted in a group with each other.
    #[serde(default = "yes")]
    pub groupable: bool,
    /// A family that counts the same traffic better: groups open this one only without it.
    pub yields_to: Option<String>,
    /// The events that each group opens, `*` for anything.
    #[serde(default)]
    pub opens: BTreeMap<Group, Vec<String>>,
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
    /// A family whose named events it has too.
    pub events_of: Option<String>,
    /// Terms that need another.
    #[serde(default)]
    pub needs: Vec<Needs>,
    /// Terms that exclude each other.
    #[serde(default)]
    pub excludes: Vec<Excludes>,
    /// Terms that the hardware has once for all counters.
    pub one_value: Option<OneValue>,
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
    #[serde(default, rename = "twice")]
    pub twices: Vec<Twice>,
    /// How its root ports are told apart.
    pub ports: Option<Ports>,
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

fn yes() -> bool {
    true
}

fn alias<'de, D: Deserializer<'de>>(from: D) -> Result<EventAlias, D::Error> {
    let alias = EventAlias::parse(&String::deserialize(from)?);
    alias.map_err(|error| D::Error::custom(format!("{error:#}")))
}

/// Terms that all have a value.
fn values<'de, D: Deserializer<'de>>(from: D) -> Result<EventAlias, D::Error> {
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
fn some<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::deserialize(from)?;
    if list.is_empty() { Err(D::Error::custom("an empty list, expected a name")) } else { Ok(list) }
}

fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
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
            && self.is_of(pmu)
    }

    fn is_of(&self, pmu: &Pmu) -> bool {
        let of = |processor: &String| self.processors.iter().any(|one| matches(one, processor));
        self.processors.is_empty() || pmu.processor.as_ref().is_some_and(of)
    }

    fn identifies(&self, pmu: &Pmu) -> bool {
        let Some(identifier) = &pmu.identifier else { return true };
        self.identifiers.is_empty()
            || self.identifiers.iter().any(|pattern| matches(pattern, identifier))
    }

    /// Unit and factor of an event; `None` where the catalog does not know.
    pub fn unit(&self, event: &str) -> Option<(&str, f64)> {
        let rule =
            self.units.iter().find(|rule| rule.events.iter().any(|g| matches_event(g, event)));
        rule.map(|rule| (rule.unit.as_str(), rule.factor))
    }

    /// What an event counts; `None` where the catalog does not say.
    pub fn about_event(&self, event: &str) -> Option<&str> {
        let of = |rule: &&AboutRule| rule.events.iter().any(|glob| matches_event(glob, event));
        self.abouts.iter().find(of).map(|rule| rule.text.as_str())
    }

    /// The group an event belongs to when it was asked for by name.
    pub fn group_of(&self, event: &str) -> Group {
        let of = |globs: &[String]| globs.iter().any(|glob| matches_event(glob, event));
        self.opens.iter().find(|(_, globs)| of(globs)).map_or(self.group, |(group, _)| *group)
    }
}

/// Whether an event name fits a pattern, whatever the case of either.
pub fn matches_event(pattern: &str, event: &str) -> bool {
    matches(&pattern.to_ascii_lowercase(), &event.to_ascii_lowercase())
}

/// `#` is one or more hex digits, `*` is anything, all else is itself.
fn matches(pattern: &str, text: &str) -> bool {
    let Some(at) = pattern.find(['#', '*']) else { return pattern == text };
    let Some(rest) = text.strip_prefix(&pattern[..at]) else { return false };
    let after = &pattern[at + 1..];
    let hash = pattern.as_bytes()[at] == b'#';
    let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    let longest = if hash { digits } else { rest.len() };
    (usize::from(hash)..=longest)
        .any(|len| rest.get(len..).is_some_and(|rest| matches(after, rest)))
}

/// All families.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// In the order of [`FILES`], those from outside that replace none of them first.
    pub families: Vec<Family>,
    /// The files that families were read from and that are not embedded.
    pub outside: Vec<String>,
}

impl Catalog {
    /// The catalog this program carries.
    pub fn embedded() -> Result<Self> {
        let families = FILES.iter().map(|text| {
            let first = || text.lines().find(|line| line.starts_with("family")).unwrap_or("?");
            toml::from_str(text).with_context(|| format!("the embedded catalog, {}", first()))
        });
        Ok(Self { families: families.collect::<Result<_>>()?, outside: Vec::new() })
    }

    /// The family of a PMU, if it is a known one.
    pub fn family(&self, pmu: &Pmu) -> Option<&Family> {
        self.families.iter().find(|family| family.recognises(pmu))
    }

    /// The family whose name `pmu` bears while its identifier is another's: events by name could
    /// mean something else on it.
    pub fn impostor(&self, pmu: &Pmu) -> Option<&Family> {
        let named = |family: &&Family| family.names.iter().any(|name| matches(name, &pmu.name));
        let named = self.families.iter().find(named).filter(|_| self.family(pmu).is_none());
        named.filter(|family| !family.identifies(pmu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_sound() {
        let catalog = Catalog::embedded().unwrap();
        assert_eq!(catalog.families.len(), std::fs::read_dir("catalog").unwrap().count());
        let mut names = std::collections::BTreeSet::new();
        for family in &catalog.families {
            assert!(names.insert(&family.family), "{} is there twice", family.family);
            assert!(family.kind != Kind::Core || family.at_switch, "{}", family.family);
            for other in family.yields_to.iter().chain(&family.events_of) {
                assert!(catalog.families.iter().any(|f| f.family == *other), "{other}");
            }
        }
    }

    #[test]
    fn patterns_tell_families_apart() {
        for (pattern, text, is) in [
            ("nvidia_pcie_pmu_#", "nvidia_pcie_pmu_12", true),
            ("nvidia_pcie_pmu_#", "nvidia_pcie_pmu_0_rc_4", false),
            ("nvidia_pcie_pmu_#_rc_#", "nvidia_pcie_pmu_0_rc_4", true),
            ("nvidia_pcie_pmu_#", "nvidia_pcie_pmu_", false),
            ("pcie_bdf_#", "pcie_bdf_980000", true),
            ("armv*", "armv8_pmuv3_0", true),
            ("2cf00*", "2cf0036b", true),
            ("2cf00*", "2cf2036b", false),
            ("uncore_imc_#", "uncore_imc_free_running_0", false),
            ("a#", "aé", false),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }
}
