//! Prints messages of the `log` crate, including those of the BPF programs, on standard error.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::repeated_warnings::RepeatedWarnings;
use crate::held_messages;
use crate::text::printable;

struct Stderr;

/// The warnings of a service; `None` of a command, which prints all.
static REPEATS: Mutex<Option<RepeatedWarnings>> = Mutex::new(None);

/// Prints one line on standard error. A failure is ignored: there is no other place to report it,
/// and it must not end the recording. While `top` draws on the terminal, lines wait.
pub fn print_message(line: &str) {
    if !held_messages::offer_line(line) {
        writeln!(io::stderr(), "uncore-trace: {line}").unwrap_or_default();
    }
}

/// The exit code of a program; says why it failed.
pub fn exit_code(result: anyhow::Result<u8>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Text from the machine must not add lines.
            print_message(&printable(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

/// Whether the reader of the output has closed the pipe, as `head` does.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries may only warn.
        metadata.level() <= Level::Warn || metadata.target().starts_with("uncore_trace")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            let is_warning = record.level() <= Level::Warn;
            let Some(text) = (if is_warning { unless_repeated(text) } else { Some(text) }) else {
                return;
            };
            let level = if is_warning { "warning: " } else { "" };
            print_message(&format!("{level}{}", printable(&text)));
        }
    }

    fn flush(&self) {}
}

/// The warning, unless a service has printed one like it.
fn unless_repeated(text: String) -> Option<String> {
    let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(repeats) = repeats.as_mut() else { return Some(text) };
    repeats.line_to_print(&text, Instant::now())
}

/// Shows errors only, unless `UNCORE_TRACE_LOG` asks for more.
pub fn errors_only() {
    if std::env::var_os("UNCORE_TRACE_LOG").is_none() {
        log::set_max_level(LevelFilter::Error);
    }
}

/// Also shows messages of level `info` from a service, such as a saved file, unless
/// `UNCORE_TRACE_LOG` asks for something else. From here on, warnings that repeat are left out.
pub fn log_as_service() {
    *REPEATS.lock().unwrap_or_else(PoisonError::into_inner) = Some(RepeatedWarnings::default());
    set_verbosity(1);
}

/// Also shows messages of level `info`, with `count` above 1 of level `debug`, unless
/// `UNCORE_TRACE_LOG` asks for something else.
pub fn set_verbosity(count: u8) {
    if count > 0 && std::env::var_os("UNCORE_TRACE_LOG").is_none() {
        log::set_max_level(if count > 1 { LevelFilter::Debug } else { LevelFilter::Info });
    }
}

/// Shows warnings; with `UNCORE_TRACE_LOG=info` (or `debug`) more.
pub fn install_logger() {
    let wanted = std::env::var("UNCORE_TRACE_LOG").ok();
    let level = wanted.and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::Warn);
    // Only the first logger can be set, and this is the only one.
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}
