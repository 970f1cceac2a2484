//! Events and metrics by the names that vendors and perf give them, as `cargo xtask import` made
//! them.
//!
//! They are of a PMU and a processor, whatever the family. Names in sysfs and in the catalog's own
//! files win over them. Patterns match them only where the family says `imports`; elsewhere a name
//! must ask for them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, OnceLock};

use anyhow::{Context, Result, ensure};

use super::family::{Family, NamedEvent};
use super::metric::{Across, Metric};
use super::pattern::{is_wild, matches, matches_any};
use super::rules::is_of;
use super::spec::{self, Term};
use crate::discover::event::EventAlias;
use crate::discover::{Pmu, name};

/// One import.
struct VendorImport {
    /// The events.
    events: &'static str,
    /// The metrics.
    metrics: &'static str,
    /// What describes one of its metrics.
    about: &'static str,
}

/// In the order in which a name is looked up.
const IMPORTS: [VendorImport; 2] = [
    VendorImport {
        events: include_str!("../../catalog/intel/events.txt"),
        metrics: include_str!("../../catalog/intel/metrics.txt"),
        about: "a metric of Intel's tables for perf",
    },
    VendorImport {
        events: include_str!("../../catalog/perf/events.txt"),
        metrics: include_str!("../../catalog/perf/metrics.txt"),
        about: "a metric of perf's tables",
    },
];

/// The metrics of perf's groups that are not imported, because they have events of the cores or of
/// several PMUs: names by group, for groups with an imported metric.
const GROUPS: &str = include_str!("../../catalog/perf/groups.txt");

/// The metrics of perf's tables that are not imported: names by the reason, which is a key of
/// [`REASONS`].
const LEFT_OUT: &str = include_str!("../../catalog/perf/left_out.txt");

/// Why a metric of perf's tables is not imported, by the word in `left_out.txt`.
const REASONS: [(&str, &str); 5] = [
    ("cores", "it has events of the cores, which perf counts better"),
    ("event", "it has an event that no PMU of the kernel counts"),
    ("pmus", "it has events of several PMUs in one formula"),
    (
        "time",
        "perf computes it without the time in which it counted, although it is a rate or a time",
    ),
    ("form", "its formula has conditions or functions that are not read here"),
];

/// The imported events.
static EVENTS: LazyLock<Vec<VendorSection>> =
    LazyLock::new(|| IMPORTS.iter().flat_map(|import| parse_sections(import.events)).collect());

/// Sections by the name of a processor.
type ByProcessor = HashMap<&'static str, Vec<&'static VendorSection>>;

/// The sections of [`EVENTS`] by processor, and those with patterns of processors. There are some
/// hundred, and a PMU is of few.
static INDEX: LazyLock<(ByProcessor, Vec<&VendorSection>)> = LazyLock::new(|| {
    let (mut named, mut patterned) = (ByProcessor::new(), Vec::new());
    for section in EVENTS.iter() {
        if section.processors.iter().any(|pattern| pattern.bytes().any(is_wild)) {
            patterned.push(section);
            continue;
        }
        for processor in &section.processors {
            named.entry(processor).or_default().push(section);
        }
    }
    (named, patterned)
});

/// The events or metrics of one kind of PMU on some processors.
struct VendorSection {
    /// Patterns of processors, or of `identifier` texts.
    processors: Vec<String>,
    /// The PMUs without their index, or patterns of their whole names.
    pmus: Vec<&'static str>,
    lines: Vec<&'static str>,
    /// The events, if it has been read.
    events: OnceLock<Vec<NamedEvent>>,
}

impl VendorSection {
    fn describes_pmu(&self, pmu: &Pmu) -> bool {
        self.pmus.iter().any(|pmu_name| names_pmu(pmu_name, pmu)) && is_of(&self.processors, pmu)
    }

    fn parsed_events(&self) -> &[NamedEvent] {
        self.events.get_or_init(|| {
            let mut begin = "";
            self.lines.iter().filter_map(|line| parse_event(line, &mut begin)).collect()
        })
    }

