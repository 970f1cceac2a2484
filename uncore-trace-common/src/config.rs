//! Globals that the loader sets before load (`EbpfLoader::override_global`).
//!
//! They live in `.rodata`, which the loader freezes: the verifier knows their values and removes
//! the branches that a recording does not need.

/// Length of a tick in nanoseconds. Ticks lie on multiples of it on `CLOCK_MONOTONIC`.
pub const TICK_NS: &str = "TICK_NS";
/// 1: keep every slice; 0: combine the slices of a task within a tick.
pub const SLICES: &str = "SLICES";
/// 1: also read the counters of this CPU at `sched_switch`.
pub const SAMPLE_ON_SCHED: &str = "SAMPLE_ON_SCHED";
/// 1: also read the counters of this CPU at IRQ and softirq entry and exit.
pub const SAMPLE_ON_IRQ: &str = "SAMPLE_ON_IRQ";
/// Readings that are not made by the timer are at least this far apart, in nanoseconds.
pub const MIN_GAP_NS: &str = "MIN_GAP_NS";
/// 1: some CPUs have counters that are read at every switch, see `state::Sampler::at_switch`.
pub const AT_SWITCH: &str = "AT_SWITCH";
/// Byte offset of `pid` in `struct task_struct`, from the running kernel's BTF.
pub const TASK_PID: &str = "TASK_PID";
/// Byte offset of `kn` in `struct cgroup`.
pub const CGROUP_KN: &str = "CGROUP_KN";
/// Byte offset of `root` in `struct cgroup`.
pub const CGROUP_ROOT: &str = "CGROUP_ROOT";
/// Byte offset of `id` in `struct kernfs_node`.
pub const KERNFS_ID: &str = "KERNFS_ID";
/// Byte offset of `hierarchy_id` in `struct cgroup_root`; 0 is the v2 hierarchy.
pub const ROOT_HIERARCHY: &str = "ROOT_HIERARCHY";
