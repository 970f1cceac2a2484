//! The deliberate differences: `tests/oracle/differences.toml`, which docs/limits.md shows.

use std::cmp::Ordering;

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

/// The file: all deliberate differences.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DifferenceFile {
    /// The release of perf that they were found with: its first two numbers.
    perf: String,
    #[serde(default, rename = "difference")]
    pub(super) list: Vec<Difference>,
}

impl DifferenceFile {
    /// Why differences without a reason are no failure: a sentence, if a perf of `version` is not
    /// the one of the file.
    pub(super) fn explain_release(&self, version: &str) -> Option<String> {
        let numbers = |version: &str| -> Vec<u32> {
            version.split(['.', '-']).take(2).map_while(|number| number.parse().ok()).collect()
        };
        let relation = match numbers(version).cmp(&numbers(&self.perf)) {
            Ordering::Equal => return None,
            Ordering::Greater => "newer",
            Ordering::Less => "older",
        };
        let Self { perf, .. } = self;
        Some(format!("perf {version} is {relation} than {perf}, for which {FILE} was made"))
    }
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
pub(super) fn read_differences() -> Result<DifferenceFile> {
    let text = std::fs::read_to_string(workspace_root().join(FILE))
        .with_context(|| format!("cannot read {FILE}"))?;
    toml::from_str(&text).with_context(|| format!("cannot read {FILE}"))
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
        for Difference { reason, .. } in read_differences().unwrap().list {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        let lines: Vec<String> = reasons.iter().map(|reason| format!("- {reason}\n")).collect();
        assert_eq!(list, lines.concat());
    }

    #[test]
    fn another_release_of_perf_is_not_judged() {
        let differences = DifferenceFile { perf: "7.2".to_owned(), list: Vec::new() };
        for version in ["7.2", "7.2.13", "7.2-rc1"] {
            assert_eq!(differences.explain_release(version), None);
        }
        assert_eq!(
            differences.explain_release("7.10.1").unwrap(),
            "perf 7.10.1 is newer than 7.2, for which tests/oracle/differences.toml was made"
        );
        assert!(differences.explain_release("6.18").unwrap().contains("is older than 7.2"));
    }

    #[test]
    fn each_example_is_one_of_its_cases() {
        for Difference { cases, example, .. } in read_differences().unwrap().list {
            assert!(cases.is_match(&example), "{example}");
        }
    }
}
