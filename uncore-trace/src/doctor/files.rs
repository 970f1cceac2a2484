//! The limits on files: how many may be open, as every counter, map, program and link is one, and
//! how large they may be.

use rustix::thread::CapabilitySet;

use super::{ExaminedMachine, Finding, FindingState};
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

pub(super) fn check(machine: &ExaminedMachine) -> Vec<Finding> {
    let limits = machine.read_text(PATH).ok();
    let limit = |name: &str| limits.as_deref().and_then(|limits| limit_of(limits, name));
    let Some((open, size)) = limit("Max open files").zip(limit("Max file size")) else {
        return vec![Finding::not_here(OPEN, format!("/{PATH} cannot be read"))];
    };
    let Some(cpus) = machine.read_text("proc/stat").ok().map(|stat| count_cpus(&stat)) else {
        let message = "/proc/stat cannot be read: the number of CPUs is unknown";
        return vec![Finding::not_here(OPEN, message)];
    };
    vec![open_files(machine, open, cpus), file_size(size)]
}

fn open_files(machine: &ExaminedMachine, limit: ResourceLimit, cpus: u64) -> Finding {
    let ResourceLimit { soft, hard } = limit;
    let min_files = least_files(machine, cpus as usize);
    let enough_files = (cpus * PER_CPU + BESIDES).max(min_files);
    let may_exceed =
        machine.privileges.is_some_and(|held| held.has_capabilities(CapabilitySet::SYS_RESOURCE));
    // A recorder raises its own limit.
    let reached = if may_exceed { u64::MAX } else { hard };
    if reached >= enough_files {
        let raised = if soft < enough_files { ", which record raises" } else { "" };
        let message =
            format!("{} may be open{raised}, {enough_files} are enough", describe_limit(soft));
        return Finding::ok(OPEN, message);
    }
    let (state, why) = if reached < min_files {
        (FindingState::Fail, format!("a recording needs {min_files}"))
    } else {
        (FindingState::Warn, format!("the counters of all {cpus} CPUs may need {enough_files}"))
    };
    let message = format!(
        "{} may be open (hard limit {}): {why}",
        describe_limit(soft),
        describe_limit(hard)
    );
    // Raising the hard limit needs CAP_SYS_RESOURCE, so it must be set for the session.
    let mend = machine.as_root(&format!("prlimit --pid $$ --nofile={enough_files}:{enough_files}"));
    Finding::new(OPEN, state, message).with_fix(mend)
}

/// Files of a recording of what is counted without a request.
fn least_files(machine: &ExaminedMachine, cpus: usize) -> u64 {
    let (tick_ns, window_ns) = (plan::MAX_TICK_NS, plan::MAX_TICK_NS);
    let request = PlanRequest { tick_ns, window_ns, ..PlanRequest::default() };
    let known = machine.known_machine().ok();
    let plan = known.and_then(|known| plan::plan(&known.machine, &known.catalog, &request).ok());
    open::files_needed(plan.as_ref().map_or(&[], |plan| &plan.counters), cpus)
}

fn file_size(limit: ResourceLimit) -> Finding {
    let bytes = limit.soft;
    let state = match bytes {
        u64::MAX => return Finding::ok(SIZE, "not limited"),
        ..LEAST_BYTES => FindingState::Fail,
        _ => FindingState::Warn,
    };
    let message = format!("a file may have {bytes} bytes: a recording that would be larger fails");
    Finding::new(SIZE, state, message).with_fix("ulimit -f unlimited")
}

fn describe_limit(limit: u64) -> String {
    if limit == u64::MAX { "any number".to_owned() } else { limit.to_string() }
}

/// A limit of the kernel (`getrlimit(2)`); `u64::MAX`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResourceLimit {
    /// What holds now.
    pub soft: u64,
    /// How far the process may raise it.
    pub hard: u64,
}

/// The limit in a line such as `Max open files  1024  524288  files` of
/// `proc/PID/limits`.
pub(super) fn limit_of(limits: &str, name: &str) -> Option<ResourceLimit> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = line.split_whitespace().map(|value| match value {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some(ResourceLimit { soft: values.next()??, hard: values.next()?? })
}

/// Online CPUs: the lines `cpu0`, `cpu1`, ... of `proc/stat`; the line `cpu` is their sum.
fn count_cpus(stat: &str) -> u64 {
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|suffix| suffix.starts_with(char::is_numeric))
    };
    stat.lines().filter(is_cpu).count() as u64
}

#[cfg(test)]
mod tests {
    use super::super::machine::examine_tree;
    use super::*;
    use std::fmt::Write as _;

    fn findings_for(open: &str, size: &str, cpus: u32, status: &str) -> Vec<Finding> {
        let mut stat = "cpu  1 2 3\n".to_owned();
        for cpu in 0..cpus {
            writeln!(stat, "cpu{cpu} 1 2 3").unwrap();
        }
        stat.push_str("intr 1\n");
        let limits = format!(
            "Limit   Soft Limit  Hard Limit  Units\nMax file size {size} bytes\n\
             Max open files {open} files\n"
        );
        examine_tree(check, &[(PATH, &limits), ("proc/stat", &stat), ("proc/self/status", status)])
    }

    const USER: &str = "Uid:\t1\t1\t1\t1\nCapEff:\t0000000000000000\n";
    /// `CAP_SYS_RESOURCE` is bit 24.
    const ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t0000000001000000\n";

    fn of_open_files(open: &str, cpus: u32, status: &str) -> Finding {
        findings_for(open, "unlimited unlimited", cpus, status).remove(0)
    }

    #[test]
    fn the_needed_open_files_grow_with_the_cpus() {
        assert_eq!(of_open_files("1024 524288", 8, USER).state, FindingState::Ok);
        assert_eq!(of_open_files("unlimited unlimited", 4096, USER).state, FindingState::Ok);
        let raised = of_open_files("1024 524288", 144, USER);
        assert_eq!(raised.state, FindingState::Ok);
        assert_eq!(raised.what, "1024 may be open, which record raises, 2560 are enough");
        let hard = of_open_files("1024 2048", 144, USER);
        assert_eq!(hard.state, FindingState::Warn);
        assert!(hard.mend[0].starts_with("sudo prlimit"), "{hard:?}");
        assert_eq!(of_open_files("64 64", 144, ROOT).state, FindingState::Ok);
    }

    #[test]
    fn a_limit_below_every_recording_fails() {
        let low = of_open_files("64 64", 8, USER);
        assert_eq!(low.state, FindingState::Fail);
        assert!(
            low.what.starts_with("64 may be open (hard limit 64): a recording needs "),
            "{low:?}"
        );
    }

    #[test]
    fn a_limit_of_the_file_size_is_reported() {
        for (size, state) in [
            ("unlimited unlimited", FindingState::Ok),
            ("8192 unlimited", FindingState::Fail),
            ("1073741824 1073741824", FindingState::Warn),
        ] {
            assert_eq!(findings_for("1024 524288", size, 8, USER)[1].state, state, "{size}");
        }
    }

    #[test]
    fn without_proc_the_open_files_are_not_checked() {
        assert_eq!(examine_tree(check, &[])[0].state, FindingState::NotHere);
        let limits = "Max open files 1024 4096 files\nMax file size 1 1 bytes\n";
        assert_eq!(examine_tree(check, &[(PATH, limits)])[0].state, FindingState::NotHere);
    }
}
