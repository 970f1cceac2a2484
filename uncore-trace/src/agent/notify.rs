//! Messages to systemd: `sd_notify(3)`.
//!
//! The socket is opened before the process is confined, because a confined process can open none.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use std::{env, io};

use super::watchdog::Pulse;

/// The socket of the service manager; `None` without one.
#[derive(Debug)]
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    /// Interval at which the agent must report that it is alive.
    watchdog: Option<Duration>,
    alive_sent_at: Instant,
    is_ready: bool,
}

impl Notify {
    /// Reads `NOTIFY_SOCKET` and `WATCHDOG_USEC`. If the socket cannot be reached, nobody is told:
    /// a shell that systemd started passes the variable on to what runs after its service.
    pub(super) fn from_environment() -> Self {
        let path = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty());
        let socket = path.and_then(|path| {
            let warn = |error: io::Error| {
                let path = path.to_string_lossy();
                log::warn!("cannot reach the socket {path} of NOTIFY_SOCKET: {error}");
            };
            connect_socket(&path).map_err(warn).ok()
        });
        let watchdog = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        // Half of the watchdog's time, as systemd.service(5) recommends.
        let watchdog = watchdog.map(|us: u64| Duration::from_micros(us / 2));
        Self { socket, watchdog, alive_sent_at: Instant::now(), is_ready: false }
    }

    /// Reports once that the first rows have arrived.
    pub(super) fn report_ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.send_state("READY=1\nSTATUS=recording");
        }
    }

    /// Reports that the agent is alive, if that is due and `pulse` says that all of it has made
    /// progress since the last report.
    pub(super) fn report_alive(&mut self, pulse: &mut Pulse) {
        let is_due = self.watchdog.is_some_and(|time| self.alive_sent_at.elapsed() >= time);
        if is_due && pulse.take_beat() {
            self.alive_sent_at = Instant::now();
            self.send_state("WATCHDOG=1");
        }
    }

    /// Reports that the agent is finishing its files.
    pub(super) fn report_stopping(&self) {
        self.send_state("STOPPING=1");
    }

    fn send_state(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // Without a reader there is nobody to tell.
            socket.send(text.as_bytes()).ok();
        }
    }
}

fn connect_socket(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address?)?;
    // A service manager that does not read must not block the agent.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
