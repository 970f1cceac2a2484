//! Resolves `-p` and `-e` on this machine: which PMUs, which events.

use std::rc::Rc;

use anyhow::{Result, anyhow, bail, ensure};

use super::PlanRequest;
use super::device::{Narrowing, Subset};
use super::pmus::PmuIndex;
use crate::catalog::Catalog;
use crate::catalog::asides::sift_terms;
use crate::catalog::encode::EncodedEvent;
use crate::catalog::family::Family;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::spec::{ColumnError, EventSpec, Term};
use crate::discover::pci::PciAddress;
use crate::discover::{Machine, Pmu, name};
use crate::suggest::{did_you_misspell, list_names};
use crate::text::printable;

/// perf's PMU for such events, which is not the kernel's (`tools/perf/util/tool_pmu.c`, Linux 7.2).
const TOOL: &str = "tool";

/// One event on one PMU.
#[derive(Debug, Clone)]
pub struct ResolvedEvent<'a> {
    /// The PMU and its family.
    pub words: PmuWords<'a>,
    /// The group under which it is recorded.
    pub group: &'static str,
    /// Its encoding.
    pub encoded: EncodedEvent,
    /// The die that it is limited to, if the PMU serves several.
    pub die: Option<u32>,
    /// The functions that it counts beside the whole.
    pub functions: Vec<PciAddress>,
}

/// Resolves names on one machine, and collects notes on what was left out.
#[derive(Debug)]
pub struct Resolver<'a> {
    pub(super) machine: &'a Machine,
    pub(super) catalog: &'a Catalog,
    pub(super) pmus: Rc<PmuIndex<'a>>,
    pub(super) narrowing: Narrowing<'a>,
    /// Notes for the user, one line each.
    pub notes: Vec<String>,
    /// Requested items that are left out, one line each.
    pub(super) warnings: Vec<String>,
    /// Whether times of the measurement may be named.
    pub(super) times: bool,
    /// Whether one was.
    pub(super) has_time: bool,
}

impl<'a> Resolver<'a> {
    /// A resolver of the whole machine.
    pub fn for_whole_machine(pmus: &Rc<PmuIndex<'a>>) -> Self {
        Self::new(Rc::clone(pmus), Narrowing::whole_machine(pmus.machine))
    }

    /// A resolver of the whole machine of this one, without its notes.
    pub(super) fn quiet_copy(&self) -> Self {
        Self::for_whole_machine(&self.pmus)
    }

    /// A resolver without notes.
    pub(super) fn new(pmus: Rc<PmuIndex<'a>>, narrowing: Narrowing<'a>) -> Self {
        let (machine, catalog) = (pmus.machine, pmus.catalog);
        let (notes, warnings) = (Vec::new(), Vec::new());
        let (times, has_time) = (false, false);
        Self { machine, catalog, pmus, narrowing, notes, warnings, times, has_time }
    }

    /// Returns the notes.
    ///
    /// # Errors
    ///
    /// `--device`, `--per port` or `--per device` narrows none of the counters.
    pub fn take_notes(&mut self, request: &PlanRequest) -> Result<Vec<String>> {
        let asked = !request.devices.is_empty() || request.per_port || request.per_device.is_some();
        if let Some(refused) = self.narrowing.refused.as_ref().filter(|_| !self.narrowing.used) {
            bail!("{refused}");
        }
        if let Some(apart) = self.narrowing.apart.as_ref().filter(|_| !self.narrowing.used) {
            bail!("{}", self.no_filter(apart));
        }
        ensure!(
            !asked || self.narrowing.used,
            "{} has no effect: no selected counter is of PCIe root ports that can be told apart; \
             the PCIe PMUs here are {}",
            if request.per_port { "--per port" } else { "--device" },
            list_names(self.pmu_words().filter_map(|words| {
                words.family?.ports.as_ref()?;
                Some(words.pmu_name())
            }))
        );
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(std::mem::take(&mut self.narrowing.notes));
        Ok(notes)
    }

    pub(super) fn pmu_words(&self) -> impl Iterator<Item = PmuWords<'a>> + use<'a> {
        let pmus = Rc::clone(&self.pmus);
        (0..pmus.pmus.len()).map(move |index| pmus.pmus[index])
    }

    /// The PMUs of a family.
    pub(super) fn family_pmus(
        &self,
        family: &'a Family,
    ) -> impl Iterator<Item = PmuWords<'a>> + use<'a> {
        self.pmus.family_pmus(&family.family).to_vec().into_iter()
    }

    /// Whether there is a PMU of this family.
    pub(super) fn has_family(&self, family: &str) -> bool {
        !self.pmus.family_pmus(family).is_empty()
    }

