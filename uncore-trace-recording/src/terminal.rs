//! The width of the terminal, and text shortened to fit it.
//!
//! Guarantee: a width is in cells of a terminal (Unicode Standard Annex #11), not in bytes or
//! characters: a Chinese character takes two cells, a combining accent none.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Width of a terminal that does not report one.
const DEFAULT_COLUMNS: usize = 80;

/// Width for tables: the environment variable `COLUMNS`, else the terminal on standard output.
/// `None` if standard output is no terminal and the variable is not set.
///
/// The variable has priority, also in a pipe, as in ls and git: whoever exports it wants that
/// width.
pub fn columns() -> Option<usize> {
    let stdout = io::stdout();
    let terminal =
        stdout.is_terminal().then(|| tcgetwinsize(&stdout).map_or(0, |size| size.ws_col));
    choose_columns(std::env::var("COLUMNS").ok().as_deref(), terminal)
}

/// Width of tables with all columns and whole names.
pub const WHOLE: usize = 1 << 20;

/// Width for tables that can be shown whole.
pub fn width(whole: bool) -> Option<usize> {
    if whole { Some(WHOLE) } else { columns() }
}

/// The first of the two that is a positive number. A new pseudo-terminal reports 0 columns.
fn choose_columns(variable: Option<&str>, terminal: Option<u16>) -> Option<usize> {
    let variable = variable.and_then(|text| text.trim().parse().ok());
    let variable = variable.filter(|columns| *columns > 0);
    let terminal =
        terminal.map(|columns| if columns > 0 { columns.into() } else { DEFAULT_COLUMNS });
    variable.or(terminal)
}

/// The number of cells that the text takes.
pub fn cells(text: &str) -> usize {
    text.width()
}

/// The mark for text that was left out.
pub const fn mark(ascii: bool) -> &'static str {
    if ascii { "..." } else { "…" }
}

/// The text in at most `width` cells; `mark` replaces the middle of a longer text.
pub fn shorten<'a>(text: &'a str, width: usize, mark: &str) -> Cow<'a, str> {
    shorten_at(text, width, mark, PARTS[0])
}

/// Fractions of the width for the begin of a shortened text, in the order of preference: first 1/3,
/// because the end of a path says most; the others if that makes two texts equal.
const PARTS: [(usize, usize); 5] = [(1, 3), (0, 1), (1, 2), (2, 3), (1, 1)];

/// As [`shorten`] for texts of one column: all are shortened at the same place, chosen so that as
/// many as possible stay different.
pub(crate) fn shorten_all(texts: &[&str], width: usize, mark: &str) -> Vec<String> {
    let different = texts.iter().collect::<HashSet<_>>().len();
    let mut best: (usize, Vec<String>) = (0, Vec::new());
    for fraction in PARTS {
        let short: Vec<String> =
            texts.iter().map(|text| shorten_at(text, width, mark, fraction).into_owned()).collect();
        let distinct = short.iter().collect::<HashSet<_>>().len();
        if distinct > best.0 {
            best = (distinct, short);
        }
        if best.0 == different {
            break;
        }
    }
    best.1
}

fn shorten_at<'a>(
    text: &'a str,
    width: usize,
    mark: &str,
    (numerator, denominator): (usize, usize),
) -> Cow<'a, str> {
    if cells(text) <= width {
        return Cow::Borrowed(text);
    }
    let mark = longest_prefix(mark, width);
    let room = width - cells(mark);
    let begin = longest_prefix(text, room * numerator / denominator);
    let end = longest_suffix(&text[begin.len()..], room.saturating_sub(cells(begin)));
    Cow::Owned(format!("{begin}{mark}{end}"))
}

/// The longest prefix of at most `width` cells that ends at a grapheme boundary, so that an accent
/// stays with its letter.
fn longest_prefix(text: &str, width: usize) -> &str {
    let mut room = width;
    let fits = |(_, grapheme): &(usize, &str)| take_cells(&mut room, grapheme);
    let end = text.grapheme_indices(true).take_while(fits).last();
    end.map_or("", |(offset, grapheme)| &text[..offset + grapheme.len()])
}

/// Splits the text into pieces of at most `width` cells, unless one character is wider.
pub fn pieces(text: &str, width: usize) -> Vec<&str> {
    let (mut pieces, mut remaining) = (Vec::new(), text);
    while cells(remaining) > width {
        let begin = longest_prefix(remaining, width);
        let begin = if begin.is_empty() {
            remaining.graphemes(true).next().unwrap_or(remaining)
        } else {
            begin
        };
        pieces.push(begin);
        remaining = &remaining[begin.len()..];
    }
    pieces.push(remaining);
    pieces
}

