//! Counters whose causes nothing says: a PMU without a family, or an event that its family does not
//! know.
//!
//! Their counts are not divided among tasks, because they may be of devices. The user can say who
//! causes them (`--cause`); a catalog file can say it for each event.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::resolve::ResolvedEvent;
use super::{Counter, PlanRequest};
use crate::catalog::source::TrafficCause;
use crate::choice::DeclaredCause;
use crate::discover::name;
use crate::suggest::list_names;

impl From<DeclaredCause> for TrafficCause {
    fn from(declared: DeclaredCause) -> Self {
        match declared {
            DeclaredCause::Cpu => Self::Cpu,
            DeclaredCause::Device => Self::Device,
        }
    }
}

impl ResolvedEvent<'_> {
    /// The causes of what it counts; `None` if the catalog does not know them.
    pub(super) fn possible_causes(&self) -> Option<BTreeSet<TrafficCause>> {
        let encoded = &self.encoded;
        self.words.event_causes(&encoded.event, &encoded.filter, &encoded.unit)
    }
}

impl Counter {
    /// Whether nothing says who causes what it counts.
    pub fn is_of_unknown_cause(&self) -> bool {
        let has_none = self.cause.is_none() && self.causes.is_empty();
        has_none && self.sees.is_empty() && !self.per_cpu
    }
}

/// The events whose causes nothing says, for all instances of their PMU.
fn events_of_unknown_cause(events: &[ResolvedEvent<'_>]) -> BTreeSet<String> {
    let unknown = events.iter().filter(|event| event.possible_causes().is_none());
    unknown
        .map(|event| format!("{}/{}/", name::stem(&event.words.pmu.name), event.encoded.event))
        .collect()
}

/// A warning if `--cause` is for none of the events.
///
/// # Errors
///
/// The same, unless a machine may lack what was asked for.
pub(super) fn unused_cause_warning(
    events: &[ResolvedEvent<'_>],
    request: &PlanRequest,
) -> Result<Option<String>> {
    let declared = request.declared_cause.filter(|_| events_of_unknown_cause(events).is_empty());
    let Some(declared) = declared else { return Ok(None) };
    let why = format!(
        "--cause {} is for counters of unknown cause, and the causes of all selected counters are \
         known",
        declared.name()
    );
    ensure!(
        request.allow_missing,
        "{why}: leave it out (`uncore-trace list events` shows the causes)"
    );
    Ok(Some(why))
}

/// What becomes of counts whose causes nothing says; `None` if there are none.
pub(super) fn unknown_cause_note(
    events: &[ResolvedEvent<'_>],
    declared: Option<DeclaredCause>,
) -> Option<String> {
    let unknown = events_of_unknown_cause(events);
    if unknown.is_empty() {
        return None;
    }
    let names = list_names(&unknown);
    Some(match declared {
        Some(known) => format!("cause {}, as --cause says: {names}", known.name()),
        None => format!(
            "cause unknown: {names}: nothing says whether CPUs or devices cause these counts, so \
             they stay unattributed; --cause cpu divides them among tasks, --cause device gives \
             them to devices"
        ),
    })
}
