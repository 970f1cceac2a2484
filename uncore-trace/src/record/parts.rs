//! The parts of a recording that take records: the live one and, during a rotation, the next one.
//!
//! During a rotation both parts take all records until the first one is closed up to its last tick;
//! each keeps those of its own time. Then a thread finishes the files of the first part. Guarantee:
//! the files of one part at a time are being finished, so what waits for a slow disk is bounded.
//! Until that is done, the live part may exceed its time or size.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::canary::{self, Canary};
use super::marks::Marks;
use super::part::{Common, Draft, Part};
use super::room::{Room, is_large};
use super::rotate::Rotation;
use crate::assemble::Ledger;
use crate::clock::mono_ns;
use crate::confine::Needs;
use crate::drain::Record;
use crate::open::{Session, Timer};
use crate::schema::loss::{Cause, Losses};
use crate::tables::thread::Finishing;
use crate::tables::writer::RecordingSize;

/// A part, or the recording, ends without its last readings if they have not arrived after this
/// time.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(2);

/// The parts of a recording.
#[derive(Debug)]
pub(super) struct Parts {
    /// The part that is being recorded.
    pub live: Part,
    /// The next part, during a rotation.
    next: Option<Part>,
    pub marks: Marks,
    canary: Option<Canary>,
    rotation: Option<Rotation>,
    /// The part whose files are being finished.
    finishing: Option<Finishing>,
    /// Disk space for the live part.
    room: Room,
    finished: RecordingSize,
    /// Number of parts that have ended.
    ended: u32,
    /// Losses of the parts before the live one.
    losses: BTreeMap<Cause, u64>,
    timer: Timer,
}

/// The totals of all parts.
#[derive(Debug)]
pub(super) struct Ended {
    pub finished: RecordingSize,
    pub parts: u32,
    pub losses: Losses,
}

impl Parts {
    pub(super) fn new(
        live: Part,
        rotation: Option<Rotation>,
        marks: Marks,
        canary: Option<Canary>,
        timer: Timer,
    ) -> Self {
        Self {
            live,
            next: None,
            marks,
            canary,
            rotation,
            finishing: None,
            room: Room::default(),
            finished: RecordingSize::default(),
            ended: 0,
            losses: BTreeMap::new(),
            timer,
        }
    }

    /// What the thread needs that creates and removes parts.
    pub(super) fn needs(&self) -> Needs {
        self.rotation.as_ref().map(Rotation::needs).unwrap_or_default()
    }

    /// The parts that take records, oldest first.
    pub(super) fn open(&mut self) -> impl Iterator<Item = &mut Part> {
        [Some(&mut self.live), self.next.as_mut()].into_iter().flatten()
    }

    /// Gives a record to all parts that take records.
    pub(super) fn feed(&mut self, record: Record) {
        if let Some(next) = &mut self.next {
            next.timeline.feed(record.clone(), &mut next.sink);
        }
        self.live.timeline.feed(record, &mut self.live.sink);
    }

    /// The ledger for a loss at `time`.
    pub(super) fn ledger(&mut self, time: u64) -> &mut Ledger {
        let part = match &mut self.next {
            Some(next) if next.start_ns <= time => next,
            _ => &mut self.live,
        };
        &mut part.timeline.ledger
    }

    /// Number of rows of `fabric` so far.
    pub(super) fn rows(&self) -> u64 {
        self.finished.rows + self.live.sink.fabric_rows()
    }

    /// The losses so far.
    pub(super) fn losses(&self) -> Losses {
        let mut totals = self.losses.clone();
        add(&mut totals, self.live.timeline.ledger.totals());
        Losses::of(&totals)
    }

    /// Enters the bursts of the canary that have ended, each in the part in which it ended.
    pub(super) fn take_bursts(&mut self) -> Result<()> {
        let ended = self.canary.as_mut().map(Canary::take);
        self.enter(ended.unwrap_or_default())
    }

    /// Ends the last burst of the canary.
    pub(super) fn stop_canary(&mut self) -> Result<()> {
        let ended = self.canary.as_mut().map(Canary::stop);
        self.enter(ended.unwrap_or_default())
    }

