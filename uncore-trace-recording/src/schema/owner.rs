//! The kinds of owners: the values of the column `owner` in every table.
//!
//! Guarantee: the kind and the ids of an owner are in separate columns, so readers need not parse
//! names.

/// A task; `pid`, `comm` and `cgroup_id` say which.
pub const TASK: &str = "task";
/// All tasks outside the cgroups selected with `--cgroup`, and of cgroups below `--min-share`.
pub const OTHER_TASKS: &str = "other_tasks";
/// The handler of an interrupt, whose number is in `number`.
pub const IRQ: &str = "irq";
/// A softirq; `number` is its vector.
pub const SOFTIRQ: &str = "softirq";
/// The idle task.
pub const IDLE: &str = "idle";
/// A device that moved data on its own.
pub const DEVICE: &str = "device";
/// Time or counts of an unknown owner.
pub const UNATTRIBUTED: &str = "unattributed";

/// All kinds.
pub const KINDS: [&str; 7] = [TASK, OTHER_TASKS, IRQ, SOFTIRQ, IDLE, DEVICE, UNATTRIBUTED];
