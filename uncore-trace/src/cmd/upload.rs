//! `uncore-trace upload`: runs `uncore-trace-upload`, which links TLS and an HTTP client.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow};

use super::agent::CONFIG;
use super::heading::{FILE, PRINT, TIME};

/// The program that sends; it takes the same options.
const PROGRAM: &str = "uncore-trace-upload";

/// Send finished hours of the roll-up to an object store
///
/// Reads `[upload]`, and the directory of `[rollup]`, from the configuration of
/// `uncore-trace agent`, and runs beside the agent as a separate process. It needs a network and
/// access to that directory (read and write), but no privileges. The name of an object is the path
/// of its file below the directory. A failed request is repeated. No file is removed before the
/// store has confirmed it, unless more bytes wait than `queue` of `[upload]` allows.
///
/// With `[otlp]`, or `OTEL_EXPORTER_OTLP_ENDPOINT` in the environment, it also pushes the metrics
/// of the agent to a collector of OpenTelemetry. Then `[upload]` may be left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
and AWS_SESSION_TOKEN), a web identity (AWS_WEB_IDENTITY_TOKEN_FILE and
AWS_ROLE_ARN), the container or the instance, in this order. They are never in
the configuration. Metrics are pushed with the headers of
OTEL_EXPORTER_OTLP_HEADERS.

Examples:
  uncore-trace upload
  uncore-trace upload --config agent.toml --once

Exit code: 0 after SIGTERM or SIGINT, and with --once if all was sent; 1 with
--once if something was not sent; 2 if the configuration or the directory cannot
be used.")]
pub struct Args {
    /// The configuration file of the agent (TOML)
    #[arg(short, long, value_name = "FILE", default_value = CONFIG, help_heading = FILE)]
    pub config: PathBuf,

    /// Send the files that exist now, and end
    #[arg(long, help_heading = TIME)]
    pub once: bool,

    /// Only check the configuration and the directory; send nothing
    #[arg(long, conflicts_with = "once", help_heading = PRINT)]
    pub check: bool,
}

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
             `cargo install --path {PROGRAM}`",
            own_path.display()
        ),
        _ => anyhow!(error).context(format!("cannot run {PROGRAM}")),
    })
}
