//! The parts of a recording that take records: the live one and, during a rotation, the next one.
//!
//! During a rotation both parts take all records until the first one is closed up to its last tick;
//! each keeps those of its own time. Then a thread finishes the files of the first part. Guarantee:
//! the files of one part at a time are being finished, so what waits for a slow disk is bounded.
//! Until that is done, the live part may exceed its time or size.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::live_part_space::{LivePartSpace, is_large};
use super::open_part::{CommonState, Draft, OpenPart};
use super::recorder::RecordingOutcome;
use super::rotate::Rotation;
use super::side_sources::SideSources;
use crate::assemble::{Ledger, SourceReading};
use crate::clock::mono_ns;
use crate::confine::ThreadNeeds;
use crate::drain::DrainedRecord;
use crate::open::{Session, Timer};
use crate::schema::loss::{LossCause, Losses};
use crate::tables::thread::Finishing;
use crate::tables::writer::RecordingSize;

/// A part, or the recording, ends without its last readings if they have not arrived after this
/// time.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(2);

/// The parts of a recording that take records, and those that have ended.
#[derive(Debug)]
pub(super) struct OpenParts {
    /// The part that is being recorded.
    pub live: OpenPart,
    /// The next part, during a rotation.
    next_part: Option<OpenPart>,
    rotation: Option<Rotation>,
    /// The part whose files are being finished.
    finishing: Option<Finishing>,
    /// Disk space for the live part.
    space: LivePartSpace,
    finished: RecordingSize,
    /// Number of parts that have ended.
    ended_count: u32,
    /// Losses of the parts before the live one.
    ended_losses: BTreeMap<LossCause, u64>,
    timer: Timer,
}

impl OpenParts {
    pub(super) fn new(live: OpenPart, rotation: Option<Rotation>, timer: Timer) -> Self {
        Self {
            live,
            next_part: None,
            rotation,
            finishing: None,
            space: LivePartSpace::default(),
            finished: RecordingSize::default(),
            ended_count: 0,
            ended_losses: BTreeMap::new(),
            timer,
        }
    }

    /// What the thread needs that creates and removes parts.
    pub(super) fn rotation_needs(&self) -> ThreadNeeds {
        self.rotation.as_ref().map(|rotation| rotation.series.access_needs()).unwrap_or_default()
    }

    /// The parts that take records, oldest first.
    pub(super) fn oldest_first(&mut self) -> impl Iterator<Item = &mut OpenPart> {
        [Some(&mut self.live), self.next_part.as_mut()].into_iter().flatten()
    }

    /// Gives a record to all parts that take records.
    pub(super) fn feed_record(&mut self, record: DrainedRecord) {
        if let Some(next_part) = &mut self.next_part {
            next_part.timeline.feed_record(record.clone(), &mut next_part.sink);
        }
        self.live.timeline.feed_record(record, &mut self.live.sink);
    }

    /// Gives a reading of a source beside the rings to all parts that take records.
    pub(super) fn feed_reading(&mut self, reading: &impl SourceReading) {
        for open_part in self.oldest_first() {
            open_part.timeline.feed_reading(reading, &mut open_part.sink);
        }
    }

    /// The ledger for a loss at `time_ns`.
    pub(super) fn ledger_at(&mut self, time_ns: u64) -> &mut Ledger {
        &mut self.part_with(time_ns).timeline.ledger
    }

    /// Number of rows of `fabric` so far.
    pub(super) fn fabric_rows(&self) -> u64 {
        self.finished.rows + self.live.sink.fabric_rows()
    }

    /// The losses so far.
    pub(super) fn losses_so_far(&self) -> Losses {
        let mut totals = self.ended_losses.clone();
        add_losses(&mut totals, self.live.timeline.ledger.totals());
        Losses::from_causes(&totals)
    }

    /// The part for what ended at `end_ns`, `CLOCK_MONOTONIC`.
    pub(super) fn part_of_end(&mut self, end_ns: i64) -> &mut OpenPart {
        // A part does not have what ended when it began.
        self.part_with(end_ns.saturating_sub(1).max(0) as u64)
    }

    /// The part that this time is in.
    fn part_with(&mut self, time_ns: u64) -> &mut OpenPart {
        let has_begun = |next_part: &&mut OpenPart| next_part.start_ns <= time_ns;
        self.next_part.as_mut().filter(has_begun).unwrap_or(&mut self.live)
    }

