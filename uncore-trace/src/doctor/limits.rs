//! The limits of a session on memory, threads and CPU time.

use std::thread;

use super::files::{PATH, ResourceLimit, limit_of};
use super::{ExaminedMachine, Finding};
use crate::open::LEAST_MEMORY;

const NAME: &str = "limits";
/// Threads that every recording starts: one writes the tables, one visits the CPUs.
const THREADS: usize = 2;

pub(super) fn check(machine: &ExaminedMachine) -> Vec<Finding> {
    let Ok(limits) = machine.read_text(PATH) else {
        return vec![Finding::not_here(NAME, format!("/{PATH} cannot be read"))];
    };
    let mut findings = of_memory(&limits);
    if machine.is_running() && !can_start(THREADS) {
        let message = "no thread can be started: this user may have too few processes";
        findings.push(Finding::failure(NAME, message).with_fix("ulimit -u unlimited"));
    }
    if let Some(ResourceLimit { soft: seconds, .. }) = limit_of(&limits, "Max cpu time")
        && seconds < u64::MAX
    {
        let message = format!("a recording is killed after {seconds} s of CPU time");
        findings.push(Finding::warning(NAME, message).with_fix("ulimit -t unlimited"));
    }
    if findings.is_empty() {
        let message = "memory, threads and CPU time are enough";
        findings.push(Finding::ok(NAME, message));
    }
    findings
}

fn of_memory(limits: &str) -> Vec<Finding> {
    let too_low = LEAST_MEMORY.iter().filter_map(|memory| {
        let soft = limit_of(limits, memory.name)?.soft;
        let message = format!(
            "{} KiB of memory, and a recording needs {}",
            soft >> 10,
            memory.least_bytes >> 10
        );
        let mend = format!("ulimit {} unlimited", memory.option);
        (soft < memory.least_bytes).then(|| Finding::failure(NAME, message).with_fix(mend))
    });
    too_low.collect()
}

/// Whether this many threads can run at a time.
fn can_start(threads: usize) -> bool {
    thread::scope(|scope| {
        let (ends, waits) = std::sync::mpsc::channel::<()>();
        let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
        let started = (0..threads).all(|_| {
            let waits = std::sync::Arc::clone(&waits);
            let wait = move || drop(waits.lock().map(|waits| waits.recv()));
            thread::Builder::new().spawn_scoped(scope, wait).is_ok()
        });
        drop(ends);
        started
    })
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::examine_tree;
    use super::*;

    fn findings_for(limits: &str) -> Vec<(FindingState, String)> {
        let findings = examine_tree(check, &[(PATH, limits)]);
        findings.into_iter().map(|finding| (finding.state, finding.mend.concat())).collect()
    }

    #[test]
    fn limits_that_are_too_low_are_reported_with_the_remedy() {
        let fail = |option: &str| (FindingState::Fail, format!("ulimit {option} unlimited"));
        assert_eq!(
            findings_for("Max data size unlimited unlimited bytes\n")[0].0,
            FindingState::Ok
        );
        assert_eq!(findings_for("Max data size 1048576 unlimited bytes\n"), [fail("-d")]);
        assert_eq!(findings_for("Max address space 1048576 1048576 bytes\n"), [fail("-v")]);
        let cpu = findings_for("Max cpu time 60 unlimited seconds\n");
        assert_eq!(cpu, [(FindingState::Warn, "ulimit -t unlimited".to_owned())]);
        assert_eq!(examine_tree(check, &[])[0].state, FindingState::NotHere);
    }

    #[test]
    fn threads_are_started_and_end() {
        assert!(can_start(THREADS));
    }
}
