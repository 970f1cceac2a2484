//! Counters of core PMUs where virtual machines have these PMUs for themselves.
//!
//! With `enable_mediated_pmu` of KVM (Linux 7.0 and later, x86), the kernel creates no virtual
//! machine with a PMU while a counter of a core PMU counts guests, and opens no such counter beside
//! one (`perf_create_mediated_pmu` and `mediated_pmu_account_event`, kernel/events/core.c, Linux
//! 7.2). All core PMUs are concerned, and no other (`PERF_PMU_CAP_MEDIATED_VPMU`). So their
//! counters exclude guests there: no recording stands in the way of a virtual machine.

use std::collections::BTreeSet;

use super::Counter;
use crate::catalog::family::PmuKind;
use crate::catalog::pmu_words::PmuWords;
use crate::discover::Machine;
use crate::suggest::list_names;
use crate::text::printable;

/// Whether counters of the PMU do not count guests on this machine.
pub(super) fn excludes_guests(machine: &Machine, words: PmuWords<'_>) -> bool {
    machine.mediated_pmu.is_some() && words.is_kind(PmuKind::Core) && words.is_per_cpu()
}

/// The note on counters of the user that do not count guests.
pub(super) fn guests_note(machine: &Machine, counters: &[Counter]) -> Option<String> {
    let parameter = machine.mediated_pmu?;
    let counted =
        counters.iter().filter(|counter| counter.exclude_guest && counter.role.is_divided());
    let pmus: BTreeSet<&str> = counted.map(|counter| counter.pmu.as_str()).collect();
    let pmus = list_names(pmus.iter().map(|pmu| printable(pmu)));
    (!pmus.is_empty()).then(|| {
        format!("what virtual machines execute is not counted by {pmus}: {parameter} is on")
    })
}
