//! The deliberate differences: `tests/oracle/differences.toml`, which docs/limits.md shows.

use anyhow::{Context as _, Result};
use regex::Regex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use uncore_trace_ebpf::stamp::workspace_root;

use super::compare::{DifferenceKind, Outcome};
use super::corpus::Case;

/// The file, below the workspace.
pub(super) const FILE: &str = "tests/oracle/differences.toml";

/// A deliberate difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Difference {
    /// Why it is so: one line, which docs/limits.md has too.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is for readers of the file and of docs"))]
    reason: String,
    kind: DifferenceKind,
    /// What differs: a regular expression of all of `MACHINE TEXT` or `MACHINE -M METRIC`.
    #[serde(deserialize_with = "whole")]
    cases: Regex,
    /// What the error here has: a regular expression, if that tells such cases apart.
    #[serde(default, deserialize_with = "regex")]
    says: Option<Regex>,
    /// One of them, which is always compared.
    pub(super) example: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DifferenceFile {
    #[serde(default)]
    difference: Vec<Difference>,
}

fn regex<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    Regex::new(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
    Regex::new(&format!("^(?:{})$", String::deserialize(from)?)).map_err(D::Error::custom)
}

impl Difference {
    /// The example.
    pub(super) fn example_case(&self) -> Case {
        Case::parse(&self.example)
    }

    /// Whether a case is the example.
    pub(super) fn is_example(&self, case: &Case) -> bool {
        case.to_string() == self.example
    }

    /// Whether it is the reason for a difference.
    pub(super) fn explains(&self, case: &Case, outcome: &Outcome) -> bool {
        let Outcome::Differs { difference: kind, ours, .. } = outcome else { return false };
        self.kind == *kind
            && self.says.as_ref().is_none_or(|says| says.is_match(ours))
            && self.cases.is_match(&case.to_string())
    }
}

/// The differences of the file.
pub(super) fn read_differences() -> Result<Vec<Difference>> {
    let text = std::fs::read_to_string(workspace_root().join(FILE))
        .with_context(|| format!("cannot read {FILE}"))?;
    let file: DifferenceFile =
        toml::from_str(&text).with_context(|| format!("cannot read {FILE}"))?;
    Ok(file.difference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_have_the_reasons_of_all_differences() {
        let text = std::fs::read_to_string(workspace_root().join("docs/limits.md")).unwrap();
        let (_, list) = text.split_once("<!-- oracle -->\n").expect("no mark");
        let (list, _) = list.split_once("<!-- end -->").expect("no end of the list");
        let mut reasons: Vec<String> = Vec::new();
        for Difference { reason, .. } in read_differences().unwrap() {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        let lines: Vec<String> = reasons.iter().map(|reason| format!("- {reason}\n")).collect();
        assert_eq!(list, lines.concat());
    }

    #[test]
    fn each_example_is_one_of_its_cases() {
        for Difference { cases, example, .. } in read_differences().unwrap() {
            assert!(cases.is_match(&example), "{example}");
        }
    }
}