    fn enter(&mut self, bursts: Vec<canary::Ended>) -> Result<()> {
        for ended in bursts {
            let is_next = |next: &&mut Part| (next.start_ns as i64) < ended.burst.end_ns;
            let part = self.next.as_mut().filter(is_next).unwrap_or(&mut self.live);
            part.burst(&ended)?;
        }
        Ok(())
    }

    /// Makes the rows so far survive a kill.
    pub(super) fn seal(&mut self) -> Result<()> {
        self.live.seal(&self.marks.taken())
    }

    /// Starts the next part when the live one has reached its time or size, and ends the live one
    /// once it is closed up to its last tick. Records sent until `fed` have been fed.
    pub(super) fn rotate(
        &mut self,
        common: &Common<'_>,
        session: &Session,
        fed: u64,
    ) -> Result<()> {
        let Some(rotation) = &mut self.rotation else { return Ok(()) };
        let sealed = self.live.writer.sealed_bytes();
        if let Some(finishing) = self.finishing.take_if(|finishing| finishing.is_over()) {
            self.finished += finishing.join()?;
            self.room.end_finishing();
            rotation.trim(sealed);
        }
        let options = common.options;
        // A part that the user asked for keeps its limits; only a ring of the agent is limited by
        // its total size.
        if options.tap.is_some() {
            if let Some(room) = self.room.request_space(sealed) {
                rotation.trim(room);
            }
            if self.next.is_none() && self.finishing.is_none() && is_large(sealed, options.keep) {
                options.control.end_part();
            }
        }
        let now = mono_ns() as u64;
        if let Some(next) = &self.next {
            // A recorder that is late has not seen yet what the live part waits for.
            let waited = Duration::from_nanos(fed.saturating_sub(next.start_ns));
            let is_over = self.live.timeline.is_done() || waited > LAST_WAIT;
            return if is_over { self.turn() } else { Ok(()) };
        }
        let plan = common.plan;
        if self.finishing.is_some() || !rotation.is_due(self.live.begin, sealed, &options.control) {
            return Ok(());
        }
        let target = rotation.next_target();
        let about = self.canary.as_ref().map(Canary::about);
        let draft = match Draft::create(target, options, plan, about, Some(self.live.clock)) {
            Err(error) if options.tap.is_some() => {
                rotation.wait(&error);
                return Ok(());
            }
            draft => draft?,
        };
        rotation.has_next();
        // Parts meet at the end of a window, so that each window is in one part.
        let start_tick = (now / plan.window_ns + 1) * plan.window_ns / plan.tick_ns;
        self.live.timeline.stop_at(start_tick);
        self.next = Some(draft.begin(common, session, start_tick)?);
        Ok(())
    }

    /// Ends the live part. The next one becomes live.
    pub(super) fn turn(&mut self) -> Result<()> {
        let Some(next) = self.next.take() else { return Ok(()) };
        let marks = self.marks.turn(next.start_ns as i64);
        let mut last = std::mem::replace(&mut self.live, next);
        last.timeline.give_up(mono_ns() as u64, &mut last.sink);
        self.room.start_finishing(last.writer.sealed_bytes());
        let (finishing, totals) = last.end(&marks, self.timer)?;
        add(&mut self.losses, &totals);
        self.ended += 1;
        self.finishing = Some(finishing);
        Ok(())
    }

    /// Before the recording ends: drops a next part that has not begun, so that the live one goes
    /// on to the end. `true` if no part is left to wait for.
    pub(super) fn is_settled(&mut self) -> bool {
        let now = mono_ns() as u64;
        self.next.take_if(|next| next.start_ns > now);
        self.next.is_none()
    }

    /// Ends the last part and waits for the files of all parts.
    pub(super) fn finish(mut self) -> Result<Ended> {
        let (last, totals) = self.live.end(&self.marks.taken(), self.timer)?;
        add(&mut self.losses, &totals);
        for finishing in self.finishing.into_iter().chain([last]) {
            self.finished += finishing.join()?;
        }
        if let Some(mut rotation) = self.rotation {
            rotation.trim(0);
        }
        let losses = Losses::of(&self.losses);
        Ok(Ended { finished: self.finished, parts: self.ended + 1, losses })
    }
}

/// Adds the losses of a part.
fn add(totals: &mut BTreeMap<Cause, u64>, lost: &BTreeMap<Cause, u64>) {
    for (&cause, count) in lost {
        *totals.entry(cause).or_default() += count;
    }
}
