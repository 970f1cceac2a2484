//! The programs that see what block and network devices move: what they need of the running kernel,
//! and which of them it has.
//!
//! Guarantees: nothing of a kernel's structures is assumed, all of it comes from its BTF; where
//! something that is needed is not in it, that kind of device is not seen, and says so.

use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::Result;
use aya::programs::Program;
use aya::{Ebpf, EbpfLoader};
use uncore_trace_common::config::{self, MISSING};

use super::btf::Types;
use super::programs::attach_raw;

/// Requests under way whose owners are remembered: 64 queues of the depth that the driver of NVM Express
/// asks for (1024, `io_queue_depth` in drivers/nvme/host/pci.c, Linux 6.18). 7 MiB of kernel memory.
const REQUESTS: u32 = 1 << 16;

/// The programs that see I/O: they have the names of their tracepoints, and not all are attached.
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

/// A member within members: the offset is their sum.
type Path = &'static [(&'static str, &'static str)];

/// What the programs of block devices cannot do without.
const BLOCK: [(&str, Path); 7] = [
    (config::REQUEST_QUEUE, &[("request", "q")]),
    (config::REQUEST_FLAGS, &[("request", "cmd_flags")]),
    (config::REQUEST_LEN, &[("request", "__data_len")]),
    (config::REQUEST_BIO, &[("request", "bio")]),
    (config::QUEUE_DISK, &[("request_queue", "disk")]),
    (config::DISK_NAME, &[("gendisk", "disk_name")]),
    (config::TASK_FLAGS, &[("task_struct", "flags")]),
];

/// Operations that they know, beside reads and writes, which are 0 and 1.
const OPERATIONS: [(&str, &str); 3] = [
    (config::OP_ZONE_APPEND, "REQ_OP_ZONE_APPEND"),
    (config::OP_DRV_IN, "REQ_OP_DRV_IN"),
    (config::OP_DRV_OUT, "REQ_OP_DRV_OUT"),
];

/// What the programs of interfaces cannot do without.
const NET: [(&str, Path); 9] = [
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

/// What a kernel may be built without: then the cgroup is that of the task that is seen
/// (`CONFIG_BLK_CGROUP`, `CONFIG_SOCK_CGROUP_DATA`), and there is one network namespace
/// (`CONFIG_NET_NS`).
const OPTIONAL: [(&str, Path); 6] = [
    (config::BIO_BLKG, &[("bio", "bi_blkg")]),
    (config::BLKG_BLKCG, &[("blkcg_gq", "blkcg")]),
    (config::BLKCG_CGROUP, &[("blkcg", "css"), ("cgroup_subsys_state", "cgroup")]),
    (config::SOCK_CGROUP, &[("sock", "sk_cgrp_data"), ("sock_cgroup_data", "cgroup")]),
    (config::NETDEV_NET, &[("net_device", "nd_net"), ("possible_net_t", "net")]),
    (config::NET_INUM, &[("net", "ns"), ("ns_common", "inum")]),
];

/// The running kernel's side of it.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    settings: Vec<(&'static str, u64)>,
    /// Programs to attach, in this order; they have their tracepoints' names.
    programs: Vec<&'static str>,
    /// What cannot be seen, and why, one line each.
    unseen: Vec<String>,
}

impl Kernel {
    /// Looks up what the programs need.
    pub(super) fn of(types: &Types) -> Self {
        let mut own = Self { settings: vec![(config::IO_WANTED, 1)], ..Self::default() };
        let block = offsets(types, &BLOCK).and_then(|found| {
            let value = |&(global, name)| Ok((global, types.value("req_op", name)?));
            let operations: Result<Vec<_>> = OPERATIONS.iter().map(value).collect();
            Ok([found, operations?].concat())
        });
        own.take("block", block, types, block_programs(types));
        let net = offsets(types, &NET);
        let programs = ["net_dev_start_xmit", "netif_receive_skb", "skb_copy_datagram_iovec"];
        own.take("network", net, types, programs.into());
        for &(global, path) in &OPTIONAL {
            own.settings.push((global, offset(types, path).unwrap_or(MISSING)));
        }
        own
    }

    fn take(
        &mut self,
        kind: &str,
        found: Result<Vec<(&'static str, u64)>>,
        types: &Types,
        programs: Vec<&'static str>,
    ) {
        let missing = programs.iter().find(|name| !types.has_tracepoint(name));
        match (found, missing) {
            (Ok(found), None) => {
                self.settings.extend(found);
                self.programs.extend(programs);
            }
            (Ok(_), Some(name)) => {
                self.unseen.push(format!("{kind} devices: this kernel has no tracepoint {name}"));
            }
            (Err(error), _) => self.unseen.push(format!("{kind} devices: {error:#}")),
        }
    }

    /// What cannot be seen, and why.
    pub(super) fn unseen(&self) -> &[String] {
        &self.unseen
    }

    /// The programs that this kernel can load.
    pub(super) fn programs(&self) -> &[&'static str] {
        &self.programs
    }

    /// Sets the programs' globals and makes room in their maps, for `cpus` possible CPUs.
    pub(super) fn set<'a>(&'a self, loader: &mut EbpfLoader<'a>, cpus: u32) {
        for (name, value) in &self.settings {
            loader.override_global(name, value, true);
        }
        loader.map_max_entries("IO", cpus);
        loader.map_max_entries("REQUESTS", REQUESTS);
    }

    /// Loads and attaches the programs.
    pub(super) fn attach(&self, ebpf: &mut Ebpf) -> Result<()> {
        for name in &self.programs {
            attach_raw(ebpf, name)?;
        }
        Ok(())
    }

    /// Events that the kernel did not hand to a program because it was running already on that CPU,
    /// so far: `recursion_misses` of the program's fdinfo (`bpf_prog_show_fdinfo`,
    /// kernel/bpf/syscall.c, Linux 6.1 to 7.2).
    pub(super) fn missed(&self, ebpf: &Ebpf) -> u64 {
        let missed = self.programs.iter().filter_map(|name| {
            let Some(Program::RawTracePoint(program)) = ebpf.program(name) else {
                return None;
            };
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            let line = info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
            line.trim().parse::<u64>().ok()
        });
        missed.sum()
    }
}

/// Since Linux 6.5 a tracepoint tells of each request in its submitter's context.
fn block_programs(types: &Types) -> Vec<&'static str> {
    let end = ["block_rq_merge", "block_rq_complete"];
    let begin: &[_] = if types.has_tracepoint("block_io_start") {
        &["block_io_start"]
    } else {
        &["block_rq_insert", "block_rq_issue"]
    };
    // A request that is seen to end only has no owner.
    begin.iter().copied().chain(end).collect()
}

fn offsets(types: &Types, wanted: &[(&'static str, Path)]) -> Result<Vec<(&'static str, u64)>> {
    wanted.iter().map(|&(global, path)| Ok((global, offset(types, path)?))).collect()
}

fn offset(types: &Types, path: Path) -> Result<u64> {
    path.iter().map(|(structure, member)| types.offset(structure, member)).sum()
}
