//! What keeps the uncore counters of a machine from being counted although a driver is there: a
//! kernel that is older than the processor, and PMUs of which no event is known.
//!
//! Planning and `doctor` say it in the same words.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Catalog;
use super::family::{Family, PmuKind};
use super::group::Group;
use super::pattern::{matches, matches_any};
use super::pmu_words::PmuWords;
use crate::discover::release::KernelVersion;
use crate::discover::{Machine, Pmu, name};
use crate::text::{list_few, printable};

/// Which kernel's driver knows which processor.
const TEXT: &str = include_str!("../../catalog/kernel/processors.toml");

/// The table; a test parses it.
static RULES: LazyLock<Vec<KernelRule>> = LazyLock::new(|| {
    toml::from_str(TEXT).map(|rules: KernelRules| rules.kernel).unwrap_or_default()
});

/// A PMU that Intel's driver found in a processor that it does not know
/// (`uncore_get_pmu_name`, arch/x86/events/intel/uncore.c, Linux 7.2).
const NAMELESS: [&str; 2] = ["uncore_type_#", "uncore_type_#_#"];

/// Names of PMUs in a text before the rest is given as a number.
const FEW: usize = 2;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelRules {
    kernel: Vec<KernelRule>,
}

/// The first kernel whose driver knows a processor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelRule {
    /// The kernel module.
    driver: String,
    /// The processor's name.
    processor: String,
    /// Patterns of [`Pmu::processor`].
    processors: Vec<String>,
    /// What the driver does not know.
    #[serde(default = "default_units")]
    units: String,
    /// Patterns of the PMUs that a driver shows if it knows them.
    pmus: Vec<String>,
    /// Patterns of the families of these PMUs.
    families: Vec<String>,
    since: KernelVersion,
    /// Whether only PMUs without a name show that something is missing: not every such processor
    /// has the units.
    #[serde(default)]
    only_nameless: bool,
    /// Events of PMUs without a name that count the most useful part.
    #[serde(default)]
    instead: Vec<String>,
    /// What these count.
    #[serde(default)]
    about_instead: String,
}

fn default_units() -> String {
    "uncore counters".to_owned()
}

/// Something that keeps uncore counters from being counted, and the ways out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterGap {
    /// What is missing, as one printable line.
    pub missing: String,
    /// The driver that does not know it; `None` if no kernel would help.
    pub driver: Option<String>,
    /// The first kernel that knows it.
    pub since: Option<KernelVersion>,
    /// Whether the driver knows nothing of this processor, so that loading it shows nothing.
    pub is_whole: bool,
    /// Events that can be counted all the same, as they are typed after `-e`.
    pub events: Vec<String>,
    /// What these events are.
    pub about_events: String,
    /// The PMUs that are here without a name or without events.
    pub pmus: Vec<String>,
    /// The groups that such PMUs are in.
    pub groups: Vec<Group>,
    /// Patterns of the PMUs that a driver that knows them shows.
    absent: Vec<String>,
}

impl CounterGap {
    /// One line: what is missing, and what can be counted all the same.
    pub fn describe_gap(&self) -> String {
        match self.event_options() {
            Some(options) => format!("{}; {options} {}", self.missing, self.about_events),
            None => self.missing.clone(),
        }
    }

    /// Whether a PMU that was typed is one that is missing here.
    pub fn lacks_pmu(&self, typed: &str) -> bool {
        let bare = |text: &str| text.strip_prefix("uncore_").unwrap_or(text).to_owned();
        let typed = bare(typed);
        self.absent.iter().any(|pattern| {
            typed
                .strip_prefix(&bare(pattern.trim_end_matches(['#', '*', '_'])))
                .is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('_'))
        })
    }

    /// The options that count it all the same.
    pub fn event_options(&self) -> Option<String> {
        let typed: Vec<_> = self.events.iter().map(|event| format!("-e {event}")).collect();
        (!typed.is_empty()).then(|| typed.join(" "))
    }
}

/// What of `gaps` keeps a group from being counted, in one line; `None` if nothing is known.
pub fn gap_reason(gaps: &[CounterGap], group: Group) -> Option<String> {
    // The kernel first: PMUs without events are often a part of what it does not know.
    let mut group_gaps: Vec<_> = gaps.iter().filter(|gap| gap.groups.contains(&group)).collect();
    group_gaps.sort_by_key(|gap| gap.driver.is_none());
    group_gaps.first().map(|gap| gap.describe_gap())
}

