//! Limits on the number of events that a PMU counts at once.
//!
//! If events outside groups exceed a limit, they are multiplexed: a note gives the part of the time
//! in which each counts. A brace group that exceeds it never runs, and some limits prevent events
//! rather than multiplex them: these are errors. A limit that neither sysfs nor the catalog gives
//! is not assumed.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::encode::EncodedEvent;
use super::pattern::matches_any_event;
use super::pmu_words::PmuWords;
use crate::discover::event::EventAlias;
use crate::suggest::list_names;

/// A limit on the events of one PMU instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The number of counters, at least one.
    #[serde(deserialize_with = "some_counters")]
    pub counters: u32,
    /// Name of one such counter, for messages.
    #[serde(default = "default_counter_name")]
    pub what: String,
    /// The events that need one; `*` matches anything.
    #[serde(default = "super::pattern::match_any_name")]
    pub events: Vec<String>,
    /// Exceptions from `events`.
    #[serde(default)]
    pub except: Vec<String>,
    /// Events whose terms have these values need none.
    #[serde(default, deserialize_with = "super::family::deserialize_optional_values")]
    pub except_terms: Option<EventAlias>,
    /// Only events whose terms have these values need one.
    #[serde(default, deserialize_with = "super::family::deserialize_optional_values")]
    pub terms: Option<EventAlias>,
    /// Terms for which each value has its own counters.
    #[serde(default)]
    pub per: Vec<String>,
    /// The term that selects one of several places, each with its own counters.
    pub place: Option<PlaceTerm>,
    /// Terms for which each distinct value needs one counter, however many events have it. If
    /// empty, each event needs one.
    #[serde(default)]
    pub distinct: Vec<String>,
    /// Whether an event beyond the limit never runs, instead of being multiplexed.
    #[serde(default)]
    pub hard: bool,
    /// Whether the limit is uncertain: events within it may be multiplexed, and those beyond it may
    /// not. No group is refused for it.
    #[serde(default)]
    pub unsure: bool,
    /// The limit applies only to kernels whose sysfs has an event with exactly this name.
    pub named: Option<String>,
}

fn some_counters<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom("0 is not a number of counters")),
        counters => Ok(counters),
    }
}

fn default_counter_name() -> String {
    "counter".to_owned()
}

/// A place within the PMU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceTerm {
    /// The term that selects the place.
    pub term: String,
    /// The term that enables `term`; without it the event is at every place.
    pub with: String,
    /// Number of low bits that do not distinguish places, at most 63.
    #[serde(deserialize_with = "shift_bits")]
    pub shift: u32,
}

fn shift_bits<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        bits @ 0..64 => Ok(bits),
        bits => Err(D::Error::custom(format!("{bits} is not a number of bits below 64"))),
    }
}

/// Events that share too few counters.
#[derive(Debug, PartialEq, Eq)]
pub struct Overcommitted {
    /// Number of events that need one.
    pub events: usize,
    /// Number of counters that they need.
    pub needed: usize,
    /// Number of counters that exist.
    pub counters: u32,
    /// Name of one such counter.
    pub counter_name: String,
    /// Whether the events beyond the limit never run.
    pub hard: bool,
    /// Whether the limit is uncertain.
    pub unsure: bool,
}

impl Overcommitted {
    /// The part of the time in which each event counts, in percent: the kernel gives all the same.
    fn counted_percent(&self) -> f64 {
        100.0 * f64::from(self.counters) / self.needed as f64
    }

    /// `2 events share 1 counter of dwc_rootport_10000: each counts about 50 % of the time`
    pub fn multiplex_note(&self, pmus: &[&str]) -> String {
        let adverb = if self.unsure { " then" } else { "" };
        format!(
            "{}: each{adverb} counts about {:.0} % of the time",
            self.describe_sharing(pmus),
            self.counted_percent()
        )
    }

    /// Why events outside groups cannot be opened.
    pub fn refusal_text(&self, pmu: &str) -> String {
        format!(
            "{}: those above {} never run; record them one after the other",
            self.describe_sharing(&[pmu]),
            self.counters
        )
    }

    /// Why the events cannot be a group.
    pub fn group_refusal(&self, pmu: &str) -> String {
        format!(
            "{}: such a group never runs; make groups of at most {}, or leave out the braces",
            self.describe_sharing(&[pmu]),
            self.counters
        )
    }

