//! Whether `/proc` shows the processes of others: its mount option `hidepid`, proc(5).

use rustix::process::{getegid, getgroups};

use crate::bounds;

/// The kernel's list of mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether `/proc` shows a process only to those who may trace it.
pub fn are_hidden() -> bool {
    let mut groups: Vec<u32> =
        getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
    groups.push(getegid().as_raw());
    bounds::system_text(MOUNTS).is_ok_and(|mounts| by_mounts(&mounts, &groups))
}

/// As [`are_hidden`], from the text of mountinfo and the groups of the process.
fn by_mounts(mounts: &str, groups: &[u32]) -> bool {
    let mut lines = mounts.lines().filter_map(|line| {
        let (mount_fields, type_fields) = line.split_once(" - ")?;
        let mut type_words = type_fields.split(' ');
        let is_proc =
            mount_fields.split(' ').nth(4) == Some("/proc") && type_words.next() == Some("proc");
        is_proc.then(|| type_words.nth(1)).flatten()
    });
    // The last mount covers earlier ones.
    let Some(options) = lines.next_back() else { return false };
    let value = |key: &str| {
        options.split(',').find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    };
    // `has_pid_permissions`, fs/proc/base.c, Linux 6.18: the group sees all processes, except with
    // `ptraceable`.
    match value("hidepid") {
        None | Some("0" | "off") => false,
        Some("4" | "ptraceable") => true,
        Some(_) => !groups.contains(&value("gid").and_then(|gid| gid.parse().ok()).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(options: &str, groups: &[u32]) -> bool {
        let line = |options: &str| {
            format!(
                "22 1 0:5 / /proc rw,nosuid - proc proc {options}\n30 1 0:9 / /mnt rw - ext4 a rw"
            )
        };
        by_mounts(&line(options), groups)
    }

    #[test]
    fn a_group_sees_all_processes_unless_only_tracers_do() {
        for (options, root, other) in [
            ("rw", false, false),
            ("rw,hidepid=off", false, false),
            ("rw,hidepid=invisible", false, true),
            ("rw,hidepid=2,gid=27", true, true),
            ("rw,hidepid=ptraceable", true, true),
        ] {
            assert_eq!(
                (hidden(options, &[0]), hidden(options, &[1000])),
                (root, other),
                "{options}"
            );
        }
        assert!(!hidden("rw,gid=27,hidepid=noaccess", &[0, 27]));
        assert!(!by_mounts("", &[1]));
    }

    #[test]
    fn the_last_mount_of_proc_counts() {
        let text =
            "22 1 0:5 / /proc rw - proc proc rw,hidepid=2\n23 1 0:6 / /proc rw - proc proc rw";
        assert!(!by_mounts(text, &[1000]));
    }
}