/// What keeps uncore counters of this machine from being counted.
pub fn gaps(machine: &Machine, catalog: &Catalog) -> Vec<CounterGap> {
    let nameless: Vec<&Pmu> = machine.pmus.iter().filter(|pmu| is_nameless(&pmu.name)).collect();
    let mut gaps = Vec::new();
    let own_rules = RULES.iter().filter(|rule| rule.applies_to_machine(machine));
    let mut found_gaps = own_rules.filter_map(|rule| rule.find_gap(machine, catalog, &nameless));
    // The first says the most: a kernel that does not know the processor knows none of its units.
    gaps.extend(found_gaps.next());
    let is_named = |pmu: &Pmu| pmu.name.starts_with("uncore_") && !is_nameless(&pmu.name);
    if gaps.is_empty() && !nameless.is_empty() && !machine.pmus.iter().any(is_named) {
        gaps.push(unknown_processor_gap(machine, catalog, &nameless));
    }
    gaps.extend(gaps_without_events(machine, catalog));
    gaps
}

fn is_nameless(name: &str) -> bool {
    NAMELESS.iter().any(|pattern| matches(pattern, name))
}

impl KernelRule {
    /// Whether it is of this machine's processor.
    fn applies_to_machine(&self, machine: &Machine) -> bool {
        let generation = machine.generation_name();
        generation.is_some_and(|generation| matches_any(&self.processors, &generation))
    }

    /// What the machine's kernel lacks by this rule.
    fn find_gap(
        &self,
        machine: &Machine,
        catalog: &Catalog,
        nameless: &[&Pmu],
    ) -> Option<CounterGap> {
        if machine.pmus.iter().any(|pmu| matches_any(&self.pmus, &pmu.name)) {
            return None;
        }
        let is_virtual = machine.processor.as_ref().is_some_and(|processor| processor.hypervisor);
        let release = machine.kernel.as_deref();
        let older =
            release.and_then(KernelVersion::parse).is_some_and(|version| version < self.since);
        let by_name = !nameless.is_empty() && self.driver == "intel_uncore";
        let is_lacking = if self.only_nameless { by_name && older } else { by_name || older };
        if !is_lacking || (is_virtual && !by_name) {
            return None;
        }
        // The first type is the slices of the last-level cache: without their name, it is not only
        // these units that the driver does not know.
        let is_first = |pmu: &&Pmu| name::selects_pmu("uncore_type_0", &pmu.name);
        if self.only_nameless && nameless.iter().any(is_first) {
            return None;
        }
        let mut missing = format!(
            "{} of this kernel ({}) does not know the {} of this processor ({}), {}that of Linux \
             {} and later does",
            self.driver,
            printable(release.unwrap_or("of unknown version")),
            self.units,
            self.processor,
            if older { "" } else { "although " },
            self.since
        );
        let is_listed = |family: &&Family| matches_any(&self.families, &family.family);
        let families = || catalog.families.iter().filter(is_listed);
        let (mut events, mut about) = (Vec::new(), String::new());
        if by_name {
            missing.push_str("; they are here without names, as ");
            missing.push_str(&few_of(nameless));
            (events, about) = self.by_number(nameless);
        }
        Some(CounterGap {
            missing,
            driver: Some(self.driver.clone()),
            since: Some(self.since),
            is_whole: self.units == default_units(),
            events,
            about_events: about,
            pmus: pmu_names(if by_name { nameless } else { &[] }),
            groups: family_groups(families()),
            absent: families()
                .flat_map(|listed| listed.names.clone())
                .chain(self.pmus.clone())
                .collect(),
        })
    }

    /// The events that count PMUs without a name, and what they are.
    fn by_number(&self, nameless: &[&Pmu]) -> (Vec<String>, String) {
        let has_pmu = |event: &String| {
            let stem = event.split('/').next().unwrap_or_default();
            nameless.iter().any(|pmu| name::selects_pmu(stem, &pmu.name))
        };
        if self.instead.is_empty() || !self.instead.iter().all(has_pmu) {
            return by_encoding(nameless);
        }
        let verb = if self.instead.len() == 1 { "counts" } else { "count" };
        (self.instead.clone(), format!("{verb} {}", self.about_instead))
    }
}

