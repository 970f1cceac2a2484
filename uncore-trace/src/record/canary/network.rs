//! Packets over the loopback interface, from this process to itself.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::memory::whole_chunks;

/// Bytes of a packet without headers. Receivers are credited with what they read, which has no
/// headers, so packets are large. A packet of 16 KiB or less (`SKB_MAX_ALLOC`) would be received in
/// one piece, which `udp_recvmsg` copies without the tracepoint of other receivers
/// (`copy_linear_skb`, include/net/udp.h, Linux 7.2).
const DATA: usize = 32 << 10;

/// Bytes of the headers of IPv4 and UDP, which the interface counts.
const HEADERS: u64 = 20 + 8;

/// A packet that has not come by then is lost.
const PATIENCE: Duration = Duration::from_millis(100);

/// Both ends.
#[derive(Debug)]
pub(super) struct LoopbackSender {
    sender: UdpSocket,
    receiver: UdpSocket,
    data: Vec<u8>,
    bytes_per_s: f64,
}

impl LoopbackSender {
    pub(super) fn new(bytes_per_s: f64) -> Result<Self> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let sockets = bind().and_then(|sender| Ok((sender, bind()?)));
        let (sender, receiver) =
            sockets.context("cannot open a socket on the loopback interface")?;
        let join = || {
            sender.connect(receiver.local_addr()?)?;
            receiver.connect(sender.local_addr()?)?;
            receiver.set_read_timeout(Some(PATIENCE))
        };
        join().context("cannot use a socket")?;
        Ok(Self { sender, receiver, data: vec![0; DATA], bytes_per_s })
    }

    /// Number of packets of a burst of this length.
    pub(super) fn packets_in(&self, seconds: f64) -> u64 {
        whole_chunks(self.bytes_per_s * seconds, DATA as u64 + HEADERS)
    }

    /// Sends a packet and receives it; returns its bytes with headers.
    pub(super) fn send_packet(&mut self) -> Result<u64> {
        self.sender.send(&self.data).context("cannot send a packet")?;
        let received = self.receiver.recv(&mut self.data).context("a packet was lost")?;
        Ok(received as u64 + HEADERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        let mut network = LoopbackSender::new(1e6).unwrap();
        assert_eq!(network.send_packet().unwrap(), 32_796);
        assert_eq!((network.packets_in(0.08), network.packets_in(0.0)), (2, 1));
    }
}
