//! The sender's side of [`super::wire`].

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::wire::{self, ANSWER_BYTES, Message, REFUSED, TAKEN};

/// How long a recorder may take to answer. It answers within one drain period, except while it
/// opens its counters.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkAnswer {
    /// The recorder has taken it.
    Taken,
    /// The recorder has rejected it, with the reason.
    Refused(String),
    /// The recorder has ended.
    Gone,
}

/// Sends a mark to the recorder with this pid and waits for the answer.
///
/// # Errors
///
/// The connection fails for another reason than a missing recorder.
pub async fn send_to_recorder(pid: u32, message: &Message) -> Result<MarkAnswer> {
    let talk = async {
        let Some(stream) = connect_recorder(pid).await? else { return Ok(MarkAnswer::Gone) };
        // Any user may create a socket with a recorder's name.
        let (own_uid, peer) = (geteuid().as_raw(), stream.peer_cred()?.uid());
        if own_uid != 0 && peer != 0 && peer != own_uid {
            return Ok(MarkAnswer::Refused(format!("it is of another user (uid {peer})")));
        }
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        write_line(&stream, &line).await;
        let answer = read_answer(&stream).await;
        Ok(match answer.strip_prefix(REFUSED) {
            _ if answer == TAKEN => MarkAnswer::Taken,
            Some(reason) => MarkAnswer::Refused(reason.to_owned()),
            None if answer.is_empty() => MarkAnswer::Gone,
            None => MarkAnswer::Refused("its answer is not one of a recorder".to_owned()),
        })
    };
    match timeout(PATIENCE, talk).await {
        Ok(sent) => sent,
        Err(_) => Ok(MarkAnswer::Refused(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// Connects to the recorder; `None` if no process listens on its socket.
async fn connect_recorder(pid: u32) -> Result<Option<UnixStream>> {
    loop {
        match UnixStream::connect(wire::marks_socket_path(pid)).await {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            // Too many connections are waiting to be accepted (unix(7)).
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error).context("cannot connect to the recorder"),
        }
    }
}

/// Writes all bytes. A recorder that rejects the sender does not read them, but it has answered.
async fn write_line(stream: &UnixStream, mut bytes: &[u8]) {
    while !bytes.is_empty() && stream.writable().await.is_ok() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Reads to the end, or to an error: what was received is the answer.
async fn read_answer(stream: &UnixStream) -> String {
    let mut answer = Vec::new();
    wire::read_bytes(stream, &mut answer, ANSWER_BYTES, false).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}
