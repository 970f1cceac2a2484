//! Tables of text that fit the width of a terminal.
//!
//! Guarantee: without a width, each row is one line with all columns, in which long names are
//! shortened. With a width, no line is wider, unless columns of numbers that cannot be dropped need
//! more.

use std::cmp::Reverse;

use crate::terminal::{cells, pieces, shorten_all, wrap_words};
use crate::text::wrapped;

/// Blanks between two columns.
const GAP: usize = 2;
/// Least width of a column of sentences; other columns are dropped for it.
const SENTENCE: usize = 24;
/// Least width of a column of names, as a divisor of the width, if it needs that much; other
/// columns are dropped for it.
const NAME_PART: usize = 3;
/// Most of a name that is shown if there is no width: a tenant may have a path of 4096 bytes, and
/// all lines would be as long.
const NAME_MOST: usize = 160;
/// Least width of a column of names, however narrow the terminal is.
const NAME_LEAST: usize = 8;

/// What happens to a column that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnFit {
    /// Always whole: a name that users type.
    Whole,
    /// As [`ColumnFit::Whole`] for numbers: aligned to the right and never broken.
    Number,
    /// Kept, wrapped to several lines.
    Wrap,
    /// Kept, with the middle of long texts left out.
    Shorten,
    /// Dropped, the least rank first.
    Drop(u8),
    /// As [`ColumnFit::Drop`], for numbers.
    Count(u8),
}

impl ColumnFit {
    /// The rank at which the column is dropped; `None`: never.
    const fn drop_rank(self) -> Option<u8> {
        match self {
            Self::Drop(rank) | Self::Count(rank) => Some(rank),
            _ => None,
        }
    }
}

/// A column of one table.
#[derive(Debug, Clone)]
pub struct TextColumn {
    /// The heading, in one or more lines.
    pub head: String,
    /// What happens if the column does not fit.
    pub fit: ColumnFit,
    /// Its text in each row.
    pub cells: Vec<String>,
}

impl TextColumn {
    /// The least and the largest width that its texts need in a table of this width.
    fn width_range(&self, width: usize) -> (usize, usize) {
        let texts = || self.cells.iter().map(String::as_str).chain(self.head.lines());
        let widest = texts().map(cells).max().unwrap_or(0);
        let narrowest = match self.fit {
            ColumnFit::Wrap => {
                let word = texts().flat_map(str::split_whitespace).map(cells).max().unwrap_or(0);
                widest.min(SENTENCE).max(word)
            }
            ColumnFit::Shorten => widest.min((width / NAME_PART).max(NAME_LEAST)),
            _ => widest,
        };
        (narrowest, widest)
    }
}

/// The width of each column, the same in all tables, which have the same columns; `None`: the
/// column is dropped.
pub fn fit_widths(width: Option<usize>, tables: &[Vec<TextColumn>]) -> Vec<Option<usize>> {
    let count = tables.first().map_or(0, Vec::len);
    let columns_at = |index: usize| tables.iter().filter_map(move |table| table.get(index));
    let larger = |a: (usize, usize), b: (usize, usize)| (a.0.max(b.0), a.1.max(b.1));
    let range = |index| {
        columns_at(index)
            .map(|table_column| table_column.width_range(width.unwrap_or(usize::MAX)))
            .fold((0, 0), larger)
    };
    let ranges: Vec<_> = (0..count).map(range).collect();
    let Some(width) = width else {
        let is_name =
            |index: usize| columns_at(index).any(|column| column.fit == ColumnFit::Shorten);
        let width_limit = |index: usize| if is_name(index) { NAME_MOST } else { usize::MAX };
        let widths = ranges.into_iter().enumerate();
        return widths.map(|(index, (_, whole))| Some(whole.min(width_limit(index)))).collect();
    };
    let rank = |index: usize| columns_at(index).filter_map(|column| column.fit.drop_rank()).max();
    // No gap before the first column.
    let total_width =
        |shown: &[usize]| shown.iter().map(|index| GAP + ranges[*index].0).sum::<usize>() - 1;
    let (mut optional, mut shown): (Vec<usize>, Vec<usize>) =
        (0..count).partition(|index| rank(*index).is_some());
    optional.sort_by_key(|index| Reverse(rank(*index)));
    for index in optional {
        shown.push(index);
        if total_width(&shown) > width {
            shown.pop();
        }
    }
    let mut widths = vec![None; count];
    if shown.is_empty() {
        return widths;
    }
    let (mut spare, mut lack) =
        (width.saturating_sub(total_width(&shown)), total_width(&shown).saturating_sub(width));
    for index in &shown {
        widths[*index] = Some(ranges[*index].0);
    }
    // Distributes the remaining width in equal parts to the columns that need more.
    loop {
        let wanting = widths.iter_mut().zip(&ranges);
        let wanting =
            wanting.filter_map(|(current, (_, wanted))| Some((current.as_mut()?, *wanted)));
        let wanting: Vec<_> = wanting.filter(|(current, wanted)| **current < *wanted).collect();
        if spare == 0 || wanting.is_empty() {
            break;
        }
        let step = (spare / wanting.len()).max(1);
        for (current, wanted) in wanting {
            let growth = step.min(wanted - *current).min(spare);
            *current += growth;
            spare -= growth;
        }
    }
    // If the columns that stay do not fit, names are shortened further, and then texts are broken.
    let shortened = |fit: ColumnFit| fit == ColumnFit::Shorten;
    let broken = |fit: ColumnFit| matches!(fit, ColumnFit::Wrap | ColumnFit::Whole);
    let steps: [(&dyn Fn(ColumnFit) -> bool, usize); 2] = [(&shortened, NAME_LEAST), (&broken, 1)];
    for (may_shrink, minimum) in steps {
        while lack > 0 {
            let shrinking = widths
                .iter_mut()
                .zip(&tables[0])
                .filter(|(_, table_column)| may_shrink(table_column.fit));
            let Some(widest) = shrinking.filter_map(|(current, _)| current.as_mut()).max() else {
                break;
            };
            if *widest <= minimum {
                break;
            }
            *widest -= 1;
            lack -= 1;
        }
    }
    widths
}

