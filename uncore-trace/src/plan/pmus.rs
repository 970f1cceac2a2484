//! The PMUs of a machine with their families, which are looked up once: a machine may have
//! thousands of PMUs, and each group and metric asks for those of its family.
//!
//! Most PMUs of a large machine are boxes of one kind, so what follows from their words alone is
//! found once for all of them.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::port_pmu::PortPmu;
use crate::catalog::Catalog;
use crate::catalog::encode::EncodedEvent;
use crate::catalog::group::Group;
use crate::catalog::kernels::{self, CounterGap};
use crate::catalog::metric::Metric;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::spec::{ColumnError, Term};
use crate::discover::pci::PciFunction;
use crate::discover::{CpuList, Machine, Pmu, name};

/// A vocabulary: the position of the first PMU that has its words.
pub type VocabularyIndex = usize;

/// What is encoded: terms and those of the leader, with the words of one vocabulary.
type EncodedTerms = (VocabularyIndex, Vec<Term>, Vec<Term>);

/// The answers to questions that were asked before.
type MemoTable<Question, Answer> = RefCell<HashMap<Question, Answer>>;

/// All PMUs in the machine's order, and by the name of their family.
#[derive(Debug)]
pub struct PmuIndex<'a> {
    pub(super) machine: &'a Machine,
    pub(super) catalog: &'a Catalog,
    /// All PMUs.
    pub(super) pmus: Vec<PmuWords<'a>>,
    by_family: HashMap<&'a str, Vec<PmuWords<'a>>>,
    /// The vocabulary of each PMU.
    vocabularies: HashMap<*const Pmu, VocabularyIndex>,
    /// The encodings so far, with the `attr_type` of the PMU on which each was made.
    encoded: MemoTable<EncodedTerms, (EncodedEvent, u32)>,
    /// The names of events so far that a text of a group selects.
    matching: MemoTable<(VocabularyIndex, String), Rc<[&'a str]>>,
    /// The metrics so far that a PMU has by a name.
    metrics: MemoTable<(VocabularyIndex, &'a str), Option<&'a Metric>>,
    /// The CPUs so far on which PMUs of a kind are read.
    readers: MemoTable<VocabularyIndex, Rc<CpuList>>,
    /// What keeps counters from being counted, once it was asked for.
    gaps: OnceCell<Vec<CounterGap>>,
}

impl<'a> PmuIndex<'a> {
    /// The PMUs of `machine`.
    pub fn new(machine: &'a Machine, catalog: &'a Catalog) -> Self {
        let pmus: Vec<_> = machine.pmus.iter().map(|pmu| PmuWords::new(catalog, pmu)).collect();
        let mut by_family: HashMap<&str, Vec<PmuWords<'a>>> = HashMap::new();
        for words in &pmus {
            if let Some(family) = words.family {
                by_family.entry(&family.family).or_default().push(*words);
            }
        }
        Self {
            machine,
            catalog,
            vocabularies: find_vocabularies(&pmus),
            pmus,
            by_family,
            encoded: RefCell::default(),
            matching: RefCell::default(),
            metrics: RefCell::default(),
            readers: RefCell::default(),
            gaps: OnceCell::new(),
        }
    }

    /// The machine.
    pub const fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// The catalog.
    pub const fn catalog(&self) -> &'a Catalog {
        self.catalog
    }

    /// All PMUs in the machine's order.
    pub fn all_pmus(&self) -> &[PmuWords<'a>] {
        &self.pmus
    }

    /// Whether a PMU tells this function from those of other root ports.
    pub(super) fn can_single_out(&self, function: &PciFunction) -> bool {
        let ports = self.pmus.iter().filter_map(|words| PortPmu::new(self.machine, *words));
        ports.into_iter().any(|ports| ports.single_position(function).is_some())
    }

    /// The PMUs of the family with this name.
    pub fn family_pmus(&self, family: &str) -> &[PmuWords<'a>] {
        self.by_family.get(family).map_or(&[], Vec::as_slice)
    }

    /// The first PMU of each vocabulary among those of the family, with the number of PMUs that
    /// have it.
    pub(super) fn family_vocabularies(&self, family: &str) -> Vec<(PmuWords<'a>, usize)> {
        let mut vocabularies: Vec<(PmuWords<'a>, usize)> = Vec::new();
        let mut position_of: HashMap<VocabularyIndex, usize> = HashMap::new();
        for words in self.family_pmus(family) {
            let position =
                *position_of.entry(self.vocabulary_of(*words)).or_insert(vocabularies.len());
            match vocabularies.get_mut(position) {
                Some((_, count)) => *count += 1,
                None => vocabularies.push((*words, 1)),
            }
        }
        vocabularies
    }

    /// The vocabulary of a PMU: the position of the first PMU with the same words.
    pub fn vocabulary_of(&self, words: PmuWords<'a>) -> VocabularyIndex {
        // A PMU that is not of this machine would share its words with none.
        let address = std::ptr::from_ref(words.pmu);
        self.vocabularies.get(&address).copied().unwrap_or(address.addr())
    }

    /// The encoding of terms, as [`PmuWords::encode_terms`] says.
    pub(super) fn encode_terms(
        &self,
        words: PmuWords<'a>,
        terms: &[Term],
        leader: &[Term],
    ) -> Result<EncodedEvent, ColumnError> {
        let key = (self.vocabulary_of(words), terms.to_vec(), leader.to_vec());
        if let Some((known, own_type)) = self.encoded.borrow().get(&key) {
            let mut encoded = known.clone();
            if encoded.attr_type == *own_type {
                encoded.attr_type = words.pmu.attr_type;
            }
            return Ok(encoded);
        }
        // An error names the PMU.
        let encoded = words.encode_terms(terms, leader)?;
        self.encoded.borrow_mut().insert(key, (encoded.clone(), words.pmu.attr_type));
        Ok(encoded)
    }

    /// The names of the events that a text of a group selects, as [`PmuWords::matching_events`]
    /// says.
    pub(super) fn matching_names(&self, words: PmuWords<'a>, glob: &str) -> Rc<[&'a str]> {
        let key = (self.vocabulary_of(words), glob.to_owned());
        let select = || words.matching_events(glob).iter().map(|event| event.name).collect();
        Rc::clone(self.matching.borrow_mut().entry(key).or_insert_with(select))
    }

    /// Whether a PMU has an event that the group opens.
    pub(super) fn has_group_events(&self, words: PmuWords<'a>, group: Group) -> bool {
        let globs = words.family.and_then(|family| family.opens.get(&group));
        let selects = |glob: &String| !self.matching_names(words, glob).is_empty();
        globs.is_some_and(|globs| globs.iter().any(selects))
    }

    /// The metric of a PMU with this name, as [`PmuWords::find_metric`] says.
    pub(super) fn find_metric(&self, words: PmuWords<'a>, metric: &'a str) -> Option<&'a Metric> {
        let key = (self.vocabulary_of(words), metric);
        *self.metrics.borrow_mut().entry(key).or_insert_with(|| words.find_metric(metric))
    }

    /// The CPUs on which PMUs of the same kind are read ([`PmuWords::is_of_kind`]).
    pub(super) fn readers_of_kind(&self, words: PmuWords<'a>) -> Rc<CpuList> {
        let read_masks = || {
            let same_kind = self.machine.pmus.iter().filter(|pmu| words.is_of_kind(pmu));
            Rc::new(same_kind.filter_map(|pmu| pmu.cpumask.as_ref()).collect())
        };
        let key = self.vocabulary_of(words);
        Rc::clone(self.readers.borrow_mut().entry(key).or_insert_with(read_masks))
    }

    /// What keeps uncore counters of this machine from being counted.
    pub fn gaps(&self) -> &[CounterGap] {
        self.gaps.get_or_init(|| kernels::gaps(self.machine, self.catalog))
    }
}

