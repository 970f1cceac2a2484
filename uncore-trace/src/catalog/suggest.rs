//! "Did you mean": the known name nearest to a wrong one, and a short list of names.

use crate::text::{few, printable};

/// Smallest similarity, 0 to 1, for a suggestion; less similar names would not help.
const ALIKE: f64 = 0.55;

/// Number of names in an error before the rest is given as a number: two lines.
const SHOWN: usize = 24;

/// The name most similar to `wrong`, if any is similar enough; case-insensitive.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let alike = |name: &str| {
        strsim::jaro_winkler(&wrong, &name.to_lowercase())
            .min(strsim::normalized_damerau_levenshtein(&wrong, &name.to_lowercase()) + 0.2)
    };
    let known = known.into_iter().map(|name| (alike(name), name));
    let best = known.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(alike, _)| *alike >= ALIKE).map(|(_, name)| name)
}

/// ` (did you mean X?)`, or an empty text.
pub fn did_you_mean(wrong: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(wrong, known.iter().map(AsRef::as_ref)) {
        Some(name) => format!(" (did you mean {}?)", printable(name)),
        None => String::new(),
    }
}

/// `a, b, c and 7 more`, escaped for a terminal; `none` if there are none.
pub fn list(names: impl IntoIterator<Item: AsRef<str>>) -> String {
    few(names, SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["rd_bytes_loc", "wr_bytes_loc", "cycles"];
        assert_eq!(nearest("rd_bytes_lo", known), Some("rd_bytes_loc"));
        assert_eq!(nearest("CYCLE", known), Some("cycles"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(did_you_mean("zzz", known), "");
    }

    #[test]
    fn lists_are_short_and_printable() {
        assert_eq!(list([""; 0]), "none");
        assert_eq!(list(["a\n", "b"]), "a\\n, b");
        assert!(list(vec!["x"; 30]).ends_with("and 6 more"));
        assert_eq!(few(["a", "b", "c"], 2), "a, b and 1 more");
    }
}
