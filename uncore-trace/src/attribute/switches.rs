//! Counters of context switches: the programs see each switch, so each owner's number is known.
//!
//! A window of the counter ends with a reading, some microseconds after its last tick. Switches in
//! between are in the count of this window, but their owners are known in the next one. The shares
//! must sum to the count, so the difference is given to the owner with the most switches. If nobody
//! switched, it is given to the owner with the most time. The next window takes it back: over a
//! recording each owner has its own number.
//!
//! # Confidence
//!
//! The part of the window in which the counter ran. Switches in time that no record covers are
//! unattributed.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};

use super::division_method::{DivisionInput, DivisionMethod};
use super::exact::shares_of_counts;
use super::method::Method;
use super::share::Share;
use crate::catalog::exact::ExactBy;
use crate::entries::Owner;
use crate::plan::Plan;

/// The context switches in the window that is being filled.
#[derive(Debug)]
pub(super) struct Switches {
    /// By CPU and the owner that left it, for the CPUs that have such a counter.
    by_cpu: BTreeMap<u32, HashMap<Owner, u64>>,
}

impl Switches {
    /// An empty window.
    pub(super) fn new(plan: &Plan) -> Self {
        let counts =
            plan.counters.iter().filter(|planned| planned.exact_by == Some(ExactBy::Switches));
        Self { by_cpu: counts.map(|counter| (counter.cpu, HashMap::new())).collect() }
    }

    /// Whether a counter needs them.
    pub(super) fn are_wanted(&self) -> bool {
        !self.by_cpu.is_empty()
    }

    /// Adds switches of the current tick.
    pub(super) fn add_switches(&mut self, cpu: u32, switches_by_owner: &[(Owner, u64)]) {
        let Some(counts) = self.by_cpu.get_mut(&cpu) else { return };
        for &(owner, switches) in switches_by_owner.iter().filter(|(_, switches)| *switches > 0) {
            *counts.entry(owner).or_default() += switches;
        }
    }

    /// Ends the window. Returns the switches by CPU and owner.
    pub(super) fn take_window(&mut self) -> BTreeMap<u32, HashMap<Owner, u64>> {
        let ended =
            |(cpu, counts): (&u32, &mut HashMap<Owner, u64>)| (*cpu, std::mem::take(counts));
        self.by_cpu.iter_mut().map(ended).collect()
    }
}

/// The method.
#[derive(Debug, Default)]
pub(super) struct BySwitches {
    /// By owner, the switches that the last window held back (above 0) or gave too early (below).
    due: BTreeMap<Owner, i64>,
}

impl DivisionMethod for BySwitches {
    fn note_restart(&mut self) {
        self.due.clear();
    }

    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        let is_known =
            !window.time.iter().any(|&(owner, ns)| owner == Owner::Unattributed && ns > 0);
        let runs =
            |owner: &Owner| matches!(owner, Owner::Task { .. } | Owner::OtherTasks | Owner::Idle);
        let longest = window.time.iter().filter(|(owner, _)| runs(owner)).max_by_key(|(_, ns)| *ns);
        let running = longest.filter(|_| is_known).map(|(owner, _)| *owner);
        let counts = self.divide_switches(window.raw_count(), window.counts, running);
        (Method::Exact, shares_of_counts(&counts, window.factor, window.running))
    }
}

