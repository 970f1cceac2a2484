//! The limits on files: how many may be open, as every counter, map, program and link is one, and how
//! large they may be.

use rustix::thread::CapabilitySet;

use super::{Finding, Machine, State};
use crate::open;
use crate::plan::{self, PlanRequest};

const OPEN: &str = "open files";
const SIZE: &str = "file size";
pub(super) const PATH: &str = "proc/self/limits";
/// Files for each CPU: the five counters of the group `host`, those of the core PMU (at most six at
/// a time on current cores), that of the tick, and room for a second group.
const PER_CPU: u64 = 16;
/// Files for everything else: maps, programs, links, outputs, and uncore counters.
const BESIDES: u64 = 256;
/// Bytes without which not even a file of a second can be written.
const LEAST_BYTES: u64 = 32 << 10;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let limits = machine.text(PATH).ok();
    let limit = |name: &str| limits.as_deref().and_then(|limits| limit_of(limits, name));
    let Some((open, size)) = limit("Max open files").zip(limit("Max file size")) else {
        let what = format!("/{PATH} cannot be read");
        return vec![Finding::new(OPEN, State::NotHere, what)];
    };
    let Some(cpus) = machine.text("proc/stat").ok().map(|stat| cpus(&stat)) else {
        let what = "/proc/stat cannot be read: the number of CPUs is unknown";
        return vec![Finding::new(OPEN, State::NotHere, what)];
    };
    vec![open_files(machine, open, cpus), file_size(size)]
}

fn open_files(machine: &Machine, (soft, hard): (u64, u64), cpus: u64) -> Finding {
    let least = least_files(machine, cpus as usize);
    let many = (cpus * PER_CPU + BESIDES).max(least);
    let may_exceed = machine.privileges.is_some_and(|held| held.has_capabilities(CapabilitySet::SYS_RESOURCE));
    // A recorder raises its own limit.
    let reached = if may_exceed { u64::MAX } else { hard };
    if reached >= many {
        let raised = if soft < many { ", which record raises" } else { "" };
        let what = format!("{} may be open{raised}, {many} are enough", count(soft));
        return Finding::new(OPEN, State::Ok, what);
    }
    let (state, why) = if reached < least {
        (State::Fail, format!("a recording needs {least}"))
    } else {
        (State::Warn, format!("the counters of all {cpus} CPUs may need {many}"))
    };
    let what = format!("{} may be open (hard limit {}): {why}", count(soft), count(hard));
    // Raising the hard limit needs CAP_SYS_RESOURCE, so it must be set for the session.
    let mend = machine.as_root(&format!("prlimit --pid $$ --nofile={many}:{many}"));
    Finding::new(OPEN, state, what).mend(mend)
}

/// Files of a recording of what is counted without a request.
fn least_files(machine: &Machine, cpus: usize) -> u64 {
    let (tick_ns, window_ns) = (plan::MAX_TICK_NS, plan::MAX_TICK_NS);
    let request = PlanRequest { tick_ns, window_ns, ..PlanRequest::default() };
    let known = machine.known().ok();
    let plan = known.and_then(|known| plan::plan(&known.machine, &known.catalog, &request).ok());
    open::files_needed(plan.as_ref().map_or(&[], |plan| &plan.counters), cpus)
}

fn file_size((soft, _): (u64, u64)) -> Finding {
    let state = match soft {
        u64::MAX => return Finding::new(SIZE, State::Ok, "not limited"),
        ..LEAST_BYTES => State::Fail,
        _ => State::Warn,
    };
    let what = format!("a file may have {soft} bytes: a recording that would be larger fails");
    Finding::new(SIZE, state, what).mend("ulimit -f unlimited")
}

fn count(limit: u64) -> String {
    if limit == u64::MAX { "any number".to_owned() } else { limit.to_string() }
}

/// Soft and hard limit in a line such as `Max open files  1024  524288  files` of `proc/PID/limits`.
pub(super) fn limit_of(limits: &str, name: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = line.split_whitespace().map(|value| match value {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

/// Online CPUs: the lines `cpu0`, `cpu1`, ... of `proc/stat`; the line `cpu` is their sum.
fn cpus(stat: &str) -> u64 {
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(char::is_numeric))
    };
    stat.lines().filter(is_cpu).count() as u64
}

#[cfg(test)]
mod tests {
    use super::super::machine::examine;
    use super::*;
    use std::fmt::Write as _;

    fn with(open: &str, size: &str, cpus: u32, status: &str) -> Vec<Finding> {
        let mut stat = "cpu  1 2 3\n".to_owned();
        for cpu in 0..cpus {
            writeln!(stat, "cpu{cpu} 1 2 3").unwrap();
        }
        stat.push_str("intr 1\n");
        let limits = format!(
            "Limit   Soft Limit  Hard Limit  Units\nMax file size {size} bytes\n\
             Max open files {open} files\n"
        );
        examine(check, &[(PATH, &limits), ("proc/stat", &stat), ("proc/self/status", status)])
    }

    const USER: &str = "Uid:\t1\t1\t1\t1\nCapEff:\t0000000000000000\n";
    /// `CAP_SYS_RESOURCE` is bit 24.
    const ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t0000000001000000\n";

    fn of_open_files(open: &str, cpus: u32, status: &str) -> Finding {
        with(open, "unlimited unlimited", cpus, status).remove(0)
    }

    #[test]
    fn the_need_grows_with_the_cpus() {
        assert_eq!(of_open_files("1024 524288", 8, USER).state, State::Ok);
        assert_eq!(of_open_files("unlimited unlimited", 4096, USER).state, State::Ok);
        let raised = of_open_files("1024 524288", 144, USER);
        assert_eq!(raised.state, State::Ok);
        assert_eq!(raised.what, "1024 may be open, which record raises, 2560 are enough");
        let hard = of_open_files("1024 2048", 144, USER);
        assert_eq!(hard.state, State::Warn);
        assert!(hard.mend[0].starts_with("sudo prlimit"), "{hard:?}");
        assert_eq!(of_open_files("64 64", 144, ROOT).state, State::Ok);
    }

    #[test]
    fn a_limit_below_every_recording_fails() {
        let low = of_open_files("64 64", 8, USER);
        assert_eq!(low.state, State::Fail);
        assert!(
            low.what.starts_with("64 may be open (hard limit 64): a recording needs "),
            "{low:?}"
        );
    }

    #[test]
    fn a_limit_of_the_size_is_said() {
        for (size, state) in [
            ("unlimited unlimited", State::Ok),
            ("8192 unlimited", State::Fail),
            ("1073741824 1073741824", State::Warn),
        ] {
            assert_eq!(with("1024 524288", size, 8, USER)[1].state, state, "{size}");
        }
    }

    #[test]
    fn without_the_files_it_cannot_tell() {
        assert_eq!(examine(check, &[])[0].state, State::NotHere);
        let limits = "Max open files 1024 4096 files\nMax file size 1 1 bytes\n";
        assert_eq!(examine(check, &[(PATH, limits)])[0].state, State::NotHere);
    }
}
