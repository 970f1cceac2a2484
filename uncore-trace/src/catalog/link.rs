//! Links: a memory, a root port, a link to another chip. The counters of a link share one limit,
//! and the catalog names the events that count its bytes.

use serde::Deserialize;

use super::family::positive_number;
use super::pattern::matches_any_event;
use crate::schema::link::Direction;

/// A link that PMUs of a family count.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRule {
    /// Its kind: `memory`, `PCIe`. There is one per socket; in a family with root ports, one for
    /// each part that is counted separately.
    pub name: String,
    /// The events that count bytes towards the CPUs; `*` matches anything.
    #[serde(default, rename = "in")]
    pub inbound: Vec<String>,
    /// The events that count bytes from the CPUs.
    #[serde(default)]
    pub out: Vec<String>,
    /// The events that count the sum of both directions.
    #[serde(default)]
    pub both: Vec<String>,
    /// Metrics of its latency, in ns, of any family.
    #[serde(default)]
    pub latency: Vec<String>,
    /// Its peak rates.
    #[serde(default, rename = "peak")]
    pub peaks: Vec<LinkPeak>,
}

/// A peak rate from a data sheet.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPeak {
    /// The direction; `both` is the sum of the two.
    pub direction: Direction,
    /// GB/s (1e9 bytes).
    #[serde(deserialize_with = "positive_number")]
    pub gb_per_s: f64,
    /// The document that states it.
    pub source: String,
}

impl LinkRule {
    /// The direction that an event counts; `None` if it counts no bytes of this link.
    pub fn counted_direction(&self, event: &str) -> Option<Direction> {
        [(Direction::In, &self.inbound), (Direction::Out, &self.out), (Direction::Both, &self.both)]
            .into_iter()
            .find_map(|(direction, globs)| matches_any_event(globs, event).then_some(direction))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Catalog;

    #[test]
    fn links_are_counted_in_bytes_and_each_event_on_one_link() {
        let catalog = Catalog::load_embedded().unwrap();
        for family in &catalog.families {
            for link in &family.links {
                let globs = [&link.inbound, &link.out, &link.both].into_iter().flatten();
                for glob in globs.clone() {
                    let unit = family.event_unit(&glob.replace('*', "x").replace('#', "0"));
                    let of = format!("{}: {} {glob}", family.family, link.name);
                    // For other events sysfs has the unit.
                    assert!(unit.is_none_or(|(unit, _)| unit == "bytes"), "{of}");
                    let by =
                        family.links.iter().filter(|link| link.counted_direction(glob).is_some());
                    assert_eq!(by.count(), 1, "{of}");
                }
                assert!(globs.count() > 0, "{}: {}", family.family, link.name);
                for latency in &link.latency {
                    let metrics = catalog.families.iter().flat_map(|family| &family.metrics);
                    let mut its = metrics.filter(|metric| metric.name == *latency);
                    assert!(its.all(|metric| metric.unit == "ns"), "{latency}");
                }
            }
        }
    }
}
