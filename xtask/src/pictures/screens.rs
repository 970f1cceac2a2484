//! Terminal screens in documents: the text between two markers, which are invisible in rendered
//! Markdown.
//!
//! ```text
//! <!-- screen NAME -->
//! <!-- end -->
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::stamp::workspace_root;

/// Documents with screens.
const DOCUMENTS: [&str; 3] = ["README.md", "docs/usage.md", "docs/reading.md"];

/// The output of a step of the lab.
pub(super) fn step_output(results: &Path, step: &str) -> Result<String> {
    let path = results.join(step).join("log.txt");
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces a screen wherever it is shown; it must be shown at least once.
pub(super) fn replace_screen(name: &str, screen: &str) -> Result<()> {
    let mut shown_count = 0;
    for document in DOCUMENTS {
        let path = workspace_root().join(document);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(renewed) = with_screen(&text, name, screen) else { continue };
        fs::write(&path, renewed).with_context(|| format!("cannot write {}", path.display()))?;
        shown_count += 1;
    }
    ensure!(shown_count > 0, "no document has <!-- screen {name} -->");
    Ok(())
}

/// The document with a new screen; `None` if it does not show this screen.
fn with_screen(text: &str, name: &str, screen: &str) -> Option<String> {
    // Lines of a terminal may end with blanks, lines of documents do not.
    let lines: Vec<&str> = screen.trim_end().lines().map(str::trim_end).collect();
    replace_between(
        text,
        &format!("screen {name}"),
        &format!("```text\n{}\n```\n", lines.join("\n")),
    )
}

/// The document with other text between `<!-- MARKER -->` and `<!-- end -->`; `None` if it has no
/// such marker.
pub(crate) fn replace_between(text: &str, marker: &str, new: &str) -> Option<String> {
    let begin = format!("<!-- {marker} -->\n");
    let (prefix, remainder) = text.split_once(&begin)?;
    let (_, suffix) = remainder.split_once("<!-- end -->")?;
    Some(format!("{prefix}{begin}{new}<!-- end -->{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_replaces_the_one_before_and_nothing_else() {
        let text = "a\n<!-- screen top -->\n```text\nold\n```\n<!-- end -->\nb\n<!-- screen x \
                    -->\n<!-- end -->\n";
        let renewed = with_screen(text, "top", "one  \n  two\n\n").unwrap();
        let expected = text.replace("old\n", "one\n  two\n");
        assert_eq!(renewed, expected);
        assert_eq!(with_screen(&renewed, "top", "one\n  two"), Some(expected));
        assert_eq!(with_screen(text, "links", "one"), None);
    }
}
