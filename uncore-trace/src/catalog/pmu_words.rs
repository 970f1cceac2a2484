//! The vocabulary of one PMU: its terms, events and units, from sysfs and the catalog.
//!
//! Sysfs takes precedence; the catalog adds what a kernel does not name.

use std::cell::OnceCell;
use std::collections::HashSet;

use super::family::{Family, NamedEvent, PmuKind};
use super::metric::Metric;
use super::pattern::matches_event;
use super::rules::is_of;
use super::{Catalog, cache_names, vendor};
use crate::discover::event::{AliasValue, EventAlias};
pub use crate::discover::format::WHOLE_WORDS;
use crate::discover::format::{FormatField, WORDS};
use crate::discover::{Pmu, name};

/// `PERF_TYPE_HARDWARE` and `PERF_TYPE_HW_CACHE`, the types of generic events
/// (`include/uapi/linux/perf_event.h`, Linux 7.2).
pub const HARDWARE: u32 = 0;
/// See [`HARDWARE`].
pub const CACHE: u32 = 3;

/// A PMU with its part of the catalog.
#[derive(Debug, Clone, Copy)]
pub struct PmuWords<'a> {
    /// The PMU.
    pub pmu: &'a Pmu,
    /// Its family, if known.
    pub family: Option<&'a Family>,
    /// The family whose named events it also has.
    pub base: Option<&'a Family>,
}

/// An event of a PMU.
#[derive(Debug, Clone, Copy)]
pub struct PmuEvent<'a> {
    /// Its name as sysfs or the catalog spells it.
    pub name: &'a str,
    /// Its terms, scale and unit.
    pub alias: &'a EventAlias,
    /// The `perf_event_attr.type` with which it is opened.
    pub attr_type: u32,
}

impl<'a> PmuEvent<'a> {
    /// An event of the catalog on a PMU.
    fn new(event: &'a NamedEvent, pmu: &Pmu) -> Self {
        let attr_type = event.attr_type.unwrap_or(pmu.attr_type);
        Self { name: &event.names[0], alias: &event.encoding, attr_type }
    }
}

impl<'a> PmuWords<'a> {
    /// The vocabulary of `pmu`.
    pub fn new(catalog: &'a Catalog, pmu: &'a Pmu) -> Self {
        let family = catalog.family_of(pmu);
        let base = family.and_then(|family| family.events_of.as_deref());
        Self { pmu, family, base: base.and_then(|base| catalog.family_named(base)) }
    }

    /// The catalog's events for this processor whose fields the PMU has.
    fn added_events(&self) -> impl Iterator<Item = &'a NamedEvent> + use<'a> {
        let words = *self;
        self.catalog_events().filter(move |event| words.has_event(event))
    }

    /// The catalog's events, of any processor.
    fn catalog_events(&self) -> impl Iterator<Item = &'a NamedEvent> + use<'a> {
        self.own_events().chain(self.imported_events())
    }

    /// The events that the family describes itself, of any processor.
    fn own_events(&self) -> impl Iterator<Item = &'a NamedEvent> + use<'a> {
        self.family.into_iter().chain(self.base).flat_map(|family| &family.events)
    }

    /// The events that the family describes itself for this processor, whether or not the PMU has
    /// their fields. An imported event with the same name lacks what the family's has: without a
    /// filter it would count something else, or nothing.
    fn described_events(&self) -> impl Iterator<Item = &'a NamedEvent> + use<'a> {
        let pmu = self.pmu;
        self.own_events().filter(move |event| is_of(&event.processors, pmu))
    }

    /// The events of perf's tables, if the family is described by them, except those that it has
    /// itself.
    fn imported_events(&self) -> impl Iterator<Item = &'a NamedEvent> + use<'a> {
        let words = *self;
        let family = self.family.filter(|family| family.imports).into_iter();
        family.flat_map(move |family| {
            let is_own = |event: &NamedEvent| {
                family.events.iter().any(|own_event| own_event.names.contains(&event.names[0]))
            };
            words.table_events().filter(move |event| !is_own(event))
        })
    }

    /// The events of the imported tables, whatever the family says.
    fn table_events(&self) -> impl Iterator<Item = &'a NamedEvent> + use<'a> {
        vendor::vendor_events(self.pmu).map(|event| -> &'a NamedEvent { event })
    }

    /// Whether an event of the catalog is of this processor, and the PMU has its fields.
    fn has_event(&self, event: &NamedEvent) -> bool {
        is_of(&event.processors, self.pmu) && self.fits_fields(&event.encoding)
    }

    /// Description of an event; `None` if not in the catalog.
    pub fn event_description(&self, event: &str) -> Option<&'a str> {
        self.family.into_iter().chain(self.base).find_map(|family| family.about_event(event))
    }

