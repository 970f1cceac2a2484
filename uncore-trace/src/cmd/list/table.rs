//! Tables of the list, which fit the terminal.
//!
//! Guarantee: without a width each item is one line with all its columns. With one, no line is wider;
//! what was left out is said below the table, and what is the same in every row above it.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Width};

use crate::terminal::cells;
use crate::text::{lines, plain_table, wrapped};

/// Blanks beside each column's text.
const PADDING: usize = 2;
/// Cells that a column of sentences has at least, before another column is left out for it.
const SENTENCE: usize = 24;

/// What becomes of a column for which the terminal is too narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It stays as it is: a name to be typed.
    Whole,
    /// It stays, in several lines.
    Wrap,
    /// It is left out, the least number first.
    Drop(u8),
    /// As [`Fit::Drop`], of numbers: their ends are below each other.
    Count(u8),
}

/// A table whose columns know how to give way.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<(&'static str, Fit)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    pub(super) fn new<const N: usize>(columns: [(&'static str, Fit); N]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row: one cell a column, safe to print.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Vec::from(cells));
    }

    /// The text, in at most `width` cells a line if there is a width.
    pub(super) fn render(&self, width: Option<usize>) -> String {
        let Some(width) = width else {
            let all: Vec<_> = (0..self.columns.len()).collect();
            return lines(&self.build(&all));
        };
        let same = self.same();
        let (shown, hidden) = self.fit(width, &same);
        let mut table = self.build(&shown);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        // Where not even the names fit, it is left to the table to break them.
        if let Some(widths) = self.widths(&shown, width) {
            for (column, width) in table.column_iter_mut().zip(widths) {
                let width = u16::try_from(width + PADDING).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
            }
        }
        let mut text = String::new();
        if !same.is_empty() {
            let said = |at: &usize| match self.rows[0][*at].as_str() {
                "-" => format!("no {}", self.head(*at)),
                text => format!("{} {text}", self.head(*at)),
            };
            let said: Vec<_> = same.iter().map(said).collect();
            text.push_str(&wrapped("In every row: ", &said.join(", "), Some(width)));
        }
        text.push_str(&lines(&table));
        if !hidden.is_empty() {
            let names: Vec<_> = hidden.iter().map(|at| self.head(*at)).collect();
            let names = format!("{} (see --wide)", names.join(", "));
            text.push_str(&wrapped("Not shown: ", &names, Some(width)));
        }
        text
    }

    /// The columns that may be left out and say the same in every row, of several.
    fn same(&self) -> Vec<usize> {
        let Some((first, others)) = self.rows.split_first() else { return Vec::new() };
        let is_same = |at: &usize| {
            !others.is_empty() && others.iter().all(|row| row.get(*at) == first.get(*at))
        };
        (0..self.columns.len()).filter(|at| self.rank(*at).is_some()).filter(is_same).collect()
    }

    /// How early a column goes; `None`: it stays.
    fn rank(&self, at: usize) -> Option<u8> {
        match self.columns.get(at) {
            Some((_, Fit::Drop(rank) | Fit::Count(rank))) => Some(*rank),
            _ => None,
        }
    }

    fn head(&self, at: usize) -> &'static str {
        self.columns.get(at).map_or("", |(head, _)| *head)
    }

    /// The table of some columns.
    fn build(&self, shown: &[usize]) -> comfy_table::Table {
        let cell = |at: usize, text: &str| match self.columns.get(at) {
            Some((_, Fit::Count(_))) => Cell::new(text).set_alignment(CellAlignment::Right),
            _ => Cell::new(text),
        };
        let mut table = plain_table(shown.iter().map(|at| cell(*at, self.head(*at))));
        for row in &self.rows {
            let text = |at: usize| row.get(at).map_or("", String::as_str);
            table.add_row(shown.iter().map(|at| cell(*at, text(*at))));
        }
        table
    }

    /// The columns that there is room for in `width` cells, and those that there is none for; but not
    /// those that are `said` elsewhere.
    fn fit(&self, width: usize, said: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let mut shown: Vec<_> = (0..self.columns.len()).filter(|at| !said.contains(at)).collect();
        let mut order: Vec<_> =
            shown.iter().filter_map(|at| Some((self.rank(*at)?, *at))).collect();
        order.sort_unstable();
        let mut hidden = Vec::new();
        for (_, at) in order {
            if self.least(&shown) <= width {
                break;
            }
            shown.retain(|other| *other != at);
            hidden.push(at);
        }
        hidden.sort_unstable();
        (shown, hidden)
    }

    /// Cells of each column's text: what is left of `width` goes to those that wrap. `None`: they
    /// need more than there is.
    fn widths(&self, shown: &[usize], width: usize) -> Option<Vec<usize>> {
        let mut left = width.checked_sub(self.least(shown))?;
        let mut widths: Vec<_> = shown.iter().map(|at| self.range(*at)).collect();
        loop {
            let wanting = widths.iter_mut().filter(|(now, most)| now < most);
            let wanting: Vec<_> = wanting.collect();
            if left == 0 || wanting.is_empty() {
                break;
            }
            let part = (left / wanting.len()).max(1);
            for (now, most) in wanting {
                let more = part.min(*most - *now).min(left);
                *now += more;
                left -= more;
            }
        }
        Some(widths.into_iter().map(|(now, _)| now).collect())
    }

    /// Cells that the columns need.
    fn least(&self, shown: &[usize]) -> usize {
        shown.iter().map(|at| self.range(*at).0 + PADDING).sum()
    }

    /// The least and the most cells that a column's text needs.
    fn range(&self, at: usize) -> (usize, usize) {
        let texts = || {
            let texts = self.rows.iter().filter_map(move |row| row.get(at).map(String::as_str));
            texts.chain([self.head(at)])
        };
        let most = texts().map(cells).max().unwrap_or(0);
        if self.columns.get(at).is_none_or(|(_, fit)| *fit != Fit::Wrap) {
            return (most, most);
        }
        let word = texts().flat_map(str::split_whitespace).map(cells).max().unwrap_or(0);
        (most.min(SENTENCE).max(word), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            ("name", Fit::Whole),
            ("unit", Fit::Drop(2)),
            ("formula", Fit::Drop(1)),
            ("what it is", Fit::Wrap),
        ]);
        table.row(
            ["mem_read_bandwidth", "GB/s", "cas_count_read / duration_ns", "-"].map(str::to_owned),
        );
        let about = "what the CPUs of this socket read from the memory of this socket";
        table.row(["x", "%", "a / b", about].map(str::to_owned));
        table
    }

    #[test]
    fn without_a_width_an_item_is_a_line_with_all_columns() {
        let text = table().render(None);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.contains("duration_ns") && text.ends_with("memory of this socket\n"),
            "{text}"
        );
        assert_eq!(table().render(Some(200)), text);
    }

    #[test]
    fn columns_go_by_rank_and_sentences_are_wrapped() {
        assert_eq!(
            table().render(Some(60)),
            " name                unit  what it is\n\
             \u{20}mem_read_bandwidth  GB/s  -\n\
             \u{20}x                   %     what the CPUs of this socket\n\
             \u{20}                          read from the memory of this\n\
             \u{20}                          socket\n\
             Not shown: formula (see --wide)\n"
        );
        let narrow = table().render(Some(48));
        let last = narrow.trim_end().lines().rev().take(2).collect::<String>();
        assert!(last.contains("unit, formula"), "{narrow}");
    }

    #[test]
    fn what_is_the_same_in_every_row_is_said_once() {
        let mut table = Table::new([
            ("name", Fit::Whole),
            ("scale", Fit::Count(1)),
            ("port", Fit::Drop(2)),
            ("events", Fit::Count(3)),
        ]);
        for (name, events) in [("a", "1"), ("b", "10")] {
            table.row([name, "64", "-", events].map(str::to_owned));
        }
        let text = "In every row: scale 64, no port\n name  events\n a          1\n b         10\n";
        assert_eq!(table.render(Some(60)), text);
        assert_eq!(table.render(None).lines().next(), Some(" name  scale  port  events"));
    }

    #[test]
    fn names_in_a_list_are_not_broken_before_a_column_is_left_out() {
        let name = "local_or_remote_socket_upstream_read_data_beats_io_0";
        let mut table =
            Table::new([("group", Fit::Whole), ("counters", Fit::Drop(1)), ("events", Fit::Wrap)]);
        table.row(["pcie".to_owned(), "2".to_owned(), format!("{name}, {name}")]);
        let text = table.render(Some(64));
        assert_eq!(text.matches(name).count(), 2, "{text}");
        assert!(text.ends_with("Not shown: counters (see --wide)\n"), "{text}");
    }

    #[test]
    fn no_line_is_wider_however_narrow_it_gets() {
        for width in 20..120 {
            let text = table().render(Some(width));
            assert!(text.lines().all(|line| cells(line) <= width), "{width}:\n{text}");
        }
    }
}
