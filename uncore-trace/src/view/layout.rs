//! Which columns of a report's tables fit a width, and how wide names may be.
//!
//! Guarantee: what a report is asked for (the name, value, share and confidence of each line) is
//! never left out.

use crate::terminal::cells;

/// Blanks around every column, of which the last of a line is not printed.
const GAP: usize = 2;
/// A name has at least this part of the width, if it needs that much.
const NAME_PART: usize = 3;
/// Cells a name has at least, however narrow the terminal is.
const NAME_LEAST: usize = 8;

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

    /// How early a column goes that there is no room for; none: it stays. `noted`: it shows
    /// something out of the ordinary, here that values are missing or counters were multiplexed.
    const fn rank(self, noted: bool) -> Option<u8> {
        Some(match self {
            Self::Name
            | Self::Value
            | Self::Share
            | Self::Confidence
            | Self::Before
            | Self::After
            | Self::Difference
            | Self::Change => return None,
            // The values above it are too small.
            Self::Missing if noted => 0,
            // A bill needs it.
            Self::Interval => 1,
            Self::Time => 2,
            Self::Running if noted => 3,
            Self::Average | Self::Ratio => 4,
            Self::Peak | Self::Windows => 5,
            Self::Method | Self::Own => 6,
            Self::From | Self::Others => 7,
            Self::To => 8,
            Self::Owner => 9,
            Self::Running => 10,
            Self::Missing => 11,
        })
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
    /// Cells of its widest text.
    fn width(&self) -> usize {
        self.cells.iter().chain([&self.head, &self.unit]).map(|text| cells(text)).max().unwrap_or(0)
    }
}

/// What fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fit {
    /// What is shown.
    pub(super) shown: Vec<Kind>,
    /// What there is no room for.
    pub(super) hidden: Vec<Kind>,
    /// Cells for a name.
    pub(super) name: usize,
}

impl Fit {
    /// What fits `width` cells of all the tables; they have the same columns.
    ///
    /// Names are shortened before a column is left out, but not below a third of the width. Then
    /// each column is shown that there is still room for, the most important first. Where even the
    /// columns that stay leave no room, names are shortened further.
    pub(super) fn new(width: usize, tables: &[Vec<Column>]) -> Self {
        let kinds: Vec<Kind> =
            tables.first().into_iter().flatten().map(|column| column.kind).collect();
        let of = |kind: Kind| tables.iter().flatten().filter(move |column| column.kind == kind);
        let widest = |kind: Kind| of(kind).map(Column::width).max().unwrap_or(0);
        let rank = |kind: Kind| kind.rank(of(kind).any(|column| column.noted));
        let needed = widest(Kind::Name);
        let least = needed.min((width / NAME_PART).max(NAME_LEAST));
        let (mut optional, mut shown): (Vec<Kind>, Vec<Kind>) =
            kinds.iter().partition(|kind| rank(**kind).is_some());
        let taken = |kinds: &[Kind]| -> usize {
            // A blank stands before the first.
            let others = kinds.iter().filter(|kind| **kind != Kind::Name);
            1 + others.map(|kind| GAP + widest(*kind)).sum::<usize>()
        };
        optional.sort_by_key(|kind| rank(*kind));
        for kind in optional {
            shown.push(kind);
            if taken(&shown) + least > width {
                shown.pop();
            }
        }
        let hidden = kinds.iter().copied().filter(|kind| !shown.contains(kind)).collect();
        let name = width.saturating_sub(taken(&shown)).clamp(needed.min(NAME_LEAST), needed);
        Self { shown, hidden, name }
    }

    /// What is not shown, or not in full, and how to see it; none where everything is.
    pub(super) fn note(&self, shortened: bool) -> Option<String> {
        let words: Vec<&str> = self.hidden.iter().map(|kind| kind.word()).collect();
        match (words.as_slice(), shortened) {
            ([], false) => None,
            ([], true) => Some("Only with --wide: full names".to_owned()),
            (words, _) => Some(format!("Only with --wide: {}", words.join(", "))),
        }
    }
}
