//! The lines of `record --marks`.
//!
//! ```text
//! begin:NAME     begins the span NAME
//! end:NAME       ends the span NAME that was begun last
//! mark:TEXT      an instant, whatever TEXT begins with
//! TEXT           an instant
//! ```
//!
//! A line ends with a line feed. Everything before it belongs to the name, including blanks and a
//! carriage return. Guarantee: memory is bounded by one line and one read.

use super::book::MarkRefusal;
use super::wire::MarkAct;
use crate::schema::marks::TEXT_BYTES;

/// The longest keyword before a name.
const WORD_BYTES: usize = "begin:".len();

/// Parses a line: the request, and the name.
///
/// # Errors
///
/// The line is empty, too long, or not UTF-8.
pub(super) fn parse_line(line: &[u8]) -> Result<(MarkAct, &str), MarkRefusal> {
    if line.len() > TEXT_BYTES + WORD_BYTES {
        return Err(MarkRefusal::TooLong);
    }
    let text = str::from_utf8(line).map_err(|_other| MarkRefusal::NotText)?;
    let (act, text) = match text.split_once(':') {
        Some(("begin", name)) => (MarkAct::Begin, name),
        Some(("end", name)) => (MarkAct::End, name),
        Some(("mark", name)) => (MarkAct::Instant, name),
        _ => (MarkAct::Instant, text),
    };
    match text.len() {
        0 => Err(MarkRefusal::Empty),
        length if length > TEXT_BYTES => Err(MarkRefusal::TooLong),
        _ => Ok((act, text)),
    }
}

/// Splits input into lines.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    /// The begin of an unfinished line.
    partial_line: Vec<u8>,
}

impl LineSplitter {
    /// Calls `on_line` for each line that ends in `bytes`, without its line feed. A line that is
    /// too long is cut.
    pub(super) fn feed_bytes(&mut self, bytes: &[u8], mut on_line: impl FnMut(&[u8])) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            // One byte more than allowed is enough to detect a line that is too long.
            let room = (TEXT_BYTES + WORD_BYTES + 1).saturating_sub(self.partial_line.len());
            self.partial_line.extend_from_slice(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                on_line(&self.partial_line);
                self.partial_line.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_an_instant_or_one_end_of_a_span() {
        let cases = [
            ("warm-up", MarkAct::Instant, "warm-up"),
            ("begin:epoch 1", MarkAct::Begin, "epoch 1"),
            ("end:epoch 1", MarkAct::End, "epoch 1"),
            ("mark:begin:x", MarkAct::Instant, "begin:x"),
            ("begin:mark:x", MarkAct::Begin, "mark:x"),
            ("note: begin:", MarkAct::Instant, "note: begin:"),
            (" begin:x", MarkAct::Instant, " begin:x"),
            ("BEGIN:x", MarkAct::Instant, "BEGIN:x"),
            ("begin", MarkAct::Instant, "begin"),
            ("a\u{1b}[2J\r", MarkAct::Instant, "a\u{1b}[2J\r"),
        ];
        for (line, act, text) in cases {
            assert_eq!(parse_line(line.as_bytes()), Ok((act, text)), "{line}");
        }
        for line in ["", "begin:", "end:", "mark:"] {
            assert_eq!(parse_line(line.as_bytes()), Err(MarkRefusal::Empty), "{line}");
        }
        for line in [&b"\xff"[..], b"begin:\xc3", b"ok\0\x80"] {
            assert_eq!(parse_line(line), Err(MarkRefusal::NotText), "{line:?}");
        }
    }

    #[test]
    fn a_name_has_1024_bytes_with_and_without_a_word_before_it() {
        let name = "x".repeat(TEXT_BYTES);
        for word in ["", "begin:", "end:", "mark:"] {
            assert_eq!(
                parse_line(format!("{word}{name}").as_bytes()).map(|it| it.1),
                Ok(name.as_str())
            );
            let long = format!("{word}{name}x");
            assert_eq!(parse_line(long.as_bytes()), Err(MarkRefusal::TooLong), "{word}");
        }
    }

    /// The lines that result from these pieces of input.
    fn lines(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            lines.feed_bytes(piece, |line| found.push(line.to_vec()));
        }
        if !lines.partial_line.is_empty() {
            lines.feed_bytes(b"\n", |line| found.push(line.to_vec()));
        }
        found
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        assert_eq!(
            lines(&[b"a\nbe", b"gin:", b"x\n\nlast"]),
            [&b"a"[..], b"begin:x", b"", b"last"]
        );
        let long = [b'x'; 5000];
        let found = lines(&[&long, &long, b"\nshort\n"]);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (parse_line(&found[0]), parse_line(&found[1])),
            (Err(MarkRefusal::TooLong), Ok((MarkAct::Instant, "short")))
        );
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..1100)) {
            if let Ok((_, text)) = parse_line(&line) {
                prop_assert!(!text.is_empty() && text.len() <= TEXT_BYTES);
            }
        }

        #[test]
        fn pieces_do_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..3000),
            cuts in proptest::collection::vec(0_usize..3000, 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let found = lines(&pieces);
            prop_assert_eq!(&found, &lines(&[&bytes]));
            prop_assert!(found.iter().all(|line| line.len() <= TEXT_BYTES + WORD_BYTES + 1));
        }
    }
}
