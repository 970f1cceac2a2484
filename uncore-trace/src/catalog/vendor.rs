//! Events and metrics by the names that Intel gives them, as `cargo xtask import perfmon` made
//! them.
//!
//! They are of a PMU and a processor, whatever the family. Names in sysfs and in the catalog's own
//! files win over them, and nothing that a name does not ask for is opened by them: patterns do not
//! match them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, OnceLock};

use anyhow::{Context, Result};

use super::family::{Family, NamedEvent};
use super::metric::{Across, Metric};
use super::pattern::matches;
use crate::discover::event::EventAlias;
use crate::discover::{Pmu, name};

/// The imported events.
static TEXT: &str = include_str!("../../catalog/intel/events.txt");

/// The imported metrics.
static METRICS: &str = include_str!("../../catalog/intel/metrics.txt");

/// The events of one kind of PMU on one processor; the lines are parsed when they are first needed.
#[derive(Default)]
struct Events {
    lines: Vec<&'static str>,
    parsed: OnceLock<Vec<NamedEvent>>,
}

/// Events by PMU without its index, then by processor in small letters.
static EVENTS: LazyLock<HashMap<&'static str, HashMap<&'static str, Events>>> =
    LazyLock::new(|| {
        let mut events = HashMap::<_, HashMap<_, Events>>::new();
        for section in sections(TEXT) {
            for pmu in section.pmus.split(' ') {
                for processor in section.processors.split(' ') {
                    let of = events.entry(pmu).or_default().entry(processor).or_default();
                    of.lines.extend(&section.lines);
                }
            }
        }
        events
    });

/// The events of one kind of PMU on some processors.
struct Section {
    processors: &'static str,
    pmus: &'static str,
    lines: Vec<&'static str>,
}

fn sections(text: &'static str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let header = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        if let Some((processors, pmus)) = header.and_then(|header| header.split_once(": ")) {
            sections.push(Section { processors, pmus, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        }
    }
    sections
}

/// Reads `NAME TERMS`.
fn event(line: &str) -> Option<NamedEvent> {
    let (name, terms) = line.split_once(' ')?;
    let encoding = EventAlias::parse(terms).ok()?;
    Some(NamedEvent {
        names: vec![name.to_owned()],
        encoding,
        attr_type: None,
        processors: Vec::new(),
    })
}

/// The events of a PMU; none for one that is not of an imported processor.
pub(super) fn events(pmu: &Pmu) -> &'static [NamedEvent] {
    let Some(processor) = pmu.processor.as_ref().filter(|of| of.starts_with("GenuineIntel")) else {
        return &[];
    };
    let of = EVENTS.get(name::stem(&pmu.name));
    of.and_then(|of| of.get(processor.to_ascii_lowercase().as_str())).map_or(&[], Events::parsed)
}

impl Events {
    fn parsed(&self) -> &[NamedEvent] {
        self.parsed.get_or_init(|| self.lines.iter().filter_map(|line| event(line)).collect())
    }
}

/// Adds the imported metrics to the families of their PMUs, after the families' own.
///
/// # Errors
///
/// A line is not `NAME UNIT ACROSS FORMULA`, or no family has the PMU.
pub(super) fn add_metrics(families: &mut [Family]) -> Result<()> {
    for section in sections(METRICS) {
        let pmu = format!("{}_0", section.pmus);
        let processors: Vec<String> = section.processors.split(' ').map(spelled).collect();
        let is_its = |family: &&mut Family| {
            family.names.iter().any(|name| matches(name, &pmu))
                && (family.processors.is_empty()
                    || family.processors.iter().any(|its| processors.contains(its)))
        };
        let family = families.iter_mut().find(is_its);
        let family = family.with_context(|| format!("Intel's metrics: no family has {pmu}"))?;
        for line in section.lines {
            let metric = metric(family, line, &processors);
            family.metrics.push(metric.with_context(|| format!("Intel's metric {line}"))?);
        }
    }
    Ok(())
}

/// A processor as [`Pmu::processor`] spells it.
fn spelled(processor: &str) -> String {
    processor.replacen("genuineintel", "GenuineIntel", 1)
}

