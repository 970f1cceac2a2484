//! Resolves `-p` and `-e` on this machine: which PMUs, which events.

use anyhow::{Result, anyhow, bail, ensure};

use super::Request;
use super::device::{Narrowing, Subset};
use crate::catalog::Catalog;
use crate::catalog::asides::sift;
use crate::catalog::cache_names::is_cache_event;
use crate::catalog::encode::{Encoded, raw};
use crate::catalog::family::{Family, Kind};
use crate::catalog::kernels;
use crate::catalog::spec::{At, EventSpec, Term, TermValue, numeric};
use crate::catalog::suggest::{did_you_misspell, list};
use crate::catalog::words::Words;
use crate::discover::{Machine, Pmu, name};
use crate::text::printable;

/// perf's event for the length of the measurement. Every row of a recording has that anyway.
pub const DURATION: &str = "duration_time";

/// perf's event for the time that the command ran in user space.
pub const USER: &str = "user_time";

/// perf's event for the time that the command ran in the kernel.
pub const SYSTEM: &str = "system_time";

/// Names that `-e` takes for times of the measurement. No counter is needed for them.
pub const TIMES: [&str; 3] = [DURATION, USER, SYSTEM];

/// perf's PMU for such events, which is not the kernel's (`tools/perf/util/tool_pmu.c`, Linux 7.2).
const TOOL: &str = "tool";

/// Names of perf that are no counts, but constants of the machine for formulas (the same file).
const CONSTANTS: [&str; 11] = [
    "has_pmem",
    "num_cores",
    "num_cpus",
    "num_cpus_online",
    "num_dies",
    "num_packages",
    "slots",
    "smt_on",
    "system_tsc_freq",
    "core_wide",
    "target_cpu",
];

/// `PERF_TYPE_RAW` of `include/uapi/linux/perf_event.h` (Linux 7.2).
const RAW: u32 = 4;

/// One event on one PMU.
#[derive(Debug, Clone)]
pub struct Resolved<'a> {
    /// The PMU and its family.
    pub words: Words<'a>,
    /// The group under which it is recorded.
    pub group: &'static str,
    /// Its encoding.
    pub encoded: Encoded,
    /// The die that it is limited to, if the PMU serves several.
    pub die: Option<u32>,
}