    /// Starts the next part when the live one has reached its time or size, and ends the live one
    /// once it is closed up to its last tick. Records sent until `fed_ns` have been fed.
    pub(super) fn rotate_if_due(
        &mut self,
        common: &CommonState<'_>,
        session: &Session,
        sources: &mut SideSources<'_>,
        fed_ns: u64,
    ) -> Result<()> {
        let Some(rotation) = &mut self.rotation else { return Ok(()) };
        let sealed = self.live.writer.sealed_bytes();
        if let Some(finishing) = self.finishing.take_if(|finishing| finishing.is_over()) {
            self.finished += finishing.join_writer()?;
            self.space.end_finishing();
            rotation.trim_parts(sealed);
        }
        let options = common.options;
        // A part that the user asked for keeps its limits; only a ring of the agent is limited by
        // its total size.
        if options.tap.is_some() {
            if let Some(needed_bytes) = self.space.request_space(sealed) {
                rotation.trim_parts(needed_bytes);
            }
            if self.next_part.is_none()
                && self.finishing.is_none()
                && is_large(sealed, options.keep)
            {
                options.control.end_part();
            }
        }
        let now_ns = mono_ns() as u64;
        if let Some(next_part) = &self.next_part {
            // A recorder that is late has not seen yet what the live part waits for.
            let waited = Duration::from_nanos(fed_ns.saturating_sub(next_part.start_ns));
            let is_over = self.live.timeline.is_done() || waited > LAST_WAIT;
            return if is_over { self.end_live_part(sources) } else { Ok(()) };
        }
        let plan = common.plan;
        if self.finishing.is_some() || !rotation.is_due(self.live.begin, sealed, &options.control) {
            return Ok(());
        }
        let target = rotation.next_target();
        let source_metadata = sources.part_metadata()?;
        let draft = match Draft::create_files(
            target,
            options,
            plan,
            source_metadata,
            Some(self.live.clock),
        ) {
            Err(error) if options.tap.is_some() => {
                rotation.wait_after_error(&error);
                return Ok(());
            }
            draft => draft?,
        };
        rotation.note_next();
        // Parts meet at the end of a window, so that each window is in one part.
        let start_tick = (now_ns / plan.window_ns + 1) * plan.window_ns / plan.tick_ns;
        self.live.timeline.stop_at(start_tick);
        let mut next_part = draft.begin_part(common, session, start_tick)?;
        sources.each_source().for_each(|source| source.seed_part(session, &mut next_part));
        self.next_part = Some(next_part);
        Ok(())
    }

    /// Ends the live part. The next one becomes live.
    pub(super) fn end_live_part(&mut self, sources: &mut SideSources<'_>) -> Result<()> {
        let Some(next_part) = self.next_part.take() else { return Ok(()) };
        let next_start_ns = next_part.start_ns;
        let mut ended_part = std::mem::replace(&mut self.live, next_part);
        ended_part.timeline.give_up(mono_ns() as u64, &mut ended_part.sink);
        self.space.start_finishing(ended_part.writer.sealed_bytes());
        sources
            .each_source()
            .try_for_each(|source| source.end_part(&mut ended_part, Some(next_start_ns)))?;
        let (finishing, totals) = ended_part.end_part(self.timer)?;
        add_losses(&mut self.ended_losses, &totals);
        self.ended_count += 1;
        self.finishing = Some(finishing);
        Ok(())
    }

    /// Before the recording ends: drops a next part that has not begun, so that the live one goes
    /// on to the end. `true` if no part is left to wait for.
    pub(super) fn is_settled(&mut self) -> bool {
        let now_ns = mono_ns() as u64;
        self.next_part.take_if(|next_part| next_part.start_ns > now_ns);
        self.next_part.is_none()
    }

    /// Ends the last part and waits for the files of all parts. The recording took `seconds`, and
    /// read this many counters.
    pub(super) fn finish_parts(
        mut self,
        sources: &mut SideSources<'_>,
        seconds: f64,
        counters: usize,
    ) -> Result<RecordingOutcome> {
        sources.each_source().try_for_each(|source| source.end_part(&mut self.live, None))?;
        let (last_finishing, totals) = self.live.end_part(self.timer)?;
        add_losses(&mut self.ended_losses, &totals);
        for finishing in self.finishing.into_iter().chain([last_finishing]) {
            self.finished += finishing.join_writer()?;
        }
        if let Some(mut rotation) = self.rotation {
            rotation.trim_parts(0);
        }
        let losses = Losses::from_causes(&self.ended_losses);
        let (finished, part_count) = (self.finished, self.ended_count + 1);
        Ok(RecordingOutcome { finished, part_count, losses, seconds, counters })
    }
}

/// Adds the losses of a part.
fn add_losses(totals: &mut BTreeMap<LossCause, u64>, lost: &BTreeMap<LossCause, u64>) {
    for (&cause, count) in lost {
        *totals.entry(cause).or_default() += count;
    }
}