/// The longest suffix of at most `width` cells.
fn longest_suffix(text: &str, width: usize) -> &str {
    let mut room = width;
    let fits = |(_, grapheme): &(usize, &str)| take_cells(&mut room, grapheme);
    let begin = text.grapheme_indices(true).rev().take_while(fits).last();
    begin.map_or("", |(offset, _)| &text[offset..])
}

/// The text with newlines instead of blanks, so that no line has more than `width` cells; a longer
/// word gets a line of its own.
pub fn wrap_words(text: &str, width: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut line_width = 0;
    for word in text.split(' ') {
        let needed = cells(word);
        if !wrapped.is_empty() {
            let fits = line_width + 1 + needed <= width;
            wrapped.push(if fits { ' ' } else { '\n' });
            line_width = if fits { line_width + 1 } else { 0 };
        }
        wrapped.push_str(word);
        line_width += needed;
    }
    wrapped
}

fn take_cells(room: &mut usize, grapheme: &str) -> bool {
    let remaining = room.checked_sub(cells(grapheme));
    *room = remaining.unwrap_or(0);
    remaining.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_the_users_then_the_terminals_then_80() {
        assert_eq!(choose_columns(Some("100"), Some(132)), Some(100));
        assert_eq!(choose_columns(Some("100"), None), Some(100));
        assert_eq!(choose_columns(None, Some(132)), Some(132));
        for nonsense in ["", "0", "-5", "wide"] {
            assert_eq!(choose_columns(Some(nonsense), Some(132)), Some(132), "{nonsense}");
            assert_eq!(choose_columns(Some(nonsense), None), None, "{nonsense}");
        }
        assert_eq!(choose_columns(None, Some(0)), Some(80));
        assert_eq!(choose_columns(None, None), None);
    }

    #[test]
    fn the_middle_of_a_long_path_is_left_out() {
        let path = "/kubepods.slice/kubepods-burstable.slice/cri-containerd-0123abcd.scope";
        assert_eq!(shorten(path, 70, "…"), path);
        assert_eq!(shorten(path, 30, "…"), "/kubepods…inerd-0123abcd.scope");
        assert_eq!(shorten(path, 30, "..."), "/kubepods...erd-0123abcd.scope");
    }

    #[test]
    fn cells_are_counted_and_no_character_is_cut() {
        // Six cells of two, and an accent on every letter.
        assert_eq!(shorten("租户甲乙丙丁", 7, "…"), "租…丙丁");
        assert_eq!(shorten("e\u{301}e\u{301}e\u{301}e\u{301}", 3, "…"), "…e\u{301}e\u{301}");
        assert_eq!(shorten("abc", 2, "..."), "..");
        assert_eq!(shorten("abc", 0, "…"), "");
    }

    #[test]
    fn paths_that_differ_in_their_middle_stay_different() {
        let job =
            |number| format!("/system.slice/slurmstepd.scope/job_{number}/step_0/user/task_0");
        let jobs = [job(17), job(18), "/".to_owned()];
        let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
        assert_eq!(shorten(jobs[0], 26, "…"), shorten(jobs[1], 26, "…"));
        let short = shorten_all(&jobs, 26, "…");
        assert_eq!(short, ["…job_17/step_0/user/task_0", "…job_18/step_0/user/task_0", "/"]);
        assert_eq!(shorten_all(&[], 26, "…"), Vec::<String>::new());
        // They are equal already.
        assert_eq!(shorten_all(&["aaaaaa", "aaaaaa"], 4, "…"), ["a…aa", "a…aa"]);
    }

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrap_words("one two three", 13), "one two three");
        assert_eq!(wrap_words("one two three", 12), "one two\nthree");
        assert_eq!(wrap_words("one two three", 3), "one\ntwo\nthree");
        assert_eq!(wrap_words("", 3), "");
    }

    proptest! {
        #[test]
        fn a_shortened_text_fits(text in "\\PC*", width in 0_usize..20, part in 0_usize..PARTS.len()) {
            for mark in ["…", "..."] {
                let short = shorten_at(&text, width, mark, PARTS[part]);
                prop_assert!(cells(&short) <= width, "{short:?} of {text:?}");
                prop_assert!(cells(&text) > width || short == text);
            }
        }
    }
}
