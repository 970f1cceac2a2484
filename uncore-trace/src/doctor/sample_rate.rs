//! `kernel.perf_event_max_sample_rate` and `kernel.perf_cpu_time_max_percent`.
//!
//! The kernel lowers the first when perf interrupts take longer than the second allows
//! (`kernel/events/core.c`, `perf_sample_event_took`), and throttles events that sample faster.
//! Counters are read by a BPF timer, which neither sysctl limits; both limit clock-driven perf
//! events, and a lowered rate shows that interrupts are slow on this machine.

use super::{ExaminedMachine, Finding};

const NAME: &str = "sample rate";
const RATE: &str = "proc/sys/kernel/perf_event_max_sample_rate";
const PERCENT: &str = "proc/sys/kernel/perf_cpu_time_max_percent";
/// Samples per second: the fastest tick, 100 us, needs this many.
const ENOUGH: i64 = 10_000;

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    let Some(rate) = machine.read_number(RATE) else {
        return Finding::not_here(NAME, format!("/{RATE} cannot be read"));
    };
    let limit = match machine.read_number(PERCENT) {
        None => "the limit on its CPU time cannot be read".to_owned(),
        // Both values disable the mechanism (`perf_cpu_time_max_percent_handler`).
        Some(0 | 100) => "no limit on its CPU time".to_owned(),
        Some(percent) => format!("at most {percent} % of CPU time"),
    };
    if rate < ENOUGH {
        let message = format!(
            "perf samples are throttled above {rate} a second ({limit}): ticks of a recording are \
             not, but other tools that sample by the perf clock are"
        );
        Finding::warning(NAME, message)
            .with_fix(machine.as_root("sysctl -w kernel.perf_event_max_sample_rate=100000"))
    } else {
        Finding::ok(NAME, format!("{rate} perf samples a second, {limit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::single_finding;
    use super::*;

    #[test]
    fn the_default_is_enough_and_a_lowered_one_is_not() {
        let fine = single_finding(check, &[(RATE, "100000\n"), (PERCENT, "25\n")]);
        assert_eq!(fine.state, FindingState::Ok);
        assert!(fine.what.contains("25 %"));
        let lowered = single_finding(check, &[(RATE, "4250\n"), (PERCENT, "25\n")]);
        assert_eq!(lowered.state, FindingState::Warn);
        assert!(lowered.mend[0].starts_with("sysctl -w"));
        assert!(
            single_finding(check, &[(RATE, "100000"), (PERCENT, "0")]).what.contains("no limit")
        );
    }

    #[test]
    fn without_the_file_the_sample_rate_is_not_checked() {
        assert_eq!(single_finding(check, &[]).state, FindingState::NotHere);
        assert_eq!(single_finding(check, &[(RATE, "many")]).state, FindingState::NotHere);
    }
}
