//! Rules for terms that a driver accepts but that then count something else, or nothing. An event
//! or group that breaks a rule is refused before anything is opened.

use serde::Deserialize;

use super::pattern::{matches_any, matches_any_event};
use super::pmu_words::{PmuWords, WHOLE_WORDS};
use super::spec::Term;
use crate::discover::Pmu;
use crate::discover::format::WORDS;
use crate::suggest::list_names;
use crate::text::printable;

/// A term that has no effect, or counts nothing, without another one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeedsRule {
    /// The term.
    pub term: String,
    /// The term that it requires.
    pub with: String,
}

/// Two terms that exclude each other.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExcludesRule {
    /// One term.
    pub term: String,
    /// The other term.
    pub other: String,
}

/// A mask: terms of which at least one bit must be set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskRule {
    /// The terms; one bit in any of them is enough.
    pub terms: Vec<String>,
    /// Terms that replace the mask: with one of them, no bit is needed.
    #[serde(default)]
    pub unless: Vec<String>,
    /// The kind of peer that the lowest bits select, as named in the PMU's `peer` file: `gpu` with
    /// `nr_gpu=2` means two bits.
    pub peer: Option<String>,
}

/// Terms that must be equal for all counters of a PMU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneValueRule {
    /// The terms.
    pub terms: Vec<String>,
    /// Events that do not have these terms; `*` matches anything.
    #[serde(default)]
    pub except: Vec<String>,
    /// Whether counters with different values can be open together, and take turns.
    #[serde(default)]
    pub turns: bool,
}

impl OneValueRule {
    /// Whether an event has these terms.
    pub fn applies_to_event(&self, event: &str) -> bool {
        !matches_any_event(&self.except, event)
    }
}

/// Requirements for the leader of a brace group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaderRule {
    /// Terms that must be equal to those of each member that has them.
    #[serde(default)]
    pub terms: Vec<String>,
    /// Whether a software event may lead.
    #[serde(default = "super::family::default_true")]
    pub software: bool,
}

/// A note that is shown when certain events are counted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteRule {
    /// The events; `*` matches anything.
    #[serde(default = "super::pattern::match_any_name")]
    pub events: Vec<String>,
    /// The text, one line.
    pub text: String,
}

impl NoteRule {
    /// Whether it applies to an event.
    pub fn applies_to_event(&self, event: &str) -> bool {
        matches_any_event(&self.events, event)
    }
}

/// Whether a PMU belongs to a processor that matches one of the patterns, or has an identifier that
/// does; without patterns, any.
pub fn is_of(processors: &[String], pmu: &Pmu) -> bool {
    let is_listed = |text: &String| matches_any(processors, text);
    processors.is_empty()
        || pmu.processor.as_ref().is_some_and(is_listed)
        || pmu.identifier.as_ref().is_some_and(is_listed)
}

/// An event before it is opened.
pub(super) struct Attempt<'a> {
    /// The config words.
    pub config: &'a [u64; WORDS],
    /// The terms that the user gave.
    pub typed_names: &'a [&'a str],
    /// The terms of its group leader, whose filter some drivers pass on.
    pub leader: &'a [Term],
}

impl PmuWords<'_> {
    /// Why an event would not count what its terms say; `None` if no problem is known.
    pub(super) fn refusal_reason(&self, attempt: &Attempt<'_>) -> Option<String> {
        let family = self.family?;
        let pmu = printable(&self.pmu.name);
        let value = |term: &str| self.term_value(attempt.config, term).unwrap_or_default();
        let is_given = |term: &str| attempt.typed_names.contains(&term);
        let used = |term: &str| is_given(term) || value(term) != 0;
        if let Some(rule) = family.needs.iter().find(|n| used(&n.term) && value(&n.with) == 0) {
            return Some(format!(
                "{pmu}: {0} has no effect without {1}=1, and the event would not count what {0} \
                 says: add {1}=1",
                rule.term, rule.with
            ));
        }
        let is_broken = |rule: &&ExcludesRule| value(&rule.term) != 0 && value(&rule.other) != 0;
        if let Some(rule) = family.excludes.iter().find(is_broken) {
            return Some(format!(
                "{pmu}: {} and {} exclude each other, such an event never runs: give one of them",
                rule.term, rule.other
            ));
        }
        family
            .masks
            .iter()
            .find_map(|mask| self.no_bit(mask, attempt).or_else(|| self.no_peer(mask, attempt)))
    }

    /// A message if the user's event sets no bit of a mask.
    fn no_bit(&self, mask: &MaskRule, attempt: &Attempt<'_>) -> Option<String> {
        let is_given = |term: &String| {
            let word = self.term_format(term).map(|format| format.word_index());
            // The first word also has the event in it.
            let whole = word.filter(|word| *word > 0).map(|word| WHOLE_WORDS[word]);
            attempt.typed_names.contains(&term.as_str())
                || whole.is_some_and(|whole| attempt.typed_names.contains(&whole))
        };
        let value = |term: &String| self.term_value(attempt.config, term).unwrap_or_default();
        let handed_down =
            |term: &String| attempt.leader.iter().any(|leader_term| leader_term.name == *term);
        let replaced = mask.unless.iter().any(|term| value(term) != 0 || handed_down(term));
        let empty = mask.terms.iter().all(|term| value(term) == 0);
        let given_terms: Vec<_> = mask.terms.iter().filter(|term| is_given(term)).collect();
        (!replaced && empty && !given_terms.is_empty()).then(|| {
            format!(
                "{}: no bit of {} is set, and depending on the kernel the event counts everything \
                 or nothing: set one, or leave out {} to count everything",
                printable(&self.pmu.name),
                list_names(&mask.terms),
                list_names(given_terms)
            )
        })
    }

    /// A message if a mask selects a peer that does not exist.
    fn no_peer(&self, mask: &MaskRule, attempt: &Attempt<'_>) -> Option<String> {
        let peer = mask.peer.as_ref()?;
        let count = *self.pmu.peers.get(peer)?;
        let max = 1_u64.checked_shl(count).map_or(u64::MAX, |bits| bits - 1);
        let value = |term: &String| self.term_value(attempt.config, term);
        let (term, value) =
            mask.terms.iter().find_map(|term| Some((term, value(term).filter(|v| *v > max)?)))?;
        Some(format!(
            "{}: {term}={value:#x} selects a {peer} that does not exist, because the PMU's peer \
             file says nr_{peer}={count}: give {term} up to {max:#x}",
            printable(&self.pmu.name)
        ))
    }
}
