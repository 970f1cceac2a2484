//! Checks for every page.

use super::{Page, SCRIPTS, STYLE, write};

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
    let mut out = Vec::new();
    write(&mut out, page, |json| json.key("x")?.value("</script><b>")).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\"x\":\"\\u003c/script\\u003e"));
    assert!(text.contains(&format!("<style>{}</style>", page.style())));
    assert!(text.contains(&format!("<script>{}</script>", page.script())));
    // Two scripts: data and program.
    assert_eq!(text.matches("</script").count(), 2);
    assert_eq!(text.matches("</style").count(), 1);
    // `<!--` in a script changes where it ends.
    assert!(!page.script().contains("<!--") && !page.script().contains('\r'));
    let shared = SCRIPTS.iter().chain([&STYLE, &page.document]);
    for own in shared.chain(page.scripts).chain(page.styles.last()) {
        for sink in SINKS {
            let lines = own.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found: Vec<_> = lines.filter(|line| is_used(line, sink)).collect();
            assert!(found.is_empty(), "{sink}: {found:?}");
        }
    }
}

/// Whether a line uses a sink; ` on` begins an inline handler if the word is followed by `=`.
fn is_used(line: &str, sink: &str) -> bool {
    line.match_indices(sink).any(|(at, _)| {
        let rest = &line[at + sink.len()..];
        let word = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
        sink != " on" || word.starts_with('=') && word.len() < rest.len()
    })
}
