//! Why a metric of perf's tables is not imported: `left_out.txt`, with names by processor and
//! reason.

use std::collections::BTreeMap;

use serde_json::Value;

use super::perf::Lines;
use super::{PmuEventKey, metrics, text_field};

/// Words of expressions that are no events.
const WORDS: [&str; 10] = [
    "duration_time",
    "max",
    "min",
    "d_ratio",
    "has_event",
    "source_count",
    "aggr_nr",
    "if",
    "else",
    "NaN",
];

/// The word of `REASONS` in `catalog/vendor.rs` for a metric that is not imported; `events` are
/// those of uncore PMUs.
pub(super) fn left_out_reason(
    expression: &str,
    events: &BTreeMap<PmuEventKey, String>,
) -> &'static str {
    let is_event = |word: &String| {
        let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic());
        is_name && !WORDS.contains(&word.as_str())
    };
    let mut pmus = Vec::new();
    for word in metrics::expression_words(expression).into_iter().filter(is_event) {
        match metrics::pmu_of(&word, events) {
            Some(pmu) => pmus.push(pmu),
            None if word.to_ascii_lowercase().contains("unc_") => return "event",
            None => return "cores",
        }
    }
    pmus.sort();
    pmus.dedup();
    if pmus.len() > 1 { "pmus" } else { "form" }
}

/// Adds a metric that is not imported.
pub(super) fn add_left_out(
    left_out: &mut Lines,
    metric: &Value,
    reason: &str,
    processors: &[String],
) {
    let key = (reason.to_owned(), text_field(metric, "MetricName").to_owned());
    let known = left_out.entry(key).or_default();
    known.extend(processors.iter().cloned());
    known.sort();
    known.dedup();
}
