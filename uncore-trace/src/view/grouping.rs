//! Groupings of the lines of a report.

use anyhow::Result;

use crate::tables::reader::Recording;

/// Columns of all groupings.
const COMMON: [&str; 10] = [
    "mono_ns",
    "window_ns",
    "counter",
    "event",
    "filter",
    "unit",
    "value",
    "running",
    "method",
    "confidence",
];
/// Columns for lines with one owner: the owner, and what its interval needs.
const DIVIDED: [&str; 4] = ["owner", "comm", "socket", "total"];

/// Grouping of the lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// One line for each cgroup.
    #[default]
    Cgroup,
    /// One line for each container.
    Container,
    /// One line for each pod.
    Pod,
    /// One line for each job of Slurm, with all of its steps.
    Job,
    /// One line for each process.
    Pid,
    /// One line for all processes of a name.
    Comm,
    /// One line for each PMU instance, summed over all owners.
    Pmu,
    /// One line for each root port in the counter's filter, summed over all owners.
    Port,
    /// One line for each device that moved data by itself.
    Device,
    /// One line for each kind of owner: task, `other_tasks`, irq, softirq, idle, device,
    /// unattributed.
    Owner,
}

/// What is fixed for a grouping.
#[derive(Debug)]
struct Definition {
    /// Its name in the output.
    name: &'static str,
    /// The column of `fabric` with the names of its lines.
    line_name: Option<&'static str>,
    /// The columns that it needs beside those of all groupings.
    columns: &'static [&'static str],
}

impl GroupBy {
    /// All groupings.
    pub const ALL: [GroupBy; 10] = [
        GroupBy::Cgroup,
        GroupBy::Container,
        GroupBy::Pod,
        GroupBy::Job,
        GroupBy::Pid,
        GroupBy::Comm,
        GroupBy::Pmu,
        GroupBy::Port,
        GroupBy::Device,
        GroupBy::Owner,
    ];

    const fn definition(self) -> Definition {
        const WHOLE: &[&str] = &["cgroup", "cgroup_confidence"];
        let (name, line_name, columns): (_, _, &[&str]) = match self {
            GroupBy::Cgroup => {
                ("cgroup", Some("cgroup"), &["cgroup_id", "cgroup", "cgroup_confidence"])
            }
            GroupBy::Container => {
                ("container", Some("container"), &["container", "cgroup", "cgroup_confidence"])
            }
            GroupBy::Pod => ("pod", Some("pod"), &["pod", "cgroup", "cgroup_confidence"]),
            GroupBy::Job => ("job", Some("job"), &["job", "cgroup", "cgroup_confidence"]),
            GroupBy::Pid => ("pid", Some("comm"), &["pid", "processes"]),
            GroupBy::Comm => ("comm", Some("comm"), &["processes"]),
            GroupBy::Pmu => ("pmu", Some("pmu"), &["pmu"]),
            GroupBy::Port => ("port", Some("pmu"), &["pmu"]),
            GroupBy::Device => ("device", Some("comm"), WHOLE),
            GroupBy::Owner => ("owner", None, WHOLE),
        };
        Definition { name, line_name, columns }
    }

    /// The name of the grouping in the output.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The column of `fabric` with the names of the lines.
    pub(super) fn line_name(self) -> Option<&'static str> {
        self.definition().line_name
    }

    /// That a recording has what lines are grouped by.
    ///
    /// # Errors
    ///
    /// It is a roll-up, which has no processes.
    pub fn check_recording(self, recording: &Recording) -> Result<()> {
        match self {
            GroupBy::Pid | GroupBy::Comm => recording.require_processes(),
            _ => Ok(()),
        }
    }

    /// Whether a line has one owner.
    pub fn has_owner(self) -> bool {
        !matches!(self, GroupBy::Pmu | GroupBy::Port)
    }

    /// Whether a line has all processes of its cgroups: see [`super::interval`].
    pub(super) fn has_whole_cgroups(self) -> bool {
        !matches!(self, GroupBy::Pid | GroupBy::Comm)
    }

    /// The columns of `fabric` that are read; others are not decoded.
    pub fn wanted_columns(self, recording: &Recording) -> Vec<&'static str> {
        let grouping_columns = self.definition().columns;
        let divided: &[&str] = if self.has_owner() { &DIVIDED } else { &[] };
        let rolled_up: &[&str] = match (recording.is_rollup(), self.has_owner()) {
            (true, true) => &["known_ns", "low", "high"],
            (true, false) => &["known_ns"],
            (false, _) => &[],
        };
        [&COMMON[..], divided, grouping_columns, rolled_up].concat()
    }
}