    /// The PMU's name.
    pub fn pmu_name(&self) -> &'a str {
        &self.pmu.name
    }

    /// The family's name; for an unknown PMU, the common name of its instances.
    pub fn family_name(&self) -> &'a str {
        self.family.map_or_else(|| name::stem(&self.pmu.name), |family| family.family.as_str())
    }

    /// Whether another PMU is of the same kind: of the same family, or with the same name but for
    /// its number.
    pub fn is_of_kind(&self, pmu: &Pmu) -> bool {
        match self.family {
            Some(family) => family.recognises_pmu(pmu),
            None => name::stem(&pmu.name) == name::stem(&self.pmu.name),
        }
    }

    /// Whether another PMU has the same words: the same events, terms and metrics, with the same
    /// encodings but for the `attr_type` of the PMU itself. Boxes of one kind have.
    pub fn has_same_words(&self, other: &PmuWords<'_>) -> bool {
        let (pmu, other_pmu) = (self.pmu, other.pmu);
        let families = [self.family, other.family].map(|family| family.map(std::ptr::from_ref));
        families[0] == families[1]
            && name::stem(&pmu.name) == name::stem(&other_pmu.name)
            && pmu.processor == other_pmu.processor
            && pmu.identifier == other_pmu.identifier
            && pmu.formats == other_pmu.formats
            && pmu.events == other_pmu.events
            && pmu.peers == other_pmu.peers
            && pmu.caps == other_pmu.caps
            && (pmu.attr_type == other_pmu.attr_type || !self.has_typed_events())
            && vendor::have_same_events(pmu, other_pmu)
            && self.family.is_none_or(|family| family.has_same_metrics(pmu, other_pmu))
    }

    /// Whether the catalog has events of its own with another `attr_type` than the PMU's.
    fn has_typed_events(&self) -> bool {
        let mut families = self.family.into_iter().chain(self.base);
        families.any(|family| family.events.iter().any(|event| event.attr_type.is_some()))
    }

    /// Whether its family is of this kind.
    pub fn is_kind(&self, kind: PmuKind) -> bool {
        self.family.is_some_and(|family| family.kind == kind)
    }

    /// Whether it counts each CPU separately, like core and software PMUs. Any other PMU without a
    /// `cpumask` file counts once, on the CPU on which it is opened.
    pub fn is_per_cpu(&self) -> bool {
        self.pmu.cpumask.is_none()
            && match self.family {
                Some(family) => family.kind != PmuKind::Uncore,
                None => self.pmu.cpus.is_some(),
            }
    }

    /// The field of a term.
    pub fn term_format(&self, term: &str) -> Option<FormatField> {
        let whole =
            || WHOLE_WORDS.iter().position(|word| *word == term).map(FormatField::whole_word);
        let added = || self.family.and_then(|family| family.formats.get(term).copied());
        self.pmu.formats.get(term).copied().or_else(whole).or_else(added)
    }

    /// The value of a term in config words; `None` if the PMU has no such term.
    pub fn term_value(&self, config: &[u64; WORDS], term: &str) -> Option<u64> {
        self.term_format(term).map(|format| format.decode_value(config))
    }

    /// The event with this name, which may have a prefix; case-insensitive.
    pub fn find_event(&self, wanted: &str) -> Option<PmuEvent<'a>> {
        self.find_by_name(wanted)
            .or_else(|| self.find_by_name(self.family?.without_prefix(wanted)?))
    }

    fn find_by_name(&self, wanted: &str) -> Option<PmuEvent<'a>> {
        let pmu = self.pmu;
        let useful = |(name, alias): &(&str, &EventAlias)| !self.is_useless(name, alias);
        if let Some((name, alias)) = pmu.find_event(wanted).filter(useful) {
            return Some(PmuEvent { name, alias, attr_type: pmu.attr_type });
        }
        let named = |known: &String| known.eq_ignore_ascii_case(wanted);
        let has_name = |event: &&'a NamedEvent| event.names.iter().any(named);
        // Few of the many events have the name, so that it is compared first.
        let added = self.catalog_events().filter(has_name).find(|event| self.has_event(event));
        let imported = || {
            let mut events = self.table_events().filter(has_name);
            events.find(|event| self.fits_fields(&event.encoding))
        };
        let is_described = || self.described_events().any(|event| has_name(&event));
        let Some(event) = added.or_else(|| imported().filter(|_| !is_described())) else {
            return self.generic_event(CACHE, cache_names::cache_event_config(wanted)?);
        };
        Some(PmuEvent::new(event, pmu))
    }

    /// The metric with this name: of several forms the first whose events the PMU has, or else the
    /// first.
    pub fn find_metric(&self, name: &str) -> Option<&'a Metric> {
        let forms = self.family?.metric_forms(name, self.pmu);
        let whole = forms.iter().find(|form| self.has_inputs(form));
        whole.or(forms.first()).copied()
    }

    /// Whether the PMU has every event in the formula of a metric.
    pub fn has_inputs(&self, metric: &Metric) -> bool {
        let is_event = |name: &str| self.family.is_some_and(|family| family.is_event(name));
        metric.formula.distinct_names().iter().all(|&name| match metric.inputs.get(name) {
            Some(terms) => self.encode_terms(terms, &[]).is_ok(),
            None => !is_event(name) || self.find_event(name).is_some(),
        })
    }

    /// The event of another attribute type than the PMU's with this config.
    pub fn generic_event(&self, attr_type: u32, config: u64) -> Option<PmuEvent<'a>> {
        let has_config = |event: &&NamedEvent| match event.encoding.terms.as_slice() {
            [term] => term.name == WHOLE_WORDS[0] && term.value == AliasValue::Number(config),
            _ => false,
        };
        let mut typed = self.added_events().filter(|event| event.attr_type == Some(attr_type));
        Some(PmuEvent::new(typed.find(has_config)?, self.pmu))
    }

    /// The events with names of the vendor only. They are selected by name, never by a pattern.
    pub fn vendor_events(&self) -> impl Iterator<Item = PmuEvent<'a>> + use<'a> {
        self.vendor_events_if(|_| true)
    }

    /// Those of them for whose encoding `has_encoding` is true; it is asked first, as there are
    /// thousands.
    pub(super) fn vendor_events_if<F: Fn(&EventAlias) -> bool>(
        &self,
        has_encoding: F,
    ) -> impl Iterator<Item = PmuEvent<'a>> + use<'a, F> {
        let words = *self;
        let known_names = OnceCell::new();
        let vendor_only = self.table_events().filter(move |event| {
            let encoding = &event.encoding;
            has_encoding(encoding)
                && words.fits_fields(encoding)
                && !known_names.get_or_init(|| words.known_names()).contains(&event.names[0])
        });
        vendor_only.map(move |event| PmuEvent::new(event, words.pmu))
    }

    /// The names of all its events but those of the vendor only.
    fn known_names(&self) -> HashSet<String> {
        let own_names = self.pmu.events.keys().map(|name| name.to_ascii_lowercase());
        let events = self.added_events().chain(self.described_events());
        own_names.chain(events.flat_map(|event| event.names.iter().cloned())).collect()
    }

    /// The events that a text of a group selects: all that match it as a pattern, or the vendor's
    /// event with this name.
    pub fn matching_events(&self, glob: &str) -> Vec<PmuEvent<'a>> {
        let matching = self.all_events().filter(|event| matches_event(glob, event.name));
        let mut matching: Vec<_> = matching.collect();
        if matching.is_empty() && !glob.contains('*') {
            matching.extend(self.find_event(glob));
        }
        matching
    }

    /// Every event: those of sysfs, then those that the catalog adds.
    pub fn all_events(&self) -> impl Iterator<Item = PmuEvent<'a>> + use<'a> {
        let pmu = self.pmu;
        let attr_type = pmu.attr_type;
        let words = *self;
        let useful = pmu.events.iter().filter(move |(name, alias)| !words.is_useless(name, alias));
        let named = useful.map(move |(name, alias)| PmuEvent { name, alias, attr_type });
        let added =
            self.added_events().filter(move |event| pmu.find_event(&event.names[0]).is_none());
        named.chain(added.map(move |event| PmuEvent::new(event, pmu)))
    }

    /// Whether the PMU has the fields of an encoding of the catalog, and its values fit: other
    /// generations may have narrower fields.
    fn fits_fields(&self, encoding: &EventAlias) -> bool {
        encoding.terms.iter().all(|term| match (self.term_format(&term.name), term.value) {
            (Some(format), AliasValue::Number(value)) => value <= format.max_value(),
            (Some(_), AliasValue::Asked) => true,
            (None, _) => false,
        })
    }

    /// Unit and value of one count: from sysfs, else from the catalog, else a bare count. If sysfs
    /// has a scale but no unit, the catalog's unit is that of a scaled count.
    pub fn event_unit(&self, event: Option<PmuEvent<'_>>) -> (String, f64) {
        let Some(event) = event else { return ("count".to_owned(), 1.0) };
        let corrected = self.find_correction(event.name, event.alias).and_then(|rule| rule.right);
        let scale = corrected.or(event.alias.scale).unwrap_or(1.0);
        if let Some(unit) = &event.alias.unit {
            return in_base_unit(unit, scale);
        }
        let known = self.family.and_then(|family| family.event_unit(event.name));
        let (unit, factor) = known.unwrap_or(("count", 1.0));
        (unit.to_owned(), factor * scale)
    }
}

