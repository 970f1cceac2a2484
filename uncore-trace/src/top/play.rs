//! Plays a recording: passes the rows of its tables to the code that shows a running one.
//!
//! Guarantee: one batch of each table is in memory.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Result;
use arrow::array::RecordBatch;

use super::app::{App, Wish};
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
    fabric: Option<Rows>,
    runtime: Option<Rows>,
    /// When the last frame was shown.
    shown: Instant,
}

impl<'a> Player<'a> {
    /// At the begin of `span`.
    ///
    /// # Errors
    ///
    /// A table cannot be read.
    pub(super) fn new(recording: &'a Recording, span: SelectedTime) -> Result<Self> {
        let (fabric, runtime, shown) = (None, None, Instant::now());
        let mut player = Self { recording, span, fabric, runtime, shown };
        player.open(player.span.wanted.clone())?;
        Ok(player)
    }

    /// Begin and end of what is played, `CLOCK_MONOTONIC`, ns.
    pub(super) fn span_ns(&self) -> (i64, i64) {
        (self.span.begin_ns, self.span.end_ns)
    }

    /// The metadata of the recording.
    pub(super) fn metadata(&self) -> Result<TablePiece> {
        Ok(TablePiece::Metadata(self.recording.open_table(&fabric::TABLE)?.metadata_pairs().clone()))
    }

    /// Goes on if a frame has been shown for its length, and does what a key asked for. Returns whether the
    /// screen changed.
    pub(super) fn go_on(&mut self, app: &mut App) -> Result<bool> {
        let last = app.live.last_frame_ns();
        match (app.take_wish(), last) {
            (Some(Wish::Next), _) => self.next(app),
            (Some(Wish::Back), Some((begin_ns, _))) if begin_ns > self.span.begin_ns => {
                self.jump(app, begin_ns, app.live.longest_ns())
            }
            (Some(Wish::Again(frame_ns)), Some((_, end_ns))) => {
                app.live.set_frame(frame_ns);
                self.jump(app, end_ns, frame_ns)
            }
            (Some(_), _) => Ok(false),
            (None, _) if app.is_paused() || app.has_ended() => Ok(false),
            (None, _) => {
                let length = Duration::from_nanos(app.live.longest_ns().unsigned_abs());
                if self.shown.elapsed() < length { Ok(false) } else { self.next(app) }
            }
        }
    }

    /// Passes rows until a frame is complete; returns whether one is. At the end, it says so.
    pub(super) fn next(&mut self, app: &mut App) -> Result<bool> {
        self.shown = Instant::now();
        if self.frame(app)? {
            return Ok(true);
        }
        let is_new = !app.has_ended() && app.live.finish_frame();
        app.set_ended(true);
        Ok(is_new)
    }

    /// Shows the last frames before `to_ns`, which are about this long.
    fn jump(&mut self, app: &mut App, to_ns: i64, length_ns: i64) -> Result<bool> {
        // Whole frames, so that the last one is complete.
        let frames = ((to_ns - self.span.begin_ns) / length_ns).min(FRAMES as i64);
        let begin_ns = to_ns - frames * length_ns;
        let begin_ns = if frames == 0 { self.span.begin_ns } else { begin_ns };
        app.live.set_frame(app.frame_ns());
        self.open(begin_ns.saturating_add(1)..=to_ns)?;
        while self.frame(app)? {}
        app.live.finish_frame();
        self.open(to_ns.saturating_add(1)..=*self.span.wanted.end())?;
        app.set_ended(to_ns >= self.span.end_ns);
        self.shown = Instant::now();
        Ok(true)
    }

    /// Passes rows until a frame is complete; `false` if there are no more rows.
    fn frame(&mut self, app: &mut App) -> Result<bool> {
        loop {
            let Some(fabric) = &mut self.fabric else { return Ok(false) };
            let Some(next_ns) = fabric.next_ns()? else { return Ok(false) };
            let until_ns = app.live.open_until_ns().map_or(next_ns, |until| until.max(next_ns));
            let shares = fabric.until(until_ns);
            if let Some(runtime) = &mut self.runtime {
                while runtime.next_ns()?.is_some_and(|end_ns| end_ns <= until_ns) {
                    app.take(runtime.until(until_ns))?;
                }
            }
            if app.take(shares)? {
                return Ok(true);
            }
        }
    }

    /// Goes to the rows that end in this time.
    fn open(&mut self, wanted: RangeInclusive<i64>) -> Result<()> {
        let open = |def: &'static TableDef, columns: &[&str]| -> Result<Option<Rows>> {
            if wanted.is_empty() || !self.recording.list_tables().iter().any(|its| its.name == def.name)
            {
                return Ok(None);
            }
            let table = self.recording.open_table(def)?;
            let scan = table.scan_within(columns, "mono_ns", wanted.clone())?;
            Ok(Some(Rows { def, scan, wanted: wanted.clone(), batch: None }))
        };
        let fabric = open(&fabric::TABLE, &fabric_columns(self.recording))?;
        let runtime = open(&runtime::TABLE, &RUNTIME_COLUMNS)?;
        (self.fabric, self.runtime) = (fabric, runtime);
        Ok(())
    }
}

/// The rows of a table that were not passed yet; both tables are in the order of `mono_ns`.
#[derive(Debug)]
struct Rows {
    def: &'static TableDef,
    scan: TableScan,
    wanted: RangeInclusive<i64>,
    /// Not empty.
    batch: Option<RecordBatch>,
}

impl Rows {
    /// `mono_ns` of the next row, `None` after the last.
    fn next_ns(&mut self) -> Result<Option<i64>> {
        loop {
            if let Some(batch) = &self.batch {
                let next = i64_column(batch, "mono_ns")?.values().first().copied();
                return Ok(next.filter(|next| next <= self.wanted.end()));
            }
            let Some(batch) = self.scan.next().transpose()? else { return Ok(None) };
            let ends = i64_column(&batch, "mono_ns")?.values();
            let first = ends.iter().position(|end| end >= self.wanted.start());
            self.batch = first.map(|first| batch.slice(first, batch.num_rows() - first));
        }
    }

    /// The next rows of the batch that end until then.
    fn until(&mut self, until_ns: i64) -> TablePiece {
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
