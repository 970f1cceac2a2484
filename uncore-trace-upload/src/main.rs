//! `uncore-trace-upload`: sends the files of the roll-up to an object store, and metrics to a
//! collector.
//!
//! It is a separate program so that `uncore-trace`, which has capabilities, links neither TLS nor
//! a client of HTTP over TCP. `uncore-trace upload` runs this program with the same options.

mod answers;
mod backoff;
mod figures;
mod journal;
mod needs;
mod otlp;
mod pass;
mod store;
mod tree;
mod uploader;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ArgAction;
use uncore_trace_recording::cli::heading::OTHER;
use uncore_trace_recording::cli::output::print;
use uncore_trace_recording::cli::upload_args::UploadArgs;
use uncore_trace_recording::cli::{command_line, messages};
use uncore_trace_recording::config::Config;
use uncore_trace_recording::signals::{self, Signals, event_loop};
use uncore_trace_recording::text::{count_noun, printable, printable_path};
use uncore_trace_recording::units;

use crate::figures::UploadFigures;
use crate::otlp::{Push, PushSettings};
use crate::uploader::{UploadOutcome, UploadTask};

// No doc comment: the text of the help is that of `UploadArgs`.
#[derive(Debug, clap::Parser)]
#[command(
    name = "uncore-trace-upload",
    version,
    disable_help_flag = true,
    disable_version_flag = true
)]
struct UploadCli {
    #[command(flatten)]
    args: UploadArgs,

    /// Print this help; -h is the short form
    #[arg(short, long, action = ArgAction::Help, help_heading = OTHER)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = OTHER)]
    version: Option<bool>,
}

fn main() -> ExitCode {
    signals::survive_file_size_limit();
    let cli: UploadCli = match command_line::parse(std::env::args_os(), |_, _| None) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    messages::install_logger();
    messages::exit_code(run(&cli.args))
}

/// Runs the upload and returns the exit code, which the help explains.
fn run(args: &UploadArgs) -> Result<u8> {
    let Tasks { upload, push } = read_tasks(&args.config)?;
    let mut push = push.map(Push::new).transpose()?;
    if args.check {
        upload.as_ref().map_or(Ok(()), uploader::check_task)?;
        let path = printable_path(&args.config);
        print(&format!("{path}: the configuration of the upload is valid; no request was sent\n"))?;
        return Ok(0);
    }
    let runtime = event_loop()?;
    let ended: Result<_> = runtime.block_on(async {
        let mut signals = Signals::install()?;
        let outcome = if let Some(task) = &upload {
            Some(uploader::run(task, push.as_mut(), args.once, &mut signals).await?)
        } else {
            uploader::without_files(push.as_mut(), args.once, &mut signals).await;
            None
        };
        // After the files, also if one of them was not sent.
        let is_stopped = signals.was_interrupted() || signals.asked_to_leave();
        let pushed = match push.as_mut().filter(|_| args.once && !is_stopped) {
            Some(push) => tokio::select! {
                pushed = push.push_once() => pushed.map(|()| true),
                _ = signals.next() => Ok(false),
            },
            None => Ok(false),
        };
        Ok((outcome, pushed))
    });
    // Limits the wait for a file operation of the store that hangs.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let (outcome, pushed) = ended?;
    if !args.once {
        return Ok(0);
    }
    if let Some(UploadOutcome { figures, .. }) = &outcome {
        print(&format!("{}\n", format_summary(figures)))?;
    }
    if let (Ok(true), Some(push)) = (&pushed, &push) {
        print(&format!("metrics pushed to {}\n", printable(push.display_address())))?;
    }
    let failure = outcome.and_then(|outcome| outcome.failure);
    let failures: Vec<String> = failure.into_iter().chain(pushed.err()).collect();
    for failure in &failures {
        messages::print_message(&printable(failure));
    }
    Ok(u8::from(!failures.is_empty()))
}

/// What the configuration and the environment describe.
struct Tasks {
    upload: Option<UploadTask>,
    push: Option<PushSettings>,
}

/// The upload and the push, of which there is at least one.
fn read_tasks(path: &Path) -> Result<Tasks> {
    let shown = path.display();
    let config = Config::read(path)?;
    let push = PushSettings::from_config(&config, |name| std::env::var(name).ok())?;
    let Config { rollup, metrics, upload, .. } = config;
    let textfile = metrics.and_then(|metrics| metrics.textfile);
    let textfile = textfile.map(|path| upload_textfile(&path));
    let upload = upload.zip(rollup).map(|(settings, rollup)| UploadTask {
        settings,
        directory: rollup.directory,
        textfile,
    });
    if upload.is_none() && push.is_none() {
        bail!(
            "{shown} has no [upload]: add one with url = \"s3://BUCKET/PREFIX\", or [otlp] to push metrics"
        );
    }
    Ok(Tasks { upload, push })
}

/// Path of the upload's metrics, beside the textfile of the agent: `NAME_upload.prom`.
fn upload_textfile(textfile: &Path) -> PathBuf {
    let mut name = textfile.file_stem().unwrap_or_default().to_owned();
    name.push("_upload.prom");
    textfile.with_file_name(name)
}

fn format_summary(figures: &UploadFigures) -> String {
    let files = |count: u64| count_noun(count as usize, "file");
    let bytes = |count: u64| units::human(count as f64, "bytes");
    let UploadFigures { sent_files, sent_bytes, waiting_files, waiting_bytes, .. } = *figures;
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