/// Converts sizes to bytes; other units are unchanged.
///
/// sysfs prints scales with ten digits (`3.814697266e-6` MiB is a little more than 4 bytes), so a
/// result within 1e-9 of a whole number of bytes is rounded to it.
///
/// Drivers mean 2^20 bytes by MB too (`9.536743164e-07` of `drivers/devfreq/event/rockchip-dfi.c`,
/// Linux 7.2, is 2^-20). So KB, MB and GB are powers of ten only where these make whole bytes of a
/// count, and powers of two do not.
fn in_base_unit(unit: &str, scale: f64) -> (String, f64) {
    const PREFIXES: [char; 4] = ['k', 'm', 'g', 't'];
    let lower = unit.to_ascii_lowercase();
    let size = lower.strip_suffix("bytes").or_else(|| lower.strip_suffix("byte"));
    // Mb is a megabit.
    let size = size.or_else(|| unit.strip_suffix('B').map(|prefix| &lower[..prefix.len()]));
    let Some(prefix) = size else { return (unit.to_owned(), scale) };
    let mut letters = prefix.strip_suffix('i').unwrap_or(prefix).chars();
    let power = match (letters.next(), letters.next()) {
        (None, _) if prefix.is_empty() => Some(0),
        (Some(initial), None) => {
            PREFIXES.iter().position(|candidate| *candidate == initial).map(|index| index + 1)
        }
        _ => None,
    };
    let Some(power) = power else { return (unit.to_owned(), scale) };
    let whole = |base: f64| {
        let exact = scale * base.powi(power as i32);
        let whole = exact.round();
        let is_near = whole > 0.0 && ((exact - whole) / whole).abs() < 1e-9;
        (exact, is_near.then_some(whole))
    };
    let (exact, binary) = whole(1024.0);
    let decimal = whole(1000.0).1.filter(|_| !prefix.ends_with('i'));
    ("bytes".to_owned(), binary.or(decimal).unwrap_or(exact))
}