    /// Its PMUs, by which their families are found: with a digit or nothing in place of what the
    /// patterns leave open, each with and without an index.
    fn example_pmus(&self) -> Vec<Pmu> {
        let example = |processor: &String, pmu: &str, index: &str| {
            let filled = Some(processor.replace(['#', '?'], "0").replace('*', ""));
            let name = pmu.replace('*', "0") + index;
            Pmu { name, processor: filled.clone(), identifier: filled, ..Pmu::default() }
        };
        let pairs = self
            .processors
            .iter()
            .flat_map(|pattern| self.pmus.iter().map(move |pmu| (pattern, pmu)));
        pairs
            .flat_map(|(pattern, pmu)| ["", "_0"].map(|index| example(pattern, pmu, index)))
            .collect()
    }
}

/// Whether a name without an index, or a pattern, is that of a PMU.
pub(super) fn names_pmu(name: &str, pmu: &Pmu) -> bool {
    name == name::stem(&pmu.name) || matches(name, &pmu.name)
}

fn parse_sections(text: &'static str) -> Vec<VendorSection> {
    let mut sections: Vec<VendorSection> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let header = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        if let Some((processors, pmus)) = header.and_then(|header| header.split_once(": ")) {
            let processors = processors.replace("genuineintel", "GenuineIntel");
            let processors = processors.split(' ').map(str::to_owned).collect();
            let events = OnceLock::new();
            let pmus = pmus.split(' ').collect();
            sections.push(VendorSection { processors, pmus, lines: Vec::new(), events });
        } else if let Some(section) = sections.last_mut() {
            section.lines.push(line);
        }
    }
    sections
}

/// Reads `NAME TERMS`. A name that begins with a dot has the begin of the name before it.
fn parse_event(line: &'static str, begin: &mut &'static str) -> Option<NamedEvent> {
    let (name, terms) = line.split_once(' ')?;
    if !name.starts_with('.') {
        *begin = name.split('.').next().unwrap_or(name);
    }
    let begin = if name.starts_with('.') { *begin } else { "" };
    Some(NamedEvent {
        names: vec![format!("{begin}{name}")],
        encoding: EventAlias::parse(terms).ok()?,
        attr_type: None,
        processors: Vec::new(),
    })
}

/// The imported events of a PMU.
pub(super) fn vendor_events(pmu: &Pmu) -> impl Iterator<Item = &'static NamedEvent> + use<'_> {
    vendor_sections(pmu).flat_map(VendorSection::parsed_events)
}

/// Whether two PMUs have the same imported events.
pub(super) fn have_same_events(first: &Pmu, second: &Pmu) -> bool {
    let sections = |pmu| vendor_sections(pmu).map(std::ptr::from_ref);
    sections(first).eq(sections(second))
}

/// The sections that describe a PMU.
fn vendor_sections(pmu: &Pmu) -> impl Iterator<Item = &'static VendorSection> + use<'_> {
    let (named, patterned) = &*INDEX;
    let sections_for = |text: &Option<String>| text.as_deref().and_then(|text| named.get(text));
    let indexed_sections = sections_for(&pmu.processor)
        .or_else(|| sections_for(&pmu.identifier))
        .into_iter()
        .flatten();
    indexed_sections.chain(patterned).copied().filter(|section| section.describes_pmu(pmu))
}

/// Adds the imported metrics to the families of their PMUs, after the families' own. A metric that
/// a family has itself only gets the groups.
///
/// # Errors
///
/// A line is not `NAME UNIT ACROSS FORMULA`, or no family has the PMU.
pub(super) fn add_metrics(families: &mut [Family]) -> Result<()> {
    for import in &IMPORTS {
        for section in parse_sections(import.metrics) {
            let family = |pmu: &Pmu| families.iter().position(|family| family.recognises_pmu(pmu));
            let family_indexes: BTreeSet<usize> =
                section.example_pmus().iter().filter_map(family).collect();
            ensure!(
                !family_indexes.is_empty(),
                "imported metrics: no family has {}",
                section.pmus.join(" ")
            );
            for index in family_indexes {
                let Some(family) = families.get_mut(index) else { continue };
                for line in &section.lines {
                    let metric = parse_metric(line, &section, import.about);
                    let metric = metric.with_context(|| format!("the metric {line}"))?;
                    let is_same_metric = |existing: &&mut Metric| {
                        !existing.vendor
                            && existing.name == metric.name
                            && existing.processors.is_empty()
                    };
                    match family.metrics.iter_mut().find(is_same_metric) {
                        Some(existing) => existing.groups = metric.groups,
                        None => family.metrics.push(metric),
                    }
                }
            }
        }
    }
    Ok(())
}

