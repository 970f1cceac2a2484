//! The limit on open files: every counter, map, program and link is one.

use super::{Finding, Machine, State};

const NAME: &str = "open files";
const PATH: &str = "proc/self/limits";
/// Files for each CPU: the five counters of the group `host`, those of the core PMU (at most six at
/// a time on current cores), that of the tick, and room for a second group.
const PER_CPU: u64 = 16;
/// Files for everything else: maps, programs, links, outputs, and uncore counters.
const BESIDES: u64 = 256;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let limits = machine.text(PATH).ok();
    let Some((soft, hard)) = limits.as_deref().and_then(open_files) else {
        let what = format!("/{PATH} cannot be read");
        return vec![Finding::new(NAME, State::NotHere, what)];
    };
    let Some(cpus) = machine.text("proc/stat").ok().map(|stat| cpus(&stat)) else {
        let what = "/proc/stat cannot be read: the number of CPUs is unknown";
        return vec![Finding::new(NAME, State::NotHere, what)];
    };
    let need = cpus * PER_CPU + BESIDES;
    let finding = if soft >= need {
        Finding::new(NAME, State::Ok, format!("{} may be open, {need} are enough", count(soft)))
    } else {
        let what = format!(
            "{soft} may be open (hard limit {}): the counters of all {cpus} CPUs may need {need}",
            count(hard)
        );
        // Raising the hard limit needs CAP_SYS_RESOURCE, so it must be set for the session.
        let mend = if need <= hard {
            format!("ulimit -n {need}")
        } else {
            machine.as_root(&format!("prlimit --pid $$ --nofile={need}:{need}"))
        };
        Finding::new(NAME, State::Warn, what).mend(mend)
    };
    vec![finding]
}

fn count(limit: u64) -> String {
    if limit == u64::MAX { "any number".to_owned() } else { limit.to_string() }
}

/// Soft and hard limit in the line `Max open files  1024  524288  files` of `proc/PID/limits`.
fn open_files(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
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
    use super::super::machine::finding;
    use super::*;
    use std::fmt::Write as _;

    fn with(limits: &str, cpus: u32) -> Finding {
        let mut stat = "cpu  1 2 3\n".to_owned();
        for cpu in 0..cpus {
            writeln!(stat, "cpu{cpu} 1 2 3").unwrap();
        }
        stat.push_str("intr 1\n");
        let limits =
            format!("Limit   Soft Limit  Hard Limit  Units\nMax open files {limits} files\n");
        finding(check, &[(PATH, &limits), ("proc/stat", &stat)])
    }

    #[test]
    fn the_need_grows_with_the_cpus() {
        assert_eq!(with("1024 524288", 8).state, State::Ok);
        assert_eq!(with("unlimited unlimited", 4096).state, State::Ok);
        let many = with("1024 524288", 144);
        assert_eq!(many.state, State::Warn);
        assert_eq!(many.mend, ["ulimit -n 2560"]);
        let hard = with("1024 2048", 144);
        assert!(hard.mend[0].contains("prlimit"));
    }

    #[test]
    fn without_the_files_it_cannot_tell() {
        assert_eq!(finding(check, &[]).state, State::NotHere);
        let limits = "Max open files 1024 4096 files\n";
        assert_eq!(finding(check, &[(PATH, limits)]).state, State::NotHere);
    }
}
