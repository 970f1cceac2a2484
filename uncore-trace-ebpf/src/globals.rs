//! Values set by the loader, documented in `uncore_trace_common::config`. They are frozen before
//! load, so the verifier treats them as constants.
//!
//! Offsets of the kernel's fields are among them, and are not CO-RE relocations: rustc has no
//! counterpart of clang's `__builtin_preserve_access_index`, which emits these. The loader reads
//! the offsets from the same BTF that a relocation would use.

use aya_ebpf::Global;

macro_rules! globals {
    ($($name:ident),* $(,)?) => {
        $(#[unsafe(no_mangle)]
        pub static $name: Global<u64> = Global::new(0);)*
    };
}

globals!(
    TICK_NS,
    SLICES,
    SAMPLE_ON_SCHED,
    SAMPLE_ON_IRQ,
    MIN_GAP_NS,
    AT_SWITCH,
    WATCH_COUNTS,
    ARRAY_ENTRIES,
    ENTRY_EVENT,
    EVENT_COUNT,
    EVENT_TYPE,
    TASK_PID,
    CGROUP_KN,
    CGROUP_ROOT,
    KERNFS_ID,
    ROOT_HIERARCHY,
    IO_WANTED,
    REQUEST_QUEUE,
    REQUEST_FLAGS,
    REQUEST_LEN,
    REQUEST_BIO,
    QUEUE_DISK,
    DISK_NAME,
    TASK_FLAGS,
    BIO_BLKG,
    BLKG_BLKCG,
    BLKCG_CGROUP,
    SKB_LEN,
    SKB_SK,
    SKB_DEV,
    SKB_IIF,
    SOCK_STATE,
    SOCK_CGROUP,
    NETDEV_NAME,
    NETDEV_IFINDEX,
    NETDEV_NET,
    NET_INUM,
    TASK_NSPROXY,
    NSPROXY_NET,
    OP_ZONE_APPEND,
    OP_DRV_IN,
    OP_DRV_OUT,
    TASK_TGID,
    TASK_COMM,
    TASK_FILES,
    TASK_CGROUPS,
    CSET_CGROUP,
    FILES_TABLE,
    TABLE_SIZE,
    TABLE_FILES,
    FILE_INODE,
    FILE_MODE,
    INODE_MODE,
    INODE_DEVICE,
);

/// The end of the tick in which `time_ns` lies.
#[inline(always)]
pub fn tick_end(time_ns: u64) -> u64 {
    let tick = TICK_NS.load();
    if tick == 0 {
        return u64::MAX;
    }
    (time_ns / tick + 1) * tick
}
