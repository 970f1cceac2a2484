//! The BPF programs that see what block and network devices move: what they need from the running
//! kernel, and which of them it supports.
//!
//! Guarantees: no layout of a kernel structure is assumed; all of it comes from BTF. If something
//! is missing there, that kind of device is not seen, and a message says so.

use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::Result;
use aya::programs::Program;
use aya::{Ebpf, EbpfLoader};
use uncore_trace_common::config::{self, MISSING};

use super::btf::{GlobalValue, KernelTypes, MemberGlobal};
use super::programs::attach_raw;
use crate::bounds;

/// Requests in flight whose owners are remembered: 64 queues of the default depth of the `NVMe`
/// driver (1024, `io_queue_depth` in drivers/nvme/host/pci.c, Linux 6.18). They take 7 MiB of
/// kernel memory.
const REQUESTS: u32 = 1 << 16;

/// The programs that see I/O. They have the names of their tracepoints, and not all are attached.
pub(super) const PROGRAMS: [&str; 8] = [
    "block_io_start",
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_merge",
    "block_rq_complete",
    "net_dev_start_xmit",
    "netif_receive_skb",
    "skb_copy_datagram_iovec",
];

/// What the programs for block devices require.
const BLOCK: [MemberGlobal; 7] = [
    (config::REQUEST_QUEUE, &[("request", "q")]),
    (config::REQUEST_FLAGS, &[("request", "cmd_flags")]),
    (config::REQUEST_LEN, &[("request", "__data_len")]),
    (config::REQUEST_BIO, &[("request", "bio")]),
    (config::QUEUE_DISK, &[("request_queue", "disk")]),
    (config::DISK_NAME, &[("gendisk", "disk_name")]),
    (config::TASK_FLAGS, &[("task_struct", "flags")]),
];

/// Block operations besides reads and writes, which are 0 and 1.
const OPERATIONS: [(&str, &str); 3] = [
    (config::OP_ZONE_APPEND, "REQ_OP_ZONE_APPEND"),
    (config::OP_DRV_IN, "REQ_OP_DRV_IN"),
    (config::OP_DRV_OUT, "REQ_OP_DRV_OUT"),
];

/// What the programs for network interfaces require.
const NET: [MemberGlobal; 9] = [
    (config::SKB_LEN, &[("sk_buff", "len")]),
    (config::SKB_SK, &[("sk_buff", "sk")]),
    (config::SKB_DEV, &[("sk_buff", "dev")]),
    (config::SKB_IIF, &[("sk_buff", "skb_iif")]),
    (config::SOCK_STATE, &[("sock", "__sk_common"), ("sock_common", "skc_state")]),
    (config::NETDEV_NAME, &[("net_device", "name")]),
    (config::NETDEV_IFINDEX, &[("net_device", "ifindex")]),
    (config::TASK_NSPROXY, &[("task_struct", "nsproxy")]),
    (config::NSPROXY_NET, &[("nsproxy", "net_ns")]),
];

/// What a kernel may lack. Then the cgroup is that of the current task (`CONFIG_BLK_CGROUP`,
/// `CONFIG_SOCK_CGROUP_DATA`), and there is one network namespace (`CONFIG_NET_NS`).
const OPTIONAL: [MemberGlobal; 6] = [
    (config::BIO_BLKG, &[("bio", "bi_blkg")]),
    (config::BLKG_BLKCG, &[("blkcg_gq", "blkcg")]),
    (config::BLKCG_CGROUP, &[("blkcg", "css"), ("cgroup_subsys_state", "cgroup")]),
    (config::SOCK_CGROUP, &[("sock", "sk_cgrp_data"), ("sock_cgroup_data", "cgroup")]),
    (config::NETDEV_NET, &[("net_device", "nd_net"), ("possible_net_t", "net")]),
    (config::NET_INUM, &[("net", "ns"), ("ns_common", "inum")]),
];