/// The metrics of one of perf's groups on a processor that are not imported.
pub(crate) fn rest_of_group(group: &str, processor: &str) -> BTreeSet<&'static str> {
    let is_of_group = |section: &VendorSection| {
        section.pmus.iter().any(|pmu_name| pmu_name.eq_ignore_ascii_case(group))
            && matches_any(&section.processors, processor)
    };
    parse_sections(GROUPS)
        .into_iter()
        .filter(is_of_group)
        .flat_map(|section| section.lines)
        .collect()
}

/// Why a metric of perf's tables for a processor is not imported; `None` if they have none with
/// this name.
pub(crate) fn why_left_out(metric: &str, processor: &str) -> Option<&'static str> {
    let mut sections = parse_sections(LEFT_OUT).into_iter();
    let section = sections.find(|section| {
        section.lines.iter().any(|line| line.eq_ignore_ascii_case(metric))
            && matches_any(&section.processors, processor)
    })?;
    let reason = REASONS.iter().find(|(word, _)| section.pmus.contains(word))?;
    Some(reason.1)
}

/// Reads `NAME UNIT ACROSS FORMULA`, where groups may follow the name: `NAME:GROUP,GROUP`, and
/// events with terms the formula: `where INPUT:EVENT,TERM=VALUE`. Words of the formula are
/// separated by blanks. The processors are those of the section; `*` is any machine.
fn parse_metric(line: &str, section: &VendorSection, about: &str) -> Result<Metric> {
    let (line, inputs) = line.split_once(" where ").unwrap_or((line, ""));
    let input = |text: &str| -> Result<(String, Vec<Term>)> {
        let (name, terms) = text.split_once(':').context("an input has no terms")?;
        Ok((name.to_owned(), spec::terms(terms)?))
    };
    let is_any = |processor: &String| processor == "*";
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().context("a word is missing");
    let (name, unit, across, formula) = (word()?, word()?, word()?, word()?);
    let (name, groups) = name.split_once(':').unwrap_or((name, ""));
    Ok(Metric {
        name: name.to_owned(),
        about: about.to_owned(),
        unit: unit.to_owned(),
        formula: formula.parse()?,
        across: if across == "sum" { Across::Sum } else { Across::Pool },
        inputs: inputs.split_whitespace().map(input).collect::<Result<_>>()?,
        processors: section.processors.iter().filter(|pattern| !is_any(pattern)).cloned().collect(),
        only_with: None,
        vendor: true,
        pmus: section.pmus.iter().map(|&pmu| pmu.to_owned()).collect(),
        groups: groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::metric::DURATION_NS;
    use crate::catalog::pmu_words::PmuWords;
    use crate::catalog::spec::TermValue;
    use crate::discover::event::AliasValue;

    #[test]
    fn every_metric_is_of_imported_events() {
        let mut count = 0;
        let catalog = Catalog::load_embedded().unwrap();
        for section in IMPORTS.iter().flat_map(|import| parse_sections(import.metrics)) {
            for pmu in section.example_pmus() {
                let Some(family) = catalog.family_of(&pmu) else { continue };
                for line in &section.lines {
                    let metric = parse_metric(line, &section, "").unwrap();
                    // What sysfs alone names has a description.
                    let is_known = |name: &str| {
                        vendor_events(&pmu).any(|event| event.names[0] == name)
                            || family.about_event(name).is_some()
                    };
                    for name in metric.formula.distinct_names() {
                        let name = match metric.inputs.get(name).map(Vec::as_slice) {
                            // A code of the PMU's own.
                            Some([Term { value: TermValue::Number(_), .. }]) => continue,
                            Some(terms) => &terms[0].name,
                            None => name,
                        };
                        let is_time = name == DURATION_NS;
                        assert!(is_known(name) || is_time, "{}: {line}: {name}", pmu.name);
                    }
                    let all = &family.metrics;
                    let is_there = |candidate: &Metric| {
                        candidate.name == metric.name
                            && (candidate.vendor || candidate.groups == metric.groups)
                    };
                    assert!(all.iter().any(is_there), "{line}");
                    count += 1;
                }
            }
        }
        assert!(count > 400, "{count}");
    }

    /// Types of `uncore_snb.c` and `uncore_snbep.c` (Linux 7.2).
    const KERNEL: &str = "arb b2cmi b2cxl b2hot b2upi cbox cbox_0 cha clock cncu cxlcm cxldp ha \
        hac_arb hac_cbox hbm iio iio_free_running imc imc_free_running imc_free_running_0 \
        imc_free_running_1 irp m2m m2pcie m3upi mdf mdf_sbo pcu qpi r2pcie r3qpi sbox ubox upi";

    /// Names of perf's tables that no driver gives a PMU: `gnr_uncores` has no mesh stops of
    /// caches, and the mesh of Xeon Max keeps the number of its type. HBM has a name of the
    /// kernel's too.
    const NAMELESS: [&str; 3] = ["chacms", "m2hbm", "mchbm"];

    #[test]
    fn every_unit_has_a_family_and_a_name_of_the_kernel() {
        let catalog = Catalog::load_embedded().unwrap();
        for section in
            EVENTS.iter().filter(|candidate| candidate.processors[0].starts_with("GenuineIntel"))
        {
            for pmu in &section.pmus {
                let unit = pmu.strip_prefix("uncore_").unwrap_or(pmu);
                let is_known = KERNEL.split(' ').any(|kernel_unit| kernel_unit == unit)
                    || NAMELESS.contains(&unit);
                assert!(is_known, "no PMU of the kernel is called {pmu}");
            }
            let has = |pmu: &Pmu| catalog.family_of(pmu).is_some();
            assert!(section.example_pmus().iter().any(has), "{:?}", section.pmus);
        }
    }

    #[test]
    fn every_line_of_the_imports_is_an_event() {
        for section in EVENTS.iter() {
            assert!(!section.lines[0].starts_with('.'), "{}", section.lines[0]);
            for line in &section.lines {
                assert!(parse_event(line, &mut "").is_some(), "{line}");
            }
        }
        let named = |name: &str, processor: &str| {
            let (name, processor) = (name.to_owned(), Some(processor.to_owned()));
            vendor_events(&Pmu { name, processor, ..Pmu::default() }).count()
        };
        assert!(named("uncore_cha_3", "GenuineIntel-6-8f") > 50);
        assert!(named("uncore_cbox_0", "GenuineIntel-6-3f") > 50);
        // As many as the tables of perf have (Linux 7.2).
        assert_eq!(named("amd_df", "AuthenticAMD-23-1"), 12);
        assert_eq!(named("amd_df", "AuthenticAMD-25-11"), 136);
        assert_eq!(named("amd_df", "AuthenticAMD-26-2"), 204);
        assert_eq!(named("amd_df", "AuthenticAMD-26-50"), 0);
        assert_eq!(named("amd_df", "AuthenticAMD-24-1"), 0);
        for processor in ["25-11", "26-2", "26-50"] {
            assert_eq!(named("amd_umc_3", &format!("AuthenticAMD-{processor}")), 13);
            assert_eq!(named("amd_l3", &format!("AuthenticAMD-{processor}")), 17);
        }
        assert_eq!(named("hisi_sccl3_ddrc1", "0x00000000481fd010"), 8);
        let (name, processor) = ("uncore_upi_0".to_owned(), Some("GenuineIntel-6-55".to_owned()));
        let upi = Pmu { name, processor, ..Pmu::default() };
        let upi_event = vendor_events(&upi)
            .find(|event| event.names[0] == "unc_upi_txl_hdr_match.ncb")
            .unwrap();
        assert_eq!(upi_event.encoding.terms_text(), "event=0x4,umask=0xe");
        for text in [" Counts ", "number of ", "  "] {
            assert!(!EVENTS.iter().any(|s| s.lines.iter().any(|line| line.contains(text))));
        }
    }

    #[test]
    fn an_event_without_the_field_of_its_filter_is_not_that_of_the_imports() {
        let catalog = Catalog::load_embedded().unwrap();
        let find = |formats: &[(&str, &str)], event: &str| {
            let (name, processor) =
                ("uncore_cbox_0".to_owned(), Some("GenuineIntel-6-4f".to_owned()));
            let formats =
                formats.iter().map(|(name, bits)| ((*name).to_owned(), bits.parse().unwrap()));
            let pmu = Pmu { name, processor, formats: formats.collect(), ..Pmu::default() };
            let words = PmuWords { pmu: &pmu, family: catalog.family_of(&pmu), base: None };
            let is_listed = words.vendor_events().any(|known| known.name == event);
            let encoding = words.find_event(event).map(|event| event.alias.terms_text());
            assert!(encoding.is_some() || !is_listed, "{event}");
            encoding
        };
        let (event, umask) = (("event", "config:0-7"), ("umask", "config:8-15"));
        let state = ("filter_state", "config1:17-23");
        let any = "unc_c_llc_lookup.any";
        assert_eq!(
            find(&[event, umask, state], any).unwrap(),
            "event=0x34,umask=0x11,filter_state=0x1"
        );
        assert_eq!(find(&[event, umask], any), None);
        // The tables of Intel name no filter of this one.
        assert_eq!(
            find(&[event, umask], "unc_c_llc_lookup.read").unwrap(),
            "event=0x34,umask=0x21"
        );
    }

    /// Encodings in the catalog equal the imported ones for every event that both name.
    #[test]
    fn encodings_of_the_catalog_are_those_of_the_imports() {
        let catalog = Catalog::load_embedded().unwrap();
        let mut compared = 0;
        for section in EVENTS.iter() {
            for pmu in section.example_pmus() {
                let Some(family) = catalog.family_of(&pmu) else { continue };
                for hand in family.events.iter().filter(|hand| is_of(&hand.processors, &pmu)) {
                    // The catalog sets ports and classes by default.
                    let ports = ["", ".all_parts", ".part0"];
                    let is_its = |candidate: &&NamedEvent| {
                        let ends = ports.iter().any(|port| {
                            candidate.names[0].strip_suffix(port) == Some(hand.names[0].as_str())
                        });
                        ends || hand.names.contains(&candidate.names[0])
                    };
                    let Some(its) = section.parsed_events().iter().find(is_its) else { continue };
                    // Skylake-SP has its filters in another word, and encodings of their own.
                    let is_other = |term: &str| term.starts_with("filter_");
                    if hand.encoding.terms.iter().any(|term| is_other(&term.name)) {
                        continue;
                    }
                    let values = |encoding: &EventAlias| {
                        let narrowed = ["ch_mask", "fc_mask"];
                        let mut encoding = encoding.clone();
                        encoding.terms.retain(|term| {
                            !narrowed.contains(&term.name.as_str())
                                && term.value != AliasValue::Number(0)
                        });
                        // Drivers of HiSilicon have the event in the lowest bits.
                        let mut terms = encoding.terms.iter_mut();
                        if let Some(term) = terms.find(|term| term.name == "config") {
                            "event".clone_into(&mut term.name);
                        }
                        encoding.terms_text()
                    };
                    let [hand, its] = [hand, its].map(|one| values(&one.encoding));
                    assert_eq!(hand, its, "{:?} {}", pmu.processor, pmu.name);
                    compared += 1;
                }
            }
        }
        assert!(compared > 400, "{compared}");
    }
}
