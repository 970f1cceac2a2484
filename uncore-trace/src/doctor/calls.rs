//! Whether the kernel lets this process open counters and load programs.
//!
//! Files do not show it: the seccomp profile of a container and a security module refuse both to a
//! process with all privileges. So one counter of each PMU is opened, disabled, and closed at once,
//! and one program is loaded and not attached. Nothing is counted, and other users of the counters
//! do not see it; the PMUs of a driver that resets open counters are left out.

use std::collections::BTreeMap;
use std::io;

use super::{ExaminedMachine, Finding, FindingState, kernel};
use crate::discover::name::stem;
use crate::open::{self, Barrier, Call};
use crate::plan::{self, Counter, PlanRequest};
use crate::text::list_few;

const PERF: &str = "perf_event_open";
const BPF: &str = "bpf";
/// Names of PMUs in a finding.
const FEW: usize = 6;

pub(super) fn check(machine: &ExaminedMachine) -> Vec<Finding> {
    if !machine.is_running() {
        let message = "whether the kernel allows it is known only on the running machine";
        return vec![Finding::not_here(PERF, message)];
    }
    let is_privileged = |privileges: open::Privileges| {
        privileges.is_perfmon_capable() && privileges.is_bpf_capable()
    };
    if !machine.privileges.is_some_and(is_privileged) {
        return vec![Finding::not_here(PERF, "not tried: this process lacks the privileges")];
    }
    let mut findings = check_counters(machine);
    let release = kernel::kernel_release(machine).unwrap_or_default();
    // Without types, the check of them has failed.
    if machine.read_btf().is_ok() || open::find_elsewhere(machine.root_dir(), &release).is_some() {
        findings.push(check_program());
    }
    findings
}

/// One finding on all PMUs that can be opened, and one on each error.
fn check_counters(machine: &ExaminedMachine) -> Vec<Finding> {
    let planned = machine.known_machine().map_err(str::to_owned).and_then(|known| {
        let request = PlanRequest {
            groups: vec!["all".to_owned()],
            tick_ns: plan::MAX_TICK_NS,
            window_ns: plan::MAX_TICK_NS,
            ..PlanRequest::default()
        };
        let plan = plan::plan(&known.machine, &known.catalog, &request);
        Ok((plan.map_err(|error| format!("{error:#}"))?, &known.catalog))
    });
    let (plan, catalog) = match planned {
        Ok(planned) => planned,
        Err(error) => {
            return vec![Finding::not_here(PERF, format!("not tried: {error}"))];
        }
    };
    let resets = |counter: &Counter| {
        catalog.family_named(&counter.family).is_some_and(|family| family.opening_resets)
    };
    let alone = |counter: &&Counter| counter.leader.is_none() && !counter.is_statistic();
    let mut first_by_pmu: BTreeMap<&str, &Counter> = BTreeMap::new();
    for counter in plan.counters.iter().filter(alone).filter(|counter| !resets(counter)) {
        first_by_pmu.entry(&counter.pmu).or_insert(counter);
    }
    let tried = first_by_pmu.values().map(|counter| (*counter, open::try_counter(counter)));
    judge_results(&tried.collect::<Vec<_>>(), |error| open::barrier_to_call(Call::Perf, error))
}

/// The findings on what was tried. `barrier` says what an error means.
fn judge_results(
    tried: &[(&Counter, io::Result<()>)],
    barrier: impl Fn(&io::Error) -> Option<Barrier>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut opened: Vec<&str> = Vec::new();
    let mut refused: BTreeMap<String, (Vec<&str>, Option<Barrier>)> = BTreeMap::new();
    for (counter, result) in tried {
        let pmu = counter.pmu.as_str();
        match result {
            Ok(()) => opened.push(stem(pmu)),
            Err(error) => {
                let entry = refused.entry(error.to_string());
                entry.or_insert_with(|| (Vec::new(), barrier(error))).0.push(pmu);
            }
        }
    }
    opened.dedup();
    if !opened.is_empty() {
        let message =
            format!("a counter of each PMU of a group could be opened: {}", list_few(&opened, FEW));
        findings.push(Finding::ok(PERF, message));
    }
    // A recording of the other PMUs works.
    let state = if opened.is_empty() { FindingState::Fail } else { FindingState::Warn };
    for (error, (pmus, barrier)) in refused {
        let answer = format!("opening a counter of {} fails with {error}", list_few(&pmus, FEW));
        findings.push(refusal_finding(PERF, state, &answer, barrier));
    }
    findings
}