/// What the running kernel offers to these programs.
#[derive(Debug, Default)]
pub(super) struct IoSettings {
    settings: Vec<GlobalValue>,
    /// The programs that this kernel can load, to attach in this order. They have the names of
    /// their tracepoints.
    pub(super) programs: Vec<&'static str>,
    /// What cannot be seen and why, one line each.
    pub(super) unseen: Vec<String>,
}

impl IoSettings {
    /// Looks up what the programs need.
    pub(super) fn from_types(types: &KernelTypes) -> Self {
        let mut io_settings = Self { settings: vec![(config::IO_WANTED, 1)], ..Self::default() };
        let block = types.member_values(&BLOCK).and_then(|block_offsets| {
            let value = |&(global, name)| Ok((global, types.enumerator_value("req_op", name)?));
            let operations: Result<Vec<_>> = OPERATIONS.iter().map(value).collect();
            Ok([block_offsets, operations?].concat())
        });
        io_settings.add_programs("block", block, types, block_programs(types));
        let net = types.member_values(&NET);
        let programs = ["net_dev_start_xmit", "netif_receive_skb", "skb_copy_datagram_iovec"];
        io_settings.add_programs("network", net, types, programs.into());
        for optional in OPTIONAL {
            let value = types.member_values(&[optional]);
            io_settings.settings.extend(value.unwrap_or_else(|_| vec![(optional.0, MISSING)]));
        }
        io_settings
    }

    fn add_programs(
        &mut self,
        device_type: &str,
        offsets: Result<Vec<GlobalValue>>,
        types: &KernelTypes,
        programs: Vec<&'static str>,
    ) {
        let missing = programs.iter().find(|name| !types.has_tracepoint(name));
        match (offsets, missing) {
            (Ok(found_offsets), None) => {
                self.settings.extend(found_offsets);
                self.programs.extend(programs);
            }
            (Ok(_), Some(name)) => {
                self.unseen
                    .push(format!("{device_type} devices: this kernel has no tracepoint {name}"));
            }
            (Err(error), _) => self.unseen.push(format!("{device_type} devices: {error:#}")),
        }
    }

    /// Sets the programs' globals and sizes their maps, for `cpus` possible CPUs.
    pub(super) fn apply_settings<'a>(&'a self, loader: &mut EbpfLoader<'a>, cpus: u32) {
        for (name, value) in &self.settings {
            loader.override_global(name, value, true);
        }
        loader.map_max_entries("IO", cpus);
        loader.map_max_entries("REQUESTS", REQUESTS);
    }

    /// Loads and attaches the programs.
    pub(super) fn attach_programs(&self, ebpf: &mut Ebpf) -> Result<()> {
        for name in &self.programs {
            attach_raw(ebpf, name, name)?;
        }
        Ok(())
    }

    /// The number of events that the kernel did not pass to a program, because it was already
    /// running on that CPU: `recursion_misses` of the program's fdinfo (`bpf_prog_show_fdinfo`,
    /// kernel/bpf/syscall.c, Linux 6.1 to 7.2).
    pub(super) fn missed_events(&self, ebpf: &Ebpf) -> u64 {
        let missed = self.programs.iter().filter_map(|name| {
            let Some(Program::RawTracePoint(program)) = ebpf.program(name) else {
                return None;
            };
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let info = bounds::system_text(format!("/proc/self/fdinfo/{fd}")).ok()?;
            let line = info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
            line.trim().parse::<u64>().ok()
        });
        missed.sum()
    }
}

/// Since Linux 6.5 a tracepoint runs for each request in the context of its submitter.
fn block_programs(types: &KernelTypes) -> Vec<&'static str> {
    let end_programs = ["block_rq_merge", "block_rq_complete"];
    let begin_programs: &[_] = if types.has_tracepoint("block_io_start") {
        &["block_io_start"]
    } else {
        &["block_rq_insert", "block_rq_issue"]
    };
    // If only the end of a request is seen, it has no owner.
    begin_programs.iter().copied().chain(end_programs).collect()
}
