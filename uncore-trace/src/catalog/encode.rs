//! Encodes an event of a PMU: turns terms into config words.
//!
//! Names and fields come from sysfs or, if missing there, from the catalog. A value that does not
//! fit, an unknown term or a filter that would count nothing is an error with its column.
//!
//! Guarantees: terms set the bits that they set in perf; and name, filter, unit and scale follow from the
//! config words alone ([`super::naming`]), so that an event is the same however it was typed: by name,
//! by fields or by config words. Only where other terms change the bits of a named event, its unit and
//! scale are still those of the name, as in perf.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::asides::Asides;
use super::rules::Attempt;
use super::spec::{At, Term, TermValue};
use super::suggest::{did_you_misspell, list};
use super::words::{CACHE, HARDWARE, PmuEvent, WHOLE_WORDS, Words};
use crate::discover::event::AliasValue;
use crate::discover::format::{FormatField, WORDS};
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
    /// A term that has another value than was typed, because others set its bits too: one line.
    pub note: Option<String>,
}

/// A field with its value.
pub(super) struct Given<'a> {
    pub name: Cow<'a, str>,
    pub format: FormatField,
    pub value: u64,
}

/// What was typed for one event.
struct Typed<'a, 't> {
    /// The named event.
    alias: Option<PmuEvent<'a>>,
    /// Number of fields before it.
    before: usize,
    /// Fields with values.
    fields: Vec<Given<'t>>,
}

impl Given<'_> {
    /// Whether it is a whole config word.
    fn is_whole(&self) -> bool {
        WHOLE_WORDS.contains(&self.name.as_ref())
    }
}

