//! The protocol between `uncore-trace mark` and a recorder.
//!
//! A recorder listens on the abstract Unix socket `@uncore-trace/marks/PID`, which vanishes with
//! it. The sender writes one [`Message`] as a line of JSON; the recorder answers [`TAKEN`], or
//! [`REFUSED`] and the reason, and closes the connection.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::schema::marks::TEXT_BYTES;

/// Prefix of the names of the sockets.
const NAME: &str = "uncore-trace/marks/";

/// The answer to a mark that was taken.
pub const TAKEN: &str = "taken";

/// Prefix of the answer to a rejected mark.
pub const REFUSED: &str = "refused: ";

/// Largest message in bytes: JSON needs up to 6 bytes for one of the text (`\u001b`).
pub const MESSAGE_BYTES: usize = 6 * TEXT_BYTES + 1024;

/// Largest answer in bytes.
pub const ANSWER_BYTES: usize = 1024;

/// Bytes per read; other tasks run between two reads.
const READ: usize = 4096;

/// Kind of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkAct {
    /// A point in time.
    Instant,
    /// The begin of a span.
    Begin,
    /// The end of a span.
    End,
}

/// A mark that is sent to a recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Kind of the mark.
    pub act: MarkAct,
    /// Its time, ns on the sender's `CLOCK_MONOTONIC`.
    pub mono_ns: i64,
    /// The name of the instant or the span.
    pub text: String,
    /// Tells spans of the same name apart, if one process begins and ends the span.
    pub id: Option<String>,
}

/// The socket of the recorder with this pid. The leading zero byte makes it an abstract socket
/// (unix(7)).
pub fn marks_socket_path(pid: u32) -> PathBuf {
    format!("\0{NAME}{pid}").into()
}

/// Reads into `bytes` to the end, until they have `limit` bytes, or to the end of a line if
/// `is_line`. They never have more.
pub(super) async fn read_bytes(
    stream: &UnixStream,
    bytes: &mut Vec<u8>,
    limit: usize,
    is_line: bool,
) -> io::Result<()> {
    let mut buffer = [0; READ];
    while bytes.len() < limit && !(is_line && bytes.last() == Some(&b'\n')) {
        stream.readable().await?;
        let wanted = READ.min(limit - bytes.len());
        match stream.try_read(&mut buffer[..wanted]) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The pids of the listening recorders, from `/proc/net/unix`.
///
/// Its lines end with the socket's path, an `@` for the zero byte of an abstract one
/// (`unix_seq_show`, `net/unix/af_unix.c`, Linux 6.18). Accepted connections have the path too, but
/// not `__SO_ACCEPTCON` (bit 16) in the flags.
pub fn listening_pids(unix: &str) -> BTreeSet<u32> {
    let pid = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let abstract_name = fields.nth(3)?.strip_prefix('@')?;
        (flags >> 16 & 1 == 1).then(|| abstract_name.strip_prefix(NAME)?.parse().ok()).flatten()
    };
    unix.lines().filter_map(pid).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn recorders_are_found_by_their_listening_sockets() {
        let unix = "\
Num       RefCount Protocol Flags    Type St Inode Path
00000000c8ba2a62: 00000002 00000000 00010000 0001 01 26283 @uncore-trace/marks/77
00000000c8ba2a63: 00000003 00000000 00000000 0001 03 26284 @uncore-trace/marks/77
00000000c8ba2a64: 00000003 00000000 00000000 0001 03 26285 @uncore-trace/marks/78
00000000c8ba2a65: 00000002 00000000 00010000 0001 01 26286 @uncore-trace/marks/9
00000000c8ba2a66: 00000002 00000000 00010000 0001 01 26287 @uncore-trace/marks/x
00000000c8ba2a67: 00000002 00000000 00010000 0001 01 26288 @uncore-trace/marks/-1
00000000c8ba2a68: 00000002 00000000 00010000 0001 01 26289 uncore-trace/marks/80
00000000c8ba2a69: 00000002 00000000 00010000 0001 01 26290 /run/uncore-trace/marks/81
00000000c8ba2a6a: 00000002 00000000 00010000 0001 01 26291
00000000c8ba2a6b: 00000002 00000000
";
        assert_eq!(listening_pids(unix), [9, 77].into());
    }

    #[test]
    fn the_longest_text_fits_into_a_message() {
        let text = "\u{1}".repeat(TEXT_BYTES);
        let message =
            Message { act: MarkAct::Instant, mono_ns: i64::MIN, text, id: Some("x".repeat(60)) };
        assert!(serde_json::to_string(&message).unwrap().len() <= MESSAGE_BYTES);
    }

    proptest! {
        #[test]
        fn no_list_of_sockets_panics(unix in "(\\PC{0,40}|[0-9a-f: @\n]{0,80}){0,5}") {
            listening_pids(&unix);
        }
    }
}
