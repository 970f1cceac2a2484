//! `uncore-trace upload`: closed hours of the roll-up to an object store.

mod config;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::heading::{TIME, WRITE};
use super::log::say;
use super::report::print;
use crate::signals::Signals;
use crate::text::{counted, printable};
use crate::units;
use crate::upload::{self, Figures, Outcome};

/// Send closed hours of the roll-up to an object store
///
/// Reads [upload] and [rollup] directory of the configuration of `uncore-trace agent`, and runs beside
/// it as a process of its own: it needs a network and no privileges, only the right to read the
/// directory and to write to it. An object has the name of its file below the directory. A failed
/// request is repeated, and no file is removed before the store has confirmed it, unless more waits
/// than [upload] queue.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN), a web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN), the
container or the instance, in this order. They are never in the configuration.

Examples:
  uncore-trace upload --config /etc/uncore-trace/agent.toml
  uncore-trace upload --config agent.toml --once

Exit code: 0 at SIGTERM or SIGINT, and of --once if all was sent; 1 of --once if
something was not; 2 if the configuration or the directory cannot be used.")]
pub struct Args {
    /// The configuration of the agent
    #[arg(long, value_name = "FILE", help_heading = WRITE)]
    config: PathBuf,

    /// Send what is there and end
    #[arg(long, help_heading = TIME)]
    once: bool,

    /// Only check the configuration and the directory; send nothing
    #[arg(long, conflicts_with = "once", help_heading = TIME)]
    check: bool,
}

/// Uploads; see the help for the exit code.
pub fn run(args: &Args, _root: &Path) -> Result<u8> {
    let task = config::task(&args.config)?;
    if args.check {
        upload::check(&task)?;
        let path = printable(&args.config.display().to_string()).into_owned();
        print(&format!("{path}: the upload is well configured; no request was made\n"))?;
        return Ok(0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime of the upload")?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::install()?;
        upload::run(&task, args.once, &mut signals).await
    });
    // A file system that stands still is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let Outcome { figures, failure } = outcome?;
    if !args.once {
        return Ok(0);
    }
    print(&format!("{}\n", summary(&figures)))?;
    if let Some(failure) = &failure {
        say(&printable(failure));
    }
    Ok(u8::from(failure.is_some()))
}

fn summary(figures: &Figures) -> String {
    let files = |count: u64| counted(count as usize, "file");
    let bytes = |count: u64| units::human(count as f64, "bytes");
    let Figures { sent_files, sent_bytes, waiting_files, waiting_bytes, .. } = *figures;
    let sent = format!("{} sent, {}", files(sent_files), bytes(sent_bytes));
    let waiting = match waiting_files {
        0 => String::new(),
        _ => format!("; {} waiting, {}", files(waiting_files), bytes(waiting_bytes)),
    };
    let dropped = match figures.dropped_files {
        0 => String::new(),
        count => format!("; {} dropped", files(count)),
    };
    sent + &waiting + &dropped
}
