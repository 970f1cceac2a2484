//! Messages of the `log` crate, those of the BPF programs among them, on standard error.

use std::io::{self, Write as _};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::text::printable;

struct Stderr;

/// One line on standard error. Where that cannot be written nobody is left to tell, and what is being
/// done goes on.
pub fn say(line: &str) {
    writeln!(io::stderr(), "uncore-trace: {line}").unwrap_or_default();
}

/// Whether nobody reads the output any more, e.g. `head` has ended.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries speak for themselves only when something is wrong.
        metadata.level() <= Level::Warn || metadata.target().starts_with("uncore_trace")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = if record.level() <= Level::Warn { "warning: " } else { "" };
            say(&format!("{level}{}", printable(&record.args().to_string())));
        }
    }

    fn flush(&self) {}
}

/// Shows warnings; with `UNCORE_TRACE_LOG=info` (or `debug`) more.
pub fn install() {
    let wanted = std::env::var("UNCORE_TRACE_LOG").ok();
    let level = wanted.and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::Warn);
    // The first logger stays; there is no other one in this program.
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}
