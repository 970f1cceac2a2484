//! `uncore-trace upload`: sends closed hours of the roll-up to an object store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::agent::CONFIG;
use super::heading::{FILE, PRINT, TIME};
use super::messages::say;
use super::output::print;
use crate::config::Config;
use crate::signals::Signals;
use crate::text::{counted, printable};
use crate::units;
use crate::upload::{self, Figures, Outcome, Task};

/// Send finished hours of the roll-up to an object store
///
/// Reads `[upload]`, and the directory of `[rollup]`, from the configuration of `uncore-trace agent`, and runs
/// beside the agent as a separate process. It needs a network and the right to read and write that
/// directory, and no privileges. The name of an object is the path of its file below the directory. A
/// failed request is repeated. No file is removed before the store has confirmed it, unless more bytes
/// wait than `queue` of `[upload]` allows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
and AWS_SESSION_TOKEN), a web identity (AWS_WEB_IDENTITY_TOKEN_FILE and
AWS_ROLE_ARN), the container or the instance, in this order. They are never in
the configuration.

Examples:
  uncore-trace upload
  uncore-trace upload --config agent.toml --once

Exit code: 0 after SIGTERM or SIGINT, and with --once if all was sent; 1 with
--once if something was not sent; 2 if the configuration or the directory cannot
be used.")]
pub struct Args {
    /// The configuration file of the agent (TOML)
    #[arg(short, long, value_name = "FILE", default_value = CONFIG, help_heading = FILE)]
    config: PathBuf,

    /// Send what is there and end
    #[arg(long, help_heading = TIME)]
    once: bool,

    /// Only check the configuration and the directory; send nothing
    #[arg(long, conflicts_with = "once", help_heading = PRINT)]
    check: bool,
}

/// What the configuration asks for.
fn task(path: &Path) -> Result<Task> {
    let shown = path.display();
    let Config { rollup, metrics, upload, .. } = Config::read(path)?;
    let (Some(settings), Some(rollup)) = (upload, rollup) else {
        bail!("{shown} has no [upload]: add one with url = \"s3://BUCKET/PREFIX\"");
    };
    let textfile = metrics.and_then(|metrics| metrics.textfile);
    let textfile = textfile.map(|path| beside(&path));
    Ok(Task { settings, directory: rollup.directory, textfile })
}

/// The figures of the upload beside those of the agent: `NAME_upload.prom`.
fn beside(textfile: &Path) -> PathBuf {
    let mut name = textfile.file_stem().unwrap_or_default().to_owned();
    name.push("_upload.prom");
    textfile.with_file_name(name)
}

/// Uploads; see the help for the exit code.
pub fn run(args: &Args) -> Result<u8> {
    let task = task(&args.config)?;
    if args.check {
        upload::check(&task)?;
        let path = printable(&args.config.display().to_string()).into_owned();
        print(&format!("{path}: the configuration of the upload is valid; no request was sent\n"))?;
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
