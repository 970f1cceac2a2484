//! The options of `uncore-trace upload`, which are those of `uncore-trace-upload`.

use std::path::PathBuf;

use super::heading::{FILE, PRINT, TIME};
use crate::config::CONFIG_PATH;

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
pub struct UploadArgs {
    /// The configuration file of the agent (TOML)
    #[arg(short, long, value_name = "FILE", default_value = CONFIG_PATH, help_heading = FILE)]
    pub config: PathBuf,

    /// Send the files that exist now, and end
    #[arg(long, help_heading = TIME)]
    pub once: bool,

    /// Only check the configuration and the directory; send nothing
    #[arg(long, conflicts_with = "once", help_heading = PRINT)]
    pub check: bool,
}
