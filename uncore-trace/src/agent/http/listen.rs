//! The sockets of the server. They are opened before the process is confined.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::answer::HttpClient;
use crate::config::{Config, ListenAddress};

/// A socket that clients connect to.
#[derive(Debug)]
pub(in crate::agent) enum Listener {
    /// With what is known of its clients.
    Tcp(TcpListener, HttpClient),
    Unix(UnixListener),
}

/// Opens the sockets of `metrics.listen`.
///
/// # Errors
///
/// An address is in use, or cannot be used.
pub(in crate::agent) fn open_listeners(config: &Config) -> Result<Vec<Listener>> {
    let Some(metrics) = &config.metrics else { return Ok(Vec::new()) };
    let open_listener = |listen: &ListenAddress| {
        let opened = match listen {
            ListenAddress::Tcp(address) => TcpListener::bind(address)
                .and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    let is_local = address.ip().is_loopback();
                    let client = if is_local { HttpClient::Local } else { HttpClient::Remote };
                    Ok(Listener::Tcp(listener, client))
                })
                .map_err(Into::into),
            ListenAddress::Unix(path) => {
                bind_unix_socket(path, metrics.mode.permission_bits()).map(Listener::Unix)
            }
        };
        opened.with_context(|| {
            format!("cannot listen on {listen} for metrics: choose another metrics.listen")
        })
    };
    metrics.listen.iter().map(open_listener).collect()
}

/// Opens a Unix socket in place of one that nobody listens on. Whoever may write it can connect.
fn bind_unix_socket(path: &Path, mode: u32) -> Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            bail!("the path is a file that is not a socket")
        }
        Ok(_) if UnixStream::connect(path).is_ok() => bail!("another process listens there"),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    // The name is given to a socket that has its permissions already.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    if let Err(error) = fs::remove_file(&temporary)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(mode))?;
    fs::rename(&temporary, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_replaces_one_that_was_left_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("metrics.sock");
        let first = bind_unix_socket(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let error = bind_unix_socket(&path, 0o660).unwrap_err().to_string();
        assert!(error.contains("another process listens"), "{error}");
        drop(first);
        let _second = bind_unix_socket(&path, 0o600).unwrap();
        UnixStream::connect(&path).unwrap();
        let file = place.path().join("file");
        fs::write(&file, "kept").unwrap();
        assert!(bind_unix_socket(&file, 0o660).unwrap_err().to_string().contains("not a socket"));
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
