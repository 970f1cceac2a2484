//! An object store (moto) on loopback, and a proxy in front of it that simulates faults of networks
//! and stores.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::needs::python;
use crate::wait::PATIENCE;

/// The bucket of [`Moto`].
pub(crate) const BUCKET: &str = "bucket";

/// moto reads the access key of a request, and accepts every signature.
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 \
                      Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, \
                      Signature=0";

/// An S3 server whose objects are in a file, so that they survive a restart.
#[derive(Debug)]
pub(crate) struct Moto {
    child: Child,
    address: SocketAddr,
    recording: tempfile::NamedTempFile,
}

impl Moto {
    /// Starts a server and creates the bucket.
    pub(crate) fn start() -> Self {
        Self::with_env(&[])
    }

    /// The same with additional environment variables.
    pub(crate) fn with_env(env: &[(&str, &str)]) -> Self {
        let recording = tempfile::NamedTempFile::new().unwrap();
        let (child, address) = serve(0, recording.path(), env, &[]);
        let moto = Self { child, address, recording };
        assert_eq!(moto.ask("PUT", &format!("/{BUCKET}")).0, 200);
        moto
    }

    /// Starts a server that speaks only TLS, without a bucket; writes its certificate to a file.
    pub(crate) fn with_tls(certificate: &Path) -> Self {
        let key = tempfile::NamedTempFile::new().unwrap();
        let mut made = Command::new(python());
        made.args(["-c", include_str!("certificate.py")]).args([certificate, key.path()]);
        assert!(made.status().unwrap().success());
        let recording = tempfile::NamedTempFile::new().unwrap();
        let [certificate, key] = [certificate, key.path()].map(|path| path.to_str().unwrap());
        let options = ["--ssl", "--ssl-cert", certificate, "--ssl-key", key];
        let (child, address) = serve(0, recording.path(), &[], &options);
        Self { child, address, recording }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Restarts it, at the same address and with the same objects. No requests may be sent in
    /// between, because they would not be saved.
    pub(crate) fn restart(&mut self) {
        (self.child, _) = serve(self.address.port(), self.recording.path(), &[], &[]);
        assert_eq!(self.ask("POST", "/moto-api/recorder/replay-recording").0, 200);
    }

    /// All objects in the bucket, by name.
    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let (status, list) = self.ask("GET", &format!("/{BUCKET}?list-type=2"));
        let list = String::from_utf8(list).unwrap();
        assert!(status == 200 && list.contains("<IsTruncated>false"), "{status}: {list}");
        let names = list.split("<Key>").skip(1).map(|rest| rest.split_once("</Key>").unwrap().0);
        let object = |name: &str| {
            let path = format!("/{BUCKET}/{}", name.replace('%', "%25"));
            let (status, bytes) = self.ask("GET", &path);
            assert_eq!(status, 200, "{name}");
            (name.to_owned(), bytes)
        };
        names.map(object).collect()
    }

    /// Sends a request; returns the status and the body of the answer.
    fn ask(&self, method: &str, path: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let host = self.address;
        let head = format!("Host: {host}\r\n{SIGNED}\r\nContent-Length: 0\r\nConnection: close");
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, answer.split_off(end + 4))
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A server that gives the same answer to every request.
#[derive(Debug)]
pub(crate) struct Said {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
}

impl Said {
    /// Answers with `head`, and then with `endless` again and again if it is not empty.
    pub(crate) fn start(head: String, endless: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (head, counted) = (head.clone(), Arc::clone(&counted));
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut line = String::new();
                    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                        line.clear();
                    }
                    let mut stream = stream;
                    stream.write_all(head.as_bytes()).ok();
                    while !endless.is_empty() && stream.write_all(endless).is_ok() {
                        counted.fetch_add(endless.len() as u64, Ordering::Relaxed);
                    }
                    // What was not read of the request would reset the connection.
                    stream.shutdown(Shutdown::Write).ok();
                    io::copy(&mut reader, &mut io::sink()).ok();
                });
            }
        });
        Self { address, sent }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes of endless answers so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Starts a server and waits until it listens.
