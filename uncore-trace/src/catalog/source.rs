//! The causes of the traffic that an event counts, as far as the hardware distinguishes them.
//!
//! Data only. Separating traffic of CPUs from that of devices by filter or event comes before any
//! statistical model, and needs no estimate.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::family::Family;
use super::group::Group;
use super::pattern::matches_any_event;
use super::pmu_words::{PmuEvent, PmuWords};
use super::spec::Term;
use crate::discover::Pmu;
use crate::discover::event::EventAlias;

/// The cause of the counted requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrafficCause {
    /// CPUs near the PMU, such as those of its socket: their tasks and interrupts.
    Cpu,
    /// Devices, including GPUs. The task that requested the transfer did so earlier.
    Device,
    /// Another socket or die: its CPUs, and its devices if the hardware does not distinguish them.
    Remote,
}

impl fmt::Display for TrafficCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "cpu",
            Self::Device => "device",
            Self::Remote => "remote",
        })
    }
}

/// The causes of certain events.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CauseRule {
    /// The causes, at least one.
    #[serde(deserialize_with = "deserialize_causes")]
    pub cause: Vec<TrafficCause>,
    /// The events; `*` matches anything.
    #[serde(default = "super::pattern::match_any_name")]
    pub events: Vec<String>,
    /// Exceptions from `events`.
    #[serde(default)]
    pub except: Vec<String>,
    /// The filter that selects only these causes; it is used alone among the filters of the
    /// family's sources. Without one, the events have no other causes.
    #[serde(default, deserialize_with = "super::family::deserialize_optional_values")]
    pub terms: Option<EventAlias>,
    /// Only for PMUs whose `peer` file has this kind: `gpu`, `cpu`, `cxlmem`.
    pub peer: Option<String>,
}

/// One cause, or a list of causes.
fn deserialize_causes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TrafficCause>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected `cpu`, `device`, `remote`, or a list of these")]
    enum WrittenCauses {
        One(TrafficCause),
        Many(Vec<TrafficCause>),
    }
    match WrittenCauses::deserialize(from)? {
        WrittenCauses::One(cause) => Ok(vec![cause]),
        WrittenCauses::Many(causes) if causes.is_empty() => {
            Err(D::Error::custom("the list is empty"))
        }
        WrittenCauses::Many(causes) => Ok(causes),
    }
}

impl CauseRule {
    fn applies_to_event(&self, event: &str) -> bool {
        matches_any_event(&self.events, event) && !matches_any_event(&self.except, event)
    }
}

impl Family {
    /// The possible causes of what `event` of a PMU counts with `filter`, in the form of a planned
    /// counter (`term=0x1,...`); empty if unknown.
    pub fn possible_causes(&self, pmu: &Pmu, event: &str, filter: &str) -> BTreeSet<TrafficCause> {
        let has_peer = |source: &&CauseRule| pmu.has_peer(source.peer.as_ref());
        let set = |source: &&CauseRule| {
            source.terms.as_ref().is_none_or(|terms| has_terms(filter, terms))
        };
        let applicable = self.sources.iter().filter(|source| source.applies_to_event(event));
        let sources = applicable.filter(has_peer).filter(set);
        sources.flat_map(|cause_rule| cause_rule.cause.clone()).collect()
    }

    /// The filters with which `event` is counted for `group`, one per source; a single empty one if
    /// it is counted as a whole.
    pub(crate) fn parts_by_source(&self, event: &str, group: Group) -> Vec<Vec<(String, u64)>> {
        let applicable = self.sources.iter().filter(|source| source.applies_to_event(event));
        let filters = applicable.filter_map(|source| source.terms.as_ref());
        let term_lists: Vec<_> = filters.map(EventAlias::owned_numbers).collect();
        if term_lists.is_empty() || !self.split.contains(&group) {
            vec![Vec::new()]
        } else {
            term_lists
        }
    }
}

impl PmuWords<'_> {
    /// The possible causes of what `event` counts with `filter` in `unit`; `None` if nothing says
    /// them.
    ///
    /// They are empty for a PMU of each CPU without sources, which counts what runs there, and for
    /// the clock of a known PMU, which counts no requests.
    pub fn event_causes(
        &self,
        event: &str,
        filter: &str,
        unit: &str,
    ) -> Option<BTreeSet<TrafficCause>> {
        let causes = self.family.map(|family| family.possible_causes(self.pmu, event, filter));
        let is_clock = self.family.is_some() && unit == "cycles";
        let needs_none = is_clock || self.is_per_cpu();
        let causes = causes.unwrap_or_default();
        (needs_none || !causes.is_empty()).then_some(causes)
    }

    /// The same for an event that is given by its name alone, with the default filters.
    pub fn causes_by_name(&self, event: PmuEvent<'_>) -> Option<BTreeSet<TrafficCause>> {
        let term = Term::bare(event.name, 1);
        // An event that needs more terms has no filter yet.
        let filter = self
            .encode_terms(&[term], &[])
            .map_or_else(|_| String::new(), |encoded| encoded.filter);
        self.event_causes(event.name, &filter, &self.event_unit(Some(event)).0)
    }
}

fn has_terms(filter: &str, wanted: &EventAlias) -> bool {
    wanted.numbers().all(|(name, value)| {
        filter.split(',').any(|typed_term| typed_term == format!("{name}={value:#x}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn causes(family: &str, event: &str, filter: &str) -> Vec<TrafficCause> {
        let catalog = Catalog::load_embedded().unwrap();
        let found = catalog.families.iter().find(|known| known.family == family);
        found.unwrap().possible_causes(&Pmu::default(), event, filter).into_iter().collect()
    }

    #[test]
    fn filters_and_events_tell_the_cause_of_counts() {
        const ALL: &[TrafficCause] =
            &[TrafficCause::Cpu, TrafficCause::Device, TrafficCause::Remote];
        const CPU: &[TrafficCause] = &[TrafficCause::Cpu];
        const CPUS: &[TrafficCause] = &[TrafficCause::Cpu, TrafficCause::Remote];
        const DEVICE: &[TrafficCause] = &[TrafficCause::Device];
        const REMOTE: &[TrafficCause] = &[TrafficCause::Remote];
        for (family, event, filter, expected) in [
            ("nvidia_scf", "cmem_rd_data", "", CPUS),
            ("nvidia_scf", "remote_socket_rd_data", "", CPU),
            ("nvidia_scf", "cycles", "", &[]),
            ("nvidia_pcie", "rd_bytes_loc", "root_port=0x3ff", DEVICE),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_noncpu=0x1,src_loc_cpu=0x1,src_rem=0x1", ALL),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_cpu=0x1,dst_rem=0x1", CPU),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_noncpu=0x1", DEVICE),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_cpu=0x0,src_rem=0x1", REMOTE),
            ("arm_cmn", "rnid_rxdat_flits", "", DEVICE),
            ("arm_cmn", "hnf_mc_reqs", "", ALL),
            ("ali_drw", "hif_rd", "", ALL),
        ] {
            assert_eq!(causes(family, event, filter), expected, "{family} {event} {filter}");
        }
    }
}
