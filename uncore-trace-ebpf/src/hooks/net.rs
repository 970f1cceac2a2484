//! Packets: bytes that interfaces send and receive, their senders, and the tasks that read them.
//!
//! `net_dev_start_xmit(const struct sk_buff *skb, const struct net_device *dev)` comes before the
//! driver has the packet, when its socket is still known; `net_dev_xmit`, after it, comes with
//! memory that may be free. `netif_receive_skb(struct sk_buff *skb)` is called once for each packet
//! that an interface received, after GRO. `skb_copy_datagram_iovec(const struct sk_buff *skb, int
//! len)` is called when a task reads, and the packet tells its last interface.
//! include/trace/events/net.h and skb.h, Linux 6.1 to 7.2.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::config::MISSING;
use uncore_trace_common::record::{CONTEXT_TASK, IO_RECEIVED, IO_SENT, IO_TAKEN, Task};
use uncore_trace_common::state::IoSlot;

use crate::globals::{
    CGROUP_KN, KERNFS_ID, NET_INUM, NETDEV_IFINDEX, NETDEV_NAME, NETDEV_NET, NSPROXY_NET, SKB_DEV,
    SKB_IIF, SKB_LEN, SKB_SK, SOCK_CGROUP, SOCK_STATE, TASK_NSPROXY,
};
use crate::helpers::current_task;
use crate::io::{self, IoOwner, MovedBytes, NO_TASK};
use crate::kernel::{follow_pointer, read_field, read_text};
use crate::task;

/// `TCP_TIME_WAIT` and `TCP_NEW_SYN_RECV`, include/net/tcp_states.h, Linux 6.1 to 7.2: sockets in
/// these states are no full sockets (`sk_fullsock`, include/net/sock.h) and have no cgroup.
const TIME_WAIT: u8 = 6;
const NEW_SYN_RECV: u8 = 12;

#[raw_tracepoint(tracepoint = "net_dev_start_xmit")]
fn net_dev_start_xmit(ctx: RawTracePointContext) -> i32 {
    let packet: *const u8 = ctx.arg(0);
    add_packet(packet, ctx.arg(1), IO_SENT, &packet_sender(packet));
    0
}

#[raw_tracepoint(tracepoint = "netif_receive_skb")]
fn netif_receive_skb(ctx: RawTracePointContext) -> i32 {
    let packet: *const u8 = ctx.arg(0);
    if let Some(device) = follow_pointer(packet, SKB_DEV.load()) {
        add_packet(packet, device, IO_RECEIVED, &IoOwner::NOBODY);
    }
    0
}

#[raw_tracepoint(tracepoint = "skb_copy_datagram_iovec")]
fn skb_copy_datagram_iovec(ctx: RawTracePointContext) -> i32 {
    let packet: *const u8 = ctx.arg(0);
    let len: i32 = ctx.arg(1);
    // SAFETY: any bit pattern is a number.
    let iif = unsafe { read_field::<u32>(packet, SKB_IIF.load()) };
    let mut reader = IoOwner { context: CONTEXT_TASK, number: 0, task: NO_TASK };
    if io::cpu_context() != (CONTEXT_TASK, 0) {
        return 0;
    }
    task::fill_task(&mut reader.task);
    // Packets of local sockets have no receiving interface.
    if let Ok(iif) = iif
        && iif != 0
        && len > 0
        && reader.task.tid != 0
    {
        let event =
            MovedBytes { io_kind: IO_TAKEN, key: u64::from(iif), bytes: len as u64, begin: 0 };
        io::add_moved(&event, &reader, |slot| {
            slot.ifindex = iif;
            slot.netns = own_namespace();
        });
    }
    0
}

#[inline(always)]
fn add_packet(packet: *const u8, device: *const u8, io_kind: u32, owner: &IoOwner) {
    // SAFETY: any bit pattern is a number.
    if let Ok(len) = unsafe { read_field::<u32>(packet, SKB_LEN.load()) } {
        let event = MovedBytes { io_kind, key: device as u64, bytes: u64::from(len), begin: 0 };
        io::add_moved(&event, owner, |slot| write_interface(slot, device));
    }
}

/// Writes the name and number of an interface to a slot.
#[inline(always)]
fn write_interface(slot: &mut IoSlot, device: *const u8) {
    read_text(&mut slot.device, device.wrapping_add(NETDEV_NAME.load() as usize));
    // SAFETY: any bit pattern is a number.
    slot.ifindex = unsafe { read_field::<u32>(device, NETDEV_IFINDEX.load()) }.unwrap_or(0);
    slot.netns = follow_pointer(device, NETDEV_NET.load()).map_or(0, namespace_inode);
}

/// Inode number of a network namespace, or 0.
#[inline(always)]
fn namespace_inode(net: *const u8) -> u32 {
    // SAFETY: any bit pattern is a number.
    unsafe { read_field::<u32>(net, NET_INUM.load()) }.unwrap_or(0)
}

/// The network namespace of `current`; 0 if interfaces have none.
#[inline(always)]
fn own_namespace() -> u32 {
    if NETDEV_NET.load() == MISSING {
        return 0;
    }
    let task = current_task();
    let net = follow_pointer(task, TASK_NSPROXY.load())
        .and_then(|proxy| follow_pointer(proxy, NSPROXY_NET.load()));
    net.map_or(0, namespace_inode)
}

/// The owner of a packet to be sent: the cgroup of its socket and, if a task sends it, that task. A
/// packet without a socket, such as a forwarded one, belongs to the context of the CPU.
#[inline(always)]
fn packet_sender(packet: *const u8) -> IoOwner {
    let (context, number) = io::cpu_context();
    let cgroup_id = cgroup_of(packet);
    if context != CONTEXT_TASK {
        return match cgroup_id {
            Some(cgroup_id) => {
                IoOwner { context: CONTEXT_TASK, number: 0, task: Task { cgroup_id, ..NO_TASK } }
            }
            None => IoOwner { context, number, task: NO_TASK },
        };
    }
    let mut owner = IoOwner { context: CONTEXT_TASK, number: 0, task: NO_TASK };
    task::fill_task(&mut owner.task);
    if let Some(id) = cgroup_id {
        owner.task.cgroup_id = id;
    } else if owner.task.tid == 0 {
        return IoOwner::NOBODY;
    }
    owner
}

/// The cgroup of a packet's socket in the v2 hierarchy. Since Linux 5.15, this member has no other
/// meaning.
#[inline(always)]
fn cgroup_of(packet: *const u8) -> Option<u64> {
    let socket = follow_pointer(packet, SKB_SK.load())?;
    // SAFETY: any bit pattern is a number.
    let state = unsafe { read_field::<u8>(socket, SOCK_STATE.load()) }.ok()?;
    if state == TIME_WAIT || state == NEW_SYN_RECV {
        return None;
    }
    let cgroup = follow_pointer(socket, SOCK_CGROUP.load())?;
    // SAFETY: as above.
    unsafe { read_field::<u64>(follow_pointer(cgroup, CGROUP_KN.load())?, KERNFS_ID.load()) }.ok()
}
