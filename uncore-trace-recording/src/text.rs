//! Escapes text from the machine, so that it is safe to print.
//!
//! Guarantee: the result of [`printable`] has no control characters and none that change the
//! direction or visibility of text, so a process name cannot move the cursor, forge a line or hide.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use crate::terminal::{cells, wrap_words};

/// Whether a character must not reach a terminal as it is: C0, DEL and C1 controls, line and
/// paragraph separators, and the invisible and bidirectional controls of Unicode 16 (UAX #9).
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// `a, b, c and 7 more`, escaped for a terminal, with at most `limit` names; `none` if there are
/// none.
pub fn list_few(names: impl IntoIterator<Item: AsRef<str>>, limit: usize) -> String {
    let names: Vec<_> =
        names.into_iter().map(|name| printable(name.as_ref()).into_owned()).collect();
    match names.len() {
        0 => "none".to_owned(),
        n if n <= limit => names.join(", "),
        n => format!("{} and {} more", names[..limit].join(", "), n - limit),
    }
}

/// The text with everything hostile escaped as Rust writes it: `\n`, `\u{1b}`, `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape_with(text, |output, c| match c {
        '\n' | '\r' | '\t' => output.extend(c.escape_default()),
        // Writing to a String cannot fail.
        _ => write!(output, "\\u{{{:x}}}", u32::from(c)).unwrap_or_default(),
    })
}

/// The path with everything hostile escaped, as by [`printable`].
pub fn printable_path(path: &Path) -> String {
    printable(&path.display().to_string()).into_owned()
}

/// JSON that is safe to print: unsafe characters can only be in its strings, and become `\uXXXX`.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    escape_with(json, |output, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            write!(output, "\\u{unit:04x}").unwrap_or_default();
        }
    })
}

/// The text with unsafe characters written by `escape`.
fn escape_with(text: &str, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut output = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_hostile(c) {
            escape(&mut output, c);
        } else {
            output.push(c);
        }
    }
    Cow::Owned(output)
}

/// `1 table`, `2 tables`: a number with its noun, whose plural ends with s.
pub fn count_noun(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A field of a CSV record, quoted where it must be (RFC 4180).
pub fn csv_field<'a>(field: &'a str, separator: &str) -> Cow<'a, str> {
    if field.contains(separator) || field.contains(['"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}

/// Characters at the begin of a cell that make a spreadsheet compute it, with the wide forms that
/// some take for them.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// A text from the machine in a cell of CSV: printable, and behind `'` if a spreadsheet would take
/// it for a formula. A text that begins with `'` has another one, so that one can be taken away.
pub fn csv_text(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    if text.starts_with(FORMULA) || text.starts_with('\'') {
        return Cow::Owned(format!("'{text}"));
    }
    text
}

/// `text` after `prefix`, wrapped to lines of at most `width` cells if there is a limit; later
/// lines are indented to the first one's text. A longer word gets a line of its own and is not
/// broken, so that paths and commands can be copied.
pub fn wrapped(prefix: &str, text: &str, width: Option<usize>) -> String {
    let indent = cells(prefix);
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(1));
    format!("{prefix}{}\n", wrap_words(text, room).replace('\n', &format!("\n{:indent$}", "")))
}

/// The parser's error for the TOML `text` as one line, and the number of the line with the error,
/// if known.
pub fn toml_error(text: &str, mut error: toml::de::Error) -> (Option<usize>, String) {
    // toml 1.2 returns an empty span if something is missing in the file as a whole.
    let span = error.span().filter(|span| span.end > 0);
    let line = span.map(|span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
    // Without the text, the error is printed without an excerpt.
    error.set_input(None);
    (line, error.to_string().lines().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_left_alone() {
        assert!(matches!(printable("kworker/0:1-événements"), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes_and_direction_are_written_out() {
        assert_eq!(printable("a\x1b[2Jb\n\u{202e}"), "a\\u{1b}[2Jb\\n\\u{202e}");
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let cases = [("a", "a"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("a\r", "\"a\r\"")];
        for (field, quoted) in cases {
            assert_eq!(csv_field(field, ","), quoted);
        }
        assert_eq!(csv_field("a,b", ";"), "a,b");
    }

    #[test]
    fn no_cell_is_a_formula() {
        let cases = [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-bash", "'-bash"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("＝1", "'＝1"),
            ("'a", "''a"),
            ("\t=1", "\\t=1"),
            ("a=1", "a=1"),
            ("/a", "/a"),
            ("", ""),
        ];
        for (text, cell) in cases {
            assert_eq!(csv_text(text), cell);
        }
    }

    #[test]
    fn words_are_wrapped_and_never_broken() {
        let text = "a finding on /a/path/that/is/long of this machine";
        assert_eq!(wrapped("ok  ", text, None), format!("ok  {text}\n"));
        assert_eq!(
            wrapped("ok  ", text, Some(17)),
            "ok  a finding on\n    /a/path/that/is/long\n    of this\n    machine\n"
        );
        assert_eq!(wrapped("", "", Some(9)), "\n");
    }

    proptest! {
        #[test]
        fn wrapping_keeps_every_word(text in "[a-z ]{0,80}", width in 0_usize..60) {
            let lines = wrapped("- ", &text, Some(width));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(lines.trim_start_matches('-')), words(&text));
        }

        #[test]
        fn json_keeps_its_meaning(text in "\\PC*[\u{7f}-\u{9f}\u{202a}-\u{202e}\u{e0001}]\\PC*") {
            let json = serde_json::to_string(&text).unwrap();
            let shown = escape_json(&json);
            prop_assert!(!shown.chars().any(is_hostile));
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }

        #[test]
        fn nothing_hostile_is_left(text in any::<String>()) {
            prop_assert!(!printable(&text).chars().any(is_hostile));
        }
    }
}