    /// The event of one PMU that is an input of a metric, by name or with terms. `None` if it
    /// cannot be counted, with a note if there is more to say.
    pub(super) fn resolve_input(
        &mut self,
        words: PmuWords<'a>,
        name: &str,
        terms: Option<&Vec<Term>>,
        subset: &Subset,
    ) -> Option<ResolvedEvent<'a>> {
        let mut terms = match (terms, words.find_event(name)) {
            (Some(terms), _) => terms.clone(),
            (None, Some(event)) => vec![Term::bare(event.name, 1)],
            (None, None) => return None,
        };
        let mut functions = Vec::new();
        if self.narrowing.select_subsets(words, name, &terms).contains(subset) {
            terms.extend(subset.typed_terms(1));
            functions.clone_from(&subset.functions);
        }
        match self.pmus.encode_terms(words, &terms, &[]) {
            Ok(encoded) if encoded.snapshot => None,
            Ok(encoded) => {
                let (group, die) = (group_name(words, &encoded.event), subset.die);
                Some(ResolvedEvent { words, group, encoded, die, functions })
            }
            Err(error) => {
                self.notes.push(error.message);
                None
            }
        }
    }

    /// The events that a text selects, on every matching PMU, in the machine's order.
    pub fn resolve_event(
        &mut self,
        spec: &EventSpec,
        leader: &[Term],
    ) -> Result<Vec<ResolvedEvent<'a>>, ColumnError> {
        self.notes.extend(spec.notes.iter().cloned());
        let Some(typed) = &spec.pmu else {
            let Some(term) = spec.terms.first() else { return Ok(Vec::new()) };
            return self.resolve_bare(term, &[]);
        };
        // A full name selects only that PMU: uncore_imc_1 must not select uncore_imc_10.
        let exact: Vec<_> = self.pmu_words().filter(|words| words.pmu.is_called(typed)).collect();
        let meant = if exact.is_empty() {
            self.pmu_words().filter(|words| words.pmu.is_meant(typed)).collect()
        } else {
            exact
        };
        if !meant.is_empty() {
            return self.resolve_on_each(meant, &spec.terms, leader);
        }
        let name = Term::bare(typed, spec.column);
        match spec.terms.as_slice() {
            [term] if typed == TOOL => self.resolve_bare(term, &[]),
            terms if self.is_event(typed) => self.resolve_bare(&name, terms),
            _ => Err(ColumnError::new(spec.column, self.no_such_pmu(typed))),
        }
    }

    /// Encodes the event on each PMU. If a pattern matches PMUs without the event, these are
    /// skipped.
    pub(super) fn resolve_on_each(
        &mut self,
        meant: Vec<PmuWords<'a>>,
        terms: &[Term],
        leader: &[Term],
    ) -> Result<Vec<ResolvedEvent<'a>>, ColumnError> {
        let is_own = |name: &str| {
            let has_term = |words: &PmuWords<'_>| {
                words.term_format(name).is_some() || words.find_event(name).is_some()
            };
            meant.iter().any(has_term)
        };
        let (terms, asides) = sift_terms(terms, is_own, &mut self.notes)?;
        let terms = terms.as_slice();
        let mut resolved = Vec::new();
        let mut refused: Vec<(&str, ColumnError)> = Vec::new();
        for words in meant {
            match self.pmus.encode_terms(words, terms, leader) {
                Ok(encoded) => {
                    if encoded.snapshot {
                        refused.push((&words.pmu.name, gauge_error(terms, &encoded.event)));
                        continue;
                    }
                    let group = group_name(words, &encoded.event);
                    for subset in self.narrowing.select_subsets(words, &encoded.event, terms) {
                        let mut all_terms = terms.to_vec();
                        all_terms.extend(
                            subset.typed_terms(terms.first().map_or(1, |term| term.column)),
                        );
                        let mut encoded = self.pmus.encode_terms(words, &all_terms, leader)?;
                        let note = encoded.note.take().filter(|note| !self.notes.contains(note));
                        self.notes.extend(note);
                        let (die, functions) = (subset.die, subset.functions);
                        resolved.push(ResolvedEvent { words, group, encoded, die, functions });
                    }
                }
                Err(error) => refused.push((&words.pmu.name, error)),
            }
        }
        if resolved.is_empty() {
            let first_error = refused.into_iter().next().map(|(_, error)| error);
            return Err(first_error.unwrap_or_else(|| ColumnError::new(1, "it names no PMU")));
        }
        if let Some((_, error)) = refused.first() {
            let names = refused.iter().map(|(name, _)| *name);
            self.notes.push(format!("left out {}: {}", list_names(names), error.message));
        }
        for event in &mut resolved {
            event.encoded.asides = asides.clone();
        }
        Ok(resolved)
    }

    fn no_such_pmu(&self, typed: &str) -> String {
        let mut stems: Vec<&str> =
            self.machine.pmus.iter().map(|pmu: &Pmu| name::stem(&pmu.name)).collect();
        stems.dedup();
        if let Some(gap) = self.pmus.gaps().iter().find(|gap| gap.lacks_pmu(typed)) {
            return format!("there is no PMU {}: {}", printable(typed), gap.describe_gap());
        }
        let near = did_you_misspell(name::stem(typed), &stems);
        format!("there is no PMU {}{near} (PMUs here: {})", printable(typed), list_names(stems))
    }
}

fn gauge_error(terms: &[Term], event: &str) -> ColumnError {
    ColumnError::new(
        terms.first().map_or(1, |term| term.column),
        format!("{} is a gauge, not a count: it cannot be divided", printable(event)),
    )
}

/// The group under which an event that was given by name is recorded; `other` for an unknown PMU.
pub(super) fn group_name(words: PmuWords<'_>, event: &str) -> &'static str {
    words.family.map_or("other", |family| family.event_group(event).name())
}

/// Adds the text to an error, with a pointer to the column.
pub fn error_in_text(text: &str, error: &ColumnError) -> anyhow::Error {
    anyhow!("-e '{}': {error}", printable(text))
}
