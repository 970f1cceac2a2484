//! The parts of a recording that take records: the live one, and for a moment the one after it.
//!
//! Where one part ends and the next begins, both take what is drained until the first is closed up to
//! its last tick; each keeps what is of its own time. Then the thread of the first finishes its files.
//! Guarantee: one part at a time is finished, so that what waits for a slow disk is bounded: until it
//! is, the live part goes on beyond its time or size.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

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
use crate::tables::writer::Finished;

/// After this long without the last readings a part, or the recording, ends without them.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(super) struct Parts {
    /// The part that is recorded.
    pub live: Part,
    /// The part that begins where the live one ends, until that is closed.
    next: Option<Part>,
    pub marks: Marks,
    rotation: Option<Rotation>,
    /// A part whose files are being finished.
    finishing: Option<Finishing>,
    /// Room on the disk for what is recorded.
    room: Room,
    finished: Finished,
    /// How many parts are over.
    ended: u32,
    /// What was lost in the parts before the live one.
    losses: BTreeMap<Cause, u64>,
    timer: Timer,
}

/// What all parts amount to.
#[derive(Debug)]
pub(super) struct Ended {
    pub finished: Finished,
    pub parts: u32,
    pub losses: Losses,
}

impl Parts {
    pub(super) fn new(live: Part, rotation: Option<Rotation>, marks: Marks, timer: Timer) -> Self {
        Self {
            live,
            next: None,
            marks,
            rotation,
            finishing: None,
            room: Room::default(),
            finished: Finished::default(),
            ended: 0,
            losses: BTreeMap::new(),
            timer,
        }
    }

    /// What the thread needs that makes and removes parts.
    pub(super) fn needs(&self) -> Needs {
        self.rotation.as_ref().map(Rotation::needs).unwrap_or_default()
    }

    /// Those that take records, the older one first.
    pub(super) fn open(&mut self) -> impl Iterator<Item = &mut Part> {
        [Some(&mut self.live), self.next.as_mut()].into_iter().flatten()
    }

    /// Takes a record.
    pub(super) fn feed(&mut self, record: Record) {
        if let Some(next) = &mut self.next {
            next.timeline.feed(record.clone(), &mut next.sink);
        }
        self.live.timeline.feed(record, &mut self.live.sink);
    }

    /// Where what happened at `time` is noted.
    pub(super) fn ledger(&mut self, time: u64) -> &mut Ledger {
        let part = match &mut self.next {
            Some(next) if next.start_ns <= time => next,
            _ => &mut self.live,
        };
        &mut part.timeline.ledger
    }

    /// Rows of `fabric` so far.
    pub(super) fn rows(&self) -> u64 {
        self.finished.rows + self.live.sink.fabric_rows()
    }

    /// What was lost so far.
    pub(super) fn losses(&self) -> Losses {
        let mut totals = self.losses.clone();
        add(&mut totals, self.live.timeline.ledger.totals());
        Losses::of(&totals)
    }

    /// Makes the rows so far survive a kill.
    pub(super) fn seal(&mut self) -> Result<()> {
        self.live.seal(&self.marks.taken())
    }

    /// Goes on in the next part when the live one has its time or its size, and ends the live one once
    /// all of it is closed.
    pub(super) fn rotate(&mut self, common: &Common<'_>, session: &Session) -> Result<()> {
        let Some(rotation) = &mut self.rotation else { return Ok(()) };
        let sealed = self.live.writer.sealed_bytes();
        if let Some(finishing) = self.finishing.take_if(|finishing| finishing.is_over()) {
            self.finished += finishing.join()?;
            self.room.is_finished();
            rotation.trim(sealed);
        }
        let options = common.options;
        // A recording that is asked for has the parts that were asked for; the agent's ring has its size.
        if options.tap.is_some() {
            if let Some(room) = self.room.make(sealed) {
                rotation.trim(room);
            }
            if self.next.is_none() && self.finishing.is_none() && is_large(sealed, options.keep) {
                options.control.end_part();
            }
        }
        let now = mono_ns() as u64;
        if let Some(next) = &self.next {
            let waited = Duration::from_nanos(now.saturating_sub(next.start_ns));
            let is_over = self.live.timeline.is_done() || waited > LAST_WAIT;
            return if is_over { self.turn() } else { Ok(()) };
        }
        let plan = common.plan;
        if self.finishing.is_some() || !rotation.is_due(self.live.begin, sealed, &options.control) {
            return Ok(());
        }
        let target = rotation.next_target();
        let draft = match Draft::create(target, options, plan, Some(self.live.clock)) {
            Err(error) if options.tap.is_some() => {
                rotation.wait(&error);
                return Ok(());
            }
            draft => draft?,
        };
        rotation.has_next();
        // A window is in one part.
        let start_tick = (now / plan.window_ns + 1) * plan.window_ns / plan.tick_ns;
        self.live.timeline.stop_at(start_tick);
        self.next = Some(draft.begin(common, session, start_tick)?);
        Ok(())
    }

    /// Ends the live part; the next one is live from here.
    pub(super) fn turn(&mut self) -> Result<()> {
        let Some(next) = self.next.take() else { return Ok(()) };
        let marks = self.marks.turn(next.start_ns as i64);
        let mut last = std::mem::replace(&mut self.live, next);
        last.timeline.give_up(mono_ns() as u64, &mut last.sink);
        self.room.finishes(last.writer.sealed_bytes());
        let (finishing, totals) = last.end(&marks, self.timer)?;
        add(&mut self.losses, &totals);
        self.ended += 1;
        self.finishing = Some(finishing);
        Ok(())
    }

    /// Before the recording ends: gives up a part that has not begun, as the live one goes on to the
    /// end. `true` if none is left to wait for.
    pub(super) fn is_settled(&mut self) -> bool {
        let now = mono_ns() as u64;
        self.next.take_if(|next| next.start_ns > now);
        self.next.is_none()
    }

    /// Ends the last part and waits for the files of all.
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

/// Adds what was lost in a part.
fn add(totals: &mut BTreeMap<Cause, u64>, lost: &BTreeMap<Cause, u64>) {
    for (&cause, count) in lost {
        *totals.entry(cause).or_default() += count;
    }
}
