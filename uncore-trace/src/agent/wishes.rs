//! The time spans of the ring that are to be saved, from the trigger or request until they are
//! saved.
//!
//! Guarantees: a span is saved once the finished parts of the ring cover its end, so that the time
//! after the trigger is in it; spans that still wait when the recording ends are saved as far as it
//! goes; one span is saved at a time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use arrow::array::RecordBatch;

use super::http::Shared;
use super::keep::{Keeping, Wish};
use super::trigger::{Condition, Watch};
use crate::clock::mono_ns;
use crate::config::{Config, Kept, Ring, Trigger};
use crate::record::Control;
use crate::schema::columns;

/// Name of a recording that was saved on request, if no trigger has another one.
const ASKED: &str = "asked";

/// Time before and after a request that is saved, if no trigger says how much.
const AROUND: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));

/// A trigger and its state.
#[derive(Debug)]
struct Watched {
    trigger: Trigger,
    watch: Option<Watch>,
    /// When it last asked for a span to be saved.
    last: Option<Instant>,
}

/// A span that waits for the end of the part that contains its own end.
#[derive(Debug)]
struct Due {
    name: String,
    from: i64,
    to: i64,
    /// Whether the recorder was told to end the part.
    is_ended: bool,
}

/// Triggers, waiting spans and the span that is being saved.
#[derive(Debug)]
pub(super) struct Wishes {
    ring: Option<Ring>,
    kept: Kept,
    triggers: Vec<Watched>,
    due: Vec<Due>,
    keeping: Option<Keeping>,
    /// When a request by signal or HTTP was last accepted.
    asked_last: Option<Instant>,
    /// Id of the boot that is recorded.
    boot: String,
    /// End of the newest window of each part that is being recorded, `CLOCK_MONOTONIC`, ns.
    reached: BTreeMap<u32, i64>,
    /// End of the newest window in the finished parts, `CLOCK_MONOTONIC`, ns.
    finished_to: i64,
    control: Control,
    shared: Arc<Shared>,
    /// Number of recordings saved.
    pub done: u64,
    /// Number of requests and triggers that were refused or failed.
    pub refused: u64,
}

impl Wishes {
    /// The triggers of `config` with their conditions, in the same order.
    pub(super) fn new(
        config: &Config,
        conditions: Vec<Option<Condition>>,
        shared: Arc<Shared>,
        control: Control,
    ) -> Self {
        let triggers = config.triggers.iter().cloned().zip(conditions);
        let triggers = triggers.map(|(trigger, condition)| Watched {
            trigger,
            watch: condition.map(Watch::new),
            last: None,
        });
        Self {
            ring: config.ring.clone(),
            kept: config.kept.clone(),
            triggers: triggers.collect(),
            due: Vec::new(),
            keeping: None,
            asked_last: None,
            boot: String::new(),
            reached: BTreeMap::new(),
            finished_to: i64::MIN,
            control,
            shared,
            done: 0,
            refused: 0,
        }
    }

    /// Applies the keys `kept.*` of a new configuration.
    pub(super) fn set_kept(&mut self, kept: Kept) {
        self.kept = kept;
        self.show_pause();
    }

    /// Sets the id of the boot that is recorded.
    pub(super) fn set_boot(&mut self, boot: String) {
        self.boot = boot;
    }

    /// Notes the end of the newest window in these rows of `fabric`.
    ///
    /// # Errors
    ///
    /// The batch has not the columns of the table.
    pub(super) fn fabric(&mut self, part: u32, rows: &RecordBatch) -> Result<()> {
        if let Some(&newest) = columns::i64s(rows, "mono_ns")?.values().iter().max() {
            let reached = self.reached.entry(part).or_insert(newest);
            *reached = newest.max(*reached);
        }
        Ok(())
    }

    /// A part has ended; `is_whole`: all its files are finished.
    pub(super) fn end(&mut self, part: u32, is_whole: bool) {
        if let Some(reached) = self.reached.remove(&part)
            && is_whole
        {
            self.finished_to = self.finished_to.max(reached);
        }
    }

    /// Evaluates the conditions on rows of `readings`.
    ///
    /// # Errors
    ///
    /// The batch has not the columns of the table.
    pub(super) fn readings(&mut self, rows: &RecordBatch) -> Result<()> {
        for at in 0..self.triggers.len() {
            let Some(watch) = &mut self.triggers[at].watch else { continue };
            if let Some(time) = watch.readings(rows)? {
                self.fire(at, time);
            }
        }
        Ok(())
    }

    /// A condition came true at `time`, `CLOCK_MONOTONIC`, ns.
    fn fire(&mut self, at: usize, time: i64) {
        let watched = &mut self.triggers[at];
        if watched.last.is_some_and(|last| last.elapsed() < self.kept.pause) {
            self.refused += 1;
            return;
        }
        watched.last = Some(Instant::now());
        let Trigger { name, before, after, .. } = watched.trigger.clone();
        log::info!("trigger {name}: the condition came true; the ring will be saved");
        self.due(name, time, (before, after));
    }

