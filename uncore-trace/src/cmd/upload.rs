//! `uncore-trace upload`: runs `uncore-trace-upload`, which links TLS and an HTTP client.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Result, anyhow};

pub use crate::cli::upload_args::UploadArgs as Args;

/// The program that sends; it takes the same options.
const PROGRAM: &str = "uncore-trace-upload";

/// Becomes the program that sends. It is looked for beside this one, then in `PATH`.
pub fn run(args: &Args) -> Result<u8> {
    let own_path = std::env::current_exe().unwrap_or_default();
    let sibling = Some(own_path.with_file_name(PROGRAM)).filter(|path| path.exists());
    let mut command = Command::new(sibling.as_deref().map_or(OsStr::new(PROGRAM), OsStr::new));
    command.arg("--config").arg(&args.config);
    for (option, is_given) in [("--once", args.once), ("--check", args.check)] {
        command.args(is_given.then_some(option));
    }
    let error = command.exec();
    Err(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "cannot find {PROGRAM} beside {} or in PATH: install it with the package, or with \
             `cargo install --locked --path {PROGRAM}`",
            own_path.display()
        ),
        _ => anyhow!(error).context(format!("cannot run {PROGRAM}")),
    })
}
