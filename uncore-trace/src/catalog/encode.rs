//! Encodes an event of a PMU: turns terms into config words.
//!
//! Names and fields come from sysfs or, if missing there, from the catalog. A value that does not
//! fit, an unknown term or a filter that would count nothing is an error with its column.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::rules::Attempt;
use super::spec::{At, Term, TermValue};
use super::suggest::{did_you_misspell, list};
use super::words::{PmuEvent, WHOLE_WORDS, Words};
use crate::discover::event::{AliasValue, EventAlias};
use crate::discover::format::{Format, WORDS};
use crate::text::printable;

/// Terms that select the event if sysfs names no event; all other terms narrow it.
const SELECTORS: [&str; 5] = ["event", "eventid", "type", "umask", "config"];

/// An encoded event.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// `perf_event_attr.type`.
    pub attr_type: u32,
    /// `config` to `config4`.
    pub config: [u64; WORDS],
    /// The event's name, or the terms that select it, values in hex.
    pub event: String,
    /// The terms that narrow it, values in hex.
    pub filter: String,
    /// Unit of the scaled value.
    pub unit: String,
    /// Value in `unit` per count.
    pub scale: f64,
    /// Whether sysfs marks it as a gauge.
    pub snapshot: bool,
}

/// A field with its value.
struct Given<'a> {
    name: Cow<'a, str>,
    format: Format,
    value: u64,
}

impl<'a> Words<'a> {
    /// Encodes the terms of one event. `leader` are the terms of its group leader, whose filter
    /// some drivers pass on.
    pub fn encode(&self, terms: &[Term], leader: &[Term]) -> Result<Encoded, At> {
        let start = terms.first().map_or(1, |term| term.column);
        let (alias, given) = self.given(terms)?;
        let mut config = [0; WORDS];
        if let Some(event) = alias {
            self.apply_alias(event, &mut config).map_err(|message| At::new(start, message))?;
        }
        for field in &given {
            set(&mut config, field);
        }
        let event = self.name_of(&config, alias, &given);
        let defaults = self.defaults(event.or(alias), &given, leader);
        let defaults = defaults.map_err(|message| At::new(start, message))?;
        for field in &defaults {
            set(&mut config, field);
        }
        let names: Vec<&str> = given.iter().map(|field| field.name.as_ref()).collect();
        let attempt = Attempt { config: &config, given: &names, leader };
        if let Some(why) = self.refusal(&attempt) {
            return Err(At::new(start, why));
        }
        let (unit, scale) = self.unit(event);
        let (selects, narrows) = self.split(event, &given, &defaults);
        Ok(Encoded {
            attr_type: event.or(alias).map_or(self.pmu.attr_type, |event| event.attr_type),
            config,
            event: event.map_or(selects, |event| event.name.to_owned()),
            filter: narrows,
            unit,
            scale,
            snapshot: event.is_some_and(|event| event.alias.snapshot),
        })
    }

