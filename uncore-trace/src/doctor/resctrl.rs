//! The file system resctrl: monitors of the bandwidth of memory, for groups of tasks.
//!
//! The kernel has this file system only where the CPU has what it is for (`resctrl_init`,
//! fs/resctrl/rdtgroup.c, Linux 6.18).

use super::{ExaminedMachine, Finding};
use crate::discover::resctrl::Resctrl;
use crate::text::count_noun;

const NAME: &str = "resctrl";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    let Ok(types) = machine.read_text("proc/filesystems") else {
        return Finding::not_here(NAME, "/proc/filesystems cannot be read");
    };
    let is_there = types.lines().any(|line| line.split_whitespace().last() == Some(NAME));
    match Resctrl::find_mounted(machine.root_dir()) {
        Some(resctrl) => check_mounted(&resctrl),
        None if is_there => {
            let message =
                "not mounted: bytes of cgroups that have a monitoring group are not measured";
            Finding::warning(NAME, message)
                .with_fix(machine.as_root("mount -t resctrl resctrl /sys/fs/resctrl"))
        }
        None => {
            let message =
                "this CPU has no monitors of bandwidth, or the kernel has no driver for them";
            Finding::not_here(NAME, message)
        }
    }
}

fn check_mounted(resctrl: &Resctrl) -> Finding {
    let groups = match resctrl.read_groups() {
        Ok(groups) => groups.len(),
        Err(error) => {
            return Finding::warning(NAME, format!("its groups cannot be listed: {error}"));
        }
    };
    let Some(rmids) = resctrl.max_groups() else {
        let message = "mounted, but this CPU has no monitors of bandwidth (info/L3_MON)";
        return Finding::not_here(NAME, message);
    };
    let free = rmids.saturating_sub(groups).min(resctrl.assignable_groups().unwrap_or(usize::MAX));
    let own_groups = groups.saturating_sub(1);
    let message = format!(
        "mounted: {} beside the default one, {rmids} RMIDs; --monitor can make {free} more",
        count_noun(own_groups, "group")
    );
    Finding::ok(NAME, message)
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::single_finding;
    use super::*;

    const TYPES: (&str, &str) = ("proc/filesystems", "nodev\tresctrl\n\text4\n");
    const MOUNT: (&str, &str) =
        ("proc/self/mountinfo", "31 23 0:29 / /sys/fs/resctrl rw - resctrl resctrl rw\n");
    const RMIDS: (&str, &str) = ("sys/fs/resctrl/info/L3_MON/num_rmids", "16\n");
    const GROUP: (&str, &str) = ("sys/fs/resctrl/mon_groups/a/tasks", "");

    #[test]
    fn a_resctrl_that_the_kernel_has_is_to_be_mounted() {
        assert_eq!(single_finding(check, &[]).state, FindingState::NotHere);
        assert_eq!(
            single_finding(check, &[("proc/filesystems", "\text4\n")]).state,
            FindingState::NotHere
        );
        let absent = single_finding(check, &[TYPES]);
        assert_eq!(absent.state, FindingState::Warn);
        assert_eq!(absent.mend, ["mount -t resctrl resctrl /sys/fs/resctrl"]);
    }

    #[test]
    fn groups_and_rmids_are_counted() {
        let finding = single_finding(check, &[TYPES, MOUNT, RMIDS, GROUP]);
        assert_eq!(finding.state, FindingState::Ok);
        let right = "mounted: 1 group beside the default one, 16 RMIDs; --monitor can make 14 more";
        assert_eq!(finding.what, right);
        let counters = ("sys/fs/resctrl/info/L3_MON/available_mbm_cntrs", "0=8;1=6\n");
        let finding = single_finding(check, &[TYPES, MOUNT, RMIDS, GROUP, counters]);
        assert!(finding.what.ends_with("make 3 more"), "{}", finding.what);
        assert_eq!(single_finding(check, &[TYPES, MOUNT, GROUP]).state, FindingState::NotHere);
    }
}
