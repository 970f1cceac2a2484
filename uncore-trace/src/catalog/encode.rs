//! Encodes an event of a PMU: turns terms into config words.
//!
//! Names and fields come from sysfs or, if missing there, from the catalog. A value that does not
//! fit, an unknown term or a filter that would count nothing is an error with its column.
//!
//! Guarantee: name, filter, unit and scale follow from the config words alone ([`super::naming`]), so
//! that an event is the same however it was typed: by name, by fields or by config words.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::asides::Asides;
use super::rules::Attempt;
use super::spec::{At, Term, TermValue};
use super::suggest::{did_you_misspell, list};
use super::words::{CACHE, HARDWARE, PmuEvent, WHOLE_WORDS, Words};
use crate::discover::event::AliasValue;
use crate::discover::format::{Format, WORDS};
use crate::text::printable;

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
    /// What was typed beside the event.
    pub asides: Asides,
}

/// A field with its value.
pub(super) struct Given<'a> {
    pub name: Cow<'a, str>,
    pub format: Format,
    pub value: u64,
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
        let attr_type = alias.map_or(self.pmu.attr_type, |event| event.attr_type);
        let typed: Vec<&str> = given.iter().map(|field| field.name.as_ref()).collect();
        let selectors = self.selectors();
        let event = self.named(&config, attr_type, alias, &selectors);
        let set_fields = self.fields(&config, event, &typed, &selectors);
        let names = typed.iter().copied().chain(set_fields.iter().map(|field| field.name.as_ref()));
        let names: BTreeSet<&str> = names.collect();
        let defaults = self.defaults(event, &names, leader);
        let defaults = defaults.map_err(|message| At::new(start, message))?;
        for field in &defaults {
            set(&mut config, field);
        }
        let attempt = Attempt { config: &config, given: &typed, leader };
        if let Some(why) = self.refusal(&attempt) {
            return Err(At::new(start, why));
        }
        let (unit, scale) = self.unit(event);
        let mut shown = self.fields(&config, event, &typed, &selectors);
        // A value of zero is shown where the default is another one, or where the event asks for it.
        let names: BTreeSet<&str> = shown.iter().map(|field| field.name.as_ref()).collect();
        let defaults = self.defaults(event, &names, leader).unwrap_or_default();
        shown.extend(defaults);
        shown.extend(event.iter().flat_map(|event| self.asked(event.alias)));
        let (selects, filter) = self.texts(&config, event, shown, &selectors);
        Ok(Encoded {
            attr_type,
            config,
            event: event.map_or(selects, |event| event.name.to_owned()),
            filter,
            unit,
            scale,
            snapshot: event.is_some_and(|event| event.alias.snapshot),
            asides: Asides::default(),
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
                TermValue::Number(value) => match self.legacy(&term.name, *value) {
                    Some(event) => alias = Some(event),
                    None => given.push(field(*value)?),
                },
                TermValue::Symbol(symbol) => given.push(field(self.symbol(term, symbol)?)?),
                TermValue::Bare => match (self.event(&term.name), self.format(&term.name)) {
                    // `PMU/rNNN/`, in hex.
                    (None, None) if raw(&term.name).is_some() => {
                        let value = raw(&term.name).unwrap_or_default();
                        let name = Cow::Borrowed(WHOLE_WORDS[0]);
                        given.push(Given { name, format: Format::whole(0), value });
                    }
                    (Some(event), _) => {
                        if let Some(other) = alias.replace(event) {
                            let message = format!(
                                "a second event after {}: one at a time",
                                printable(other.name)
                            );
                            return Err(at(message));
                        }
                    }
                    // As in perf, also for whole words.
                    (None, Some(format))
                        if format.width() == 1 || WHOLE_WORDS.contains(&term.name.as_str()) =>
                    {
                        given.push(field(1)?);
                    }
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
            let (name, missing) = (printable(event.name), printable(missing));
            let message = format!("{name} needs {missing}=N with it, N up to {max:#x}");
            return Err(At::new(terms.first().map_or(1, |term| term.column), message));
        }
        Ok((alias, given))
    }

    /// The generic event of `legacy-hardware-config=N` or `legacy-cache-config=N`.
    fn legacy(&self, term: &str, value: u64) -> Option<PmuEvent<'a>> {
        let attr_type = match term {
            "legacy-hardware-config" => HARDWARE,
            "legacy-cache-config" => CACHE,
            _ => return None,
        };
        self.generic(attr_type, value)
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
                    printable(&term.name)
                ));
            };
            format.encode(value).map_err(|error| {
                format!("{}: its event {}: {error}", self.shown(), printable(event.name))
            })?;
            set(config, &Given { name: Cow::Borrowed(&term.name), format, value });
        }
        Ok(())
    }

    /// The default filters that apply if terms with the names `given` are set.
    fn defaults(
        &self,
        event: Option<PmuEvent<'a>>,
        given: &BTreeSet<&str>,
        leader: &[Term],
    ) -> Result<Vec<Given<'a>>, String> {
        let Some(family) = self.family else { return Ok(Vec::new()) };
        let mut names = given.clone();
        names.extend(event.iter().flat_map(|event| &event.alias.terms).map(|t| t.name.as_str()));
        let mut defaults: Vec<Given<'a>> = Vec::new();
        let name = event.map(|event| event.name);
        for filter in family.filters.iter().filter(|filter| filter.is_for(self.pmu, name)) {
            let unless = |name: &str| filter.unless.iter().any(|term| term == name);
            let inherited = leader.iter().any(|term| unless(&term.name));
            let fields: Option<Vec<Given<'a>>> = filter
                .terms
                .terms
                .iter()
                .map(|term| match term.value {
                    AliasValue::Number(value) => self.format(&term.name).map(|format| Given {
                        name: Cow::Borrowed(term.name.as_str()),
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

/// Parses `r80C0` or `r0x80c0` as 0x80c0.
pub fn raw(typed: &str) -> Option<u64> {
    let hex = typed.strip_prefix('r')?;
    let hex = hex.strip_prefix("0x").unwrap_or(hex);
    let digits = !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(hex, 16).ok())?
}

/// Writes a value that is known to fit into its field, replacing the previous one.
fn set(config: &mut [u64; WORDS], field: &Given<'_>) {
    let word = field.format.word();
    let bits = field.format.encode(field.value).unwrap_or_default();
    config[word] = config[word] & !field.format.mask() | bits[word];
}

#[cfg(test)]
mod tests;