/// The lines of a table, in widths from [`fit_widths`]; `mark` replaces text that is left out.
pub fn draw_columns(columns: &[TextColumn], widths: &[Option<usize>], mark: &str) -> String {
    let shown = columns.iter().zip(widths).filter_map(|(column, width)| {
        // Another of the tables may need a wider column.
        let width = (*width)?.min(column.width_range(0).1);
        let texts: Vec<&str> = column.cells.iter().map(String::as_str).collect();
        let texts = match column.fit {
            ColumnFit::Shorten => shorten_all(&texts, width, mark),
            _ => column.cells.clone(),
        };
        Some((column, width, texts))
    });
    let shown: Vec<_> = shown.collect();
    let mut output = String::new();
    let mut row = |text: &dyn Fn(&TextColumn, &[String]) -> String| {
        let lines = |(column, width, texts): &(&TextColumn, usize, Vec<String>)| {
            (break_lines(&text(column, texts), *width), *width, column.fit)
        };
        let cells_of: Vec<_> = shown.iter().map(lines).collect();
        for line in 0..cells_of.iter().map(|(lines, ..)| lines.len()).max().unwrap_or(0).max(1) {
            let mut drawn = String::new();
            for (lines, width, fit) in &cells_of {
                let text = lines.get(line).map_or("", String::as_str);
                let blanks = " ".repeat(width.saturating_sub(cells(text)));
                let gap = if drawn.is_empty() { 1 } else { GAP };
                drawn.push_str(&" ".repeat(gap));
                drawn.push_str(&match fit {
                    ColumnFit::Number | ColumnFit::Count(_) => blanks + text,
                    _ => text.to_owned() + &blanks,
                });
            }
            output.push_str(drawn.trim_end());
            output.push('\n');
        }
    };
    row(&|column, _| column.head.clone());
    for row_index in 0..columns.first().map_or(0, |column| column.cells.len()) {
        row(&|_, texts| texts.get(row_index).cloned().unwrap_or_default());
    }
    output
}

/// Breaks a text into lines of at most `width`; longer words are broken.
fn break_lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let wrapped = if cells(line) > width { wrap_words(line, width) } else { line.to_owned() };
        lines.extend(wrapped.lines().flat_map(|line| pieces(line, width)).map(str::to_owned));
    }
    lines
}

/// A table that is filled row by row.
#[derive(Debug)]
pub struct TextTable {
    columns: Vec<TextColumn>,
}

impl TextTable {
    /// An empty table.
    pub fn new<H: Into<String>>(columns: impl IntoIterator<Item = (H, ColumnFit)>) -> Self {
        let column =
            |(head, fit): (H, ColumnFit)| TextColumn { head: head.into(), fit, cells: Vec::new() };
        Self { columns: columns.into_iter().map(column).collect() }
    }

    /// An empty table whose columns always stay whole.
    pub fn with_whole_columns<H: Into<String>>(heads: impl IntoIterator<Item = H>) -> Self {
        Self::new(heads.into_iter().map(|head| (head, ColumnFit::Whole)))
    }

