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

use super::http::HttpState;
use super::saved_span::{SavingSpan, SpanToSave};
use super::trigger::{Condition, ConditionWatch};
use crate::clock::{duration_ns, mono_ns};
use crate::config::{Config, KeptConfig, RingConfig, SpanAround, TriggerConfig};
use crate::record::RecorderControl;
use crate::schema::columns;

/// Name of a recording that was saved on request, if no trigger has another one.
const REQUESTED: &str = "asked";

/// Time before and after a request that is saved, if no trigger says how much.
const REQUESTED_SPAN: SpanAround =
    SpanAround { before: Duration::from_secs(30), after: Duration::from_secs(5) };

/// A trigger and its state.
#[derive(Debug)]
struct WatchedTrigger {
    trigger: TriggerConfig,
    watch: Option<ConditionWatch>,
    /// When it last asked for a span to be saved.
    last_asked: Option<Instant>,
}

/// A span that waits for the end of the part that contains its own end.
#[derive(Debug)]
struct DueSpan {
    name: String,
    begin_ns: i64,
    end_ns: i64,
    /// Whether the recorder was told to end the part.
    is_ended: bool,
}

/// Triggers, waiting spans and the span that is being saved.
#[derive(Debug)]
pub(super) struct SpanSaver {
    ring: Option<RingConfig>,
    kept: KeptConfig,
    triggers: Vec<WatchedTrigger>,
    due: Vec<DueSpan>,
    saving: Option<SavingSpan>,
    /// When a request by signal or HTTP was last accepted.
    accepted_at: Option<Instant>,
    /// Id of the boot that is recorded.
    pub(super) boot_id: String,
    /// End of the newest window of each part that is being recorded, `CLOCK_MONOTONIC`, ns.
    reached: BTreeMap<u32, i64>,
    /// End of the newest window in the finished parts, `CLOCK_MONOTONIC`, ns.
    finished_to: i64,
    control: RecorderControl,
    shared: Arc<HttpState>,
    /// Number of recordings saved.
    pub saved: u64,
    /// Number of requests and triggers that were refused or failed.
    pub refused: u64,
}

impl SpanSaver {
    /// The triggers of `config` with their conditions, in the same order.
    pub(super) fn new(
        config: &Config,
        conditions: Vec<Option<Condition>>,
        shared: Arc<HttpState>,
        control: RecorderControl,
    ) -> Self {
        let triggers = config.triggers.iter().cloned().zip(conditions);
        let triggers = triggers.map(|(trigger, condition)| WatchedTrigger {
            trigger,
            watch: condition.map(ConditionWatch::new),
            last_asked: None,
        });
        Self {
            ring: config.ring.clone(),
            kept: config.kept.clone(),
            triggers: triggers.collect(),
            due: Vec::new(),
            saving: None,
            accepted_at: None,
            boot_id: String::new(),
            reached: BTreeMap::new(),
            finished_to: i64::MIN,
            control,
            shared,
            saved: 0,
            refused: 0,
        }
    }

    /// Applies the keys `kept.*` of a new configuration.
    pub(super) fn set_kept(&mut self, kept: KeptConfig) {
        self.kept = kept;
        self.show_pause();
    }

    /// Remembers the end of the newest window in these rows of `fabric`.
    ///
    /// # Errors
    ///
    /// The batch has not the columns of the table.
    pub(super) fn note_windows(&mut self, part_id: u32, rows: &RecordBatch) -> Result<()> {
        if let Some(&newest) = columns::i64_column(rows, "mono_ns")?.values().iter().max() {
            let reached = self.reached.entry(part_id).or_insert(newest);
            *reached = newest.max(*reached);
        }
        Ok(())
    }

