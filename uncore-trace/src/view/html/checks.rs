//! Checks for every page.

use super::{Page, SCRIPTS, STYLE, write_document};

/// APIs that parse HTML from a string, execute a string, or load something.
const SINKS: [&str; 8] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "://",
    " on",
    "url(",
];

/// The page is complete, and its scripts use no [`SINKS`].
pub(in crate::view) fn is_whole_and_loads_nothing(page: &Page) {
    let mut page_bytes = Vec::new();
    write_document(&mut page_bytes, page, |json| json.write_key("x")?.write_value("</script><b>"))
        .unwrap();
    let text = String::from_utf8(page_bytes).unwrap();
    assert!(text.contains("\"x\":\"\\u003c/script\\u003e"));
    assert!(text.contains(&format!("<style>{}</style>", page.page_style())));
    assert!(text.contains(&format!("<script>{}</script>", page.page_script())));
    // Two scripts: data and program.
    assert_eq!(text.matches("</script").count(), 2);
    assert_eq!(text.matches("</style").count(), 1);
    // `<!--` in a script changes where it ends.
    assert!(!page.page_script().contains("<!--") && !page.page_script().contains('\r'));
    let shared = SCRIPTS.iter().chain([&STYLE, &page.document]);
    for text_of_page in shared.chain(page.scripts).chain(page.styles.last()) {
        for sink in SINKS {
            let lines = text_of_page.lines().filter(|line| !line.trim_start().starts_with("//"));
            let uses: Vec<_> = lines.filter(|line| is_used(line, sink)).collect();
            assert!(uses.is_empty(), "{sink}: {uses:?}");
        }
    }
}

/// Whether a line uses a sink; ` on` begins an inline handler if the word is followed by `=`.
fn is_used(line: &str, sink: &str) -> bool {
    line.match_indices(sink).any(|(position, _)| {
        let after_sink = &line[position + sink.len()..];
        let word = after_sink.trim_start_matches(|c: char| c.is_ascii_lowercase());
        sink != " on" || word.starts_with('=') && word.len() < after_sink.len()
    })
}
