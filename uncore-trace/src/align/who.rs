//! Who time and counts are given to.

use crate::drain::Comm;

/// An owner: what a share can belong to. Small and `Copy`, so that it is its own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// A process under the name it had then.
    Task {
        /// Process id.
        pid: u32,
        /// The process's name.
        comm: Comm,
        /// Its cgroup in the v2 hierarchy.
        cgroup_id: u64,
    },
    /// All tasks outside the cgroups that were asked for.
    OtherTasks,
    /// The handler of an interrupt.
    Irq(u32),
    /// The softirq of a vector.
    Softirq(u32),
    /// The idle task.
    Idle,
    /// Time or counts that were not seen.
    Unknown,
}

impl Who {
    /// The word for the `owner` column.
    pub const fn owner(self) -> &'static str {
        match self {
            Self::Task { .. } | Self::OtherTasks => "task",
            Self::Irq(_) => "irq",
            Self::Softirq(_) => "softirq",
            Self::Idle => "idle",
            Self::Unknown => "unattributed",
        }
    }
}
