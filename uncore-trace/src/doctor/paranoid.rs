//! `kernel.perf_event_paranoid`.
//!
//! A value above 0 denies CPU-wide events, which all uncore counters are, to a user without
//! `CAP_PERFMON` (`include/linux/perf_event.h`, `perf_allow_cpu`). `record` needs that capability
//! in any case, to attach its BPF programs, and with it the value does not apply. So the value
//! matters only to `stat`, and lowering it does not fix `record`.
//!
//! Kernels of Debian and Ubuntu have a patch: above 2 they open events only with `CAP_SYS_ADMIN`
//! (seen on Debian's Linux 6.12 and 7.2). Their default is 3 or more.

use super::{ExaminedMachine, Finding};

const NAME: &str = "perf_event_paranoid";
const PATH: &str = "proc/sys/kernel/perf_event_paranoid";

/// The highest value at which every kernel opens counters with `CAP_PERFMON`.
const EVERYWHERE: i64 = 2;

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    match (machine.read_number(PATH), machine.privileges) {
        (None, _) if machine.has_path("proc/sys/kernel") => Finding::failure(
            NAME,
            format!("/{PATH} cannot be read: this kernel has no perf events"),
        )
        .with_fix("boot a kernel built with CONFIG_PERF_EVENTS=y"),
        (None, _) => Finding::warning(NAME, "/proc/sys is missing: the value is unknown")
            .with_fix("mount -t proc proc /proc"),
        (Some(value), Some(privileges))
            if privileges.is_perfmon_capable() && !privileges.is_admin() && value > EVERYWHERE =>
        {
            let message = format!(
                "{value}: above {EVERYWHERE}, kernels of Debian and Ubuntu give counters to \
                 CAP_SYS_ADMIN alone, and CAP_PERFMON is held"
            );
            Finding::warning(NAME, message)
                .with_fix(format!("sysctl kernel.perf_event_paranoid={EVERYWHERE}"))
        }
        (Some(value), Some(privileges)) if privileges.is_perfmon_capable() => {
            Finding::ok(NAME, format!("{value}: does not apply, CAP_PERFMON is held"))
        }
        (Some(value), Some(_)) if value <= 0 => {
            let message = format!("{value}: without CAP_PERFMON it allows `stat`, not `record`");
            Finding::not_here(NAME, message)
        }
        (Some(value), Some(_)) => {
            let message = format!(
                "{value}: without CAP_PERFMON it forbids `stat`; 0 would allow `stat`, not \
                 `record`"
            );
            Finding::not_here(NAME, message)
        }
        (Some(value), None) => {
            Finding::not_here(NAME, format!("{value}: does not apply with CAP_PERFMON"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::single_finding;
    use super::*;

    const NOBODY: (&str, &str) = ("proc/self/status", "Uid:\t9\t9\t9\t9\nCapEff:\t0\n");
    const PERFMON: (&str, &str) =
        ("proc/self/status", "Uid:\t9\t9\t9\t9\nCapEff:\t0000004000000000\n");

    #[test]
    fn the_capability_overrides_the_value() {
        assert_eq!(single_finding(check, &[(PATH, "2\n"), PERFMON]).state, FindingState::Ok);
        assert_eq!(single_finding(check, &[(PATH, "4\n"), ROOT]).state, FindingState::Ok);
        // But not on kernels that need more.
        let restricted = single_finding(check, &[(PATH, "3\n"), PERFMON]);
        assert_eq!(
            (restricted.state, restricted.mend.len()),
            (FindingState::Warn, 1),
            "{restricted:?}"
        );
    }

    const ROOT: (&str, &str) =
        ("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n");

    /// Tried on Linux 6.18 with values 0 and -1: `record` fails without both capabilities.
    #[test]
    fn lowering_perf_event_paranoid_is_not_advised() {
        for value in ["4\n", "2\n", "1\n", "0\n", "-1\n"] {
            let finding = single_finding(check, &[(PATH, value), NOBODY]);
            assert_eq!(
                (finding.state, finding.mend.len()),
                (FindingState::NotHere, 0),
                "{finding:?}"
            );
            assert!(finding.what.contains("not `record`"), "{finding:?}");
        }
    }

    #[test]
    fn without_the_file_there_are_no_perf_events() {
        let kernel = ("proc/sys/kernel/osrelease", "6.12.0");
        assert_eq!(single_finding(check, &[kernel, PERFMON]).state, FindingState::Fail);
        assert_eq!(single_finding(check, &[]).state, FindingState::Warn);
        assert_eq!(single_finding(check, &[(PATH, "2\n")]).state, FindingState::NotHere);
    }
}
