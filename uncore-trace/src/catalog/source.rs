//! Who causes the traffic that an event counts, where the hardware tells.
//!
//! Data only: splitting CPU-caused from device-caused traffic by filter or event comes before any
//! model of who caused what, and needs no guess.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::family::Family;
use super::group::Group;
use super::pattern::matches_event;
use crate::discover::event::{AliasTerm, AliasValue, EventAlias};

/// What starts the requests that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The CPUs the PMU sees: tasks and interrupts on them.
    Cpu,
    /// Devices, GPUs too: a task only asked for it, some time before.
    Device,
    /// Another socket or die, its CPUs or its devices: somebody whom other counters see.
    Remote,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "cpu",
            Self::Device => "device",
            Self::Remote => "remote",
        })
    }
}

/// Events with one cause.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The cause.
    pub cause: Cause,
    /// The events, `*` for anything.
    #[serde(default = "super::pattern::any")]
    pub events: Vec<String>,
    /// The filter that leaves only this cause, to be set alone among those of the family's sources;
    /// without one, the events have no other cause.
    #[serde(default, deserialize_with = "super::family::optional_values")]
    pub terms: Option<EventAlias>,
}

impl Family {
    /// What causes all that `event` counts with `filter`, as a counter of the plan writes it
    /// (`term=0x1,...`); `None` where the causes are mixed or not known.
    pub fn cause(&self, event: &str, filter: &str) -> Option<Cause> {
        let of = |source: &&Source| source.events.iter().any(|glob| matches_event(glob, event));
        let set = |source: &&Source| source.terms.as_ref().is_none_or(|terms| has(filter, terms));
        let mut causes = self.sources.iter().filter(of).filter(set).map(|source| source.cause);
        let first = causes.next()?;
        causes.all(|other| other == first).then_some(first)
    }

    /// The filters under which `event` is counted for `group`, one for each source; a single empty
    /// one where it is counted as a whole.
    pub(crate) fn parts_by_source(&self, event: &str, group: Group) -> Vec<Vec<(String, u64)>> {
        let of = |source: &&Source| source.events.iter().any(|glob| matches_event(glob, event));
        let filters = self.sources.iter().filter(of).filter_map(|source| source.terms.as_ref());
        let parts: Vec<_> = filters.map(numbers).collect();
        if parts.is_empty() || !self.split.contains(&group) { vec![Vec::new()] } else { parts }
    }
}

fn numbers(terms: &EventAlias) -> Vec<(String, u64)> {
    let number = |term: &AliasTerm| match term.value {
        AliasValue::Number(value) => Some((term.name.clone(), value)),
        AliasValue::Asked => None,
    };
    terms.terms.iter().filter_map(number).collect()
}

fn has(filter: &str, wanted: &EventAlias) -> bool {
    wanted.terms.iter().all(|term| match term.value {
        AliasValue::Number(value) => {
            filter.split(',').any(|given| given == format!("{}={value:#x}", term.name))
        }
        AliasValue::Asked => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn cause(family: &str, event: &str, filter: &str) -> Option<Cause> {
        let catalog = Catalog::embedded().unwrap();
        let found = catalog.families.iter().find(|known| known.family == family);
        found.unwrap().cause(event, filter)
    }

    #[test]
    fn filters_and_events_tell_who_caused_it() {
        for (family, event, filter, expected) in [
            // CPUs of other sockets read there too.
            ("nvidia_scf", "cmem_rd_data", "", None),
            ("nvidia_scf", "remote_socket_rd_data", "", Some(Cause::Cpu)),
            ("nvidia_pcie", "rd_bytes_loc", "root_port=0x3ff", Some(Cause::Device)),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_noncpu=0x1,src_loc_cpu=0x1,src_rem=0x1", None),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_cpu=0x1,dst_rem=0x1", Some(Cause::Cpu)),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_noncpu=0x1", Some(Cause::Device)),
            ("nvidia_ucf", "mem_bytes_rd", "src_loc_cpu=0x0,src_rem=0x1", Some(Cause::Remote)),
            ("arm_cmn", "rnid_rxdat_flits", "", Some(Cause::Device)),
            ("arm_cmn", "hnf_mc_reqs", "", None),
            ("ali_drw", "hif_rd", "", None),
        ] {
            assert_eq!(cause(family, event, filter), expected, "{family} {event} {filter}");
        }
    }
}
