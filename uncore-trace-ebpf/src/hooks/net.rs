//! Packets: bytes that interfaces send and receive, their senders, and the tasks that read them.
//!
//! `net_dev_start_xmit(const struct sk_buff *skb, const struct net_device *dev)` comes before the
//! driver has the packet, when its socket is still known; `net_dev_xmit`, after it, comes with memory
//! that may be free. `netif_receive_skb(struct sk_buff *skb)` is called once for each packet that an
//! interface received, after GRO. `skb_copy_datagram_iovec(const struct sk_buff *skb, int len)` is
//! called when a task reads, and the packet tells its last interface. include/trace/events/net.h
//! and skb.h, Linux 6.1 to 7.2.

use aya_ebpf::helpers::bpf_get_current_task;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::config::MISSING;
use uncore_trace_common::record::{CONTEXT_TASK, IO_RECEIVED, IO_SENT, IO_TAKEN, Task};
use uncore_trace_common::state::IoSlot;

use crate::globals::{
    CGROUP_KN, KERNFS_ID, NET_INUM, NETDEV_IFINDEX, NETDEV_NAME, NETDEV_NET, NSPROXY_NET, SKB_DEV,
    SKB_IIF, SKB_LEN, SKB_SK, SOCK_CGROUP, SOCK_STATE, TASK_NSPROXY,
};
use crate::io::{self, Event, NO_TASK, Owner};
use crate::kernel::{field, follow, text};
use crate::task;

/// `TCP_TIME_WAIT` and `TCP_NEW_SYN_RECV`, include/net/tcp_states.h, Linux 6.1 to 7.2: sockets in
/// these states are no full sockets (`sk_fullsock`, include/net/sock.h) and have no cgroup.
const TIME_WAIT: u8 = 6;
const NEW_SYN_RECV: u8 = 12;

#[raw_tracepoint(tracepoint = "net_dev_start_xmit")]
fn net_dev_start_xmit(ctx: RawTracePointContext) -> i32 {
    let packet: *const u8 = ctx.arg(0);
    moved(packet, ctx.arg(1), IO_SENT, &sender(packet));
    0
}

#[raw_tracepoint(tracepoint = "netif_receive_skb")]
fn netif_receive_skb(ctx: RawTracePointContext) -> i32 {
    let packet: *const u8 = ctx.arg(0);
    if let Some(device) = follow(packet, SKB_DEV.load()) {
        moved(packet, device, IO_RECEIVED, &Owner::NOBODY);
    }
    0
}

#[raw_tracepoint(tracepoint = "skb_copy_datagram_iovec")]
fn skb_copy_datagram_iovec(ctx: RawTracePointContext) -> i32 {
    let packet: *const u8 = ctx.arg(0);
    let len: i32 = ctx.arg(1);
    // SAFETY: any bit pattern is a number.
    let iif = unsafe { field::<u32>(packet, SKB_IIF.load()) };
    let mut reader = Owner { context: CONTEXT_TASK, number: 0, task: NO_TASK };
    if io::context() != (CONTEXT_TASK, 0) {
        return 0;
    }
    task::fill(&mut reader.task);
    // Packets of local sockets have no receiving interface.
    if let Ok(iif) = iif
        && iif != 0
        && len > 0
        && reader.task.tid != 0
    {
        let event = Event { what: IO_TAKEN, key: u64::from(iif), bytes: len as u64, begin: 0 };
        io::add(&event, &reader, |slot| {
            slot.ifindex = iif;
            slot.netns = own_namespace();
        });
    }
    0
}

#[inline(always)]
fn moved(packet: *const u8, device: *const u8, what: u32, owner: &Owner) {
    // SAFETY: any bit pattern is a number.
    if let Ok(len) = unsafe { field::<u32>(packet, SKB_LEN.load()) } {
        let event = Event { what, key: device as u64, bytes: u64::from(len), begin: 0 };
        io::add(&event, owner, |slot| interface(slot, device));
    }
}

/// Writes the name and number of an interface to a slot.
#[inline(always)]
fn interface(slot: &mut IoSlot, device: *const u8) {
    text(&mut slot.device, device.wrapping_add(NETDEV_NAME.load() as usize));
    // SAFETY: any bit pattern is a number.
    slot.ifindex = unsafe { field::<u32>(device, NETDEV_IFINDEX.load()) }.unwrap_or(0);
    slot.netns = follow(device, NETDEV_NET.load()).map_or(0, namespace);
}

/// Inode number of a network namespace, or 0.
#[inline(always)]
fn namespace(net: *const u8) -> u32 {
    // SAFETY: any bit pattern is a number.
    unsafe { field::<u32>(net, NET_INUM.load()) }.unwrap_or(0)
}

/// The network namespace of `current`; 0 if interfaces have none.
#[inline(always)]
fn own_namespace() -> u32 {
    if NETDEV_NET.load() == MISSING {
        return 0;
    }
    // SAFETY: plain helper.
    let task = unsafe { bpf_get_current_task() } as *const u8;
    let net = follow(task, TASK_NSPROXY.load()).and_then(|proxy| follow(proxy, NSPROXY_NET.load()));
    net.map_or(0, namespace)
}

/// The owner of a packet to be sent: the cgroup of its socket and, if a task sends it, that task. A
/// packet without a socket, such as a forwarded one, belongs to the context of the CPU.
#[inline(always)]
fn sender(packet: *const u8) -> Owner {
    let (context, number) = io::context();
    let cgroup_id = cgroup_of(packet);
    if context != CONTEXT_TASK {
        return match cgroup_id {
            Some(cgroup_id) => {
                Owner { context: CONTEXT_TASK, number: 0, task: Task { cgroup_id, ..NO_TASK } }
            }
            None => Owner { context, number, task: NO_TASK },
        };
    }
    let mut owner = Owner { context: CONTEXT_TASK, number: 0, task: NO_TASK };
    task::fill(&mut owner.task);
    if let Some(id) = cgroup_id {
        owner.task.cgroup_id = id;
    } else if owner.task.tid == 0 {
        return Owner::NOBODY;
    }
    owner
}

/// The cgroup of a packet's socket in the v2 hierarchy. Since Linux 5.15, this member has no other
/// meaning.
#[inline(always)]
fn cgroup_of(packet: *const u8) -> Option<u64> {
    let socket = follow(packet, SKB_SK.load())?;
    // SAFETY: any bit pattern is a number.
    let state = unsafe { field::<u8>(socket, SOCK_STATE.load()) }.ok()?;
    if state == TIME_WAIT || state == NEW_SYN_RECV {
        return None;
    }
    let cgroup = follow(socket, SOCK_CGROUP.load())?;
    // SAFETY: as above.
    unsafe { field::<u64>(follow(cgroup, CGROUP_KN.load())?, KERNFS_ID.load()) }.ok()
}
