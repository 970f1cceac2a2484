//! Encodes an event of a PMU: turns terms into config words.
//!
//! Names and fields come from sysfs or, if missing there, from the catalog. A value that does not
//! fit, an unknown term or a filter that would count nothing is an error with its column.
//!
//! Guarantees: terms set the bits that they set in perf; and name, filter, unit and scale follow
//! from the config words alone ([`super::naming`]), so that an event is the same however it was
//! typed: by name, by fields or by config words. Only where other terms change the bits of a named
//! event, its unit and scale are still those of the name, as in perf.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::asides::Asides;
use super::pmu_words::{CACHE, HARDWARE, PmuEvent, PmuWords, WHOLE_WORDS};
use super::rules::Attempt;
use super::spec::{ColumnError, Term, TermValue};
use crate::discover::format::{FormatField, WORDS};
use crate::suggest::{did_you_misspell, list_names};
use crate::text::printable;

/// An encoded event.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedEvent {
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
pub(super) struct FieldValue<'a> {
    pub name: Cow<'a, str>,
    pub format: FormatField,
    pub value: u64,
}

/// What was typed for one event.
struct TypedEvent<'a, 't> {
    /// The named event.
    alias: Option<PmuEvent<'a>>,
    /// Number of fields before it.
    fields_before: usize,
    /// Fields with values.
    fields: Vec<FieldValue<'t>>,
}

impl FieldValue<'_> {
    /// Whether it is a whole config word.
    fn is_whole(&self) -> bool {
        WHOLE_WORDS.contains(&self.name.as_ref())
    }
}

impl<'a> PmuWords<'a> {
    /// Encodes the terms of one event. `leader` are the terms of its group leader, whose filter
    /// some drivers pass on.
    pub fn encode_terms(
        &self,
        terms: &[Term],
        leader: &[Term],
    ) -> Result<EncodedEvent, ColumnError> {
        let start = terms.first().map_or(1, |term| term.column);
        let TypedEvent { alias, fields_before: leading_count, fields: typed_fields } =
            self.separate_terms(terms)?;
        let own_values = alias.map(|event| self.own_fields(event)).transpose();
        let own_values =
            own_values.map_err(|message| ColumnError::new(start, message))?.unwrap_or_default();
        let (leading, trailing) = typed_fields.split_at(leading_count);
        let mut config = combine_fields(leading.iter().chain(&own_values).chain(trailing));
        let note = overridden_note(&config, &typed_fields, alias.is_some());
        let attr_type = alias.map_or(self.pmu.attr_type, |event| event.attr_type);
        let typed: Vec<&str> = typed_fields.iter().map(|field| field.name.as_ref()).collect();
        let selectors = self.selector_terms();
        let (event, measured) = if let Some(alias) = alias {
            self.changed_event(&config, &combine_fields(own_values.iter()), alias, &selectors)
        } else {
            let event = self.selected_event(&config, attr_type, None, &selectors);
            (event, event)
        };
        let set_fields = self.narrowing_fields(&config, event, &typed, &selectors);
        let names = typed.iter().copied().chain(set_fields.iter().map(|field| field.name.as_ref()));
        let names: BTreeSet<&str> = names.collect();
        let defaults = self.default_fields(event, &names, leader);
        let defaults = defaults.map_err(|message| ColumnError::new(start, message))?;
        for field in &defaults {
            set_field(&mut config, field);
        }
        let attempt = Attempt { config: &config, typed_names: &typed, leader };
        if let Some(why) = self.refusal_reason(&attempt) {
            return Err(ColumnError::new(start, why));
        }
        let (unit, scale) = self.event_unit(measured);
        let mut shown = self.narrowing_fields(&config, event, &typed, &selectors);
        // A value of zero is shown where the default is another one, or where the event asks for
        // it.
        let names: BTreeSet<&str> = shown.iter().map(|field| field.name.as_ref()).collect();
        shown.extend(self.default_fields(event, &names, leader).unwrap_or_default());
        shown.extend(event.iter().flat_map(|event| self.asked_fields(event.alias)));
        let (selects, filter) = self.selector_and_filter(&config, event, shown, &selectors);
        Ok(EncodedEvent {
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
    fn separate_terms<'t>(&self, terms: &'t [Term]) -> Result<TypedEvent<'a, 't>, ColumnError> {
        let mut alias: Option<PmuEvent<'a>> = None;
        let (mut fields_before, mut typed_fields) = (0, Vec::new());
        for term in terms {
            let error_at = |message: String| ColumnError::new(term.column, message);
            let field = |value| -> Result<FieldValue<'t>, ColumnError> {
                let format =
                    self.term_format(&term.name).ok_or_else(|| self.unknown_term_error(term))?;
                format.encode_value(value).map_err(|error| {
                    error_at(format!(
                        "{}: {}: {error}",
                        self.printable_pmu(),
                        printable(&term.name)
                    ))
                })?;
                Ok(FieldValue { name: Cow::Borrowed(&term.name), format, value })
            };
            let named = alias.is_some();
            let mut name = |event: PmuEvent<'a>| match alias.replace(event) {
                None => Ok(()),
                Some(previous) => {
                    let previous_name = printable(previous.name);
                    Err(error_at(format!("a second event after {previous_name}: one at a time")))
                }
            };
            match &term.value {
                TermValue::Number(value) => match self.legacy_event(&term.name, *value) {
                    Some(event) => alias = Some(event),
                    None => typed_fields.push(field(*value)?),
                },
                // All of the event, as in perf (`pmu_find_alias`, tools/perf/util/pmu.c, Linux
                // 7.2).
                TermValue::Symbol(symbol) if term.name.eq_ignore_ascii_case("event") => {
                    name(
                        self.find_event(symbol).ok_or_else(|| self.no_event_error(term, symbol))?,
                    )?;
                }
                TermValue::Symbol(symbol) => {
                    typed_fields.push(field(self.symbol_value(term, symbol)?)?);
                }
                TermValue::Bare => {
                    match (self.find_event(&term.name), self.term_format(&term.name)) {
                        // `PMU/rNNN/`, in hex.
                        (None, None) if parse_raw(&term.name).is_some() => {
                            let value = parse_raw(&term.name).unwrap_or_default();
                            typed_fields.push(FieldValue {
                                name: Cow::Borrowed(WHOLE_WORDS[0]),
                                format: FormatField::whole_word(0),
                                value,
                            });
                        }
                        (Some(event), _) => name(event)?,
                        // As in perf, also for whole words.
                        (None, Some(format))
                            if format.bit_width() == 1
                                || WHOLE_WORDS.contains(&term.name.as_str()) =>
                        {
                            typed_fields.push(field(1)?);
                        }
                        (None, Some(format)) => {
                            let message = format!(
                                "{} needs a value, up to {:#x} ({format})",
                                term.name,
                                format.max_value()
                            );
                            return Err(error_at(message));
                        }
                        (None, None) => return Err(self.unknown_term_error(term)),
                    }
                }
            }
            if alias.is_some() && !named {
                fields_before = typed_fields.len();
            }
        }
        let missing = alias.and_then(|event| {
            let asked = event.alias.asked_terms();
            asked.into_iter().find(|asked| !typed_fields.iter().any(|field| field.name == *asked))
        });
        if let (Some(event), Some(missing)) = (alias, missing) {
            let max = self.term_format(missing).map_or(u64::MAX, |format| format.max_value());
            let (name, missing) = (printable(event.name), printable(missing));
            let message = format!("{name} also needs {missing}=N, with N up to {max:#x}");
            return Err(ColumnError::new(terms.first().map_or(1, |term| term.column), message));
        }
        Ok(TypedEvent { alias, fields_before, fields: typed_fields })
    }

