//! The socket of `uncore-trace mark`.
//!
//! It is served by a task of the recorder's event loop. Guarantees: of its senders only root and
//! the recorder's own user are heard; no sender can make the recorder wait, nor keep it from
//! draining.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::book::{MarkBook, MarkRefusal, MarkRequest};
use super::wire::{MESSAGE_BYTES, Message, REFUSED, TAKEN, read_bytes};
use crate::clock::mono_ns;
use crate::schema::marks::COMMAND;

/// How long `uncore-trace mark` may take to send its message.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connections that are served at a time; more wait in the kernel.
const MOST_CONNECTIONS: usize = 64;

/// The book, shared by the tasks.
pub(super) type SharedBook = Arc<Mutex<MarkBook>>;

/// Locks the book. A task that panicked while it held the lock left the book consistent.
pub(super) fn lock_book(book: &SharedBook) -> MutexGuard<'_, MarkBook> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the connections of `uncore-trace mark`.
pub(super) async fn serve_commands(listener: UnixListener, book: SharedBook) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => {
                match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(answer_connection(stream, Arc::clone(&book)));
                    }
                    // Too many open files, or a sender that has gone.
                    Err(error) => {
                        log::debug!("cannot accept a connection for marks: {error}");
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// The process of the sender, if the kernel knows it here.
///
/// # Errors
///
/// The sender is not allowed to send marks; the error says why.
fn allowed_sender(stream: &UnixStream) -> Result<Option<i32>, String> {
    let own_uid = geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own_uid => {
            Ok(peer.pid().filter(|pid| *pid != 0))
        }
        Ok(_) if own_uid == 0 => Err("only root may mark it".to_owned()),
        Ok(_) => Err(format!("only root and its user (uid {own_uid}) may mark it")),
        Err(error) => Err(format!("the kernel does not say who sent the mark ({error})")),
    }
}

/// Reads the message of a connection of `uncore-trace mark` and answers it.
async fn answer_connection(stream: UnixStream, book: SharedBook) {
    let outcome = match allowed_sender(&stream) {
        Err(reason) => Err(reason),
        Ok(pid) => match timeout(PATIENCE, read_message(&stream)).await {
            // The sender has gone: there is nobody to answer.
            Ok(Err(_)) | Err(_) => return,
            Ok(Ok(bytes)) => take_message(&bytes, &book, pid),
        },
    };
    let answer = match outcome {
        Ok(()) => TAKEN.to_owned(),
        Err(reason) => format!("{REFUSED}{reason}"),
    };
    // The answer fits into an empty socket buffer. A sender that has gone needs none.
    if timeout(PATIENCE, stream.writable()).await.is_ok() {
        stream.try_write(answer.as_bytes()).ok();
    }
}

/// Reads to the end of the line, or to one byte more than a message may have.
async fn read_message(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    read_bytes(stream, &mut message, MESSAGE_BYTES + 1, true).await?;
    Ok(message)
}

fn take_message(bytes: &[u8], book: &SharedBook, pid: Option<i32>) -> Result<(), String> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(MarkRefusal::TooLong.reason());
    }
    let message: Message = serde_json::from_slice(bytes).map_err(|_other| {
        "it does not understand the message: use the `mark` of the version that records".to_owned()
    })?;
    let Message { act, mono_ns: sent, text, id } = &message;
    let request =
        MarkRequest { act: *act, text, id: id.as_deref(), mono_ns: *sent, source: COMMAND, pid };
    lock_book(book).take_mark(request, mono_ns()).map_err(MarkRefusal::reason)
}