/// The finding on a program that is loaded.
fn check_program() -> Finding {
    match open::try_program() {
        Ok(Ok(())) => Finding::ok(BPF, "a program could be loaded"),
        Ok(Err(error)) => refusal_finding(
            BPF,
            FindingState::Fail,
            &format!("loading a program fails with {error}"),
            open::barrier_to_call(Call::Bpf, &error),
        ),
        Err(error) => Finding::failure(BPF, format!("{error:#}")),
    }
}

/// The finding on a call that was refused, with the ways out.
fn refusal_finding(
    name: &'static str,
    state: FindingState,
    answer: &str,
    barrier: Option<Barrier>,
) -> Finding {
    let Some(Barrier { reason: obstacle, remedies: ways }) = barrier else {
        return Finding::new(name, state, answer);
    };
    let finding = Finding::new(name, state, format!("{obstacle}: {answer}"));
    ways.into_iter().fold(finding, Finding::with_fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::discover;

    fn counter(pmu: &str) -> Counter {
        let request = PlanRequest {
            groups: vec!["host".to_owned()],
            tick_ns: plan::MAX_TICK_NS,
            window_ns: plan::MAX_TICK_NS,
            ..PlanRequest::default()
        };
        let machine = discover::captured_machine("vm-no-uncore");
        let plan = plan::plan(&machine, &Catalog::load_embedded().unwrap(), &request).unwrap();
        Counter { pmu: pmu.to_owned(), ..plan.counters[0].clone() }
    }

    #[test]
    fn a_counter_that_alone_is_refused_is_a_warning() {
        let [a, b, c] = ["a_0", "a_1", "b_0"].map(counter);
        let refused = || Err(io::Error::from_raw_os_error(libc::ENODEV));
        let findings = judge_results(&[(&a, Ok(())), (&b, Ok(())), (&c, refused())], |_| None);
        assert_eq!(findings[0].state, FindingState::Ok);
        assert!(findings[0].what.ends_with("opened: a"), "{findings:?}");
        assert_eq!(findings[1].state, FindingState::Warn);
        assert!(findings[1].what.contains("of b_0 fails with No such device"), "{findings:?}");
        assert_eq!(judge_results(&[(&c, refused())], |_| None)[0].state, FindingState::Fail);
    }

    #[test]
    fn a_barrier_for_all_counters_is_named_once_with_its_remedies() {
        let [a, b] = ["a_0", "b_0"].map(counter);
        let refused = || Err(io::Error::from_raw_os_error(libc::EPERM));
        let barrier =
            |_: &io::Error| Some(Barrier { reason: "a profile".to_owned(), remedies: vec!["x"] });
        let findings = judge_results(&[(&a, refused()), (&b, refused())], barrier);
        assert_eq!(findings.len(), 1);
        assert_eq!(
            (findings[0].state, &findings[0].mend[..]),
            (FindingState::Fail, &["x".to_owned()][..])
        );
        assert!(
            findings[0].what.starts_with("a profile: opening a counter of a_0, b_0 fails with "),
            "{findings:?}"
        );
    }

    #[test]
    fn counters_of_another_machine_are_not_opened() {
        assert_eq!(super::super::machine::examine_tree(check, &[])[0].state, FindingState::NotHere);
    }
}
