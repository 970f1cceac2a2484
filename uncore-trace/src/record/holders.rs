//! Readings of all files of watched devices: at the begin of each part, after a loss, and now and
//! then, because not every way in which a process gets a file is seen.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::parts::OpenParts;
use crate::assemble::{Sink, Timeline};
use crate::clock::mono_ns;
use crate::drain::{DrainedRecord, FileRecord, decode_record};
use crate::open::{OpenFiles, Session};
use crate::schema::loss::Cause;

/// Time between two readings, and where the kernel does not let files be followed.
const PAUSE: Duration = Duration::from_secs(10);
const UNFOLLOWED: Duration = Duration::from_secs(1);

/// Shortest time between two readings, after a loss.
const SHORTEST: Duration = Duration::from_millis(100);

/// A reading takes at most this part of the time, as it visits every file of the machine.
const TIME_DIVISOR: u32 = 1000;

/// Decides when the files of watched devices are read again.
#[derive(Debug)]
pub(super) struct Reread {
    last_read: Instant,
    /// Time that the last reading demands until the next.
    pause: Duration,
    /// Whether something was missed since the last reading.
    has_lost: bool,
    /// A reading that waits until older records are fed.
    pending: Option<OpenFiles>,
}

impl Default for Reread {
    fn default() -> Self {
        Self { last_read: Instant::now(), pause: Duration::ZERO, has_lost: false, pending: None }
    }
}

impl Reread {
    /// Notes that something was missed.
    pub(super) const fn note_loss(&mut self) {
        self.has_lost = true;
    }

    /// Reads the files if it is time; all records sent until `fed_ns` have been fed.
    pub(super) fn read_if_due(
        &mut self,
        session: &Session,
        open_parts: &mut OpenParts,
        fed_ns: u64,
    ) {
        for open_part in open_parts.oldest_first() {
            self.has_lost |= open_part.timeline.take_doubt();
        }
        if let Some(files) = self.pending.take_if(|files| files.span_ns.1 <= fed_ns) {
            let events = decode_files(&files);
            for open_part in open_parts.oldest_first() {
                open_part.timeline.feed_files(files.span_ns, &events, &mut open_part.sink);
            }
        }
        let usual = if session.unseen_holders().is_some() { UNFOLLOWED } else { PAUSE };
        let pause = if self.has_lost { SHORTEST } else { usual };
        if self.pending.is_some() || self.last_read.elapsed() < pause.max(self.pause) {
            return;
        }
        let begin = Instant::now();
        let Some(files) = session.open_files() else { return };
        self.last_read = Instant::now();
        self.pause = TIME_DIVISOR * begin.elapsed();
        self.has_lost = false;
        match files {
            Ok(files) => self.pending = Some(files),
            Err(error) => {
                let now_ns = mono_ns() as u64;
                let ledger = open_parts.ledger_at(now_ns);
                ledger.add_explained(Cause::HolderUnseen, now_ns, None, &format!("{error:#}"));
            }
        }
    }
}

/// Enters the first reading of a part.
pub(super) fn enter_first_reading(
    files: Result<OpenFiles>,
    timeline: &mut Timeline,
    sink: &mut Sink,
) {
    match files {
        Ok(files) => timeline.feed_files(files.span_ns, &decode_files(&files), sink),
        Err(error) => {
            let now_ns = mono_ns() as u64;
            timeline.ledger.add_explained(Cause::HolderUnseen, now_ns, None, &format!("{error:#}"));
        }
    }
}

fn decode_files(files: &OpenFiles) -> Vec<FileRecord> {
    let records = files.each_record().filter_map(|bytes| decode_record(bytes).ok());
    records
        .filter_map(
            |record| if let DrainedRecord::File(event) = record { Some(event) } else { None },
        )
        .collect()
}
