//! Globals that the loader sets before load (`EbpfLoader::override_global`).
//!
//! They live in `.rodata`, which the loader freezes: the verifier knows their values and removes
//! the branches that a recording does not need.

/// Length of a tick in nanoseconds. Ticks lie on multiples of it on `CLOCK_MONOTONIC`.
pub const TICK_NS: &str = "TICK_NS";
/// 1: keep every slice; 0: combine the slices of a task within a tick.
pub const SLICES: &str = "SLICES";
/// 1: also read the counters of this CPU at `sched_switch`; and those of another CPU where several
/// CPUs can read them, see `state::Sampler::others`.
pub const SAMPLE_ON_SCHED: &str = "SAMPLE_ON_SCHED";
/// 1: also read the counters of this CPU at IRQ and softirq entry and exit.
pub const SAMPLE_ON_IRQ: &str = "SAMPLE_ON_IRQ";
/// Least distance of a reading that the timer does not make to the previous one, in nanoseconds.
pub const MIN_GAP_NS: &str = "MIN_GAP_NS";
/// 1: some CPUs have counters that are read at every switch, see `state::Sampler::at_switch`.
pub const AT_SWITCH: &str = "AT_SWITCH";
/// 1: the kernel keeps the counts of all of these in memory, where they are watched: they are read
/// only after one has changed, see `state::SamplerProgress::watched`.
pub const WATCH_COUNTS: &str = "WATCH_COUNTS";
/// Byte offset of `ptrs` in `struct bpf_array`.
pub const ARRAY_ENTRIES: &str = "ARRAY_ENTRIES";
/// Byte offset of `event` in `struct bpf_event_entry`.
pub const ENTRY_EVENT: &str = "ENTRY_EVENT";
/// Byte offset of `count` in `struct perf_event`.
pub const EVENT_COUNT: &str = "EVENT_COUNT";
/// Number of the type `struct perf_event`; 0: the kernel has no function `bpf_rdonly_cast`.
pub const EVENT_TYPE: &str = "EVENT_TYPE";
/// Number of a helper that does not exist. The loader replaces its calls by those of
/// `bpf_rdonly_cast`, for which aya has no relocation.
pub const CAST_CALL: u32 = 0x7fff_ca57;
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
/// 1: record the bytes that block and network devices move.
pub const IO_WANTED: &str = "IO_WANTED";
/// In place of an offset: the running kernel has no such member.
pub const MISSING: u64 = u64::MAX;
/// Byte offset of `q` in `struct request`.
pub const REQUEST_QUEUE: &str = "REQUEST_QUEUE";
/// Byte offset of `cmd_flags` in `struct request`.
pub const REQUEST_FLAGS: &str = "REQUEST_FLAGS";
/// Byte offset of `__data_len` in `struct request`.
pub const REQUEST_LEN: &str = "REQUEST_LEN";
/// Byte offset of `bio` in `struct request`.
pub const REQUEST_BIO: &str = "REQUEST_BIO";
/// Byte offset of `disk` in `struct request_queue`.
pub const QUEUE_DISK: &str = "QUEUE_DISK";
/// Byte offset of `disk_name` in `struct gendisk`.
pub const DISK_NAME: &str = "DISK_NAME";
/// Byte offset of `flags` in `struct task_struct`.
pub const TASK_FLAGS: &str = "TASK_FLAGS";
/// Byte offset of `bi_blkg` in `struct bio`, or [`MISSING`].
pub const BIO_BLKG: &str = "BIO_BLKG";
/// Byte offset of `blkcg` in `struct blkcg_gq`, or [`MISSING`].
pub const BLKG_BLKCG: &str = "BLKG_BLKCG";
/// Byte offset of `css.cgroup` in `struct blkcg`, or [`MISSING`].
pub const BLKCG_CGROUP: &str = "BLKCG_CGROUP";
/// Byte offset of `len` in `struct sk_buff`.
pub const SKB_LEN: &str = "SKB_LEN";
/// Byte offset of `sk` in `struct sk_buff`.
pub const SKB_SK: &str = "SKB_SK";
/// Byte offset of `dev` in `struct sk_buff`.
pub const SKB_DEV: &str = "SKB_DEV";
/// Byte offset of `skb_iif` in `struct sk_buff`.
pub const SKB_IIF: &str = "SKB_IIF";
/// Byte offset of `__sk_common.skc_state` in `struct sock`.
pub const SOCK_STATE: &str = "SOCK_STATE";
/// Byte offset of `sk_cgrp_data.cgroup` in `struct sock`, or [`MISSING`].
pub const SOCK_CGROUP: &str = "SOCK_CGROUP";
/// Byte offset of `name` in `struct net_device`.
pub const NETDEV_NAME: &str = "NETDEV_NAME";
/// Byte offset of `ifindex` in `struct net_device`.
pub const NETDEV_IFINDEX: &str = "NETDEV_IFINDEX";
/// Byte offset of `nd_net.net` in `struct net_device`, or [`MISSING`].
pub const NETDEV_NET: &str = "NETDEV_NET";
/// Byte offset of `ns.inum` in `struct net`.
pub const NET_INUM: &str = "NET_INUM";
/// Byte offset of `nsproxy` in `struct task_struct`.
pub const TASK_NSPROXY: &str = "TASK_NSPROXY";
/// Byte offset of `net_ns` in `struct nsproxy`.
pub const NSPROXY_NET: &str = "NSPROXY_NET";
/// Value of `REQ_OP_ZONE_APPEND` in `enum req_op`.
pub const OP_ZONE_APPEND: &str = "OP_ZONE_APPEND";
/// Value of `REQ_OP_DRV_IN` in `enum req_op`.
pub const OP_DRV_IN: &str = "OP_DRV_IN";
/// Value of `REQ_OP_DRV_OUT` in `enum req_op`.
pub const OP_DRV_OUT: &str = "OP_DRV_OUT";
/// Byte offset of `tgid` in `struct task_struct`.
pub const TASK_TGID: &str = "TASK_TGID";
/// Byte offset of `comm` in `struct task_struct`.
pub const TASK_COMM: &str = "TASK_COMM";
/// Byte offset of `files` in `struct task_struct`.
pub const TASK_FILES: &str = "TASK_FILES";
/// Byte offset of `cgroups` in `struct task_struct`.
pub const TASK_CGROUPS: &str = "TASK_CGROUPS";
/// Byte offset of `dfl_cgrp` in `struct css_set`.
pub const CSET_CGROUP: &str = "CSET_CGROUP";
/// Byte offset of `fdt` in `struct files_struct`.
pub const FILES_TABLE: &str = "FILES_TABLE";
/// Byte offset of `max_fds` in `struct fdtable`.
pub const TABLE_SIZE: &str = "TABLE_SIZE";
/// Byte offset of `fd` in `struct fdtable`.
pub const TABLE_FILES: &str = "TABLE_FILES";
/// Byte offset of `f_inode` in `struct file`.
pub const FILE_INODE: &str = "FILE_INODE";
/// Byte offset of `f_mode` in `struct file`.
pub const FILE_MODE: &str = "FILE_MODE";
/// Byte offset of `i_mode` in `struct inode`.
pub const INODE_MODE: &str = "INODE_MODE";
/// Byte offset of `i_rdev` in `struct inode`.
pub const INODE_DEVICE: &str = "INODE_DEVICE";
