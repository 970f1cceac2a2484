//! `[metrics]`: metrics in the OpenMetrics format.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::listen::{self, ListenAddress};
use super::value::{parse_mode, require_absolute};
use crate::tables::mode::FileMode;

/// `[metrics]`: metrics in the OpenMetrics format.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsConfig {
    /// Addresses of the HTTP server; empty: no server.
    pub listen: Vec<ListenAddress>,
    /// Permissions of Unix sockets.
    pub mode: FileMode,
    /// A file with the token of requests to save the ring; `None`: only the owner of the agent may
    /// ask for that, over a Unix socket.
    pub token: Option<PathBuf>,
    /// A file for the textfile collector of `node_exporter`; `None`: none.
    pub textfile: Option<PathBuf>,
    /// Number of owners of each link with series of their own.
    pub owners: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct MetricsFile {
    #[serde(deserialize_with = "listen::deserialize_addresses")]
    listen: Vec<ListenAddress>,
    beyond_loopback: bool,
    mode: String,
    token_file: Option<PathBuf>,
    textfile: Option<PathBuf>,
    owners: usize,
}

impl Default for MetricsFile {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            beyond_loopback: false,
            mode: "0660".to_owned(),
            token_file: None,
            textfile: None,
            owners: 20,
        }
    }
}

impl MetricsFile {
    pub(super) fn into_checked(self) -> Result<MetricsConfig> {
        let Self { listen, beyond_loopback, textfile, owners, mode, token_file } = self;
        ensure!(
            !listen.is_empty() || textfile.is_some(),
            "[metrics] has neither listen nor textfile: add one of them"
        );
        ensure!(
            beyond_loopback || listen.iter().all(ListenAddress::is_local),
            "metrics.listen is not a loopback address: others could read the names of all \
             tenants; add beyond-loopback = true if they may"
        );
        ensure!((1..=1000).contains(&owners), "metrics.owners is out of range: choose 1 to 1000");
        let textfile =
            textfile.map(|path| require_absolute("metrics.textfile", path)).transpose()?;
        if let Some(path) = &textfile {
            let is_prom = path.extension().is_some_and(|extension| extension == "prom");
            ensure!(
                is_prom,
                "metrics.textfile must end with .prom: node_exporter reads no other \
                              files"
            );
        }
        Ok(MetricsConfig {
            listen,
            mode: parse_mode("metrics.mode", &mode)?,
            token: token_file
                .map(|path| require_absolute("metrics.token-file", path))
                .transpose()?,
            textfile,
            owners,
        })
    }
}
