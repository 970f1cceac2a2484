//! Addresses of the HTTP server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de};

/// What a Unix socket's address begins with.
const UNIX: &str = "unix:";

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// Address and port.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether only processes of this host can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text.strip_prefix(UNIX).map(PathBuf::from) {
            Some(path) if path.is_absolute() => Ok(Self::Unix(path)),
            Some(_) => Err(format!("{text:?}: write the path from /, as {UNIX}/run/x.sock")),
            None => text.parse().map(Self::Tcp).map_err(|_wrong: std::net::AddrParseError| {
                format!(
                    "{text:?} is not an address: write \"127.0.0.1:9762\" or \
                         \"{UNIX}/run/x.sock\""
                )
            }),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// One address, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "write an address, or a list of addresses")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Parses one address, or a list of them.
pub(super) fn deserialize_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<ListenAddress>, D::Error> {
    let texts = match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(text) => vec![text],
        OneOrMore::More(texts) => texts,
    };
    let listens =
        texts.iter().map(|text| ListenAddress::from_text(text)).collect::<Result<Vec<_>, _>>();
    listens.map_err(de::Error::custom)
}