impl<'a> Words<'a> {
    /// Encodes the terms of one event. `leader` are the terms of its group leader, whose filter
    /// some drivers pass on.
    pub fn encode(&self, terms: &[Term], leader: &[Term]) -> Result<Encoded, At> {
        let start = terms.first().map_or(1, |term| term.column);
        let Typed { alias, before, fields: given } = self.given(terms)?;
        let own = alias.map(|event| self.own_fields(event)).transpose();
        let own = own.map_err(|message| At::new(start, message))?.unwrap_or_default();
        let (first, last) = given.split_at(before);
        let mut config = combined(first.iter().chain(&own).chain(last));
        let note = note(&config, &given, alias.is_some());
        let attr_type = alias.map_or(self.pmu.attr_type, |event| event.attr_type);
        let typed: Vec<&str> = given.iter().map(|field| field.name.as_ref()).collect();
        let selectors = self.selectors();
        let (event, measured) = if let Some(alias) = alias {
            self.changed(&config, &combined(own.iter()), alias, &selectors)
        } else {
            let event = self.named(&config, attr_type, None, &selectors);
            (event, event)
        };
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
        let (unit, scale) = self.unit(measured);
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
            snapshot: measured.is_some_and(|event| event.alias.snapshot),
            asides: Asides::default(),
            note,
        })
    }

    /// Separates the typed terms into the named event, if any, and fields with values.
    fn given<'t>(&self, terms: &'t [Term]) -> Result<Typed<'a, 't>, At> {
        let mut alias: Option<PmuEvent<'a>> = None;
        let (mut before, mut given) = (0, Vec::new());
        for term in terms {
            let at = |message: String| At::new(term.column, message);
            let field = |value| -> Result<Given<'t>, At> {
                let format = self.format(&term.name).ok_or_else(|| self.unknown(term))?;
                format.encode_value(value).map_err(|error| {
                    at(format!("{}: {}: {error}", self.shown(), printable(&term.name)))
                })?;
                Ok(Given { name: Cow::Borrowed(&term.name), format, value })
            };
            let named = alias.is_some();
            let mut name = |event: PmuEvent<'a>| match alias.replace(event) {
                None => Ok(()),
                Some(other) => {
                    let other = printable(other.name);
                    Err(at(format!("a second event after {other}: one at a time")))
                }
            };
            match &term.value {
                TermValue::Number(value) => match self.legacy(&term.name, *value) {
                    Some(event) => alias = Some(event),
                    None => given.push(field(*value)?),
                },
                // All of the event, as in perf (`pmu_find_alias`, tools/perf/util/pmu.c, Linux 7.2).
                TermValue::Symbol(symbol) if term.name.eq_ignore_ascii_case("event") => {
                    name(self.event(symbol).ok_or_else(|| self.no_event(term, symbol))?)?;
                }
                TermValue::Symbol(symbol) => given.push(field(self.symbol(term, symbol)?)?),
                TermValue::Bare => match (self.event(&term.name), self.format(&term.name)) {
                    // `PMU/rNNN/`, in hex.
                    (None, None) if raw(&term.name).is_some() => {
                        let value = raw(&term.name).unwrap_or_default();
                        let name = Cow::Borrowed(WHOLE_WORDS[0]);
                        given.push(Given { name, format: FormatField::whole_word(0), value });
                    }
                    (Some(event), _) => name(event)?,
                    // As in perf, also for whole words.
                    (None, Some(format))
                        if format.bit_width() == 1 || WHOLE_WORDS.contains(&term.name.as_str()) =>
                    {
                        given.push(field(1)?);
                    }
                    (None, Some(format)) => {
                        let message = format!(
                            "{} needs a value, up to {:#x} ({format})",
                            term.name,
                            format.max_value()
                        );
                        return Err(at(message));
                    }
                    (None, None) => return Err(self.unknown(term)),
                },
            }
            if alias.is_some() && !named {
                before = given.len();
            }
        }
        let missing = alias.and_then(|event| {
            let asked = event.alias.asked_terms();
            asked.into_iter().find(|asked| !given.iter().any(|field| field.name == *asked))
        });
        if let (Some(event), Some(missing)) = (alias, missing) {
            let max = self.format(missing).map_or(u64::MAX, |format| format.max_value());
            let (name, missing) = (printable(event.name), printable(missing));
            let message = format!("{name} needs {missing}=N with it, N up to {max:#x}");
            return Err(At::new(terms.first().map_or(1, |term| term.column), message));
        }
        Ok(Typed { alias, before, fields: given })
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
        value.ok_or_else(|| self.no_event(term, symbol))
    }

    fn no_event(&self, term: &Term, symbol: &str) -> At {
        let names: Vec<_> = self.events().map(|event| event.name).collect();
        let near = did_you_misspell(symbol, names.iter().copied());
        let message = format!(
            "{symbol:?} is neither a number nor an event of {} with a value for {}{near}",
            self.shown(),
            term.name
        );
        At::new(term.column, message)
    }

    /// The values of a named event.
    fn own_fields(&self, event: PmuEvent<'a>) -> Result<Vec<Given<'a>>, String> {
        let mut fields = Vec::new();
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
            format.encode_value(value).map_err(|error| {
                format!("{}: its event {}: {error}", self.shown(), printable(event.name))
            })?;
            fields.push(Given { name: Cow::Borrowed(&term.name), format, value });
        }
        Ok(fields)
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
                let word = field.format.word_index();
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
            format.encode_value(*value).map_err(|error| {
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

/// The config words of fields with values that are known to fit, as perf makes them (`config_attr` and
/// `perf_pmu__format_pack`, tools/perf/util, Linux 7.2): the last of several whole words counts, and
/// the bits of all fields are added to it, in whatever order they are.
fn combined<'g>(fields: impl Iterator<Item = &'g Given<'g>> + Clone) -> [u64; WORDS] {
    let mut config = [0; WORDS];
    for field in fields.clone().filter(|field| field.is_whole()) {
        config[field.format.word_index()] = field.value;
    }
    for field in fields.filter(|field| !field.is_whole()) {
        let bits = field.format.encode_value(field.value).unwrap_or_default();
        config.iter_mut().zip(bits).for_each(|(word, bits)| *word |= bits);
    }
    config
}

/// What to say of the first field whose value in `config` is not the typed one. A whole word beside
/// fields has their bits too, which surprises only where an event has them.
fn note(config: &[u64; WORDS], given: &[Given<'_>], is_named: bool) -> Option<String> {
    let differs = |field: &&Given<'_>| {
        field.format.decode_value(config) != field.value && (is_named || !field.is_whole())
    };
    let Given { name, format, value } = given.iter().find(differs)?;
    Some(format!(
        "{name}={value:#x}: terms that set the same bits are combined, as in perf, and {name} is {:#x}",
        format.decode_value(config)
    ))
}

/// Writes a value that is known to fit into its field, replacing the previous one.
fn set(config: &mut [u64; WORDS], field: &Given<'_>) {
    let word = field.format.word_index();
    let bits = field.format.encode_value(field.value).unwrap_or_default();
    config[word] = config[word] & !field.format.bit_mask() | bits[word];
}

#[cfg(test)]
mod tests;
