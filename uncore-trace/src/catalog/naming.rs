//! Names the event that config words select, and the fields that narrow it.
//!
//! Only the words count, not how they were typed. Two terms with overlapping bits are an exception:
//! the filter then has the one that was typed. So is a named event whose bits other terms change.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::encode::FieldValue;
use super::pmu_words::{PmuEvent, PmuWords, WHOLE_WORDS};
use crate::discover::event::{AliasValue, EventAlias};
use crate::discover::format::{FormatField, WORDS};

/// Config words, or bits of them.
type ConfigWords = [u64; WORDS];

impl<'a> PmuWords<'a> {
    /// The event that `config` selects: one whose terms have these values, and that has terms for
    /// every other bit that is part of an event's encoding.
    ///
    /// Sysfs wins over the catalog, and both over the vendor's names; then the most specific event
    /// wins, then the one that was typed.
    pub(super) fn selected_event(
        &self,
        config: &ConfigWords,
        attr_type: u32,
        typed: Option<PmuEvent<'a>>,
        selectors: &BTreeSet<&str>,
    ) -> Option<PmuEvent<'a>> {
        let wanted = self.selecting_bits(config, selectors);
        let is_selected = |event: &PmuEvent<'a>| {
            // The bits of a generic event have another meaning than those of the PMU's own type.
            event.attr_type == attr_type
                && self.has_values(event.alias, config)
                && without_bits(&wanted, &self.covered_bits(event.alias)) == [0; WORDS]
        };
        let rank = |event: &PmuEvent<'a>| {
            let bits: u32 =
                self.covered_bits(event.alias).iter().map(|word| word.count_ones()).sum();
            let is_typed = typed.is_some_and(|typed| typed.name == event.name);
            (!self.pmu.events.contains_key(event.name), Reverse(bits), !is_typed)
        };
        self.all_events().filter(is_selected).min_by_key(rank).or_else(|| {
            let vendor = self.vendor_events_if(|alias| self.has_values(alias, config));
            // Older names of an event have no unit of their own.
            let has_unit =
                |name: &str| self.family.is_some_and(|family| family.event_unit(name).is_some());
            vendor.filter(is_selected).min_by_key(|event| (!has_unit(event.name), rank(event)))
        })
    }

    /// For an event that was typed by name, and whose config words are `own_words`: the event that
    /// `config` selects, and the event whose unit and scale it has. That is always the typed one,
    /// as in perf, whichever bits other terms add (`perf_pmu__check_alias`, tools/perf/util/pmu.c,
    /// Linux 7.2); an event of another unit gives no name.
    pub(super) fn changed_event(
        &self,
        config: &ConfigWords,
        own_words: &ConfigWords,
        alias: PmuEvent<'a>,
        selectors: &BTreeSet<&str>,
    ) -> (Option<PmuEvent<'a>>, Option<PmuEvent<'a>>) {
        let named = |config| self.selected_event(config, alias.attr_type, Some(alias), selectors);
        let (selected, typed) = (named(config), named(own_words).unwrap_or(alias));
        if selected.is_some_and(|candidate| candidate.name == typed.name) {
            return (selected, selected);
        }
        let fields = union_of_masks(self.own_formats().into_iter().map(|(_, format)| format));
        let selecting = self.selecting_bits(config, selectors);
        let mut added = selecting.iter().zip(self.covered_bits(typed.alias)).zip(fields);
        let only_others = added.all(|((word, own_bits), fields)| word & fields & !own_bits == 0);
        let event = match selected {
            // Bits of no field narrow it.
            None => Some(typed).filter(|_| only_others && self.has_values(typed.alias, config)),
            Some(selected) => Some(selected)
                .filter(|_| self.event_unit(selected.into()) == self.event_unit(typed.into())),
        };
        (event, Some(typed))
    }

    /// Whether `config` has the event's values. Any value is one for a term that asks for it.
    fn has_values(&self, alias: &EventAlias, config: &ConfigWords) -> bool {
        alias.terms.iter().all(|term| match (term.value, self.term_format(&term.name)) {
            (AliasValue::Number(value), Some(format)) => format.decode_value(config) == value,
            (AliasValue::Asked, format) => format.is_some(),
            (AliasValue::Number(_), None) => false,
        })
    }

    /// The bits that the event's own values occupy.
    fn covered_bits(&self, alias: &EventAlias) -> ConfigWords {
        union_of_masks(alias.numbers().filter_map(|(name, _)| self.term_format(name)))
    }

    /// The set bits of `config` that select an event, and those of no field. A bit that is also
    /// part of a filter does not: CMN has `occupid` and `wp_combine` at the same place.
    fn selecting_bits(&self, config: &ConfigWords, selectors: &BTreeSet<&str>) -> ConfigWords {
        let fields = self.own_formats();
        let narrow = fields.iter().filter(|(name, _)| !selects_event(selectors, name));
        without_bits(config, &union_of_masks(narrow.map(|(_, format)| *format)))
    }

    /// The terms to which an event of the PMU gives a value.
    pub(super) fn selector_terms(&self) -> BTreeSet<&'a str> {
        self.all_events().flat_map(|event| event.alias.numbers()).map(|(name, _)| name).collect()
    }

    /// The fields of the PMU without whole config words: of sysfs, then of the catalog.
    fn own_formats(&self) -> Vec<(&'a str, FormatField)> {
        let sysfs = &self.pmu.formats;
        let added = self.family.iter().flat_map(|family| &family.formats);
        let added = added.filter(|(name, _)| !sysfs.contains_key(*name));
        sysfs.iter().chain(added).map(|(name, format)| (name.as_str(), *format)).collect()
    }

    /// The fields of `config` that are not zero, outside the values of `event`; bits of no field as
    /// part of a config word. `typed` are preferred to other fields of the same bits.
    pub(super) fn narrowing_fields(
        &self,
        config: &ConfigWords,
        event: Option<PmuEvent<'a>>,
        typed: &[&str],
        selectors: &BTreeSet<&str>,
    ) -> Vec<FieldValue<'a>> {
        let is_of_event = |name: &str| {
            event.is_some_and(|event| event.alias.terms.iter().any(|term| term.name == name))
        };
        let covered = event.map_or([0; WORDS], |event| self.covered_bits(event.alias));
        let mut formats = self.own_formats();
        formats.sort_by_key(|(name, format)| {
            let preferred = is_of_event(name) || typed.contains(name);
            (!preferred, !selects_event(selectors, name), format.mask.trailing_zeros())
        });
        let mut remaining = without_bits(config, &covered);
        let mut used = [0; WORDS];
        let mut fields = Vec::new();
        for (name, format) in formats {
            let (word, mask) = (format.word_index(), format.mask);
            if remaining[word] & mask != 0 && used[word] & mask == 0 {
                let value = format.decode_value(config);
                fields.push(FieldValue { name: Cow::Borrowed(name), format, value });
                remaining[word] &= !mask;
                used[word] |= mask;
            }
        }
        for (word, bits) in remaining.into_iter().enumerate().filter(|(_, bits)| *bits != 0) {
            let format = FormatField::from_mask(word, bits);
            let name = Cow::Borrowed(WHOLE_WORDS[word]);
            fields.push(FieldValue { name, format, value: format.max_value() });
        }
        fields
    }

    /// The terms whose values the user gives.
    pub(super) fn asked_fields(&self, alias: &'a EventAlias) -> Vec<FieldValue<'a>> {
        let asked_field = |name: &'a str| {
            let format = self.term_format(name)?;
            Some(FieldValue { name: Cow::Borrowed(name), format, value: 0 })
        };
        alias.asked_terms().filter_map(asked_field).collect()
    }

    /// The values of `fields` in `config` as texts in the order of their bits: those that select an
    /// event without a name, and those that narrow it.
    pub(super) fn selector_and_filter(
        &self,
        config: &ConfigWords,
        event: Option<PmuEvent<'_>>,
        mut fields: Vec<FieldValue<'_>>,
        selectors: &BTreeSet<&str>,
    ) -> (String, String) {
        fields.sort_by_key(|field| {
            // A whole word would replace the fields before it.
            let is_field = !WHOLE_WORDS.contains(&field.name.as_ref());
            (is_field, field.format.word_index(), field.format.mask.trailing_zeros())
        });
        fields.dedup_by(|later, earlier| later.name == earlier.name);
        let mut selecting = Vec::new();
        let mut narrowing = Vec::new();
        for FieldValue { name, format, .. } in fields {
            let is_whole = WHOLE_WORDS.contains(&name.as_ref());
            let bits = config[format.word_index()] & format.mask;
            let value = if is_whole { bits } else { format.decode_value(config) };
            let is_selector = event.is_none() && selects_event(selectors, &name);
            if is_selector { &mut selecting } else { &mut narrowing }
                .push(format!("{name}={value:#x}"));
        }
        if selecting.is_empty() {
            let zero = if self.term_format("event").is_some() { "event" } else { WHOLE_WORDS[0] };
            selecting.push(format!("{zero}=0x0"));
        }
        (selecting.join(","), narrowing.join(","))
    }
}

/// Whether a term selects the event, rather than narrows it: by its name, or since an event of the
/// PMU gives it a value.
fn selects_event(selectors: &BTreeSet<&str>, term: &str) -> bool {
    term.starts_with("event")
        || term.starts_with("umask")
        || ["type", "config"].contains(&term)
        || selectors.contains(term)
}

/// The words without these bits.
fn without_bits(words: &ConfigWords, bits: &ConfigWords) -> ConfigWords {
    std::array::from_fn(|word| words[word] & !bits[word])
}

fn union_of_masks(formats: impl Iterator<Item = FormatField>) -> ConfigWords {
    formats.fold([0; WORDS], |mut bits, format| {
        bits[format.word_index()] |= format.mask;
        bits
    })
}
