//! Privileges that a recorder gives up after it has attached, and those that this kernel cannot
//! restrict.

use super::{ExaminedMachine, Finding, FindingState};
use crate::confine;

const NAME: &str = "confinement";

/// The actions of seccomp filters, on kernels that have them (seccomp(2)).
const SECCOMP: &str = "proc/sys/kernel/seccomp/actions_avail";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    if !machine.is_running() {
        let message = "which restrictions the kernel supports is known only on the running machine";
        return Finding::not_here(NAME, message);
    }
    let seccomp = machine.has_path(SECCOMP);
    confinement_finding(confine::has_landlock(), seccomp, confine::hides_processes())
}

fn confinement_finding(landlock: bool, seccomp: bool, hides_processes: bool) -> Finding {
    let kept = confine::names(confine::RECORDER);
    let files = landlock && !hides_processes;
    let mut dropped = vec![format!(
        "all capabilities but {kept}{}",
        if hides_processes { " and CAP_SYS_PTRACE" } else { "" }
    )];
    dropped.push("every way to get them back (no_new_privs)".to_owned());
    if files {
        dropped.push("files other than those that it reads and the output (Landlock)".to_owned());
    }
    if seccomp {
        dropped.push("system calls that it does not need (seccomp)".to_owned());
    }
    let mut missing = Vec::new();
    if hides_processes {
        missing.push("Landlock is not used, because /proc is mounted with hidepid");
    } else if !landlock {
        missing.push("this kernel has no Landlock, or was started without it (parameter lsm=)");
    }
    if !seccomp {
        missing.push("this kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)");
    }
    let state = if missing.is_empty() { FindingState::Ok } else { FindingState::Warn };
    let gives_up = format!("once it has attached, a recorder gives up {}", dropped.join(", "));
    let message = [&[gives_up.as_str()], missing.as_slice()].concat().join("; ");
    Finding::new(NAME, state, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_privileges_are_named_and_undroppable_ones_are_a_warning() {
        let all = confinement_finding(true, true, false);
        assert_eq!(all.state, FindingState::Ok);
        for word in
            ["CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH", "no_new_privs", "Landlock", "seccomp"]
        {
            assert!(all.what.contains(word), "{word}: {}", all.what);
        }
        assert!(!all.what.contains("CAP_SYS_PTRACE"), "{}", all.what);
        for (found, word) in [
            (confinement_finding(false, true, false), "no Landlock"),
            (confinement_finding(true, false, false), "no seccomp"),
            (confinement_finding(true, true, true), "hidepid"),
        ] {
            assert!(found.state == FindingState::Warn && found.what.contains(word), "{found:?}");
        }
        assert!(confinement_finding(true, true, true).what.contains("CAP_SYS_PTRACE"));
    }
}
