//! Readings of all files of watched devices: at the begin of each part, after a loss, and now and
//! then, because not every way in which a process gets a file is seen.

use std::time::{Duration, Instant};

use anyhow::Result;
use uncore_trace_common::record::{KIND_CGROUP, KIND_FILE, KIND_TASK};

use super::open_part::OpenPart;
use super::side_sources::{FedRecords, Preparation, SideSetup, SideSource, StopPoint};
use super::state::RecorderState;
use crate::assemble::FilesReading;
use crate::clock::mono_ns;
use crate::drain::{DrainedRecord, FileRecord, decode_record};
use crate::open::{OpenFiles, Session};
use crate::schema::loss::LossCause;

/// Time between two readings, and where the kernel does not let files be followed.
const PAUSE: Duration = Duration::from_secs(10);
const UNFOLLOWED: Duration = Duration::from_secs(1);

/// Shortest time between two readings, after a loss.
const SHORTEST: Duration = Duration::from_millis(100);

/// A reading takes at most this part of the time, as it visits every file of the machine.
const TIME_DIVISOR: u32 = 1000;

/// Prepares the readings of files, if it is recorded who holds which device.
pub(super) fn prepare_source<'a>(preparation: &Preparation<'_, 'a>) -> Option<SideSetup<'a>> {
    if !preparation.wants_holders {
        return None;
    }
    let mut setup = SideSetup::new(|begun| {
        let (last_read, pause) = (Instant::now(), Duration::ZERO);
        let readings = FileReadings { last_read, pause, has_lost: false, pending: None };
        begun.session.sees_holders().then(|| Box::new(readings) as _)
    });
    setup.seed_part = enter_first_reading;
    Some(setup)
}

/// Decides when the files of watched devices are read again.
#[derive(Debug)]
struct FileReadings {
    last_read: Instant,
    /// Time that the last reading demands until the next.
    pause: Duration,
    /// Whether something was missed since the last reading.
    has_lost: bool,
    /// A reading that waits until older records are fed.
    pending: Option<OpenFiles>,
}

impl SideSource for FileReadings {
    /// Reads the files if it is time.
    fn follow_records(
        &mut self,
        state: &mut RecorderState<'_>,
        _fed: FedRecords<'_>,
    ) -> Result<()> {
        for open_part in state.open_parts.oldest_first() {
            self.has_lost |= open_part.timeline.take_doubt();
        }
        // A reading is compared with what was reported before its end, so all that is fed first.
        let fed_ns = state.fed_ns;
        if let Some(files) = self.pending.take_if(|files| files.span.end_ns <= fed_ns) {
            let events = decode_files(&files);
            state.open_parts.feed_reading(&FilesReading { span: files.span, files: &events });
        }
        let usual = if state.session.unseen_holders().is_some() { UNFOLLOWED } else { PAUSE };
        let pause = if self.has_lost { SHORTEST } else { usual };
        if self.pending.is_some() || self.last_read.elapsed() < pause.max(self.pause) {
            return Ok(());
        }
        let begin = Instant::now();
        let Some(files) = state.session.open_files() else { return Ok(()) };
        self.last_read = Instant::now();
        self.pause = TIME_DIVISOR * begin.elapsed();
        self.has_lost = false;
        match files {
            Ok(files) => self.pending = Some(files),
            Err(error) => {
                state.note_loss(LossCause::HolderUnseen, mono_ns() as u64, &format!("{error:#}"));
            }
        }
        Ok(())
    }

    /// A process that opened a file, went to another cgroup or ended may have been missed.
    fn note_ring_loss(&mut self, record_kind: u32) {
        self.has_lost |= [KIND_FILE, KIND_TASK, KIND_CGROUP].contains(&record_kind);
    }

    fn seed_part(&mut self, session: &Session, open_part: &mut OpenPart) {
        enter_first_reading(session, open_part);
    }

    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    /// Files are compared until all records are fed.
    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        Ok(())
    }
}

/// Enters the first reading of a part.
fn enter_first_reading(session: &Session, open_part: &mut OpenPart) {
    match session.open_files() {
        Some(Ok(files)) => {
            let events = decode_files(&files);
            let reading = FilesReading { span: files.span, files: &events };
            open_part.timeline.feed_reading(&reading, &mut open_part.sink);
        }
        Some(Err(error)) => {
            let now_ns = mono_ns() as u64;
            let ledger = &mut open_part.timeline.ledger;
            ledger.add_explained(LossCause::HolderUnseen, now_ns, None, &format!("{error:#}"));
        }
        None => {}
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
