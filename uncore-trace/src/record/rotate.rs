//! When a part of a recording ends, and which parts are kept.

use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use super::args::{RecordOptions, RecorderControl};
use crate::tables::series::{PartSeries, Rotate};
use crate::tables::writer::RecordingTarget;

/// How long to wait before the next try, if a part could not be created.
const RETRY: Duration = Duration::from_secs(5);

/// The parts of a rotated recording.
#[derive(Debug)]
pub(super) struct Rotation {
    rotate: Rotate,
    pub(super) series: PartSeries,
    /// Whether the warning that a part cannot be removed was given.
    warned: bool,
    /// Whether a part was asked to end early.
    is_asked: bool,
    /// No part is created before this time.
    waits_until: Option<Instant>,
}

impl Rotation {
    /// The rotation that `options` ask for, if any, and the target of its first part.
    ///
    /// # Errors
    ///
    /// See [`PartSeries::open`].
    pub(super) fn open_series(
        target: &RecordingTarget,
        options: &RecordOptions,
    ) -> Result<Option<(Self, RecordingTarget)>> {
        let Some(rotate) = options.rotate else { return Ok(None) };
        let mut series = PartSeries::open(target, options.keep, options.mode)?;
        let first_target = series.next_target();
        let rotation = Self { rotate, series, warned: false, is_asked: false, waits_until: None };
        Ok(Some((rotation, first_target)))
    }

    /// Whether a part that began at `begin` and has `sealed_bytes` on disk must end.
    pub(super) fn is_due(
        &mut self,
        begin: Instant,
        sealed_bytes: u64,
        control: &RecorderControl,
    ) -> bool {
        self.is_asked |= control.take_end_part();
        if self.waits_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let is_long = match self.rotate {
            Rotate::After(time) => begin.elapsed() >= time,
            Rotate::Bytes(max_bytes) => sealed_bytes >= max_bytes,
        };
        is_long || self.is_asked
    }

    /// Notes that the next part cannot be created because of `error`. If old parts are removed
    /// anyway, the oldest one is removed to make space. The next try is after [`RETRY`].
    pub(super) fn wait_after_error(&mut self, error: &Error) {
        if let Err(error) = self.series.make_room() {
            log::debug!("cannot free space for the next part: {error:#}");
        }
        if self.waits_until.is_none() {
            log::warn!(
                "cannot begin the next part, so the recording goes on in this part: {error:#}"
            );
        }
        self.waits_until = Some(Instant::now() + RETRY);
    }

    /// The target of the next part.
    pub(super) fn next_target(&mut self) -> RecordingTarget {
        self.series.next_target()
    }

    /// Notes that the next part was created.
    pub(super) fn note_next(&mut self) {
        self.is_asked = false;
    }

    /// Removes old parts. A part that cannot be removed does not end the recording.
    pub(super) fn trim_parts(&mut self, live_bytes: u64) {
        if let Err(error) = self.series.trim_parts(live_bytes)
            && !self.warned
        {
            self.warned = true;
            log::warn!("cannot remove an old part; the recording goes on: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::mode::FileMode;

    #[test]
    fn a_part_that_was_to_end_still_is_where_the_next_cannot_be_made() {
        let place = tempfile::tempdir().unwrap();
        let target = RecordingTarget::Dataset(place.path().join("ring"));
        let mut rotation = Rotation {
            rotate: Rotate::After(Duration::from_hours(1)),
            series: PartSeries::open(&target, None, FileMode::default()).unwrap(),
            warned: false,
            is_asked: false,
            waits_until: None,
        };
        let (begin, control) = (Instant::now(), RecorderControl::default());
        assert!(!rotation.is_due(begin, 0, &control));
        control.end_part();
        assert!(rotation.is_due(begin, 0, &control));
        rotation.next_target();
        rotation.wait_after_error(&anyhow::anyhow!("full"));
        assert!(!rotation.is_due(begin, 0, &control));
        rotation.waits_until = Some(Instant::now());
        assert!(rotation.is_due(begin, 0, &control));
        rotation.next_target();
        rotation.note_next();
        assert!(!rotation.is_due(begin, 0, &control));
    }
}
