//! How many events a PMU counts at once, and what becomes of more.
//!
//! Standalone events that are too many take turns: that is a note with the share of the time each
//! counts. A brace group that is too large never runs, and some limits end events rather than have
//! them wait: those are refused. Limits that sysfs does not tell and the catalog does not know are
//! not guessed.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::encode::Encoded;
use super::pattern::matches_event;
use super::suggest::list;
use super::words::Words;
use crate::discover::event::{AliasValue, EventAlias};

/// A limit on the events of one PMU instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How many there are of it, at least one.
    #[serde(deserialize_with = "some_counters")]
    pub counters: u32,
    /// What there are so many of, one of them.
    #[serde(default = "counter")]
    pub what: String,
    /// The events that need one, `*` for anything.
    #[serde(default = "super::pattern::any")]
    pub events: Vec<String>,
    /// Those of them that do not.
    #[serde(default)]
    pub except: Vec<String>,
    /// Events whose terms have these values need none.
    #[serde(default, deserialize_with = "super::family::optional_values")]
    pub except_terms: Option<EventAlias>,
    /// Only events whose terms have these values.
    #[serde(default, deserialize_with = "super::family::optional_values")]
    pub terms: Option<EventAlias>,
    /// Terms of which each value has so many of its own.
    #[serde(default)]
    pub per: Vec<String>,
    /// The term that puts an event at one of several places, which have so many each.
    pub place: Option<Place>,
    /// Terms of which each value needs one, however many events have it; else each event does.
    #[serde(default)]
    pub distinct: Vec<String>,
    /// Whether one event too many never runs, rather than taking turns with the others.
    #[serde(default)]
    pub hard: bool,
    /// Whether events within it may take turns all the same, and those beyond it need not: no group
    /// is refused for it.
    #[serde(default)]
    pub unsure: bool,
    /// The limit of kernels whose sysfs spells an event exactly so.
    pub named: Option<String>,
}

fn some_counters<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom("0 is not a number of counters")),
        counters => Ok(counters),
    }
}

fn counter() -> String {
    "counter".to_owned()
}

/// A place within the PMU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The term with the place.
    pub term: String,
    /// The term without which it is ignored and the event is at every place.
    pub with: String,
    /// Low bits that do not tell places apart, at most 63.
    #[serde(deserialize_with = "bits")]
    pub shift: u32,
}

fn bits<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        bits @ 0..64 => Ok(bits),
        bits => Err(D::Error::custom(format!("{bits} is not a number of bits below 64"))),
    }
}

/// Events that share something, and how many of it there are.
#[derive(Debug, PartialEq, Eq)]
pub struct Overcommitted {
    /// How many events need it.
    pub events: usize,
    /// How many they need of it.
    pub needed: usize,
    /// How many there are.
    pub counters: u32,
    /// What it is.
    pub what: String,
    /// Whether the last of them never run.
    pub hard: bool,
    /// Whether it may be otherwise.
    pub unsure: bool,
}

impl Overcommitted {
    /// The share of the time each event counts, in %: the kernel gives all the same.
    fn share(&self) -> f64 {
        100.0 * f64::from(self.counters) / self.needed as f64
    }

    /// `2 events share 1 counter of dwc_rootport_10000: each counts about 50 % of the time`
    pub fn note(&self, pmus: &[&str]) -> String {
        let then = if self.unsure { " then" } else { "" };
        format!("{}: each{then} counts about {:.0} % of the time", self.shared(pmus), self.share())
    }

    /// Why events that stand alone cannot be opened.
    pub fn refusal(&self, pmu: &str) -> String {
        format!(
            "{}: those above {} never run; record them one after the other",
            self.shared(&[pmu]),
            self.counters
        )
    }

    /// Why the events cannot be a group.
    pub fn group_refusal(&self, pmu: &str) -> String {
        format!(
            "{}: such a group never runs; make groups of at most {}, or leave out the braces",
            self.shared(&[pmu]),
            self.counters
        )
    }