    /// The generic event of `legacy-hardware-config=N` or `legacy-cache-config=N`.
    fn legacy_event(&self, term: &str, value: u64) -> Option<PmuEvent<'a>> {
        let attr_type = match term {
            "legacy-hardware-config" => HARDWARE,
            "legacy-cache-config" => CACHE,
            _ => return None,
        };
        self.generic_event(attr_type, value)
    }

    /// The value of `term` in the event called `symbol`.
    fn symbol_value(&self, term: &Term, symbol: &str) -> Result<u64, ColumnError> {
        self.term_format(&term.name).ok_or_else(|| self.unknown_term_error(term))?;
        let event = self.find_event(symbol);
        let mut numbers = event.iter().flat_map(|event| event.alias.numbers());
        let named = numbers.find(|(name, _)| *name == term.name);
        named.map(|(_, value)| value).ok_or_else(|| self.no_event_error(term, symbol))
    }

    fn no_event_error(&self, term: &Term, symbol: &str) -> ColumnError {
        let names: Vec<_> = self.all_events().map(|event| event.name).collect();
        let near = did_you_misspell(symbol, names.iter().copied());
        let message = format!(
            "{symbol:?} is neither a number nor an event of {} with a value for {}{near}",
            self.printable_pmu(),
            term.name
        );
        ColumnError::new(term.column, message)
    }

    /// The values of a named event.
    fn own_fields(&self, event: PmuEvent<'a>) -> Result<Vec<FieldValue<'a>>, String> {
        let mut fields = Vec::new();
        for (name, value) in event.alias.numbers() {
            let Some(format) = self.term_format(name) else {
                return Err(format!(
                    "{}: its event {} uses the unknown field {}",
                    self.printable_pmu(),
                    printable(event.name),
                    printable(name)
                ));
            };
            format.encode_value(value).map_err(|error| {
                format!("{}: its event {}: {error}", self.printable_pmu(), printable(event.name))
            })?;
            fields.push(FieldValue { name: Cow::Borrowed(name), format, value });
        }
        Ok(fields)
    }

    /// The default filters that apply if terms with these names are set.
    fn default_fields(
        &self,
        event: Option<PmuEvent<'a>>,
        set_names: &BTreeSet<&str>,
        leader: &[Term],
    ) -> Result<Vec<FieldValue<'a>>, String> {
        let Some(family) = self.family else { return Ok(Vec::new()) };
        let mut names = set_names.clone();
        names.extend(event.iter().flat_map(|event| &event.alias.terms).map(|t| t.name.as_str()));
        let mut defaults: Vec<FieldValue<'a>> = Vec::new();
        let name = event.map(|event| event.name);
        for filter in family.filters.iter().filter(|filter| filter.applies_to(self.pmu, name)) {
            let unless = |name: &str| filter.unless.iter().any(|term| term == name);
            let inherited = leader.iter().any(|term| unless(&term.name));
            let field = |(name, value)| {
                Some(FieldValue {
                    name: Cow::Borrowed(name),
                    format: self.term_format(name)?,
                    value,
                })
            };
            // A kernel without the field has no such filter.
            let fields: Option<Vec<FieldValue<'a>>> = filter.terms.numbers().map(field).collect();
            let Some(fields) = fields else { continue };
            let is_typed = |field: &FieldValue<'_>| {
                let word = field.format.word_index();
                names.contains(field.name.as_ref()) || word > 0 && names.contains(WHOLE_WORDS[word])
            };
            // The first rule for a term counts.
            let is_set =
                |field: &FieldValue<'_>| defaults.iter().any(|earlier| earlier.name == field.name);
            if !inherited
                && !names.iter().any(|name| unless(name))
                && !fields.iter().any(|field| is_typed(field) || is_set(field))
            {
                defaults.extend(fields);
            }
        }
        for FieldValue { name, format, value } in &defaults {
            format.encode_value(*value).map_err(|error| {
                format!(
                    "{}: the default {name} of {}: {error}",
                    self.printable_pmu(),
                    family.family
                )
            })?;
        }
        Ok(defaults)
    }

    fn unknown_term_error(&self, term: &Term) -> ColumnError {
        let events: Vec<&str> = self.all_events().map(|event| event.name).collect();
        let fields: Vec<&str> = self.pmu.formats.keys().map(String::as_str).collect();
        let (noun, known) = match term.value {
            TermValue::Bare => {
                let vendor: Vec<&str> = self.vendor_events().map(|event| event.name).collect();
                ("event or term", [events.as_slice(), &fields, &vendor].concat())
            }
            _ => ("term", fields.clone()),
        };
        let near = did_you_misspell(&term.name, known);
        let events = match term.value {
            TermValue::Bare => format!(" (events: {})", list_names(events)),
            _ => String::new(),
        };
        let message = format!(
            "{} has no {noun} {}{near}{events} (terms: {})",
            self.printable_pmu(),
            printable(&term.name),
            list_names(fields.into_iter().chain(WHOLE_WORDS))
        );
        ColumnError::new(term.column, message)
    }

    fn printable_pmu(&self) -> Cow<'a, str> {
        printable(&self.pmu.name)
    }
}