fn serve(
    port: u16,
    recording: &Path,
    env: &[(&str, &str)],
    options: &[&str],
) -> (Child, SocketAddr) {
    let mut command = Command::new(python());
    command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
    command.env("MOTO_ENABLE_RECORDING", "yes").env("MOTO_RECORDER_FILEPATH", recording);
    command.args(options).envs(env.iter().copied());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    let address = loop {
        let line = lines.next().unwrap_or_else(|| panic!("moto did not start: {said}")).unwrap();
        if let Some((_, address)) =
            line.split_once("Running on http").and_then(|(_, url)| url.split_once("://"))
        {
            break address.trim().parse().unwrap();
        }
        said.push_str(&line);
    };
    // moto writes a line per request. They are read so that it does not block on a full pipe.
    thread::spawn(move || lines.for_each(drop));
    (child, address)
}

/// Faults of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// Each request is answered with this status.
    Status(u16),
    /// Requests are neither read nor answered.
    Stall,
    /// Each request is answered as if the store had accepted it, but nothing is stored.
    Forget,
    /// The connection is cut after 20 kB of a request.
    CutRequest,
    /// The store accepts the request, and the connection is cut before its answer.
    CutAnswer,
}

#[derive(Debug)]
struct State {
    to: SocketAddr,
    fault: Fault,
    open: Vec<TcpStream>,
    /// Number of connections since the fault was set.
    met: u32,
}

/// Forwards connections, or simulates a fault; it ends with the tests.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// The state, which the proxy's threads and the test change.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    has_changed: Condvar,
}

impl Proxy {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { to, fault: Fault::Nothing, open: Vec::new(), met: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), has_changed: Condvar::new() });
        let proxy = Self { address, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // The client notices errors of the connection.
                thread::spawn(move || handle(stream, &shared).ok());
            }
        });
        proxy
    }

    /// `http://HOST:PORT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the fault from now on; open connections are closed.
    pub(crate) fn set(&self, fault: Fault) {
        let mut state = self.shared.state.lock().unwrap();
        state.fault = fault;
        state.met = 0;
        for stream in state.open.drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
        self.shared.has_changed.notify_all();
    }

    /// Waits until this many connections have met the fault.
    pub(crate) fn wait_met(&self, times: u32) {
        let Shared { state, has_changed } = &*self.shared;
        let too_few = |state: &mut State| state.met < times;
        let wait = has_changed.wait_timeout_while(state.lock().unwrap(), PATIENCE, too_few);
        let (state, timeout) = wait.unwrap();
        assert!(!timeout.timed_out(), "{} of {times} connections", state.met);
    }
}

/// Handles a connection until it ends.
fn handle(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let (fault, to) = {
        let mut state = shared.state.lock().unwrap();
        state.met += 1;
        shared.has_changed.notify_all();
        state.open.push(client.try_clone()?);
        (state.fault, state.to)
    };
    match fault {
        Fault::Stall => {
            let is_stalled = |state: &mut State| state.fault == Fault::Stall;
            let state = shared.state.lock().unwrap();
            drop(shared.has_changed.wait_while(state, is_stalled).unwrap());
            return Ok(());
        }
        Fault::Status(status) => {
            read_request(&mut client)?;
            let head = "Content-Length: 0\r\nConnection: close";
            return write!(client, "HTTP/1.1 {status} Fault\r\n{head}\r\n\r\n");
        }
        Fault::Forget => {
            read_request(&mut client)?;
            let date = "Last-Modified: Tue, 24 Nov 2026 00:00:00 GMT";
            let head = format!("ETag: \"0\"\r\n{date}\r\nContent-Length: 0\r\nConnection: close");
            return write!(client, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
        }
        Fault::Nothing | Fault::CutRequest | Fault::CutAnswer => {}
    }
    let mut server = TcpStream::connect(to)?;
    shared.state.lock().unwrap().open.push(server.try_clone()?);
    if fault == Fault::CutRequest {
        io::copy(&mut client.try_clone()?.take(20_000), &mut server)?;
        server.shutdown(Shutdown::Both)?;
        return client.shutdown(Shutdown::Both);
    }
    let (mut from, mut into) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        io::copy(&mut from, &mut into).ok();
        into.shutdown(Shutdown::Write).ok();
    });
    if fault == Fault::CutAnswer {
        server.read_exact(&mut [0])?;
        server.shutdown(Shutdown::Both)?;
        return client.shutdown(Shutdown::Both);
    }
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}

/// Reads a request to the end of its body.
fn read_request(client: &mut TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(client);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink()).map(drop)
}
