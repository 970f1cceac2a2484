//! The words for the kinds of owners: the values of the column `owner`, in every table.
//!
//! Guarantee: the kind and the ids of an owner are in columns of their own. No reader has to parse a
//! name.

/// A task; `pid`, `comm` and `cgroup_id` say which.
pub const TASK: &str = "task";
/// All tasks of cgroups that were not asked for (`--cgroup`).
pub const OTHER_TASKS: &str = "other_tasks";
/// The handler of an interrupt; `number` says of which.
pub const IRQ: &str = "irq";
/// A softirq; `number` is its vector.
pub const SOFTIRQ: &str = "softirq";
/// The idle task.
pub const IDLE: &str = "idle";
/// A device that moved data by itself.
pub const DEVICE: &str = "device";
/// Time or counts whose owner was not seen.
pub const UNATTRIBUTED: &str = "unattributed";

/// All kinds.
pub const KINDS: [&str; 7] = [TASK, OTHER_TASKS, IRQ, SOFTIRQ, IDLE, DEVICE, UNATTRIBUTED];
