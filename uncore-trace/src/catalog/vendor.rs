//! Events by the names that Intel gives them, as `cargo xtask import perfmon` made them.
//!
//! They are of a PMU and a processor, whatever the family. Names in sysfs and in the catalog's own
//! files win over them, and nothing that a name does not ask for is opened by them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::family::NamedEvent;
use crate::discover::event::EventAlias;
use crate::discover::{Pmu, name};

/// The imported text.
static TEXT: &str = include_str!("../../catalog/intel/events.txt");

/// Events by PMU without its index, then by processor in small letters.
type Events = HashMap<&'static str, HashMap<&'static str, Vec<NamedEvent>>>;

static EVENTS: LazyLock<Events> = LazyLock::new(|| {
    let mut events = Events::new();
    for section in sections() {
        for processor in section.processors.split(' ') {
            let of = events.entry(section.pmu).or_default().entry(processor).or_default();
            of.extend(section.lines.iter().filter_map(|line| event(line)));
        }
    }
    events
});

/// The events of some processors that one kind of PMU has.
struct Section {
    processors: &'static str,
    pmu: &'static str,
    lines: Vec<&'static str>,
}

fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let lines = TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let header = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        if let Some((processors, pmu)) = header.and_then(|header| header.split_once(": ")) {
            sections.push(Section { processors, pmu, lines: Vec::new() });
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
    Some(NamedEvent { names: vec![name.to_owned()], encoding, attr_type: None })
}

/// The events of a PMU; none for one that is not of an imported processor.
pub(super) fn events(pmu: &Pmu) -> &'static [NamedEvent] {
    let Some(processor) = pmu.processor.as_ref().filter(|of| of.starts_with("GenuineIntel")) else {
        return &[];
    };
    let of = EVENTS.get(name::stem(&pmu.name));
    of.and_then(|of| of.get(processor.to_ascii_lowercase().as_str())).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn every_line_is_an_event() {
        let sections = sections();
        for line in sections.iter().flat_map(|section| &section.lines) {
            assert!(event(line).is_some(), "{line}");
        }
        let events = |pmu: &str, processor: &str| EVENTS[pmu][processor].len();
        assert!(events("uncore_cha", "genuineintel-6-8f") > 50);
        assert!(events("uncore_cbox", "genuineintel-6-3f") > 50);
        for text in [" Counts ", "number of ", "  "] {
            assert!(!sections.iter().any(|s| s.lines.iter().any(|line| line.contains(text))));
        }
    }

    /// What is written by hand is what Intel says, wherever Intel names it.
    #[test]
    fn encodings_of_the_catalog_are_those_of_intel() {
        let catalog = Catalog::embedded().unwrap();
        let mut compared = 0;
        for (pmu, processors) in &*EVENTS {
            let is_its = |name: &String| super::super::pattern::matches(name, &format!("{pmu}_0"));
            let families = catalog.families.iter().filter(|family| family.names.iter().any(is_its));
            for hand in families.flat_map(|family| &family.events) {
                for (processor, events) in processors {
                    // The catalog sets ports and classes by default.
                    let whole = [String::new(), ".all_parts".to_owned(), ".part0".to_owned()];
                    let names = whole.map(|end| format!("{}{end}", hand.names[0]));
                    let its = events.iter().find(|event| names.contains(&event.names[0]));
                    let Some(its) = its else { continue };
                    // Skylake-SP has its filters in another word, and encodings of their own.
                    let is_other = |term: &str| term.starts_with("filter_");
                    if hand.encoding.terms.iter().any(|term| is_other(&term.name)) {
                        continue;
                    }
                    let narrowed = ["ch_mask", "fc_mask"];
                    let mut of_intel = its.encoding.clone();
                    of_intel.terms.retain(|term| !narrowed.contains(&term.name.as_str()));
                    assert_eq!(hand.encoding.text(), of_intel.text(), "{processor} {names:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 50, "{compared}");
    }
}
