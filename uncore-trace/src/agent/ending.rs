//! The end of the process after SIGTERM or SIGINT, also if one of its threads hangs.
//!
//! What is on disk then is what a killed agent leaves: the next one finishes it.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::thread::{Builder, sleep};
use std::time::Duration;

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{exit, pipe};

use crate::confine::{self, ThreadNeeds};

/// Time for the files to be finished. The process ends within 10 s of the signal.
const LONGEST: Duration = Duration::from_secs(9);

/// Time for the last line of the log, whose reader may hang too.
const LAST_LINE: Duration = Duration::from_millis(300);

/// Exit code of a recording that is not complete.
const INCOMPLETE: i32 = 1;

/// Ends the process at most 10 s after a signal.
///
/// # Errors
///
/// The signals cannot be handled, or the thread cannot be started.
pub(super) fn within_ten_seconds() -> Result<()> {
    let (mut signalled, signal_writer) = UnixStream::pair().context("cannot handle signals")?;
    for signal in [SIGTERM, SIGINT] {
        let signal_pipe = signal_writer.try_clone().context("cannot handle signals")?;
        pipe::register(signal, signal_pipe).context("cannot handle signals")?;
    }
    let end_after_signal = move || {
        confine::restrict_thread(&ThreadNeeds::default());
        if signalled.read_exact(&mut [0]).is_err() {
            return;
        }
        sleep(LONGEST);
        let log_last_line = || {
            log::warn!("the files were not finished in time: the next agent finishes them");
        };
        // Not in this thread, which must not wait for anybody.
        Builder::new()
            .name("last-line".to_owned())
            .spawn(log_last_line)
            .map(drop)
            .unwrap_or_default();
        sleep(LAST_LINE);
        exit(INCOMPLETE);
    };
    let thread = Builder::new().name("ending".to_owned()).spawn(end_after_signal);
    thread.map(drop).context("cannot start the thread that ends the process")
}