    /// Separates the typed terms into the named event, if any, and fields with values.
    fn given<'t>(&self, terms: &'t [Term]) -> Result<(Option<PmuEvent<'a>>, Vec<Given<'t>>), At> {
        let mut alias: Option<PmuEvent<'a>> = None;
        let mut given = Vec::new();
        for term in terms {
            let at = |message: String| At::new(term.column, message);
            let field = |value| -> Result<Given<'t>, At> {
                let format = self.format(&term.name).ok_or_else(|| self.unknown(term))?;
                format.encode(value).map_err(|error| {
                    at(format!("{}: {}: {error}", self.shown(), printable(&term.name)))
                })?;
                Ok(Given { name: Cow::Borrowed(&term.name), format, value })
            };
            match &term.value {
                TermValue::Number(value) => given.push(field(*value)?),
                TermValue::Symbol(symbol) => given.push(field(self.symbol(term, symbol)?)?),
                TermValue::Bare => match (self.event(&term.name), self.format(&term.name)) {
                    (Some(event), _) => {
                        if let Some(other) = alias.replace(event) {
                            let message =
                                format!("a second event after {}: one at a time", other.name);
                            return Err(at(message));
                        }
                    }
                    (None, Some(format)) if format.width() == 1 => given.push(field(1)?),
                    (None, Some(format)) => {
                        let message = format!(
                            "{} needs a value, up to {:#x} ({format})",
                            term.name,
                            format.max()
                        );
                        return Err(at(message));
                    }
                    (None, None) => return Err(self.unknown(term)),
                },
            }
        }
        let missing = alias.and_then(|event| {
            let asked = event.alias.asked();
            asked.into_iter().find(|asked| !given.iter().any(|field| field.name == *asked))
        });
        if let (Some(event), Some(missing)) = (alias, missing) {
            let max = self.format(missing).map_or(u64::MAX, |format| format.max());
            let message = format!("{} needs {missing}=N with it, N up to {max:#x}", event.name);
            return Err(At::new(terms.first().map_or(1, |term| term.column), message));
        }
        Ok((alias, given))
    }

    /// The value of `term` in the event called `symbol`.
    fn symbol(&self, term: &Term, symbol: &str) -> Result<u64, At> {
        self.format(&term.name).ok_or_else(|| self.unknown(term))?;
        let event = self.event(symbol);
        let value = event.and_then(|event| {
            event.alias.terms.iter().find_map(|its| match its.value {
                AliasValue::Number(value) if its.name == term.name => Some(value),
                _ => None,
            })
        });
        value.ok_or_else(|| {
            let names: Vec<_> = self.events().map(|event| event.name).collect();
            let near = did_you_misspell(symbol, names.iter().copied());
            let message = format!(
                "{symbol:?} is neither a number nor an event of {} with a value for {}{near}",
                self.shown(),
                term.name
            );
            At::new(term.column, message)
        })
    }

    fn apply_alias(&self, event: PmuEvent<'_>, config: &mut [u64; WORDS]) -> Result<(), String> {
        for term in &event.alias.terms {
            let AliasValue::Number(value) = term.value else { continue };
            let Some(format) = self.format(&term.name) else {
                return Err(format!(
                    "{}: its event {} uses the unknown field {}",
                    self.shown(),
                    printable(event.name),
                    term.name
                ));
            };
            format.encode(value).map_err(|error| {
                format!("{}: its event {}: {error}", self.shown(), printable(event.name))
            })?;
            set(config, &Given { name: Cow::Borrowed(&term.name), format, value });
        }
        Ok(())
    }

    /// The default filters that apply if the user gave `given`.
    fn defaults(
        &self,
        event: Option<PmuEvent<'_>>,
        given: &[Given<'_>],
        leader: &[Term],
    ) -> Result<Vec<Given<'static>>, String> {
        let Some(family) = self.family else { return Ok(Vec::new()) };
        let mut names: BTreeSet<&str> = given.iter().map(|field| field.name.as_ref()).collect();
        names.extend(event.iter().flat_map(|event| &event.alias.terms).map(|t| t.name.as_str()));
        let mut defaults: Vec<Given<'static>> = Vec::new();
        let name = event.map(|event| event.name);
        for filter in family.filters.iter().filter(|filter| filter.is_for(self.pmu, name)) {
            let unless = |name: &str| filter.unless.iter().any(|term| term == name);
            let inherited = leader.iter().any(|term| unless(&term.name));
            let fields: Option<Vec<Given<'static>>> = filter
                .terms
                .terms
                .iter()
                .map(|term| match term.value {
                    AliasValue::Number(value) => self.format(&term.name).map(|format| Given {
                        name: Cow::Owned(term.name.clone()),
                        format,
                        value,
                    }),
                    AliasValue::Asked => None,
                })
                .collect();
            // A kernel without the field has no such filter.
            let Some(fields) = fields else { continue };
            let taken = |field: &Given<'_>| {
                let word = field.format.word();
                names.contains(field.name.as_ref()) || word > 0 && names.contains(WHOLE_WORDS[word])
            };
            // The first rule for a term counts.
            let is_set = |field: &Given<'_>| defaults.iter().any(|its| its.name == field.name);
            if !inherited
                && !names.iter().any(|name| unless(name))
                && !fields.iter().any(|field| taken(field) || is_set(field))
            {
                defaults.extend(fields);
            }
        }
        for Given { name, format, value } in &defaults {
            format.encode(*value).map_err(|error| {
                format!("{}: the default {name} of {}: {error}", self.shown(), family.family)
            })?;
        }
        Ok(defaults)
    }

    /// The event that `config` selects: the named one, unless a later term changes it; otherwise
    /// the one whose encoding includes everything that was typed to select it.
    fn name_of(
        &self,
        config: &[u64; WORDS],
        named: Option<PmuEvent<'a>>,
        given: &[Given<'_>],
    ) -> Option<PmuEvent<'a>> {
        let holds = |event: &PmuEvent<'a>| {
            event.alias.terms.iter().all(|term| match (term.value, self.format(&term.name)) {
                (AliasValue::Number(value), Some(format)) => format.decode(config) == value,
                (AliasValue::Asked, Some(_)) => given.iter().any(|field| field.name == term.name),
                (_, None) => false,
            })
        };
        if named.is_some_and(|event| holds(&event)) {
            return named;
        }
        let mut wanted = [0; WORDS];
        for field in given.iter().filter(|field| self.selects(&field.name)) {
            wanted[field.format.word()] |= field.format.mask();
        }
        let covers = |event: &PmuEvent<'a>| {
            let covered = self.covered(event.alias);
            wanted != [0; WORDS]
                && wanted.iter().zip(covered).all(|(wanted, its)| wanted & !its == 0)
        };
        // A generic event of another attribute type has the same bits with another meaning.
        let same_type = |event: &PmuEvent<'a>| event.attr_type == self.pmu.attr_type;
        let fits = self.events().filter(|event| same_type(event) && holds(event) && covers(event));
        fits.max_by_key(|event| event.alias.terms.len())
    }

    /// The config bits that the event's own values occupy.
    fn covered(&self, alias: &EventAlias) -> [u64; WORDS] {
        let mut covered = [0; WORDS];
        for term in alias.terms.iter().filter(|term| term.value != AliasValue::Asked) {
            if let Some(format) = self.format(&term.name) {
                covered[format.word()] |= format.mask();
            }
        }
        covered
    }

    /// Whether a term selects the event, rather than narrows it.
    fn selects(&self, term: &str) -> bool {
        SELECTORS.contains(&term)
            || self.events().any(|event| {
                let mut terms = event.alias.terms.iter();
                terms.any(|its| its.name == term && its.value != AliasValue::Asked)
            })
    }

    /// The given terms as texts: those that select an event without a name, and those that narrow
    /// it.
    fn split(
        &self,
        event: Option<PmuEvent<'_>>,
        given: &[Given<'_>],
        defaults: &[Given<'_>],
    ) -> (String, String) {
        let covered = event.map(|event| self.covered(event.alias));
        let mut selects = Vec::new();
        let mut narrows = Vec::new();
        for (at, field) in given.iter().enumerate() {
            let text = format!("{}={:#x}", field.name, field.value);
            if given[at + 1..].iter().any(|later| later.name == field.name) {
                continue; // The last one counts.
            }
            match covered {
                Some(covered) if field.format.mask() & !covered[field.format.word()] == 0 => {}
                None if self.selects(&field.name) => selects.push(text),
                _ => narrows.push(text),
            }
        }
        narrows.extend(defaults.iter().map(|field| format!("{}={:#x}", field.name, field.value)));
        if selects.is_empty() {
            selects.push("config=0x0".to_owned());
        }
        (selects.join(","), narrows.join(","))
    }

    fn unknown(&self, term: &Term) -> At {
        let events: Vec<&str> = self.events().map(|event| event.name).collect();
        let fields: Vec<&str> = self.pmu.formats.keys().map(String::as_str).collect();
        let (what, known) = match term.value {
            TermValue::Bare => {
                let vendor: Vec<&str> = self.vendor_events().map(|event| event.name).collect();
                ("event or term", [events.as_slice(), &fields, &vendor].concat())
            }
            _ => ("term", fields.clone()),
        };
        let near = did_you_misspell(&term.name, known);
        let events = match term.value {
            TermValue::Bare => format!(" (events: {})", list(events)),
            _ => String::new(),
        };
        let message = format!(
            "{} has no {what} {}{near}{events} (terms: {})",
            self.shown(),
            printable(&term.name),
            list(fields.into_iter().chain(WHOLE_WORDS))
        );
        At::new(term.column, message)
    }

    fn shown(&self) -> Cow<'a, str> {
        printable(&self.pmu.name)
    }
}

/// Writes a value that is known to fit into its field, replacing the previous one.
fn set(config: &mut [u64; WORDS], field: &Given<'_>) {
    let word = field.format.word();
    let bits = field.format.encode(field.value).unwrap_or_default();
    config[word] = config[word] & !field.format.mask() | bits[word];
}

#[cfg(test)]
mod tests;