    /// Adds a row: one cell for each column, already safe to print.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.cells.push(cell);
        }
    }

    /// The text, with lines of at most `width` cells if there is a limit.
    pub fn to_text(&self, width: Option<usize>, mark: &str) -> String {
        draw_columns(&self.columns, &fit_widths(width, std::slice::from_ref(&self.columns)), mark)
    }

    /// As [`TextTable::to_text`], with values that are equal in every row printed once above, and
    /// the dropped columns named below.
    pub fn to_listing(&self, width: Option<usize>) -> String {
        let Some(width) = width else { return self.to_text(None, "") };
        let (constant, varying): (Vec<_>, Vec<_>) =
            self.columns.iter().cloned().partition(is_same_in_every_row);
        let tables = [varying];
        let widths = fit_widths(Some(width), &tables);
        let [varying] = &tables;
        let mut text = String::new();
        if !constant.is_empty() {
            let statement = |column: &TextColumn| match column.cells[0].as_str() {
                "-" => format!("no {}", column.head),
                text => format!("{} {text}", column.head),
            };
            let statements: Vec<_> = constant.iter().map(statement).collect();
            text.push_str(&wrapped("In every row: ", &statements.join(", "), Some(width)));
        }
        text.push_str(&draw_columns(varying, &widths, ""));
        let hidden = varying.iter().zip(&widths).filter(|(_, width)| width.is_none());
        let hidden: Vec<_> = hidden.map(|(column, _)| column.head.as_str()).collect();
        if !hidden.is_empty() {
            let names = format!("{} (see --wide)", hidden.join(", "));
            text.push_str(&wrapped("Not shown: ", &names, Some(width)));
        }
        text
    }
}

/// Whether the column may be dropped and has the same text in all of several rows.
fn is_same_in_every_row(column: &TextColumn) -> bool {
    let is_same = column.cells.windows(2).all(|pair| pair[0] == pair[1]);
    column.fit.drop_rank().is_some() && column.cells.len() > 1 && is_same
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new([
            ("name", ColumnFit::Whole),
            ("unit", ColumnFit::Drop(2)),
            ("formula", ColumnFit::Drop(1)),
            ("what it is", ColumnFit::Wrap),
        ]);
        table.add_row(
            ["mem_read_bandwidth", "GB/s", "cas_count_read / duration_ns", "-"].map(str::to_owned),
        );
        let about = "what the CPUs of this socket read from the memory of this socket";
        table.add_row(["x", "%", "a / b", about].map(str::to_owned));
        table
    }

    #[test]
    fn without_a_width_an_item_is_a_line_with_all_columns() {
        let text = table().to_listing(None);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.contains("duration_ns") && text.ends_with("memory of this socket\n"),
            "{text}"
        );
        assert_eq!(table().to_listing(Some(200)), text);
    }

    #[test]
    fn columns_go_by_rank_and_sentences_are_wrapped() {
        assert_eq!(
            table().to_listing(Some(60)),
            " name                unit  what it is\n\
             \u{20}mem_read_bandwidth  GB/s  -\n\
             \u{20}x                   %     what the CPUs of this socket read\n\
             \u{20}                          from the memory of this socket\n\
             Not shown: formula (see --wide)\n"
        );
        let narrow = table().to_listing(Some(48));
        let last = narrow.trim_end().lines().rev().take(2).collect::<String>();
        assert!(last.contains("unit, formula"), "{narrow}");
    }

    #[test]
    fn what_is_the_same_in_every_row_is_said_once() {
        let mut table = TextTable::new([
            ("name", ColumnFit::Whole),
            ("scale", ColumnFit::Count(1)),
            ("port", ColumnFit::Drop(2)),
            ("events", ColumnFit::Count(3)),
        ]);
        for (name, events) in [("a", "1"), ("b", "10")] {
            table.add_row([name, "64", "-", events].map(str::to_owned));
        }
        let text = "In every row: scale 64, no port\n name  events\n a          1\n b         10\n";
        assert_eq!(table.to_listing(Some(60)), text);
        assert_eq!(table.to_listing(None).lines().next(), Some(" name  scale  port  events"));
    }

    #[test]
    fn names_in_a_list_are_not_broken_before_a_column_is_left_out() {
        let name = "local_or_remote_socket_upstream_read_data_beats_io_0";
        let mut table = TextTable::new([
            ("group", ColumnFit::Whole),
            ("counters", ColumnFit::Drop(1)),
            ("events", ColumnFit::Wrap),
        ]);
        table.add_row(["pcie".to_owned(), "2".to_owned(), format!("{name}, {name}")]);
        let text = table.to_listing(Some(64));
        assert_eq!(text.matches(name).count(), 2, "{text}");
        assert!(text.ends_with("Not shown: counters (see --wide)\n"), "{text}");
    }

    #[test]
    fn no_line_is_wider_however_narrow_it_gets() {
        for width in 20..120 {
            let text = table().to_listing(Some(width));
            assert!(text.lines().all(|line| cells(line) <= width), "{width}:\n{text}");
        }
    }
}