    /// A request to save the newest time span of the ring.
    pub(super) fn ask(&mut self) {
        if self.ring.is_none() {
            log::warn!(
                "asked to save the ring, but there is none: add [ring] to the configuration"
            );
            return;
        }
        if self.asked_last.is_some_and(|last| last.elapsed() < self.kept.pause) {
            self.refused += 1;
            log::warn!("asked to save the ring again within kept.pause: nothing is saved");
            return;
        }
        self.asked_last = Some(Instant::now());
        self.show_pause();
        let by_hand = self.triggers.iter().find(|watched| watched.watch.is_none());
        let (name, around) = by_hand.map_or_else(
            || (ASKED.to_owned(), AROUND),
            |its| (its.trigger.name.clone(), (its.trigger.before, its.trigger.after)),
        );
        self.due(name, mono_ns(), around);
    }

    /// Tells the HTTP server until when it must refuse requests.
    fn show_pause(&self) {
        self.shared.pause_until(self.asked_last.and_then(|last| last.checked_add(self.kept.pause)));
    }

    fn due(&mut self, name: String, time: i64, (before, after): (Duration, Duration)) {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let (from, to) = (time.saturating_sub(ns(before)), time.saturating_add(ns(after)));
        self.due.push(Due { name, from, to, is_ended: false });
    }

    /// Ends the current part when the end of a waiting span is over, and saves the span once that
    /// part is finished. At the end of the recording all parts are finished, and all waiting spans
    /// are saved.
    pub(super) fn look(&mut self, is_end: bool) {
        let now = mono_ns();
        let (mut still, due) = (Vec::new(), std::mem::take(&mut self.due));
        for mut due in due {
            if !due.is_ended && now >= due.to {
                due.is_ended = true;
                self.control.end_part();
            }
            // Frees the place of the span that was being saved, so that this one can follow.
            self.take_kept(is_end);
            let has_all = self.finished_to >= due.to;
            if !(has_all || is_end) || self.keeping.is_some() {
                still.push(due);
                continue;
            }
            if !has_all {
                log::warn!(
                    "trigger {}: the recording ends before the time that is to be saved",
                    due.name
                );
            }
            self.keep(due);
        }
        self.due = still;
        self.take_kept(is_end);
    }

    fn keep(&mut self, due: Due) {
        let Some(ring) = &self.ring else { return };
        let Due { name, from, to, .. } = due;
        let names = self.triggers.iter().map(|its| its.trigger.name.clone());
        let wish = Wish {
            kept: kept_directory(&self.kept, ring),
            ring: ring.directory.clone(),
            boot: self.boot.clone(),
            name: name.clone(),
            from,
            to,
            mode: ring.mode,
            quota: self.kept.quota,
            names: names.chain([ASKED.to_owned()]).collect(),
        };
        match Keeping::start(wish) {
            Ok(keeping) => self.keeping = Some(keeping),
            Err(error) => self.not_kept(&name, &error),
        }
    }

    /// Logs the result of the span that was being saved, if it is known or `does_wait` is set.
    fn take_kept(&mut self, does_wait: bool) {
        let Some(keeping) = self.keeping.take_if(|its| does_wait || its.is_over()) else { return };
        let name = keeping.name.clone();
        match keeping.join() {
            Ok(path) => {
                self.done += 1;
                log::info!("trigger {name}: saved {}", path.display());
            }
            Err(error) => self.not_kept(&name, &error),
        }
    }

    fn not_kept(&mut self, name: &str, error: &Error) {
        self.refused += 1;
        log::warn!("trigger {name}: cannot save the ring: {error:#}");
    }
}

/// The directory of saved recordings.
pub(super) fn kept_directory(kept: &Kept, ring: &Ring) -> PathBuf {
    kept.directory.clone().unwrap_or_else(|| ring.directory.join("kept"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Asked;
    use super::super::sample::fabric;
    use super::*;

    const MS: i64 = 1_000_000;

    fn wishes(root: &std::path::Path) -> Wishes {
        let text = format!("[ring]\ndirectory = '{}'\n", root.display());
        let config = Config::parse(&text).unwrap();
        let shared = Arc::new(Shared::new(Asked::default(), &config).unwrap());
        Wishes::new(&config, Vec::new(), shared, Control::default())
    }

    #[test]
    fn a_wish_waits_for_the_part_that_has_its_end() {
        let place = tempfile::tempdir().unwrap();
        let mut wishes = wishes(place.path());
        wishes.due("a".to_owned(), 100 * MS, (Duration::from_millis(50), Duration::from_millis(5)));
        // A part that ended before the trigger is finished only now, and a part whose files are
        // lost covers its end.
        wishes.fabric(0, &fabric(&[90 * MS])).unwrap();
        wishes.fabric(1, &fabric(&[110 * MS])).unwrap();
        wishes.end(0, true);
        wishes.end(1, false);
        wishes.look(false);
        assert_eq!((wishes.due.len(), wishes.refused), (1, 0));
        wishes.fabric(2, &fabric(&[104 * MS])).unwrap();
        wishes.fabric(2, &fabric(&[95 * MS, 105 * MS])).unwrap();
        wishes.look(false);
        assert_eq!((wishes.due.len(), wishes.refused), (1, 0));
        // This ring is empty, so nothing can be saved; that is found out now.
        wishes.end(2, true);
        wishes.look(false);
        assert_eq!((wishes.due.len(), wishes.refused), (0, 1));
    }

    #[test]
    fn what_is_due_when_the_recording_ends_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let mut wishes = wishes(place.path());
        wishes.due("a".to_owned(), i64::MAX, AROUND);
        wishes.look(true);
        assert_eq!((wishes.due.len(), wishes.refused), (0, 1));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