    fn describe_sharing(&self, pmus: &[&str]) -> String {
        let Self { events, needed, counters, counter_name: counted_noun, unsure, .. } = self;
        let may = if *unsure { "may " } else { "" };
        let each_of = if pmus.len() > 1 { "each of " } else { "" };
        let pmu_names = format!("{each_of}{}", list_names(pmus));
        // The words after `for` are not part of the counted noun.
        let (noun, noun_suffix) =
            counted_noun.split_at(counted_noun.find(" for ").unwrap_or(counted_noun.len()));
        let plural = if *counters == 1 { "" } else { "s" };
        let values = if needed == events {
            String::new()
        } else {
            format!(" with {needed} different values")
        };
        format!(
            "{events} events{values} {may}share {counters} {noun}{plural}{noun_suffix} of \
             {pmu_names}"
        )
    }
}

/// The limits that `events`, all of one PMU instance, exceed; the scarcest first.
pub fn find_overcommitted(words: PmuWords<'_>, events: &[&EncodedEvent]) -> Vec<Overcommitted> {
    let Some(family) = words.family else { return Vec::new() };
    let mut limits = Vec::new();
    for budget in &family.budgets {
        let needs: Vec<CounterNeed> =
            events.iter().filter_map(|e| budget.counter_need(words, e)).collect();
        limits.extend(budget.exceeded_limit(&needs));
    }
    limits.sort_by(|a, b| {
        b.hard.cmp(&a.hard).then(a.counted_percent().total_cmp(&b.counted_percent()))
    });
    limits
}

/// The counters of a budget that one event needs.
struct CounterNeed {
    /// The values of [`Budget::per`].
    pool: Vec<u64>,
    /// The place; `None`: every place.
    location: Option<u64>,
    /// The values of [`Budget::distinct`].
    value: Vec<u64>,
}

impl Budget {
    /// `None` if the event does not need it, or the limit does not apply to this kernel.
    fn counter_need(&self, words: PmuWords<'_>, event: &EncodedEvent) -> Option<CounterNeed> {
        let value = |term: &str| words.term_value(&event.config, term);
        if self.named.as_ref().is_some_and(|name| !words.pmu.events.contains_key(name)) {
            return None;
        }
        let in_list = |globs: &[String]| matches_any_event(globs, &event.event);
        if !in_list(&self.events) || in_list(&self.except) {
            return None;
        }
        let holds = |terms: &EventAlias| {
            terms.numbers().all(|(name, wanted_value)| value(name) == Some(wanted_value))
        };
        if self.terms.as_ref().is_some_and(|terms| !holds(terms))
            || self.except_terms.as_ref().is_some_and(holds)
        {
            return None;
        }
        let values = |terms: &[String]| -> Option<Vec<u64>> {
            terms.iter().map(|term| value(term)).collect()
        };
        let location = match &self.place {
            Some(place_term) if value(&place_term.with)? != 0 => {
                Some(value(&place_term.term)? >> place_term.shift)
            }
            _ => None,
        };
        let whole = || Some(event.config.to_vec());
        let value = if self.distinct.is_empty() { whole() } else { values(&self.distinct) }?;
        Some(CounterNeed { pool: values(&self.per)?, location, value })
    }

    fn exceeded_limit(&self, needs: &[CounterNeed]) -> Option<Overcommitted> {
        let mut pools: BTreeMap<&[u64], Vec<&CounterNeed>> = BTreeMap::new();
        for need in needs {
            pools.entry(&need.pool).or_default().push(need);
        }
        let worst = pools.values().filter_map(|pool| self.fullest_place(pool));
        worst.max_by_key(|limit| limit.needed)
    }

    /// The place of a pool with the largest need, if it exceeds the limit.
    fn fullest_place(&self, pool: &[&CounterNeed]) -> Option<Overcommitted> {
        let mut locations: BTreeSet<Option<u64>> = pool.iter().map(|need| need.location).collect();
        locations.insert(None);
        let need_at = |location: &Option<u64>| {
            let is_here =
                |need: &&&CounterNeed| need.location.is_none() || need.location == *location;
            let needs_here: Vec<_> = pool.iter().filter(is_here).collect();
            let values: BTreeSet<_> = needs_here.iter().map(|need| &need.value).collect();
            (values.len(), needs_here.len())
        };
        let (needed, events) = locations.iter().map(need_at).max()?;
        (needed > self.counters as usize).then(|| Overcommitted {
            events,
            needed,
            counters: self.counters,
            counter_name: self.what.clone(),
            hard: self.hard,
            unsure: self.unsure,
        })
    }
}