/// Resolves names on one machine, and collects notes on what was left out.
#[derive(Debug)]
pub struct Resolver<'a> {
    pub(super) machine: &'a Machine,
    pub(super) catalog: &'a Catalog,
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
    /// A resolver without notes.
    pub fn new(machine: &'a Machine, catalog: &'a Catalog, narrowing: Narrowing<'a>) -> Self {
        let (notes, warnings) = (Vec::new(), Vec::new());
        Self { machine, catalog, narrowing, notes, warnings, times: false, has_time: false }
    }

    /// A resolver of the whole machine.
    pub fn whole(machine: &'a Machine, catalog: &'a Catalog) -> Self {
        Self::new(machine, catalog, Narrowing::none(machine))
    }

    /// Returns the notes.
    ///
    /// # Errors
    ///
    /// `--device` or `--per port` narrows none of the counters.
    pub fn finish(&mut self, request: &Request) -> Result<Vec<String>> {
        let asked = !request.devices.is_empty() || request.per_port;
        if let Some(refused) = self.narrowing.refused.as_ref().filter(|_| !self.narrowing.used) {
            bail!("{refused}");
        }
        ensure!(
            !asked || self.narrowing.used,
            "{} narrows nothing: no counter asked for is of PCIe root ports that can be told \
             apart; the PCIe PMUs here are {}",
            if request.per_port { "--per port" } else { "--device" },
            list(self.words().filter_map(|words| {
                words.family?.ports.as_ref()?;
                Some(words.pmu.name.as_str())
            }))
        );
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(std::mem::take(&mut self.narrowing.notes));
        Ok(notes)
    }

    pub(super) fn words(&self) -> impl Iterator<Item = Words<'a>> + use<'a> {
        let catalog = self.catalog;
        self.machine.pmus.iter().map(move |pmu| Words::new(catalog, pmu))
    }

    /// The PMUs of a family.
    pub(super) fn of_family(
        &self,
        family: &'a Family,
    ) -> impl Iterator<Item = Words<'a>> + use<'a> {
        let named =
            move |words: &Words<'a>| words.family.is_some_and(|its| its.family == family.family);
        self.words().filter(named)
    }

    /// Whether there is a PMU of this family.
    pub(super) fn has(&self, family: &str) -> bool {
        self.words().any(|words| words.family.is_some_and(|its| its.family == family))
    }

    /// The event of one PMU that is an input of a metric, by name or with terms. `None` if it
    /// cannot be counted, with a note if there is more to say.
    pub(super) fn input(
        &mut self,
        words: Words<'a>,
        name: &str,
        terms: Option<&Vec<Term>>,
        part: &Subset,
    ) -> Option<Resolved<'a>> {
        let mut terms = match (terms, words.event(name)) {
            (Some(terms), _) => terms.clone(),
            (None, Some(event)) => {
                vec![Term { name: event.name.to_owned(), value: TermValue::Bare, column: 1 }]
            }
            (None, None) => return None,
        };
        if self.narrowing.parts(words, name, &terms).contains(part) {
            terms.extend(part.typed(1));
        }
        match words.encode(&terms, &[]) {
            Ok(encoded) if encoded.snapshot => None,
            Ok(encoded) => {
                let (group, die) = (group_of(words, &encoded.event), part.die);
                Some(Resolved { words, group, encoded, die })
            }
            Err(error) => {
                self.notes.push(error.message);
                None
            }
        }
    }

    /// The events that a text selects, on every matching PMU, in the machine's order.
    pub fn event(&mut self, spec: &EventSpec, leader: &[Term]) -> Result<Vec<Resolved<'a>>, At> {
        self.notes.extend(spec.notes.iter().cloned());
        let Some(typed) = &spec.pmu else {
            let Some(term) = spec.terms.first() else { return Ok(Vec::new()) };
            return self.bare(term, &[]);
        };
        // A full name selects only that PMU: uncore_imc_1 must not select uncore_imc_10.
        let exact: Vec<_> = self.words().filter(|words| words.pmu.is_called(typed)).collect();
        let meant = if exact.is_empty() {
            self.words().filter(|words| words.pmu.is_meant(typed)).collect()
        } else {
            exact
        };
        if !meant.is_empty() {
            return self.on_each(meant, &spec.terms, leader);
        }
        let name = Term { name: typed.clone(), value: TermValue::Bare, column: spec.column };
        match spec.terms.as_slice() {
            [term] if typed == TOOL => self.bare(term, &[]),
            terms if self.is_event(typed) => self.bare(&name, terms),
            _ => Err(At::new(spec.column, self.no_such_pmu(typed))),
        }
    }

    /// Encodes the event on each PMU. If a pattern matches PMUs without the event, these are
    /// skipped.
    fn on_each(
        &mut self,
        meant: Vec<Words<'a>>,
        terms: &[Term],
        leader: &[Term],
    ) -> Result<Vec<Resolved<'a>>, At> {
        let is_own = |name: &str| {
            let has =
                |words: &Words<'_>| words.format(name).is_some() || words.event(name).is_some();
            meant.iter().any(has)
        };
        let (terms, asides) = sift(terms, is_own, &mut self.notes)?;
        let terms = terms.as_slice();
        let mut resolved = Vec::new();
        let mut refused: Vec<(&str, At)> = Vec::new();
        for words in meant {
            match words.encode(terms, leader) {
                Ok(encoded) => {
                    if encoded.snapshot {
                        refused.push((&words.pmu.name, gauge(terms, &encoded.event)));
                        continue;
                    }
                    let group = group_of(words, &encoded.event);
                    for part in self.narrowing.parts(words, &encoded.event, terms) {
                        let mut all = terms.to_vec();
                        all.extend(part.typed(terms.first().map_or(1, |term| term.column)));
                        let encoded = words.encode(&all, leader)?;
                        resolved.push(Resolved { words, group, encoded, die: part.die });
                    }
                }
                Err(error) => refused.push((&words.pmu.name, error)),
            }
        }
        if resolved.is_empty() {
            let first = refused.into_iter().next().map(|(_, error)| error);
            return Err(first.unwrap_or_else(|| At::new(1, "it names no PMU")));
        }
        if let Some((_, error)) = refused.first() {
            let names = refused.iter().map(|(name, _)| *name);
            self.notes.push(format!("left out {}: {}", list(names), error.message));
        }
        for event in &mut resolved {
            event.encoded.asides = asides.clone();
        }
        Ok(resolved)
    }

    /// Whether a name is one that can stand without a PMU.
    fn is_event(&self, typed: &str) -> bool {
        raw(typed).is_some()
            || numeric(typed).is_some()
            || self.is_hardware_name(typed)
            || self.words().any(|words| words.event(typed).is_some())
    }

    /// A name without a PMU, with further terms: a time, a software or hardware event, an event of any
    /// PMU, `rNNN`, `TYPE:CONFIG`.
    fn bare(&mut self, name: &Term, more: &[Term]) -> Result<Vec<Resolved<'a>>, At> {
        let typed = name.name.as_str();
        if self.times && TIMES.contains(&typed) {
            self.has_time = true;
            return Ok(Vec::new());
        }
        if [USER, SYSTEM].contains(&typed) {
            let why = format!(
                "{typed} is a time of the command of `stat`, and not one of a cgroup: -e task-clock \
                 counts the time on CPUs"
            );
            return Err(At::new(name.column, why));
        }
        if typed == DURATION {
            let note = format!("{DURATION}: nothing to count, every row has its window's length");
            self.notes.push(note);
            return Ok(Vec::new());
        }
        let terms: Vec<Term> = [name].into_iter().chain(more).cloned().collect();
        let has =
            |words: &Words<'_>| words.event(typed).is_some() && self.narrowing.opens(words.pmu);
        let having: Vec<_> = self.words().filter(has).collect();
        let symbolic =
            |words: &Words<'_>| words.family.is_some_and(|family| family.kind != Kind::Uncore);
        let (first, others): (Vec<_>, Vec<_>) = having.into_iter().partition(symbolic);
        if !first.is_empty() {
            return self.on_each(first, &terms, &[]);
        }
        if self.is_hardware_name(typed) {
            return Err(At::new(name.column, self.no_core(typed)));
        }
        if !others.is_empty() {
            return self.on_each(others, &terms, &[]);
        }
        if let Some(config) = raw(typed) {
            return self.raw(name, config, more);
        }
        match numeric(typed) {
            Some((attr_type, config)) => self.numeric(name, attr_type, config, more),
            None => Err(At::new(name.column, self.no_such_event(typed))),
        }
    }

    /// `rNNN` on every core PMU.
    fn raw(&mut self, term: &Term, config: u64, more: &[Term]) -> Result<Vec<Resolved<'a>>, At> {
        let core = |words: &Words<'_>| words.family.is_some_and(|f| f.kind == Kind::Core);
        let cores: Vec<_> = self.words().filter(core).collect();
        if cores.is_empty() {
            return Err(At::new(term.column, self.no_core(&term.name)));
        }
        let mut resolved = self.on_each(cores, &whole(term, config, more), &[])?;
        // The name of a raw event is what was typed, whatever else its name is.
        for event in resolved.iter_mut().filter(|event| event.encoded.config[0] == config) {
            event.encoded.asides.label.get_or_insert_with(|| format!("r{config:x}"));
            if more.is_empty() {
                event.encoded.filter.clear();
            }
        }
        Ok(resolved)
    }

    /// `TYPE:CONFIG`: the type of a PMU, of generic events or, as 4, of raw events.
    fn numeric(
        &mut self,
        term: &Term,
        attr_type: u32,
        config: u64,
        more: &[Term],
    ) -> Result<Vec<Resolved<'a>>, At> {
        let of_type: Vec<_> =
            self.words().filter(|words| words.pmu.attr_type == attr_type).collect();
        if !of_type.is_empty() {
            return self.on_each(of_type, &whole(term, config, more), &[]);
        }
        let generic = self.words().find_map(|words| words.generic(attr_type, config));
        if let Some(event) = generic {
            return self.bare(&Term { name: event.name.to_owned(), ..term.clone() }, more);
        }
        if attr_type == RAW {
            return self.raw(term, config, more);
        }
        let message = format!("no PMU here has the type {attr_type} and an event {config:#x}");
        Err(At::new(term.column, message))
    }

    fn is_hardware_name(&self, typed: &str) -> bool {
        let families = self.catalog.families.iter().filter(|family| family.kind == Kind::Core);
        let mut names = families.flat_map(|family| &family.events).flat_map(|event| &event.names);
        names.any(|name| name.eq_ignore_ascii_case(typed)) || is_cache_event(typed)
    }

    fn no_core(&self, typed: &str) -> String {
        let uncore = self.words().filter(|words| words.event(typed).is_some());
        let uncore: Vec<_> = uncore.map(|words| words.pmu.name.as_str()).collect();
        let instead = match uncore.as_slice() {
            [] => String::new(),
            [first, ..] => format!("; an uncore PMU has one too: {}/{typed}/", printable(first)),
        };
        format!(
            "{typed} needs a core PMU and this machine shows none (a virtual machine without \
             counters?){instead}; the groups here are {}",
            list(self.groups_here())
        )
    }

    fn no_such_pmu(&self, typed: &str) -> String {
        let mut stems: Vec<&str> =
            self.machine.pmus.iter().map(|pmu: &Pmu| name::stem(&pmu.name)).collect();
        stems.dedup();
        let gaps = kernels::gaps(self.machine, self.catalog);
        if let Some(gap) = gaps.iter().find(|gap| gap.lacks(typed)) {
            return format!("there is no PMU {}: {}", printable(typed), gap.line());
        }
        let near = did_you_misspell(name::stem(typed), &stems);
        format!("there is no PMU {}{near} (PMUs here: {})", printable(typed), list(stems))
    }

    fn no_such_event(&self, typed: &str) -> String {
        let all = |words: Words<'a>| words.events().chain(words.vendor_events());
        let names: Vec<_> = self.words().flat_map(all).map(|event| event.name).collect();
        let pmus = self.machine.pmus.iter().map(|pmu| pmu.name.as_str());
        if let Some(pmu) = self.machine.pmus.iter().find(|pmu| pmu.is_meant(typed)) {
            return format!("{0} is a PMU, name an event of it: {0}/EVENT/", printable(&pmu.name));
        }
        if CONSTANTS.contains(&typed) {
            return format!("{typed} is a constant of the machine in perf's formulas, not a count");
        }
        let near = did_you_misspell(typed, names.into_iter().chain(pmus));
        format!(
            "there is no event {}{near}; `uncore-trace list events` shows those of this machine",
            printable(typed)
        )
    }
}

fn gauge(terms: &[Term], event: &str) -> At {
    let column = terms.first().map_or(1, |term| term.column);
    At::new(
        column,
        format!("{} is a gauge, not a count: it cannot be shared out", printable(event)),
    )
}

/// The group under which an event that was given by name is recorded; `other` for an unknown PMU.
fn group_of(words: Words<'_>, event: &str) -> &'static str {
    words.family.map_or("other", |family| family.group_of(event).name())
}

/// A whole config word in place of the name `term`, with the terms after it.
fn whole(term: &Term, config: u64, more: &[Term]) -> Vec<Term> {
    let value = TermValue::Number(config);
    let whole = Term { name: "config".to_owned(), value, column: term.column };
    [whole].into_iter().chain(more.iter().cloned()).collect()
}

/// Adds the text to an error, with a pointer to the column.
pub fn in_text(text: &str, error: &At) -> anyhow::Error {
    anyhow!("-e '{}': {error}", printable(text))
}
