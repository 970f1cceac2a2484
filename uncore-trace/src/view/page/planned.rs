//! The fields of the plan in a recording's metadata that a page needs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::links::Links;
use crate::schema::link::Direction;
use crate::schema::{counters, metadata};

/// The plan.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PagePlan {
    pub counters: Vec<PlannedCounter>,
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
}

/// A counter, as in `schema/counters.rs`. A roll-up does not have its encoding.
#[derive(Debug, Deserialize)]
pub(super) struct PlannedCounter {
    pub id: u32,
    pub pmu: String,
    pub event: String,
    pub filter: String,
    pub unit: String,
    #[serde(default)]
    pub scale: Option<f64>,
    #[serde(default)]
    pub attr_type: Option<u32>,
    #[serde(default)]
    pub config: Vec<u64>,
    #[serde(default)]
    pub cpu: Option<u32>,
    /// Missing if its counts are only divided.
    #[serde(default = "counted")]
    pub role: String,
}

fn counted() -> String {
    "counted".to_owned()
}

impl PagePlan {
    /// Reads the plan; `None` if the metadata have no readable one.
    pub(super) fn from_metadata(pairs: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(pairs.get(metadata::PLAN)?).ok()
    }

    /// The counters with rows that are on no link, and those that do not count bytes.
    pub(super) fn counters_off_links<'a>(
        &'a self,
        links: &'a Links,
    ) -> impl Iterator<Item = &'a PlannedCounter> {
        let counts = |counter: &&PlannedCounter| counter.role != counters::WEIGHT;
        self.counters
            .iter()
            .filter(counts)
            .filter(|candidate| candidate.link_and_direction(links).is_none())
    }
}

impl PlannedCounter {
    /// Link and direction of the counter; `None` if it is on no link.
    pub(super) fn link_and_direction(&self, links: &Links) -> Option<(usize, Direction)> {
        links.link_of(i32::try_from(self.id).ok()?)
    }

    /// `type=40,config=0x2,config1=0x3ff`: the type, and the words that are not 0. Empty if not
    /// known.
    pub(super) fn encoding_text(&self) -> String {
        let Some(attr_type) = self.attr_type else { return String::new() };
        let name = |word| if word == 0 { "config".to_owned() } else { format!("config{word}") };
        let used =
            self.config.iter().enumerate().filter(|(word, value)| *word == 0 || **value != 0);
        let words = used.map(|(word, value)| format!(",{}={value:#x}", name(word)));
        format!("type={attr_type}{}", words.collect::<String>())
    }
}