#[cfg(test)]
mod tests {
    use super::in_base_unit;

    #[test]
    fn sysfs_sizes_become_whole_bytes() {
        for (scale, bytes) in
            [(6.103_515_625e-5, 64.0), (3.814_697_266e-6, 4.0), (3.051_757_812_5e-5, 32.0)]
        {
            assert_eq!(in_base_unit("MiB", scale), ("bytes".to_owned(), bytes));
        }
        assert_eq!(in_base_unit("Joules", 2.3e-10), ("Joules".to_owned(), 2.3e-10));
        for unit in ["", "Mb", "mbit", "MB/s", "XB", "i", "iB", "KKB", "Ab"] {
            assert_eq!(in_base_unit(unit, 2.0), (unit.to_owned(), 2.0));
        }
    }

    #[test]
    fn sysfs_units_of_bytes_are_converted_to_bytes() {
        let mib = 9.536_743_164e-07;
        for (unit, scale, bytes) in [
            ("MB", mib, 1.0),
            ("MB", 9.536_743_164_062_5e-07, 1.0),
            ("MiB", mib, 1.0),
            ("megabytes", mib, mib),
            ("KB", 9.765_625e-4, 1.0),
            ("kB", 9.765_625e-4, 1.0),
            ("KiB", 9.765_625e-4, 1.0),
            ("GB", 9.313_225_746e-10, 1.0),
            ("GiB", 9.313_225_746e-10, 1.0),
            ("TB", 9.094_947_018e-13, 1.0),
            ("MB", 6.103_515_625e-5, 64.0),
            // A driver that means 10^6.
            ("MB", 1e-6, 1.0),
            ("MB", 6.4e-5, 64.0),
            ("MB", 1.0, 1_048_576.0),
            ("B", 32.0, 32.0),
            ("Byte", 32.0, 32.0),
            ("bytes", 0.5, 0.5),
        ] {
            let known = if unit == "megabytes" { unit } else { "bytes" };
            assert_eq!(in_base_unit(unit, scale), (known.to_owned(), bytes), "{unit} {scale}");
        }
    }
}