/// PMUs without names on a processor that is not in the table.
fn unknown_processor_gap(machine: &Machine, catalog: &Catalog, nameless: &[&Pmu]) -> CounterGap {
    let (events, about_events) = by_encoding(nameless);
    CounterGap {
        missing: format!(
            "intel_uncore of this kernel ({}) does not know all uncore counters of this \
             processor: some are here without names, as {}",
            printable(machine.kernel.as_deref().unwrap_or("of unknown version")),
            few_of(nameless)
        ),
        driver: Some("intel_uncore".to_owned()),
        events,
        about_events,
        pmus: pmu_names(nameless),
        groups: family_groups(
            catalog.families.iter().filter(|family| family.family.starts_with("intel_")),
        ),
        ..CounterGap::default()
    }
}

/// PMUs of known families, of which neither the kernel nor the catalog names an event. One gap for
/// each family.
fn gaps_without_events(machine: &Machine, catalog: &Catalog) -> Vec<CounterGap> {
    let mut gaps = Vec::new();
    let is_silent = |words: &PmuWords<'_>| {
        words.is_kind(PmuKind::Uncore)
            && words.pmu.statistics.is_none()
            && words.all_events().next().is_none()
            && words.vendor_events().next().is_none()
    };
    let words = machine.pmus.iter().map(|pmu| PmuWords::new(catalog, pmu));
    let all_silent: Vec<_> = words.filter(is_silent).collect();
    for family in &catalog.families {
        let is_of_family =
            |words: &&PmuWords<'_>| words.family.is_some_and(|known| std::ptr::eq(known, family));
        let silent: Vec<&Pmu> =
            all_silent.iter().filter(is_of_family).map(|words| words.pmu).collect();
        if silent.is_empty() {
            continue;
        }
        let (events, about_events) = by_encoding(&silent);
        gaps.push(CounterGap {
            missing: format!(
                "{} ({}) is here, but neither this kernel nor this program names events of it on \
                 this processor",
                few_of(&silent),
                family.about
            ),
            events,
            about_events,
            pmus: pmu_names(&silent),
            // Of other processors it may have families of its own.
            groups: family_groups(
                catalog.families.iter().filter(|candidate| candidate.names == family.names),
            ),
            ..CounterGap::default()
        });
    }
    gaps
}

/// How an event of the first PMU is typed by its encoding.
fn by_encoding(pmus: &[&Pmu]) -> (Vec<String>, String) {
    let Some(pmu) = pmus.first() else { return (Vec::new(), String::new()) };
    let terms = ["event", "umask"].iter().filter(|term| pmu.formats.contains_key(**term));
    let terms: Vec<_> = terms.map(|term| format!("{term}=0xNN")).collect();
    let event = format!("{}/{}/", printable(&pmu.name), terms.join(","));
    (vec![event], "counts an event by its encoding in the vendor's documents".to_owned())
}

/// The groups of these families.
fn family_groups<'a, I: Iterator<Item = &'a Family>>(families: I) -> Vec<Group> {
    let mut groups: Vec<Group> =
        families.flat_map(|family| family.opens.keys().copied().chain([family.group])).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn pmu_names(pmus: &[&Pmu]) -> Vec<String> {
    pmus.iter().map(|pmu| pmu.name.clone()).collect()
}

fn few_of(pmus: &[&Pmu]) -> String {
    list_few(pmus.iter().map(|pmu| &pmu.name), FEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_kernel_rules_is_consistent() {
        let catalog = Catalog::load_embedded().unwrap();
        let rules: KernelRules = toml::from_str(TEXT).unwrap();
        for rule in &rules.kernel {
            let known =
                |pattern: &String| catalog.families.iter().any(|f| matches(pattern, &f.family));
            assert!(rule.families.iter().all(known), "{rule:?}");
            assert_eq!(rule.families.is_empty(), rule.only_nameless, "{rule:?}");
            assert_eq!(rule.instead.is_empty(), rule.about_instead.is_empty(), "{rule:?}");
            assert!(rule.since > KernelVersion(5, 10), "{rule:?}");
        }
    }

    #[test]
    fn a_processor_that_its_kernel_knows_has_no_gap() {
        let catalog = Catalog::load_embedded().unwrap();
        for name in ["granite-rapids-2s", "sapphire-rapids-2s", "zen4-2s", "zen5-2s", "grace-2s"] {
            let mut kernel_gaps = gaps(&crate::discover::captured_machine(name), &catalog);
            // A PMU whose events nobody names is no fault of the kernel.
            kernel_gaps.retain(|gap| gap.driver.is_some());
            assert_eq!(kernel_gaps, [], "{name}");
        }
    }
}
