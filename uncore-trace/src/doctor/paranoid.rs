//! `kernel.perf_event_paranoid`.
//!
//! Above 0 it forbids CPU-wide events, which all uncore counters are, to whoever lacks `CAP_PERFMON`
//! (`include/linux/perf_event.h`, `perf_allow_cpu`). With the capability its value is of no account.

use super::{Finding, Machine, State};

const NAME: &str = "perf_event_paranoid";
const PATH: &str = "proc/sys/kernel/perf_event_paranoid";

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let finding = match (machine.number(PATH), machine.privileges) {
        (None, _) if machine.has("proc/sys/kernel") => {
            Finding::new(NAME, State::Fail, format!("/{PATH} cannot be read: no perf events"))
                .mend("boot a kernel built with CONFIG_PERF_EVENTS=y")
        }
        (None, _) => {
            Finding::new(NAME, State::Warn, "/proc/sys is not there: cannot tell its value")
                .mend("mount -t proc proc /proc")
        }
        (Some(value), Some(privileges)) if privileges.perfmon() => {
            let what = format!("{value}: does not apply, CAP_PERFMON is held");
            Finding::new(NAME, State::Ok, what)
        }
        (Some(value), _) if value <= 0 => {
            Finding::new(NAME, State::Ok, format!("{value}: CPU-wide events are open to all"))
        }
        (Some(value), None) => {
            let what = format!("{value}: CPU-wide events need CAP_PERFMON");
            Finding::new(NAME, State::NotHere, what)
        }
        (Some(value), Some(_)) => {
            let what = format!("{value}: CPU-wide events are refused without CAP_PERFMON");
            Finding::new(NAME, State::Fail, what)
                .mend("sudo sysctl -w kernel.perf_event_paranoid=0")
        }
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::super::machine::finding;
    use super::*;

    const NOBODY: (&str, &str) = ("proc/self/status", "Uid:\t9\t9\t9\t9\nCapEff:\t0\n");
    const PERFMON: (&str, &str) =
        ("proc/self/status", "Uid:\t9\t9\t9\t9\nCapEff:\t0000004000000000\n");

    #[test]
    fn the_capability_overrides_the_value() {
        assert_eq!(finding(check, &[(PATH, "4\n"), PERFMON]).state, State::Ok);
        let refused = finding(check, &[(PATH, "2\n"), NOBODY]);
        assert_eq!(refused.state, State::Fail);
        assert!(refused.mend.unwrap().contains("kernel.perf_event_paranoid=0"));
    }

    #[test]
    fn zero_and_below_are_open() {
        assert_eq!(finding(check, &[(PATH, "0\n"), NOBODY]).state, State::Ok);
        assert_eq!(finding(check, &[(PATH, "-1\n"), NOBODY]).state, State::Ok);
        assert_eq!(finding(check, &[(PATH, "1\n"), NOBODY]).state, State::Fail);
    }

    #[test]
    fn without_the_file_there_are_no_perf_events() {
        let kernel = ("proc/sys/kernel/osrelease", "6.12.0");
        assert_eq!(finding(check, &[kernel, PERFMON]).state, State::Fail);
        assert_eq!(finding(check, &[]).state, State::Warn);
        assert_eq!(finding(check, &[(PATH, "2\n")]).state, State::NotHere);
    }
}
