//! `--host`: the option of commands that read roll-ups.

use std::path::Path;

use anyhow::Result;

use super::heading::HOST;
use crate::tables::reader::Recording;

// Not a doc comment: clap would make it the description of the command that has these options.
#[derive(Debug, Default, clap::Args)]
pub(super) struct HostArgs {
    /// Only this host of a roll-up, `*` for any text; may be given several times [default: all, added up]
    #[arg(long = "host", value_name = "NAME", help_heading = HOST)]
    hosts: Vec<String>,
}

impl HostArgs {
    /// Opens the recording or roll-up at `path`, restricted to these hosts.
    ///
    /// # Errors
    ///
    /// As [`Recording::of_hosts`].
    pub(super) fn open(&self, path: &Path) -> Result<Recording> {
        Recording::of_hosts(path, &self.hosts)
    }
}
