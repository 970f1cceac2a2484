//! Which columns of a report's tables fit a width, and how wide names may be.
//!
//! Guarantee: what a report is asked for (the name, value, share and confidence of each line) is
//! never left out.

use super::render::Style;
use crate::table::{self, draw};
use crate::terminal::{cells, mark};

/// What a column shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Who the owner is: a task, an interrupt.
    Owner,
    /// What the lines are by.
    Name,
    /// Sum of the values.
    Value,
    /// From where to where the truth lies.
    Interval,
    /// Average rate.
    Average,
    /// Highest rate of a window.
    Peak,
    /// Part of the total.
    Share,
    /// Average and lowest confidence.
    Confidence,
    /// How the shares were made.
    Method,
    /// Part of the time the counter was running.
    Running,
    /// Rows without a value.
    Missing,
    /// Begin of activity.
    From,
    /// End of activity.
    To,
    /// The line over time.
    Time,
    /// The rate in the first of two recordings.
    Before,
    /// The rate in the second.
    After,
    /// How much more that is.
    Difference,
    /// The second by the first.
    Ratio,
    /// Whether the difference is larger than the error.
    Change,
    /// How many windows, in each of two cases.
    Windows,
    /// The tenant's own rate in each.
    Own,
    /// That of the others.
    Others,
}

impl Kind {
    /// What a person calls it, where it is not shown.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Name => "name",
            Self::Value => "value",
            Self::Interval => "90 % interval",
            Self::Average => "average",
            Self::Peak => "peak",
            Self::Share => "share",
            Self::Confidence => "confidence",
            Self::Method => "method",
            Self::Running => "running",
            Self::Missing => "missing",
            Self::From => "from",
            Self::To => "to",
            Self::Time => "time line",
            Self::Before => "before",
            Self::After => "after",
            Self::Difference => "difference",
            Self::Ratio => "ratio",
            Self::Change => "change",
            Self::Windows => "windows",
            Self::Own => "own rate",
            Self::Others => "others' rate",
        }
    }

    /// How it gives way. `noted`: it shows something out of the ordinary, here that values are missing or counters
    /// were multiplexed.
    const fn fit(self, noted: bool) -> table::Fit {
        use table::Fit::{Count, Drop, Number, Shorten, Whole};
        match self {
            Self::Name => Shorten,
            Self::Change => Whole,
            Self::Value
            | Self::Share
            | Self::Confidence
            | Self::Before
            | Self::After
            | Self::Difference => Number,
            // The values above it are too small.
            Self::Missing if noted => Count(11),
            // A bill needs it.
            Self::Interval => Count(10),
            Self::Time => Drop(9),
            Self::Running if noted => Count(8),
            Self::Average | Self::Ratio => Count(7),
            Self::Peak | Self::Windows => Count(6),
            Self::Method => Drop(5),
            Self::Own => Count(5),
            Self::From | Self::Others => Count(4),
            Self::To => Count(3),
            Self::Owner => Drop(2),
            Self::Running => Count(1),
            Self::Missing => Count(0),
        }
    }
}

/// A column of one table.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) kind: Kind,
    pub(super) head: String,
    /// The unit of its numbers, below its head; empty: none.
    pub(super) unit: String,
    /// Its text in each line.
    pub(super) cells: Vec<String>,
    /// It shows something out of the ordinary.
    pub(super) noted: bool,
}

impl Column {
    /// As it is drawn; `units`: there is a line for the units.
    fn drawn(&self, units: bool) -> table::Column {
        let Self { kind, head, unit, cells, noted } = self;
        let head = if units { format!("{head}\n{unit}") } else { head.clone() };
        table::Column { head, fit: kind.fit(*noted), cells: cells.clone() }
    }
}

/// The columns of one table as they are drawn.
fn drawn(columns: &[Column]) -> Vec<table::Column> {
    let units = columns.iter().any(|column| !column.unit.is_empty());
    columns.iter().map(|column| column.drawn(units)).collect()
}

/// What fits.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    /// Cells of each column; `None`: there is no room for it.
    widths: Vec<Option<usize>>,
    /// What there is no room for.
    pub(super) hidden: Vec<Kind>,
    /// Whether a name is not shown in full.
    shortened: bool,
    mark: &'static str,
}

impl Fit {
    /// What fits the width of all the tables; they have the same columns.
    pub(super) fn new(style: Style, tables: &[Vec<Column>]) -> Self {
        let all: Vec<_> = tables.iter().map(|columns| drawn(columns)).collect();
        let widths = table::fit(style.width, &all);
        let first = tables.first().into_iter().flatten();
        let hidden = first.zip(&widths).filter(|(_, width)| width.is_none());
        let hidden = hidden.map(|(column, _)| column.kind).collect();
        let is_short = |(column, width): (&table::Column, &Option<usize>)| {
            let longest = column.cells.iter().map(|text| cells(text)).max();
            column.fit == table::Fit::Shorten && longest > *width
        };
        let shortened = all.iter().any(|columns| columns.iter().zip(&widths).any(is_short));
        Self { widths, hidden, shortened, mark: mark(style.ascii) }
    }

    /// The columns of one of the tables as lines.
    pub(super) fn draw(&self, columns: &[Column]) -> String {
        draw(&drawn(columns), &self.widths, self.mark)
    }

    /// What is not shown, or not in full, and how to see it; none where everything is.
    pub(super) fn note(&self) -> Option<String> {
        let words: Vec<&str> = self.hidden.iter().map(|kind| kind.word()).collect();
        match (words.as_slice(), self.shortened) {
            ([], false) => None,
            ([], true) => Some("Only with --wide: full names".to_owned()),
            (words, _) => Some(format!("Only with --wide: {}", words.join(", "))),
        }
    }
}
