//! tracefs, the tree of tracepoints.
//!
//! The programs attach through the kernel's type information and record without it, so a missing
//! one is a warning: `perf` and every other tool that names tracepoints beside a recording need it.

use super::{Finding, Machine, State};

const NAME: &str = "tracefs";
const MOUNT: &str = "mount -t tracefs nodev /sys/kernel/tracing";

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let Some(mounts) = machine.mounts("tracefs") else {
        let what = "/proc/self/mountinfo cannot be read: cannot tell whether it is mounted";
        return vec![Finding::new(NAME, State::Warn, what).mend(MOUNT)];
    };
    let Some(mount) = mounts.first() else {
        let what = "not mounted: record works without, tools that name tracepoints do not";
        return vec![Finding::new(NAME, State::Warn, what).mend(MOUNT)];
    };
    let point = &mount.point;
    let finding = match machine.names(&format!("{}/events/sched", point.trim_start_matches('/'))) {
        Ok(_) => Finding::new(NAME, State::Ok, format!("mounted at {point}")),
        Err(error) => {
            Finding::new(NAME, State::Warn, format!("reading {point}/events/sched: {error}"))
                .mend("sudo uncore-trace doctor")
        }
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::super::machine::finding;
    use super::*;

    const MOUNTED: (&str, &str) = (
        "proc/self/mountinfo",
        "29 22 0:13 / /sys/kernel/tracing rw,relatime - tracefs nodev rw\n",
    );

    #[test]
    fn mounted_and_readable() {
        let file = ("sys/kernel/tracing/events/sched/sched_switch/id", "314\n");
        let finding = finding(check, &[MOUNTED, file]);
        assert_eq!(finding.state, State::Ok);
        assert!(finding.what.contains("/sys/kernel/tracing"));
    }

    #[test]
    fn not_mounted_not_readable_or_unknown() {
        let absent = finding(check, &[("proc/self/mountinfo", "22 1 0:20 / / rw - ext4 a rw\n")]);
        assert_eq!(absent.state, State::Warn);
        assert_eq!(absent.mend.as_deref(), Some(MOUNT));
        let closed = finding(check, &[MOUNTED]);
        assert_eq!(closed.state, State::Warn);
        assert!(closed.what.contains("events/sched"));
        assert!(finding(check, &[]).what.contains("cannot tell"));
    }
}
