//! Fits the columns of a report's tables to a width.
//!
//! Guarantee: name, value, share and confidence of each line are never left out for lack of room.

use super::render::TextStyle;
use crate::table::{self, draw_columns};
use crate::terminal::{cells, mark};

/// Kinds of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportColumnKind {
    /// Kind of the owner: task, irq, ...
    Owner,
    /// Name of the line.
    Name,
    /// Sum of the values.
    Value,
    /// The 90 % interval.
    Interval,
    /// Average rate.
    Average,
    /// Highest rate of a window.
    Peak,
    /// Fraction of the total.
    Share,
    /// Mean and lowest confidence.
    Confidence,
    /// Methods of the shares.
    Method,
    /// Time running / time enabled.
    Running,
    /// Number of rows without a value.
    Missing,
    /// Begin of activity.
    From,
    /// End of activity.
    To,
    /// Bars over time.
    Time,
    /// Rate in the first of two recordings.
    Before,
    /// Rate in the second.
    After,
    /// Rate after - rate before.
    Difference,
    /// Rate after / rate before.
    Ratio,
    /// Verdict on the difference.
    Change,
    /// Number of windows, in each of two parts.
    Windows,
    /// The tenant's own rate in each part.
    Own,
    /// The others' rate in each part.
    Others,
}

impl ReportColumnKind {
    /// The name of the column in the list of hidden columns.
    pub(super) const fn column_word(self) -> &'static str {
        self.word_and_fit(false).0
    }

    /// The name of the column in the list of hidden columns, and how it gives way. `noted`: it
    /// shows something unusual, such as missing values or multiplexed counters.
    const fn word_and_fit(self, noted: bool) -> (&'static str, table::ColumnFit) {
        use table::ColumnFit::{Count, Drop, Number, Shorten, Whole};
        match self {
            Self::Owner => ("owner", Drop(2)),
            Self::Name => ("name", Shorten),
            Self::Value => ("value", Number),
            // Bills need it.
            Self::Interval => ("90 % interval", Count(10)),
            Self::Average => ("average", Count(7)),
            Self::Peak => ("peak", Count(6)),
            Self::Share => ("share", Number),
            Self::Confidence => ("confidence", Number),
            Self::Method => ("method", Drop(5)),
            Self::Running => ("running", Count(if noted { 8 } else { 1 })),
            // Values are too small if rows are missing.
            Self::Missing => ("missing", Count(if noted { 11 } else { 0 })),
            Self::From => ("from", Count(4)),
            Self::To => ("to", Count(3)),
            Self::Time => ("time line", Drop(9)),
            Self::Before => ("before", Number),
            Self::After => ("after", Number),
            Self::Difference => ("difference", Number),
            Self::Ratio => ("ratio", Count(7)),
            Self::Change => ("change", Whole),
            Self::Windows => ("windows", Count(6)),
            Self::Own => ("own rate", Count(5)),
            Self::Others => ("others' rate", Count(4)),
        }
    }
}

/// A column of one table.
#[derive(Debug, Clone)]
pub(super) struct TableColumn {
    pub(super) column_kind: ReportColumnKind,
    pub(super) head: String,
    /// Unit of its numbers, below the heading; empty without one.
    pub(super) unit: String,
    /// The text of each line.
    pub(super) cells: Vec<String>,
    /// Whether it shows something unusual.
    pub(super) noted: bool,
}

impl TableColumn {
    /// A column under the word of its kind, without anything unusual; `unit` is empty without one.
    pub(super) fn new(column_kind: ReportColumnKind, unit: &str, cells: Vec<String>) -> Self {
        let (head, unit) = (column_kind.column_word().to_owned(), unit.to_owned());
        Self { column_kind, head, unit, cells, noted: false }
    }

    /// The column under another heading.
    pub(super) fn with_head(self, head: &str) -> Self {
        Self { head: head.to_owned(), ..self }
    }

    /// The column for drawing; `units`: with a line for units.
    fn to_drawable(&self, units: bool) -> table::TextColumn {
        let Self { column_kind: kind, head, unit, cells, noted } = self;
        let head = if units { format!("{head}\n{unit}") } else { head.clone() };
        table::TextColumn { head, fit: kind.word_and_fit(*noted).1, cells: cells.clone() }
    }
}

/// The text of a cell; `-` if it is not known.
pub(super) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// The columns of one table for drawing.
fn drawable_columns(columns: &[TableColumn]) -> Vec<table::TextColumn> {
    let units = columns.iter().any(|column| !column.unit.is_empty());
    columns.iter().map(|column| column.to_drawable(units)).collect()
}

/// Widths and hidden columns.
#[derive(Debug, Clone)]
pub(super) struct TableFit {
    /// Width of each column; `None`: hidden.
    widths: Vec<Option<usize>>,
    /// The hidden columns.
    pub(super) hidden: Vec<ReportColumnKind>,
    /// Whether a name was shortened.
    shortened: bool,
    mark: &'static str,
}

impl TableFit {
    /// Fits all tables, which have the same columns, to the width of the style.
    pub(super) fn new(style: TextStyle, tables: &[Vec<TableColumn>]) -> Self {
        let drawables: Vec<_> = tables.iter().map(|columns| drawable_columns(columns)).collect();
        let widths = table::fit_widths(style.width, &drawables);
        let first_table = tables.first().into_iter().flatten();
        let hidden = first_table.zip(&widths).filter(|(_, width)| width.is_none());
        let hidden = hidden.map(|(column, _)| column.column_kind).collect();
        let is_short = |(column, width): (&table::TextColumn, &Option<usize>)| {
            let longest = column.cells.iter().map(|text| cells(text)).max();
            column.fit == table::ColumnFit::Shorten && longest > *width
        };
        let shortened = drawables.iter().any(|columns| columns.iter().zip(&widths).any(is_short));
        Self { widths, hidden, shortened, mark: mark(style.ascii) }
    }

    /// The lines of one of the tables.
    pub(super) fn draw(&self, columns: &[TableColumn]) -> String {
        draw_columns(&drawable_columns(columns), &self.widths, self.mark)
    }

    /// A sentence that names hidden columns and shortened names, and how to see them; `None` if
    /// everything is shown.
    pub(super) fn hidden_note(&self) -> Option<String> {
        let words: Vec<&str> =
            self.hidden.iter().map(|column_kind| column_kind.column_word()).collect();
        match (words.as_slice(), self.shortened) {
            ([], false) => None,
            ([], true) => Some("Only with --wide: full names".to_owned()),
            (words, _) => Some(format!("Only with --wide: {}", words.join(", "))),
        }
    }
}
