//! Input of marks: the socket of `uncore-trace mark`, and the FIFO or socket of `record --marks`.
//!
//! Each input is a task of the recorder's event loop. Guarantees: a socket accepts only root and
//! the recorder's own user. No sender can make the recorder wait or keep it from draining. A file
//! at the given path is neither replaced nor removed, unless it is the socket that was created
//! here.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::geteuid;
use tokio::net::unix::pipe::{OpenOptions, Receiver};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::book::{Book, Refusal, Wish};
use super::line::{self, Lines};
use super::wire::{self, MESSAGE_BYTES, Message, REFUSED, TAKEN};
use crate::clock::mono_ns;
use crate::schema::marks::{COMMAND, FIFO, SOCKET};
use crate::text::printable;

/// How long `uncore-trace mark` may take to send its message.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connections of one socket that are served at a time. More connections wait in the kernel.
const MOST_CONNECTIONS: usize = 64;

/// Bytes per read; other tasks run between two reads.
const READ: usize = 4096;

/// The book, shared by the tasks.
pub(super) type Shared = Arc<Mutex<Book>>;

/// Locks the book. A task that panicked while it held the lock left the book consistent.
pub(super) fn lock(book: &Shared) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The input at the path of `record --marks`.
pub(super) enum Source {
    /// An existing FIFO.
    Fifo(Receiver),
    /// A socket that was created here.
    Socket(UnixListener, Made),
}

/// The file of a socket, removed when dropped.
#[derive(Debug)]
pub(super) struct Made {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for Made {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path).map(|found| (found.dev(), found.ino()));
        // Another file at this path belongs to somebody else.
        if found.is_ok_and(|found| found == self.identity) {
            // Nobody is left who could handle an error.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Opens the FIFO at `path`, or creates a socket if nothing exists there.
///
/// # Errors
///
/// Another kind of file exists, or the input cannot be opened or created.
pub(super) fn source(path: &Path) -> Result<Source> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => {
            // It is opened for writing too, so that it does not end with its last writer.
            let opened = OpenOptions::new().read_write(true).open_receiver(path);
            Ok(Source::Fifo(opened.with_context(|| format!("cannot open {shown} for --marks"))?))
        }
        Ok(found) if found.file_type().is_socket() => bail!(
            "cannot make the socket {shown} for --marks: there is one, of another program or of a \
             recorder that was killed: remove it if nobody uses it, or name another path"
        ),
        Ok(_) => bail!(
            "{shown} cannot be used for --marks: name a FIFO (`mkfifo PATH` makes one), or a path \
             where nothing is, for a socket"
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            made(path).with_context(|| format!("cannot make the socket {shown} for --marks"))
        }
        Err(error) => Err(error).with_context(|| format!("cannot look at {shown} for --marks")),
    }
}

fn made(path: &Path) -> Result<Source> {
    let listener = UnixListener::bind(path)?;
    let found = fs::symlink_metadata(path)?;
    let made = Made { path: path.to_owned(), identity: (found.dev(), found.ino()) };
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(Source::Socket(listener, made))
}

/// The socket of this recorder for `uncore-trace mark`.
pub(super) fn own() -> Result<UnixListener> {
    Ok(UnixListener::bind(wire::path(std::process::id()))?)
}

/// Serves the connections of `uncore-trace mark`.
pub(super) async fn commands(listener: UnixListener, book: Shared) {
    serve(listener, |stream| answer(stream, Arc::clone(&book))).await;
}

/// Reads lines from all connections of a socket.
pub(super) async fn socket(listener: UnixListener, book: Shared) {
    serve(listener, |stream| read_lines(stream, Arc::clone(&book))).await;
}

/// Reads lines from a FIFO until it fails.
pub(super) async fn fifo(receiver: Receiver, book: Shared) {
    let mut lines = Lines::default();
    let mut bytes = [0; READ];
    loop {
        let read = match receiver.readable().await {
            Ok(()) => receiver.try_read(&mut bytes),
            Err(error) => Err(error),
        };
        match read {
            Ok(read) => lines.feed(&bytes[..read], |line| take_line(&book, line, FIFO, None)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                log::warn!("no more marks are read: cannot read from --marks: {error}");
                return;
            }
        }
        yield_now().await;
    }
}

