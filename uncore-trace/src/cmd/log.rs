//! Messages of the `log` crate, those of the BPF programs among them, on standard error.
#![expect(clippy::print_stderr, reason = "this is where messages are printed")]

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::text::printable;

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries speak for themselves only when something is wrong.
        metadata.level() <= Level::Warn || metadata.target().starts_with("uncore_trace")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = if record.level() <= Level::Warn { "warning: " } else { "" };
            eprintln!("uncore-trace: {level}{}", printable(&record.args().to_string()));
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
