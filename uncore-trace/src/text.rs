//! Makes text that comes from the machine safe to show.
//!
//! PMU, process and cgroup names are chosen by others: they may hold terminal escapes, newlines or
//! characters that reorder a line. What goes through [`printable`] stays on one line and cannot
//! move the cursor.

use std::borrow::Cow;

/// `text` with every control and invisible formatting character written as its Rust escape.
///
/// Borrowed where nothing had to change, which is nearly always.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Control characters (C0, DEL, C1) and the Unicode characters that reorder, split or hide text.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}' // line and paragraph separators, bidi embeddings
            | '\u{2060}'..='\u{206f}' // word joiner, bidi isolates
            | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(printable("nvidia_scf_pmu_0 é"), std::borrow::Cow::Borrowed(_)));
    }

    #[test]
    fn escapes_newlines_and_bidi_cannot_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}d\u{9b}"), "a\\u{1b}[2Jb\\nc\\u{202e}d\\u{9b}");
    }
}