    fn shared(&self, pmus: &[&str]) -> String {
        let Self { events, needed, counters, what, unsure, .. } = self;
        let may = if *unsure { "may " } else { "" };
        let each = if pmus.len() > 1 { "each of " } else { "" };
        let of = format!("{each}{}", list(pmus));
        // What stands behind `for` is not what there are several of.
        let (what, of_what) = what.split_at(what.find(" for ").unwrap_or(what.len()));
        let plural = if *counters == 1 { "" } else { "s" };
        let values = if needed == events {
            String::new()
        } else {
            format!(" with {needed} different values")
        };
        format!("{events} events{values} {may}share {counters} {what}{plural}{of_what} of {of}")
    }
}

/// What `events`, all of one PMU instance, need more of than there is; the scarcest first.
pub fn overcommitted(words: Words<'_>, events: &[&Encoded]) -> Vec<Overcommitted> {
    let Some(family) = words.family else { return Vec::new() };
    let mut found = Vec::new();
    for budget in &family.budgets {
        let needs: Vec<Need> = events.iter().filter_map(|e| budget.need(words, e)).collect();
        found.extend(budget.exceeded(&needs));
    }
    found.sort_by(|a, b| b.hard.cmp(&a.hard).then(a.share().total_cmp(&b.share())));
    found
}

/// What one event needs of a budget.
struct Need {
    /// The values of [`Budget::per`].
    pool: Vec<u64>,
    /// `None`: every place.
    place: Option<u64>,
    /// What is counted once.
    value: Vec<u64>,
}

impl Budget {
    /// `None` where the event does not need it, or this kernel has no such limit.
    fn need(&self, words: Words<'_>, event: &Encoded) -> Option<Need> {
        let value = |term: &str| words.value(&event.config, term);
        if self.named.as_ref().is_some_and(|name| !words.pmu.events.contains_key(name)) {
            return None;
        }
        let in_list = |globs: &[String]| globs.iter().any(|g| matches_event(g, &event.event));
        if !in_list(&self.events) || in_list(&self.except) {
            return None;
        }
        let holds = |terms: &EventAlias| {
            terms
                .terms
                .iter()
                .all(|term| value(&term.name).map(AliasValue::Number) == Some(term.value))
        };
        if self.terms.as_ref().is_some_and(|terms| !holds(terms))
            || self.except_terms.as_ref().is_some_and(holds)
        {
            return None;
        }
        let values = |terms: &[String]| -> Option<Vec<u64>> {
            terms.iter().map(|term| value(term)).collect()
        };
        let place = match &self.place {
            Some(place) if value(&place.with)? != 0 => Some(value(&place.term)? >> place.shift),
            _ => None,
        };
        let whole = || Some(event.config.to_vec());
        let value = if self.distinct.is_empty() { whole() } else { values(&self.distinct) }?;
        Some(Need { pool: values(&self.per)?, place, value })
    }

    fn exceeded(&self, needs: &[Need]) -> Option<Overcommitted> {
        let mut pools: BTreeMap<&[u64], Vec<&Need>> = BTreeMap::new();
        for need in needs {
            pools.entry(&need.pool).or_default().push(need);
        }
        let worst = pools.values().filter_map(|pool| self.fullest(pool));
        worst.max_by_key(|over| over.needed)
    }

    /// The place of a pool that needs most, if that is more than there is.
    fn fullest(&self, pool: &[&Need]) -> Option<Overcommitted> {
        let mut places: BTreeSet<Option<u64>> = pool.iter().map(|need| need.place).collect();
        places.insert(None);
        let at = |place: &Option<u64>| {
            let here = |need: &&&Need| need.place.is_none() || need.place == *place;
            let here: Vec<_> = pool.iter().filter(here).collect();
            let values: BTreeSet<_> = here.iter().map(|need| &need.value).collect();
            (values.len(), here.len())
        };
        let (needed, events) = places.iter().map(at).max()?;
        (needed > self.counters as usize).then(|| Overcommitted {
            events,
            needed,
            counters: self.counters,
            what: self.what.clone(),
            hard: self.hard,
            unsure: self.unsure,
        })
    }
}