impl BySwitches {
    /// Divides `total` switches. `seen` are those of the owners in the window. `running` ran most
    /// of the time; `None` if a part of the time is unknown, in which anyone may have switched.
    fn divide_switches(
        &mut self,
        total: u64,
        seen: &[(Owner, u64)],
        running: Option<Owner>,
    ) -> Vec<(Owner, u64)> {
        let mut due = std::mem::take(&mut self.due);
        for &(owner, switches) in seen {
            *due.entry(owner).or_default() += switches as i64;
        }
        let mut counts: Vec<(Owner, u64)> = due
            .into_iter()
            .filter_map(|(owner, due)| Some((owner, u64::try_from(due).ok().filter(|n| *n > 0)?)))
            .collect();
        // Owners with the most switches first.
        counts.sort_by_key(|(owner, switches)| (std::cmp::Reverse(*switches), *owner));
        let sum: u64 = counts.iter().map(|(_, switches)| switches).sum();
        let mut excess = sum.saturating_sub(total);
        for (owner, switches) in &mut counts {
            let held_back = excess.min(*switches);
            excess -= held_back;
            *switches -= held_back;
            if held_back > 0 {
                self.due.insert(*owner, held_back as i64);
            }
        }
        let early = total.saturating_sub(sum);
        if early > 0 {
            let receiver =
                running.map(|running| counts.first().map_or(running, |(owner, _)| *owner));
            if let Some(owner) = receiver {
                self.due.insert(owner, -(early as i64));
            }
            let owner = receiver.unwrap_or(Owner::Unattributed);
            match counts.first_mut().filter(|(largest, _)| *largest == owner) {
                Some((_, switches)) => *switches += early,
                None => counts.push((owner, early)),
            }
        }
        counts.retain(|(_, switches)| *switches > 0);
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Owner = Owner::Irq(1);
    const B: Owner = Owner::Irq(2);

    #[test]
    fn an_early_switch_is_taken_back_and_a_late_one_is_given_later() {
        let mut method = BySwitches::default();
        assert_eq!(method.divide_switches(10, &[(A, 3), (B, 7)], Some(A)), [(B, 7), (A, 3)]);
        assert_eq!(method.divide_switches(11, &[(A, 3), (B, 7)], Some(A)), [(B, 8), (A, 3)]);
        assert_eq!(method.divide_switches(9, &[(A, 3), (B, 7)], Some(A)), [(B, 6), (A, 3)]);
        assert_eq!(method.divide_switches(8, &[(A, 3), (B, 7)], Some(A)), [(B, 5), (A, 3)]);
        assert_eq!(method.divide_switches(5, &[(A, 3)], Some(A)), [(A, 3), (B, 2)]);
    }

    #[test]
    fn switches_in_unknown_time_are_unattributed() {
        let mut method = BySwitches::default();
        assert_eq!(method.divide_switches(5, &[(A, 3)], None), [(A, 3), (Owner::Unattributed, 2)]);
        assert_eq!(method.divide_switches(4, &[(A, 4)], Some(A)), [(A, 4)]);
        assert_eq!(method.divide_switches(4, &[], None), [(Owner::Unattributed, 4)]);
        // The next switch is of whoever ran.
        assert_eq!(method.divide_switches(1, &[], Some(B)), [(B, 1)]);
        assert_eq!(method.divide_switches(4, &[(A, 4), (B, 1)], Some(B)), [(A, 4)]);
    }

    proptest! {
        /// The reading of each window comes some switches late.
        #[test]
        fn each_owner_has_its_own_number_in_the_end(
            switches in prop::collection::vec((0u32..4, 0u64..5), 1..200),
            late in prop::collection::vec(0usize..3, 1..50),
        ) {
            // One switch each, in windows of 10.
            let each: Vec<Owner> = switches
                .iter()
                .flat_map(|&(owner, number)| (0..number).map(move |_| Owner::Irq(owner)))
                .collect();
            let mut method = BySwitches::default();
            let mut given: BTreeMap<Owner, i64> = BTreeMap::new();
            let mut read = 0;
            let windows = each.len().div_ceil(10);
            for window in 0..windows {
                let end = (10 * window + 10).min(each.len());
                let is_last = window + 1 == windows;
                let late = if is_last { 0 } else { late[window % late.len()] };
                let until = (end + late).min(each.len());
                let total = (until - read) as u64;
                read = until;
                let seen: Vec<_> = each[10 * window..end].iter().map(|owner| (*owner, 1)).collect();
                let parts = method.divide_switches(total, &seen, Some(A));
                prop_assert_eq!(parts.iter().map(|(_, n)| n).sum::<u64>(), total);
                for (owner, number) in parts {
                    *given.entry(owner).or_default() += number as i64;
                }
            }
            for owner in each {
                *given.entry(owner).or_default() -= 1;
            }
            let rest: i64 = given.values().map(|rest| rest.abs()).sum();
            prop_assert!(rest <= 4, "{given:?}");
        }
    }
}
