//! `--host`: the option of commands that read roll-ups.

use std::path::Path;

use anyhow::Result;

use super::heading::HOST;
use crate::clock::TimeSpan;
use crate::tables::reader::Recording;
use crate::tables::rollup::RollupSelection;
use crate::view::span::{TimePoint, wall_range};

// Not a doc comment: clap would make it the description of the command that has these options.
#[derive(Debug, Default, clap::Args)]
pub(super) struct HostArgs {
    /// Only this host of a roll-up; `*` matches any text; may be given several times [default: all
    /// hosts, summed]
    #[arg(long = "host", value_name = "NAME", help_heading = HOST)]
    hosts: Vec<String>,
}

impl HostArgs {
    /// Opens the recording or roll-up at `path`: of a roll-up these hosts, and where both moments
    /// are wall times or missing, the hours with windows between them.
    ///
    /// # Errors
    ///
    /// As [`Recording::open_selection`].
    pub(super) fn open(
        &self,
        path: &Path,
        begin: Option<&TimePoint>,
        end: Option<&TimePoint>,
    ) -> Result<Recording> {
        Recording::open_selection(path, &self.rollup_selection(wall_range(begin, end)))
    }

    /// The hosts and the time that are read of a roll-up.
    pub(super) fn rollup_selection(&self, wall_span: Option<TimeSpan<i64>>) -> RollupSelection {
        RollupSelection { hosts: self.hosts.clone(), wall_span }
    }
}
