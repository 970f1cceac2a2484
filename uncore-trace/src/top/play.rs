//! Plays a recording: passes the rows of its tables to the code that shows a running one.
//!
//! Guarantee: one batch of each table is in memory.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Result;
use arrow::array::RecordBatch;

use super::app::{App, PlayRequest};
use crate::clock::TimeSpan;
use crate::schema::columns::i64_column;
use crate::schema::{TableDef, fabric, runtime};
use crate::tables::reader::{Recording, TableScan};
use crate::tables::writer::TablePiece;
use crate::view::live::{FRAMES, RUNTIME_COLUMNS, fabric_columns};
use crate::view::span::SelectedTime;

/// A recording that is played.
#[derive(Debug)]
pub(super) struct Player<'a> {
    recording: &'a Recording,
    span: SelectedTime,
    fabric: Option<UnplayedRows>,
    runtime: Option<UnplayedRows>,
    /// When the last frame was shown.
    shown_at: Instant,
}

impl<'a> Player<'a> {
    /// At the begin of `span`.
    ///
    /// # Errors
    ///
    /// A table cannot be read.
    pub(super) fn new(recording: &'a Recording, span: SelectedTime) -> Result<Self> {
        let (fabric, runtime, shown) = (None, None, Instant::now());
        let mut player = Self { recording, span, fabric, runtime, shown_at: shown };
        player.open_tables(player.span.wanted.clone())?;
        Ok(player)
    }

    /// The time that is played, `CLOCK_MONOTONIC`.
    pub(super) fn played_span(&self) -> TimeSpan<i64> {
        TimeSpan::new(self.span.begin_ns, self.span.end_ns)
    }

    /// The metadata of the recording.
    pub(super) fn metadata_piece(&self) -> Result<TablePiece> {
        Ok(TablePiece::Metadata(
            self.recording.open_table(&fabric::TABLE)?.metadata_pairs().clone(),
        ))
    }

    /// Advances if a frame has been shown for its length, and does what a key asked for. Returns
    /// whether the screen changed.
    pub(super) fn advance_if_due(&mut self, app: &mut App) -> Result<bool> {
        match (app.take_request(), app.live.last_frame_ns()) {
            (Some(PlayRequest::NextFrame), _) => self.next(app),
            (Some(PlayRequest::PreviousFrame), Some((begin_ns, _)))
                if begin_ns > self.span.begin_ns =>
            {
                self.jump_to(app, begin_ns, app.live.longest_ns())
            }
            (Some(PlayRequest::WithFrameLength(frame_ns)), Some((_, end_ns))) => {
                app.live.set_frame(frame_ns);
                self.jump_to(app, end_ns, frame_ns)
            }
            (Some(_), _) => Ok(false),
            (None, _) if app.is_paused() || app.has_ended() => Ok(false),
            (None, _) => {
                let length = Duration::from_nanos(app.live.longest_ns().unsigned_abs());
                if self.shown_at.elapsed() < length { Ok(false) } else { self.next(app) }
            }
        }
    }

    /// Passes rows until a frame is complete; returns whether one is. At the end, it says so.
    pub(super) fn next(&mut self, app: &mut App) -> Result<bool> {
        self.shown_at = Instant::now();
        if self.pass_frame(app)? {
            return Ok(true);
        }
        let is_new = !app.has_ended() && app.live.finish_frame();
        app.set_ended(true);
        Ok(is_new)
    }

    /// Shows the last frames before `to_ns`, which are about this long.
    fn jump_to(&mut self, app: &mut App, to_ns: i64, length_ns: i64) -> Result<bool> {
        // Whole frames, so that the last one is complete.
        let frames = ((to_ns - self.span.begin_ns) / length_ns).min(FRAMES as i64);
        let begin_ns = to_ns - frames * length_ns;
        let begin_ns = if frames == 0 { self.span.begin_ns } else { begin_ns };
        app.live.set_frame(app.frame_ns());
        self.open_tables(begin_ns.saturating_add(1)..=to_ns)?;
        while self.pass_frame(app)? {}
        app.live.finish_frame();
        self.open_tables(to_ns.saturating_add(1)..=*self.span.wanted.end())?;
        app.set_ended(to_ns >= self.span.end_ns);
        self.shown_at = Instant::now();
        Ok(true)
    }

    /// Passes rows until a frame is complete; `false` if there are no more rows.
    fn pass_frame(&mut self, app: &mut App) -> Result<bool> {
        loop {
            let Some(fabric) = &mut self.fabric else { return Ok(false) };
            let Some(next_ns) = fabric.next_ns()? else { return Ok(false) };
            let until_ns = app.live.open_until_ns().map_or(next_ns, |until| until.max(next_ns));
            let shares = fabric.take_until(until_ns);
            if let Some(runtime) = &mut self.runtime {
                while runtime.next_ns()?.is_some_and(|end_ns| end_ns <= until_ns) {
                    app.add_piece(runtime.take_until(until_ns))?;
                }
            }
            if app.add_piece(shares)? {
                return Ok(true);
            }
        }
    }

    /// Opens the tables at the rows that end in this time.
    fn open_tables(&mut self, wanted: RangeInclusive<i64>) -> Result<()> {
        let open_rows =
            |def: &'static TableDef, columns: &[&str]| -> Result<Option<UnplayedRows>> {
                if wanted.is_empty() || !self.recording.has_table(def) {
                    return Ok(None);
                }
                let table = self.recording.open_table(def)?;
                let scan = table.scan_within(columns, "mono_ns", wanted.clone())?;
                Ok(Some(UnplayedRows { def, scan, wanted: wanted.clone(), batch: None }))
            };
        let fabric = open_rows(&fabric::TABLE, &fabric_columns(self.recording))?;
        let runtime = open_rows(&runtime::TABLE, &RUNTIME_COLUMNS)?;
        (self.fabric, self.runtime) = (fabric, runtime);
        Ok(())
    }
}

/// The rows of a table that were not passed yet; both tables are in the order of `mono_ns`.
#[derive(Debug)]
struct UnplayedRows {
    def: &'static TableDef,
    scan: TableScan,
    wanted: RangeInclusive<i64>,
    /// Not empty.
    batch: Option<RecordBatch>,
}

impl UnplayedRows {
    /// `mono_ns` of the next row, `None` after the last.
    fn next_ns(&mut self) -> Result<Option<i64>> {
        loop {
            if let Some(batch) = &self.batch {
                let row_ns = i64_column(batch, "mono_ns")?.values().first().copied();
                return Ok(row_ns.filter(|row_end_ns| row_end_ns <= self.wanted.end()));
            }
            let Some(batch) = self.scan.next().transpose()? else { return Ok(None) };
            let ends = i64_column(&batch, "mono_ns")?.values();
            let first_row = ends.iter().position(|end| end >= self.wanted.start());
            self.batch =
                first_row.map(|first_row| batch.slice(first_row, batch.num_rows() - first_row));
        }
    }

    /// The next rows of the batch that end until `until_ns`.
    fn take_until(&mut self, until_ns: i64) -> TablePiece {
        let Some(batch) = self.batch.take() else {
            return TablePiece::Rows(self.def, RecordBatch::new_empty((self.def.schema)()));
        };
        let until_ns = until_ns.min(*self.wanted.end());
        let later = i64_column(&batch, "mono_ns")
            .ok()
            .and_then(|ends| ends.values().iter().position(|end| *end > until_ns));
        let Some(later) = later else { return TablePiece::Rows(self.def, batch) };
        self.batch = Some(batch.slice(later, batch.num_rows() - later));
        TablePiece::Rows(self.def, batch.slice(0, later))
    }
}
