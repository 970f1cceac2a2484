//! Where marks come from: the socket of `uncore-trace mark`, and the FIFO of `record --marks`.
//!
//! Each is a task of the recorder's event loop. Guarantees: of a socket's senders only root and the
//! recorder's own user are heard; no sender can make the recorder wait, nor keep it from draining;
//! what is at a path is neither replaced nor removed, unless it is the FIFO that was made here.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;
use tokio::net::unix::pipe::{OpenOptions, Receiver};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::book::{MarkBook, MarkRefusal, MarkRequest};
use super::line::{self, LineSplitter};
use super::wire::{self, MESSAGE_BYTES, Message, REFUSED, TAKEN};
use crate::clock::mono_ns;
use crate::schema::marks::{COMMAND, FIFO};
use crate::text::printable;

/// How long `uncore-trace mark` may take to send its message.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connections that are served at a time; more wait in the kernel.
const MOST_CONNECTIONS: usize = 64;

/// Bytes per read; other tasks run between two reads.
const READ: usize = 4096;

/// The book, shared by the tasks.
pub(super) type SharedBook = Arc<Mutex<MarkBook>>;

/// Locks the book. A task that panicked while it held the lock left the book consistent.
pub(super) fn lock_book(book: &SharedBook) -> MutexGuard<'_, MarkBook> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A FIFO that was made here, removed when dropped.
#[derive(Debug)]
pub(super) struct OwnFifo {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for OwnFifo {
    fn drop(&mut self) {
        let identity =
            fs::symlink_metadata(&self.path).map(|metadata| (metadata.dev(), metadata.ino()));
        // Another file at this path belongs to somebody else.
        if identity.is_ok_and(|identity_now| identity_now == self.identity) {
            // Nobody is left who could handle an error.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Opens the FIFO at `path`; where nothing is, it is made for the recorder's user, and removed with
/// the second.
///
/// # Errors
///
/// Something else is there, or it cannot be opened or made.
pub(super) fn open_fifo(path: &Path) -> Result<(Receiver, Option<OwnFifo>)> {
    let shown = path.display();
    let own_fifo = match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_fifo() => None,
        Ok(_) => bail!(
            "{shown} cannot be used for --marks: name a FIFO (`mkfifo PATH` makes one), or a path \
             where nothing is"
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(
            make_fifo(path).with_context(|| format!("cannot make the FIFO {shown} for --marks"))?,
        ),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot look at {shown} for --marks"));
        }
    };
    // Opened for writing too: it does not end with its last writer.
    let opened = OpenOptions::new().read_write(true).open_receiver(path);
    Ok((opened.with_context(|| format!("cannot open {shown} for --marks"))?, own_fifo))
}

fn make_fifo(path: &Path) -> io::Result<OwnFifo> {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    let metadata = fs::symlink_metadata(path)?;
    Ok(OwnFifo { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) })
}

/// The socket of this recorder for `uncore-trace mark`.
pub(super) fn bind_own_socket() -> Result<UnixListener> {
    Ok(UnixListener::bind(wire::marks_socket_path(std::process::id()))?)
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

/// Reads lines from a FIFO until it fails.
pub(super) async fn read_fifo(receiver: Receiver, book: SharedBook) {
    let mut lines = LineSplitter::default();
    let mut bytes = [0; READ];
    loop {
        let read = match receiver.readable().await {
            Ok(()) => receiver.try_read(&mut bytes),
            Err(error) => Err(error),
        };
        match read {
            Ok(read) => lines.feed_bytes(&bytes[..read], |line| take_line(&book, line)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                log::warn!("no more marks are read: cannot read from --marks: {error}");
                return;
            }
        }
        yield_now().await;
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
    let mut bytes = [0; READ];
    while message.len() <= MESSAGE_BYTES && message.last() != Some(&b'\n') {
        stream.readable().await?;
        match stream.try_read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => message.extend_from_slice(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
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

fn take_line(book: &SharedBook, line: &[u8]) {
    let now_ns = mono_ns();
    let mut book = lock_book(book);
    let outcome = line::parse_line(line).and_then(|(act, text)| {
        book.take_mark(
            MarkRequest { act, text, id: None, mono_ns: now_ns, source: FIFO, pid: None },
            now_ns,
        )
    });
    if let Err(refusal) = outcome
        && book.count_line(refusal)
    {
        // The begin of the line identifies it.
        let line_begin: String = String::from_utf8_lossy(line).chars().take(40).collect();
        log::warn!(
            "--marks: the line '{}' is not taken: {}; others like it are only counted (mark_lost)",
            printable(&line_begin),
            refusal.reason()
        );
    }
}