/// Reads `NAME UNIT ACROSS FORMULA`. Intel's formulas are made of counts, those of the catalog of
/// values in the events' units.
fn metric(family: &Family, line: &str, processors: &[String]) -> Result<Metric> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().context("a word is missing");
    let (name, unit, across, formula) = (word()?, word()?, word()?, word()?);
    let own_name = |word| {
        let named = family.events.iter().find(|event| event.names.iter().any(|name| name == word));
        named.map_or(word, |event| event.names[0].as_str())
    };
    let in_units = formula.split(' ').map(|word| match family.unit(own_name(word)) {
        Some((_, factor)) if factor.to_bits() != 1_f64.to_bits() => {
            format!("( {word} / {factor} )")
        }
        _ => word.to_owned(),
    });
    Ok(Metric {
        name: name.to_owned(),
        about: "a metric of Intel's tables for perf".to_owned(),
        unit: unit.to_owned(),
        formula: in_units.collect::<Vec<_>>().join(" ").parse()?,
        across: if across == "sum" { Across::Sum } else { Across::Pool },
        inputs: BTreeMap::new(),
        processors: processors.to_vec(),
        only_with: None,
        vendor: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::metric::DURATION_NS;

    #[test]
    fn every_metric_is_of_imported_events() {
        let catalog = Catalog::embedded().unwrap();
        let mut count = 0;
        for family in &catalog.families {
            for metric in family.metrics.iter().filter(|metric| metric.vendor) {
                for processor in &metric.processors {
                    let pmu = family.names[0].trim_end_matches("_#");
                    let events = EVENTS[pmu][processor.to_ascii_lowercase().as_str()].parsed();
                    for name in metric.formula.names() {
                        let known = events.iter().any(|event| event.names[0] == name);
                        assert!(
                            known || name == DURATION_NS,
                            "{processor} {}: {name}",
                            metric.name
                        );
                    }
                    count += 1;
                }
            }
        }
        assert!(count > 200, "{count}");
    }

    #[test]
    fn every_line_is_an_event() {
        let sections = sections(TEXT);
        for line in sections.iter().flat_map(|section| &section.lines) {
            assert!(event(line).is_some(), "{line}");
        }
        let events = |pmu: &str, processor: &str| EVENTS[pmu][processor].parsed().len();
        assert!(events("uncore_cha", "genuineintel-6-8f") > 50);
        assert!(events("uncore_cbox", "genuineintel-6-3f") > 50);
        for text in [" Counts ", "number of ", "  "] {
            assert!(!sections.iter().any(|s| s.lines.iter().any(|line| line.contains(text))));
        }
    }

    /// Encodings in the catalog equal Intel's for every event that Intel names.
    #[test]
    fn encodings_of_the_catalog_are_those_of_intel() {
        let catalog = Catalog::embedded().unwrap();
        let mut compared = 0;
        for (pmu, processors) in &*EVENTS {
            let is_its = |name: &String| matches(name, &format!("{pmu}_0"));
            let families = catalog.families.iter().filter(|family| family.names.iter().any(is_its));
            for hand in families.flat_map(|family| &family.events) {
                for (processor, events) in processors {
                    let is_for = |of: &String| of.eq_ignore_ascii_case(processor);
                    if !hand.processors.is_empty() && !hand.processors.iter().any(is_for) {
                        continue;
                    }
                    // The catalog sets ports and classes by default.
                    let whole = ["", ".all_parts", ".part0"];
                    let is_it = |event: &&NamedEvent| {
                        let mut names = hand.names.iter();
                        names.any(|name| {
                            whole.iter().any(|end| event.names[0] == format!("{name}{end}"))
                        })
                    };
                    let Some(its) = events.parsed().iter().find(is_it) else { continue };
                    // Skylake-SP has its filters in another word, and encodings of their own.
                    let is_other = |term: &str| term.starts_with("filter_");
                    if hand.encoding.terms.iter().any(|term| is_other(&term.name)) {
                        continue;
                    }
                    let narrowed = ["ch_mask", "fc_mask"];
                    let mut of_intel = its.encoding.clone();
                    of_intel.terms.retain(|term| !narrowed.contains(&term.name.as_str()));
                    let names = &hand.names;
                    assert_eq!(hand.encoding.text(), of_intel.text(), "{processor} {names:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 50, "{compared}");
    }
}
