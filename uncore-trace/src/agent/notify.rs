//! What is told to systemd: `sd_notify(3)`.
//!
//! The socket is opened before the process is confined, which refuses new ones.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// The way to the service manager; none where there is none.
#[derive(Debug)]
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that the agent lives.
    watchdog: Option<Duration>,
    told: Instant,
    is_ready: bool,
}

impl Notify {
    /// As `NOTIFY_SOCKET` and `WATCHDOG_USEC` say.
    ///
    /// # Errors
    ///
    /// There is no such socket.
    pub(super) fn from_environment() -> Result<Self> {
        let socket = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty());
        let socket = socket.map(|path| {
            let bytes = path.as_encoded_bytes();
            let address = match bytes.strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&path),
            };
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address?)?;
            // A manager that does not read must not stop the agent.
            socket.set_nonblocking(true)?;
            std::io::Result::Ok(socket)
        });
        let socket = socket.transpose().context("cannot reach the socket in NOTIFY_SOCKET")?;
        let watchdog = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        // Half of the time: systemd.service(5).
        let watchdog = watchdog.map(|us: u64| Duration::from_micros(us / 2));
        Ok(Self { socket, watchdog, told: Instant::now(), is_ready: false })
    }

    /// The first rows have come.
    pub(super) fn ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.send("READY=1\nSTATUS=recording");
        }
    }

    /// The agent lives.
    pub(super) fn alive(&mut self) {
        if self.watchdog.is_some_and(|time| self.told.elapsed() >= time) {
            self.told = Instant::now();
            self.send("WATCHDOG=1");
        }
    }

    /// The agent finishes its files.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // Where nobody listens any more, nobody is left to tell.
            socket.send(text.as_bytes()).ok();
        }
    }
}