/// The vocabulary of each PMU.
fn find_vocabularies(pmus: &[PmuWords<'_>]) -> HashMap<*const Pmu, VocabularyIndex> {
    let mut vocabularies = HashMap::new();
    // Only PMUs of one bucket can have the same words.
    let mut buckets: HashMap<_, Vec<VocabularyIndex>> = HashMap::new();
    for (position, words) in pmus.iter().enumerate() {
        let Pmu { name: pmu_name, formats, events, .. } = words.pmu;
        let key = (words.family_name(), name::stem(pmu_name), formats.len(), events.len());
        let known_positions = buckets.entry(key).or_default();
        let has_same_words = |known: &VocabularyIndex| pmus[*known].has_same_words(words);
        let vocabulary = known_positions.iter().copied().find(has_same_words);
        if vocabulary.is_none() {
            known_positions.push(position);
        }
        vocabularies.insert(std::ptr::from_ref(words.pmu), vocabulary.unwrap_or(position));
    }
    vocabularies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::spec::TermValue;
    use crate::discover::captured_machine;
    use crate::discover::format::FormatField;

    /// The first and the last PMU of each vocabulary that several PMUs have.
    fn shared_vocabularies<'a>(index: &PmuIndex<'a>) -> Vec<[PmuWords<'a>; 2]> {
        let mut last_of: HashMap<VocabularyIndex, PmuWords<'a>> = HashMap::new();
        for words in index.all_pmus() {
            last_of.insert(index.vocabulary_of(*words), *words);
        }
        let mut pairs: Vec<_> =
            last_of.into_iter().map(|(first, last)| [index.pmus[first], last]).collect();
        pairs.retain(|[first, last]| !std::ptr::eq(first.pmu, last.pmu));
        pairs
    }

    #[test]
    fn what_is_known_of_one_box_is_right_for_all_of_its_kind() {
        let catalog = Catalog::load_embedded().unwrap();
        let mut compared = 0;
        for machine_name in uncore_trace_lab::fixtures::names().unwrap() {
            let machine = captured_machine(&machine_name);
            let index = PmuIndex::new(&machine, &catalog);
            for pair in shared_vocabularies(&index) {
                let [first, last] = pair;
                assert!(first.pmu.name != last.pmu.name, "{machine_name}");
                for event in first.all_events() {
                    let term =
                        Term { name: event.name.to_owned(), value: TermValue::Bare, column: 1 };
                    for words in pair {
                        let indexed = index.encode_terms(words, std::slice::from_ref(&term), &[]);
                        let direct = words.encode_terms(std::slice::from_ref(&term), &[]);
                        assert_eq!(indexed.ok(), direct.ok(), "{machine_name} {}", event.name);
                    }
                    compared += 1;
                }
                let metrics = first.family.map_or(&[][..], |family| family.metrics.as_slice());
                for metric in metrics {
                    let forms = pair.map(|words| {
                        words.find_metric(&metric.name).map(std::ptr::from_ref::<Metric>)
                    });
                    assert_eq!(forms[0], forms[1], "{machine_name} {}", metric.name);
                }
                let names = |words: PmuWords<'_>| -> Vec<String> {
                    words.vendor_events().map(|event| event.name.to_owned()).collect()
                };
                assert_eq!(names(first), names(last), "{machine_name} {}", last.pmu.name);
            }
        }
        assert!(compared > 300, "{compared}");
    }

    #[test]
    fn a_box_with_files_of_its_own_has_words_of_its_own() {
        let catalog = Catalog::load_embedded().unwrap();
        let has_common_words = |pair: [&str; 2], change: fn(&mut Pmu)| {
            let mut machine = captured_machine("sapphire-rapids-2s");
            let changed = machine.pmus.iter_mut().find(|pmu| pmu.name == pair[1]);
            change(changed.unwrap());
            let index = PmuIndex::new(&machine, &catalog);
            let vocabularies = pair.map(|pmu_name| {
                let words = index.all_pmus().iter().find(|words| words.pmu.name == pmu_name);
                index.vocabulary_of(*words.unwrap())
            });
            vocabularies[0] == vocabularies[1]
        };
        let boxes = ["uncore_imc_0", "uncore_imc_1"];
        assert!(has_common_words(boxes, |_| ()));
        assert!(has_common_words(boxes, |pmu| pmu.attr_type += 1));
        for change in [
            |pmu: &mut Pmu| _ = pmu.formats.pop_last(),
            |pmu: &mut Pmu| _ = pmu.formats.insert("umask".to_owned(), FormatField::whole_word(0)),
            |pmu: &mut Pmu| pmu.events.values_mut().for_each(|event| event.scale = Some(3.0)),
            |pmu: &mut Pmu| pmu.processor = Some("GenuineIntel-6-6a".to_owned()),
            |pmu: &mut Pmu| pmu.identifier = Some("0x1".to_owned()),
            |pmu: &mut Pmu| _ = pmu.caps.insert("slots".to_owned(), "1".to_owned()),
            |pmu: &mut Pmu| _ = pmu.peers.insert("gpu".to_owned(), 1),
        ] {
            assert!(!has_common_words(boxes, change));
        }
        // Perf's tables have metrics of the first box only.
        assert!(!has_common_words(["uncore_cha_0", "uncore_cha_1"], |_| ()));
    }
}