/// Parses `r80C0` or `r0x80c0` as 0x80c0.
pub fn parse_raw(typed: &str) -> Option<u64> {
    let hex = typed.strip_prefix('r')?;
    let hex = hex.strip_prefix("0x").unwrap_or(hex);
    let digits = !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(hex, 16).ok())?
}

/// The config words of fields with values that are known to fit, as perf makes them (`config_attr`
/// and `perf_pmu__format_pack`, tools/perf/util, Linux 7.2): the last of several whole words
/// counts, and the bits of all fields are added to it, in whatever order they are.
fn combine_fields<'g>(fields: impl Iterator<Item = &'g FieldValue<'g>> + Clone) -> [u64; WORDS] {
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
fn overridden_note(
    config: &[u64; WORDS],
    typed_fields: &[FieldValue<'_>],
    is_named: bool,
) -> Option<String> {
    let differs = |field: &&FieldValue<'_>| {
        field.format.decode_value(config) != field.value && (is_named || !field.is_whole())
    };
    let FieldValue { name, format, value } = typed_fields.iter().find(differs)?;
    Some(format!(
        "{name}={value:#x}: terms that set the same bits are combined, as in perf, and {name} is \
         {:#x}",
        format.decode_value(config)
    ))
}

/// Writes a value that is known to fit into its field, replacing the previous one.
fn set_field(config: &mut [u64; WORDS], field: &FieldValue<'_>) {
    let word = field.format.word_index();
    let bits = field.format.encode_value(field.value).unwrap_or_default();
    config[word] = config[word] & !field.format.mask | bits[word];
}

#[cfg(test)]
mod tests;
