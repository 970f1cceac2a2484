//! The marks as a source beside the rings. They are not polled: tasks of the event loop take them,
//! and a part gets its own when it is sealed.

use anyhow::Result;

use super::super::open_part::OpenPart;
use super::super::side_sources::{Preparation, SideSetup, SideSource, StopPoint};
use super::super::state::RecorderState;
use super::{PartMarks, RecordingMarks};

/// Listens for marks from now on, if any may come.
pub(in super::super) fn prepare_source<'a>(
    preparation: &Preparation<'_, 'a>,
) -> Option<SideSetup<'a>> {
    if !preparation.options.listen {
        return None;
    }
    let marks = RecordingMarks::open_listeners(preparation.target);
    Some(SideSetup::new(|begun| {
        marks.begin_recording(begun.start_ns as i64);
        Some(Box::new(marks))
    }))
}

impl SideSource for RecordingMarks {
    fn seal_part(&mut self, open_part: &mut OpenPart) -> Result<bool> {
        self.live_marks().enter_marks(open_part)
    }

    fn end_part(&mut self, open_part: &mut OpenPart, next_start_ns: Option<u64>) -> Result<()> {
        let marks = match next_start_ns {
            Some(start_ns) => self.split_book(start_ns as i64),
            None => self.live_marks(),
        };
        marks.enter_marks(open_part).map(drop)
    }

    /// Marks that the command wrote just before it ended have been read by then.
    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.stop_listening();
        Ok(())
    }
}

impl PartMarks {
    /// Enters the marks into their part. `true` if its metadata changed.
    fn enter_marks(&self, open_part: &mut OpenPart) -> Result<bool> {
        self.hand_over(&mut open_part.sink, &mut open_part.timeline.ledger);
        self.note_in_metadata(&mut open_part.pairs)
    }
}
