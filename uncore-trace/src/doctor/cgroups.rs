//! The cgroup tree that gives tasks their names.
//!
//! `bpf_get_current_cgroup_id` returns ids of the v2 hierarchy, whatever else is mounted, so that
//! tree must be mounted to find the path of an id. Beside v1 controllers (a hybrid host) the v2
//! tree is mounted too, but only processes that are placed in it, as by systemd, have a path of
//! their own there.

use super::{ExaminedMachine, Finding};
use crate::discover::CgroupMounts;
use crate::discover::cgroups::CgroupReach;

const NAME: &str = "cgroups";

pub(super) fn check(machine: &ExaminedMachine) -> Finding {
    let Some(table) = machine.read_mounts() else {
        let message = "/proc/self/mountinfo cannot be read: the mounts are unknown";
        return Finding::warning(NAME, message).with_fix("mount -t proc proc /proc");
    };
    let mounts = CgroupMounts::from_mounts(machine.root_dir(), &table);
    // A v1 mount without controllers (`name=systemd`) only groups processes.
    let is_named =
        |controllers: &[String]| controllers.iter().any(|name| name.starts_with("name="));
    let controllers = mounts.v1.iter().filter(|mount| !is_named(&mount.controllers)).count();
    match (&mounts.v2, mounts.v1.is_empty()) {
        (Some(mount), _) if mounts.view.reach != CgroupReach::Whole => {
            let fix = match mounts.view.reach {
                CgroupReach::Part => {
                    machine.as_root(&format!("mount -t cgroup2 none {}", mount.display()))
                }
                _ => "start the container with --cgroupns=host, or with -v \
                      /sys/fs/cgroup:/host/cgroup:ro"
                    .to_owned(),
            };
            Finding::warning(NAME, mounts.unnamed_reason().unwrap_or_default()).with_fix(fix)
        }
        (Some(mount), true) => Finding::ok(NAME, format!("v2 at {}", mount.display())),
        (Some(mount), false) => {
            let message = format!(
                "hybrid: names come from the v2 tree at {}; cgroups that exist only under the \
                 {controllers} v1 controllers share one name",
                mount.display()
            );
            Finding::ok(NAME, message)
        }
        (None, true) => Finding::warning(NAME, "none mounted: rows have no cgroup path")
            .with_fix(machine.as_root("mount -t cgroup2 none /sys/fs/cgroup")),
        (None, false) => {
            let message = "v1 only: rows have no cgroup path, the v2 tree is not mounted";
            let mkdir = machine.as_root("mkdir -p /sys/fs/cgroup/unified");
            let mount = machine.as_root("mount -t cgroup2 none /sys/fs/cgroup/unified");
            Finding::warning(NAME, message).with_fix(format!("{mkdir} && {mount}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::FindingState;
    use super::super::machine::{fake_tree, single_finding};
    use super::*;

    const V2: &str = "30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n";
    const UNIFIED: &str = "30 22 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V1: &str = "31 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 22 0:28 / \
                      /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";

    fn finding_for(info: &str) -> Finding {
        single_finding(check, &[("proc/self/mountinfo", info)])
    }

    #[test]
    fn unified_and_hybrid_hierarchies_name_tasks() {
        assert_eq!(finding_for(V2).state, FindingState::Ok);
        assert_eq!(finding_for(V2).what, "v2 at /sys/fs/cgroup");
        let hybrid = finding_for(&format!("{V1}{UNIFIED}"));
        assert_eq!(hybrid.state, FindingState::Ok);
        assert!(hybrid.what.contains("/sys/fs/cgroup/unified") && hybrid.what.contains("the 1 v1"));
    }

    #[test]
    fn a_namespace_is_known() {
        let dir = fake_tree(&[("proc/self/mountinfo", V2)]);
        fs::create_dir_all(dir.path().join("proc/self/ns")).unwrap();
        symlink("cgroup:[4026532911]", dir.path().join("proc/self/ns/cgroup")).unwrap();
        let finding = check(&ExaminedMachine::at_root(dir.path()));
        assert_eq!(finding.state, FindingState::Warn);
        assert!(finding.what.contains("cgroup namespace"), "{}", finding.what);
        assert!(finding.mend[0].contains("--cgroupns=host"));
        let part = finding_for("30 22 0:26 /part /mnt rw - cgroup2 cgroup2 rw\n");
        assert_eq!(
            (part.state, &*part.mend[0]),
            (FindingState::Warn, "mount -t cgroup2 none /mnt")
        );
    }

    #[test]
    fn without_v2_there_are_no_names() {
        let v1 = finding_for(V1);
        assert_eq!(v1.state, FindingState::Warn);
        assert!(v1.mend[0].contains("/sys/fs/cgroup/unified"));
        let none = finding_for("22 1 0:20 / / rw - ext4 a rw\n");
        assert_eq!(none.mend, ["mount -t cgroup2 none /sys/fs/cgroup"]);
        assert_eq!(single_finding(check, &[]).state, FindingState::Warn);
    }
}