    /// A part of the ring has ended; `is_whole` says that all its files are finished.
    pub(super) fn end_part(&mut self, part_id: u32, is_whole: bool) {
        if let Some(reached) = self.reached.remove(&part_id)
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
    pub(super) fn evaluate_conditions(&mut self, rows: &RecordBatch) -> Result<()> {
        for trigger in 0..self.triggers.len() {
            let Some(watch) = &mut self.triggers[trigger].watch else { continue };
            if let Some(time) = watch.add_readings(rows)? {
                self.fire_trigger(trigger, time);
            }
        }
        Ok(())
    }

    /// A condition came true at `time`, `CLOCK_MONOTONIC`, ns.
    fn fire_trigger(&mut self, trigger_index: usize, true_at_ns: i64) {
        let watched = &mut self.triggers[trigger_index];
        if watched.last_asked.is_some_and(|asked_at| asked_at.elapsed() < self.kept.pause) {
            self.refused += 1;
            return;
        }
        watched.last_asked = Some(Instant::now());
        let (name, span_around) = (watched.trigger.name.clone(), watched.trigger.span_around());
        log::info!("trigger {name}: the condition became true; the ring will be saved");
        self.add_due_span(name, true_at_ns, span_around);
    }

    /// Serves a request to save the newest time span of the ring.
    pub(super) fn request_save(&mut self) {
        if self.ring.is_none() {
            log::warn!("cannot save the ring: there is none; add [ring] to the configuration");
            return;
        }
        if self.accepted_at.is_some_and(|accepted| accepted.elapsed() < self.kept.pause) {
            self.refused += 1;
            log::warn!("the ring is not saved again: it was saved less than kept.pause ago");
            return;
        }
        self.accepted_at = Some(Instant::now());
        self.show_pause();
        let by_hand = self.triggers.iter().find(|watched| watched.watch.is_none());
        let (name, span_around) = by_hand.map_or_else(
            || (REQUESTED.to_owned(), REQUESTED_SPAN),
            |manual| (manual.trigger.name.clone(), manual.trigger.span_around()),
        );
        self.add_due_span(name, mono_ns(), span_around);
    }

    /// Tells the HTTP server until when it must refuse requests.
    fn show_pause(&self) {
        self.shared.pause_until(
            self.accepted_at.and_then(|asked_at| asked_at.checked_add(self.kept.pause)),
        );
    }

    fn add_due_span(&mut self, name: String, true_at_ns: i64, span_around: SpanAround) {
        let begin_ns = true_at_ns.saturating_sub(duration_ns(span_around.before));
        let end_ns = true_at_ns.saturating_add(duration_ns(span_around.after));
        self.due.push(DueSpan { name, begin_ns, end_ns, is_ended: false });
    }

    /// Ends the current part when the end of a waiting span is over, and saves the span once that
    /// part is finished. At the end of the recording all parts are finished, and all waiting spans
    /// are saved.
    pub(super) fn save_due_spans(&mut self, is_end: bool) {
        let now_ns = mono_ns();
        let (mut still_due, due) = (Vec::new(), std::mem::take(&mut self.due));
        for mut due in due {
            if !due.is_ended && now_ns >= due.end_ns {
                due.is_ended = true;
                self.control.end_part();
            }
            // Frees the place of the span that was being saved, so that this one can follow.
            self.finish_saving(is_end);
            let has_all = self.finished_to >= due.end_ns;
            if !(has_all || is_end) || self.saving.is_some() {
                still_due.push(due);
                continue;
            }
            if !has_all {
                log::warn!(
                    "trigger {}: the recording ends before the end of the span that the trigger \
                     saves",
                    due.name
                );
            }
            self.start_saving(due);
        }
        self.due = still_due;
        self.finish_saving(is_end);
    }

    fn start_saving(&mut self, due: DueSpan) {
        let Some(ring) = &self.ring else { return };
        let DueSpan { name, begin_ns, end_ns, .. } = due;
        let names = self.triggers.iter().map(|watched| watched.trigger.name.clone());
        let wish = SpanToSave {
            kept: kept_directory(&self.kept, ring),
            ring: ring.directory.clone(),
            boot_id: self.boot_id.clone(),
            name: name.clone(),
            begin_ns,
            end_ns,
            mode: ring.mode,
            quota: self.kept.quota,
            names: names.chain([REQUESTED.to_owned()]).collect(),
        };
        match SavingSpan::start_saving(wish) {
            Ok(keeping) => self.saving = Some(keeping),
            Err(error) => self.count_failure(&name, &error),
        }
    }

    /// Logs the result of the span that was being saved, if it is known or `waits` is set.
    fn finish_saving(&mut self, waits: bool) {
        let Some(keeping) = self.saving.take_if(|saving| waits || saving.is_over()) else { return };
        let name = keeping.name.clone();
        match keeping.join_saving() {
            Ok(path) => {
                self.saved += 1;
                log::info!("trigger {name}: saved {}", path.display());
            }
            Err(error) => self.count_failure(&name, &error),
        }
    }

    fn count_failure(&mut self, name: &str, error: &Error) {
        self.refused += 1;
        log::warn!("trigger {name}: cannot save the ring: {error:#}");
    }
}

/// The directory of saved recordings.
pub(super) fn kept_directory(kept: &KeptConfig, ring: &RingConfig) -> PathBuf {
    kept.directory.clone().unwrap_or_else(|| ring.directory.join("kept"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::PendingRequests;
    use super::super::sample::sample_fabric;
    use super::*;

    const MS: i64 = 1_000_000;

    fn wishes(root: &std::path::Path) -> SpanSaver {
        let text = format!("[ring]\ndirectory = '{}'\n", root.display());
        let config = Config::parse(&text).unwrap();
        let shared = Arc::new(HttpState::new(PendingRequests::default(), &config).unwrap());
        SpanSaver::new(&config, Vec::new(), shared, RecorderControl::default())
    }

    #[test]
    fn a_wish_waits_for_the_part_that_has_its_end() {
        let place = tempfile::tempdir().unwrap();
        let mut wishes = wishes(place.path());
        wishes.add_due_span(
            "a".to_owned(),
            100 * MS,
            SpanAround { before: Duration::from_millis(50), after: Duration::from_millis(5) },
        );
        // A part that ended before the trigger is finished only now, and a part whose files are
        // lost covers its end.
        wishes.note_windows(0, &sample_fabric(&[90 * MS])).unwrap();
        wishes.note_windows(1, &sample_fabric(&[110 * MS])).unwrap();
        wishes.end_part(0, true);
        wishes.end_part(1, false);
        wishes.save_due_spans(false);
        assert_eq!((wishes.due.len(), wishes.refused), (1, 0));
        wishes.note_windows(2, &sample_fabric(&[104 * MS])).unwrap();
        wishes.note_windows(2, &sample_fabric(&[95 * MS, 105 * MS])).unwrap();
        wishes.save_due_spans(false);
        assert_eq!((wishes.due.len(), wishes.refused), (1, 0));
        // This ring is empty, so nothing can be saved; that is found out now.
        wishes.end_part(2, true);
        wishes.save_due_spans(false);
        assert_eq!((wishes.due.len(), wishes.refused), (0, 1));
    }

    #[test]
    fn a_span_that_is_due_at_the_end_of_the_recording_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let mut wishes = wishes(place.path());
        wishes.add_due_span("a".to_owned(), i64::MAX, REQUESTED_SPAN);
        wishes.save_due_spans(true);
        assert_eq!((wishes.due.len(), wishes.refused), (0, 1));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
