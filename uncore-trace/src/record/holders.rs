//! Readings of all files of watched devices: at the begin of each part, after a loss, and now and then,
//! because not every way in which a process gets a file is seen.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::parts::OpenParts;
use crate::assemble::{Sink, Timeline};
use crate::clock::mono_ns;
use crate::drain::{FileEvent, Record, decode};
use crate::open::{Files, Session};
use crate::schema::loss::Cause;

/// Time between two readings, and where the kernel does not let files be followed.
const PAUSE: Duration = Duration::from_secs(10);
const UNFOLLOWED: Duration = Duration::from_secs(1);

/// Shortest time between two readings, after a loss.
const SHORTEST: Duration = Duration::from_millis(100);

/// A reading takes at most this part of the time, as it visits every file of the machine.
const PART: u32 = 1000;

/// When the files are read.
#[derive(Debug)]
pub(super) struct Reread {
    last: Instant,
    /// Time that the last reading demands until the next.
    pause: Duration,
    /// Whether something was missed since the last reading.
    has_lost: bool,
    /// A reading that waits until older records are fed.
    waiting: Option<Files>,
}

impl Default for Reread {
    fn default() -> Self {
        Self { last: Instant::now(), pause: Duration::ZERO, has_lost: false, waiting: None }
    }
}

impl Reread {
    /// Something was missed.
    pub(super) const fn has_lost(&mut self) {
        self.has_lost = true;
    }

    /// Reads the files if it is time; all records sent until `fed` have been fed.
    pub(super) fn look(&mut self, session: &Session, parts: &mut OpenParts, fed: u64) {
        for part in parts.oldest_first() {
            self.has_lost |= part.timeline.take_doubt();
        }
        if let Some(files) = self.waiting.take_if(|files| files.span.1 <= fed) {
            let events = decoded(&files);
            for part in parts.oldest_first() {
                part.timeline.files(files.span, &events, &mut part.sink);
            }
        }
        let usual = if session.unseen_holders().is_some() { UNFOLLOWED } else { PAUSE };
        let pause = if self.has_lost { SHORTEST } else { usual };
        if self.waiting.is_some() || self.last.elapsed() < pause.max(self.pause) {
            return;
        }
        let begin = Instant::now();
        let Some(files) = session.files() else { return };
        self.last = Instant::now();
        self.pause = PART * begin.elapsed();
        self.has_lost = false;
        match files {
            Ok(files) => self.waiting = Some(files),
            Err(error) => {
                let now = mono_ns() as u64;
                let ledger = parts.ledger_at(now);
                ledger.explain(Cause::HolderUnseen, now, None, &format!("{error:#}"));
            }
        }
    }
}

/// Enters the first reading of a part.
pub(super) fn enter(files: Result<Files>, timeline: &mut Timeline, sink: &mut Sink) {
    match files {
        Ok(files) => timeline.files(files.span, &decoded(&files), sink),
        Err(error) => {
            let now = mono_ns() as u64;
            timeline.ledger.explain(Cause::HolderUnseen, now, None, &format!("{error:#}"));
        }
    }
}

fn decoded(files: &Files) -> Vec<FileEvent> {
    let each = files.each().filter_map(|bytes| decode(bytes).ok());
    each.filter_map(|record| if let Record::File(event) = record { Some(event) } else { None })
        .collect()
}
