//! tracefs, the tree of tracepoints.
//!
//! Recording does not need it: the programs attach to tracepoints by their names in the kernel's
//! type information. Only other tools use it, so its absence is no fault.

use super::{ExaminedMachine, Finding};

const NAME: &str = "tracefs";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    let absent = |why: &str| {
        let message = format!(
            "{why}: nothing is lost, uncore-trace does not use it; perf and bpftrace need it to \
             name tracepoints"
        );
        Finding::not_here(NAME, message)
    };
    let Some(mounts) = machine.read_mounts() else {
        return absent("/proc/self/mountinfo cannot be read");
    };
    let Some(mount) = mounts.of_type("tracefs").next() else { return absent("not mounted") };
    let point = mount.point.display();
    let events = format!("{point}/events/sched");
    match machine.read_names(events.trim_start_matches('/')) {
        Ok(_) => Finding::ok(NAME, format!("mounted at {point}")),
        Err(error) => absent(&format!("cannot read {events}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::single_finding;
    use super::*;

    const MOUNTED: (&str, &str) = (
        "proc/self/mountinfo",
        "29 22 0:13 / /sys/kernel/tracing rw,relatime - tracefs nodev rw\n",
    );

    #[test]
    fn a_mounted_and_readable_tracefs_is_ok() {
        let file = ("sys/kernel/tracing/events/sched/sched_switch/id", "314\n");
        let finding = single_finding(check, &[MOUNTED, file]);
        assert_eq!(finding.state, FindingState::Ok);
        assert!(finding.what.contains("/sys/kernel/tracing"));
    }

    #[test]
    fn a_missing_tracefs_needs_no_remedy() {
        for files in
            [&[("proc/self/mountinfo", "22 1 0:20 / / rw - ext4 a rw\n")][..], &[MOUNTED], &[]]
        {
            let finding = single_finding(check, files);
            assert_eq!((finding.state, finding.mend.len()), (FindingState::NotHere, 0));
            assert!(finding.what.contains("nothing is lost"), "{}", finding.what);
        }
        assert!(single_finding(check, &[MOUNTED]).what.contains("events/sched"));
    }
}
