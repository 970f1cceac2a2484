//! Resolves what `-e` takes without a PMU: times of the measurement, software and hardware events,
//! events of any PMU, `rNNN`, `TYPE:CONFIG`.

use super::resolve::{ResolvedEvent, Resolver};
use crate::catalog::cache_names::is_cache_event;
use crate::catalog::encode::parse_raw;
use crate::catalog::family::PmuKind;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::spec::{ColumnError, Term, TermValue, parse_numeric};
use crate::suggest::{did_you_misspell, list_names};
use crate::text::printable;

/// perf's event for the length of the measurement. Every row of a recording has that anyway.
pub const DURATION: &str = "duration_time";

/// perf's event for the time that the command ran in user space.
pub const USER: &str = "user_time";

/// perf's event for the time that the command ran in the kernel.
pub const SYSTEM: &str = "system_time";

/// Names that `-e` takes for times of the measurement. No counter is needed for them.
pub const TIMES: [&str; 3] = [DURATION, USER, SYSTEM];

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

impl<'a> Resolver<'a> {
    /// Whether a name is one that can stand without a PMU.
    pub(super) fn is_event(&self, typed: &str) -> bool {
        parse_raw(typed).is_some()
            || parse_numeric(typed).is_some()
            || self.is_hardware_name(typed)
            || self.pmu_words().any(|words| words.find_event(typed).is_some())
    }

    /// A name without a PMU, with further terms: a time, a software or hardware event, an event of
    /// any PMU, `rNNN`, `TYPE:CONFIG`.
    pub(super) fn resolve_bare(
        &mut self,
        name: &Term,
        more_terms: &[Term],
    ) -> Result<Vec<ResolvedEvent<'a>>, ColumnError> {
        let typed = name.name.as_str();
        if self.times && TIMES.contains(&typed) {
            self.has_time = true;
            return Ok(Vec::new());
        }
        if [USER, SYSTEM].contains(&typed) {
            let why = format!(
                "{typed} is a time of the command of `stat`, not of a cgroup: -e task-clock counts \
                 the time on CPUs"
            );
            return Err(ColumnError::new(name.column, why));
        }
        if typed == DURATION {
            let note = format!("{DURATION}: nothing to count, every row has its window's length");
            self.notes.push(note);
            return Ok(Vec::new());
        }
        let terms: Vec<Term> = [name].into_iter().chain(more_terms).cloned().collect();
        let has_event = |words: &PmuWords<'_>| {
            words.find_event(typed).is_some() && self.narrowing.opens_pmu(words.pmu)
        };
        let having: Vec<_> = self.pmu_words().filter(has_event).collect();
        let symbolic =
            |words: &PmuWords<'_>| words.is_kind(PmuKind::Core) || words.is_kind(PmuKind::Software);
        let (symbolic_pmus, uncore_pmus): (Vec<_>, Vec<_>) = having.into_iter().partition(symbolic);
        if !symbolic_pmus.is_empty() {
            return self.resolve_on_each(symbolic_pmus, &terms, &[]);
        }
        if self.is_hardware_name(typed) {
            return Err(ColumnError::new(name.column, self.no_core_message(typed)));
        }
        if !uncore_pmus.is_empty() {
            return self.resolve_on_each(uncore_pmus, &terms, &[]);
        }
        if let Some(config) = parse_raw(typed) {
            return self.resolve_raw(name, config, more_terms);
        }
        match parse_numeric(typed) {
            Some((attr_type, config)) => self.resolve_numeric(name, attr_type, config, more_terms),
            None => Err(ColumnError::new(name.column, self.no_such_event(typed))),
        }
    }

    /// `rNNN` on every core PMU.
    fn resolve_raw(
        &mut self,
        term: &Term,
        config: u64,
        more_terms: &[Term],
    ) -> Result<Vec<ResolvedEvent<'a>>, ColumnError> {
        let cores: Vec<_> = self.pmu_words().filter(|words| words.is_kind(PmuKind::Core)).collect();
        if cores.is_empty() {
            return Err(ColumnError::new(term.column, self.no_core_message(&term.name)));
        }
        let mut resolved =
            self.resolve_on_each(cores, &config_terms(term, config, more_terms), &[])?;
        // The name of a raw event is what was typed, whatever else its name is.
        for event in resolved.iter_mut().filter(|event| event.encoded.config[0] == config) {
            event.encoded.asides.label.get_or_insert_with(|| format!("r{config:x}"));
            if more_terms.is_empty() {
                event.encoded.filter.clear();
            }
        }
        Ok(resolved)
    }

    /// `TYPE:CONFIG`: the type of a PMU, of generic events or, as 4, of raw events.
    fn resolve_numeric(
        &mut self,
        term: &Term,
        attr_type: u32,
        config: u64,
        more_terms: &[Term],
    ) -> Result<Vec<ResolvedEvent<'a>>, ColumnError> {
        let of_type: Vec<_> =
            self.pmu_words().filter(|words| words.pmu.attr_type == attr_type).collect();
        if !of_type.is_empty() {
            return self.resolve_on_each(of_type, &config_terms(term, config, more_terms), &[]);
        }
        let generic = self.pmu_words().find_map(|words| words.generic_event(attr_type, config));
        if let Some(event) = generic {
            return self
                .resolve_bare(&Term { name: event.name.to_owned(), ..term.clone() }, more_terms);
        }
        if attr_type == RAW {
            return self.resolve_raw(term, config, more_terms);
        }
        let message = format!("no PMU here has the type {attr_type} and an event {config:#x}");
        Err(ColumnError::new(term.column, message))
    }

    fn is_hardware_name(&self, typed: &str) -> bool {
        let families = self.catalog.families.iter().filter(|family| family.kind == PmuKind::Core);
        let mut names = families.flat_map(|family| &family.events).flat_map(|event| &event.names);
        names.any(|name| name.eq_ignore_ascii_case(typed)) || is_cache_event(typed)
    }

    fn no_core_message(&self, typed: &str) -> String {
        let uncore = self.pmu_words().find(|words| words.find_event(typed).is_some());
        let instead = uncore.map_or_else(String::new, |words| {
            format!("; an uncore PMU has one too: {}/{typed}/", printable(&words.pmu.name))
        });
        format!(
            "{typed} needs a core PMU and this machine shows none (a virtual machine without \
             counters?){instead}; the groups here are {}",
            list_names(self.groups_here())
        )
    }

    fn no_such_event(&self, typed: &str) -> String {
        let all_events = |words: PmuWords<'a>| words.all_events().chain(words.vendor_events());
        let names: Vec<_> = self.pmu_words().flat_map(all_events).map(|event| event.name).collect();
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

/// A whole config word in place of the name `term`, with the terms after it.
fn config_terms(term: &Term, config: u64, more_terms: &[Term]) -> Vec<Term> {
    let value = TermValue::Number(config);
    let config_term = Term { name: "config".to_owned(), value, column: term.column };
    [config_term].into_iter().chain(more_terms.iter().cloned()).collect()
}