/// Accepts connections, and runs `talk` for each.
async fn serve<F>(listener: UnixListener, talk: impl Fn(UnixStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => {
                match accepted {
                    Ok((stream, _)) => drop(connections.spawn(talk(stream))),
                    // There are too many open files, or the sender has gone.
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

/// The process of the sender, if it has a pid in this namespace.
///
/// # Errors
///
/// The sender is not allowed to send marks; the error says why.
fn sender(stream: &UnixStream) -> Result<Option<i32>, String> {
    let own = geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == own => Ok(peer.pid().filter(|pid| *pid != 0)),
        Ok(_) if own == 0 => Err("only root may mark it".to_owned()),
        Ok(_) => Err(format!("only root and its user (uid {own}) may mark it")),
        Err(error) => Err(format!("the kernel does not say who sent the mark ({error})")),
    }
}

/// Reads the message of a connection of `uncore-trace mark` and answers it.
async fn answer(stream: UnixStream, book: Shared) {
    let taken = match sender(&stream) {
        Err(reason) => Err(reason),
        Ok(pid) => match timeout(PATIENCE, message(&stream)).await {
            // The sender has gone: there is nobody to answer.
            Ok(Err(_)) | Err(_) => return,
            Ok(Ok(bytes)) => take_message(&bytes, &book, pid),
        },
    };
    let answer = match taken {
        Ok(()) => TAKEN.to_owned(),
        Err(reason) => format!("{REFUSED}{reason}"),
    };
    // The answer fits into an empty socket buffer. A sender that has gone needs none.
    if timeout(PATIENCE, stream.writable()).await.is_ok() {
        stream.try_write(answer.as_bytes()).ok();
    }
}

/// Reads to the end of the line, or to one byte more than a message may have.
async fn message(stream: &UnixStream) -> io::Result<Vec<u8>> {
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

fn take_message(bytes: &[u8], book: &Shared, pid: Option<i32>) -> Result<(), String> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(Refusal::TooLong.words());
    }
    let message: Message = serde_json::from_slice(bytes).map_err(|_other| {
        "it does not understand the message: use the `mark` of the version that records".to_owned()
    })?;
    let Message { act, mono_ns: sent, text, id } = &message;
    let wish = Wish { act: *act, text, id: id.as_deref(), mono_ns: *sent, source: COMMAND, pid };
    lock(book).take(wish, mono_ns()).map_err(Refusal::words)
}

/// Reads the lines of a connection until it ends.
async fn read_lines(stream: UnixStream, book: Shared) {
    let pid = match sender(&stream) {
        Ok(pid) => pid,
        Err(reason) => {
            log::warn!("--marks: a connection was closed: {reason}");
            return;
        }
    };
    let mut lines = Lines::default();
    let mut bytes = [0; READ];
    while stream.readable().await.is_ok() {
        match stream.try_read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => lines.feed(&bytes[..read], |line| take_line(&book, line, SOCKET, pid)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        yield_now().await;
    }
    lines.end(|line| take_line(&book, line, SOCKET, pid));
}

fn take_line(book: &Shared, line: &[u8], source: &'static str, pid: Option<i32>) {
    let now = mono_ns();
    let mut book = lock(book);
    let taken = line::parse(line).and_then(|(act, text)| {
        book.take(Wish { act, text, id: None, mono_ns: now, source, pid }, now)
    });
    if let Err(refusal) = taken
        && book.count_line(refusal)
    {
        // The begin of the line identifies it.
        let begin: String = String::from_utf8_lossy(line).chars().take(40).collect();
        log::warn!(
            "--marks: the line '{}' is not taken: {}; others like it are only counted (mark_lost)",
            printable(&begin),
            refusal.words()
        );
    }
}
