//! What every subcommand that writes a file takes: how its name is typed and who may read it; and standard output.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::builder::{PathBufValueParser, TypedValueParser};

use super::heading::WRITE;
use crate::tables::mode::Mode;

/// The value of `-o`. A name that begins with `-` is refused: it is nearly always the next option,
/// typed where the file name is missing. Goes with `allow_hyphen_values`.
pub(super) fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let typed = path.as_os_str().as_encoded_bytes();
        if typed.starts_with(b"-") && typed != b"-" {
            return Err(format!("write a file name that begins with - as ./{}", path.display()));
        }
        Ok(path)
    })
}

/// Who may read what is written.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ModeArg {
    /// Permissions of new files, in octal; directories can be searched by those who can read them
    #[arg(long, value_name = "OCTAL", default_value_t, help_heading = WRITE)]
    pub mode: Mode,
}

/// Writes to stdout; a reader that left early (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}
