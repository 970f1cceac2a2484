//! Options of subcommands that write a file (path, permissions), and printing to standard output.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::builder::{PathBufValueParser, TypedValueParser};

use super::heading::WRITE;
use crate::tables::mode::FileMode;

/// The value of `-o`. A name that begins with `-` is refused: it is nearly always the next option,
/// because the file name was forgotten. Needs `allow_hyphen_values`.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let typed = path.as_os_str().as_encoded_bytes();
        if typed.starts_with(b"-") && typed != b"-" {
            return Err(format!("write a file name that begins with - as ./{}", path.display()));
        }
        Ok(path)
    })
}

/// Permissions of new files.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ModeArg {
    /// Permissions of new files, in octal; whoever may read a new directory may also search it
    #[arg(long, value_name = "OCTAL", default_value_t, help_heading = WRITE)]
    pub mode: FileMode,
}

/// Writes to standard output. A closed pipe (`| head`) is no error.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}
