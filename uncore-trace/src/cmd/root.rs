//! `--root`: the option of commands that can read the files of another machine.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use super::heading::OTHER;

// Not a doc comment: clap would make it the description of the command that has this option.
#[derive(Debug, clap::Args)]
pub(super) struct RootArg {
    /// Read the machine's files under DIR instead of /
    #[arg(long = "root", value_name = "DIR", default_value = "/", hide_default_value = true,
          value_parser = directory(), help_heading = OTHER)]
    dir: PathBuf,
}

impl RootArg {
    #[cfg(test)]
    pub(super) fn for_dir(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The root directory of the machine's files.
    pub(super) fn root_dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the files are those of the running machine.
    pub(super) fn is_here(&self) -> bool {
        self.dir == Path::new("/")
    }
}

fn directory() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new()
        .try_map(|dir| if dir.is_dir() { Ok(dir) } else { Err("there is no such directory") })
}
