//! Metrics of perf's tables (`MODEL/metrics/perf`) over the events of one kind of uncore PMU: names
//! and formulas, without descriptions.
//!
//! Metrics with events of the core or of several PMUs, with conditions, or with events that were
//! not imported are left out. A formula counts in events; time is `duration_ns`. Where perf divides
//! by the number of PMUs (`source_count(EVENT) * #num_packages`), inputs and time are pooled here.
//! Where it multiplies a ratio by the number of packages, which have a PMU each, the ratios of the PMUs
//! are added.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Key, text};

/// The metrics of one processor: PMU, name, unit, how instances are combined, and formula.
pub(super) type Metrics = BTreeSet<[String; 5]>;

/// The metrics of a model whose events are known.
pub(super) fn metrics(dir: &Path, model: &str, events: &BTreeMap<Key, String>) -> Result<Metrics> {
    let dir = dir.join(model).join("metrics/perf");
    let mut metrics = Metrics::new();
    // Most clients have no metrics.
    if !dir.exists() {
        return Ok(metrics);
    }
    let files =
        std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for file in files {
        let path = file.with_context(|| format!("cannot list {}", dir.display()))?.path();
        // For a processor with its own memory there is a second file with the same names.
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with("_metrics_perf.json") || name.contains("hbm") {
            continue;
        }
        let read = || format!("cannot read {}", path.display());
        let json = std::fs::read_to_string(&path).with_context(read)?;
        let json: Value = serde_json::from_str(&json).with_context(read)?;
        for metric in json.as_array().with_context(read)? {
            metrics.extend(taken(metric, events));
        }
    }
    Ok(metrics)
}

/// A metric in its imported form; `None` if it is left out.
pub(super) fn taken(metric: &Value, events: &BTreeMap<Key, String>) -> Option<[String; 5]> {
    let (expression, pooled) = without_source_count(text(metric, "MetricExpr"));
    let of_packages = expression.strip_suffix(" * #num_packages");
    let mut pmus = BTreeSet::new();
    let mut tokens = Vec::new();
    let mut is_rate = false;
    for token in of_packages
        .unwrap_or(&expression)
        .replace('(', " ( ")
        .replace(')', " ) ")
        .split_whitespace()
    {
        let first = token.chars().next()?;
        if token == "duration_time" {
            is_rate = true;
            tokens.push("( duration_ns / 1000000000 )".to_owned());
        } else if first.is_ascii_alphabetic() {
            let name = token.to_ascii_lowercase();
            let of: Vec<_> = events.keys().filter(|(_, event)| *event == name).collect();
            let [(pmu, _)] = of[..] else { return None };
            pmus.insert(pmu.clone());
            tokens.push(name);
        } else if "()+-*/".contains(token) || first.is_ascii_digit() {
            tokens.push(token.to_owned());
        } else {
            return None;
        }
    }
    let pmu = pmus.pop_first().filter(|_| pmus.is_empty())?;
    let (factor, unit) = scale(text(metric, "ScaleUnit"));
    let formula = tokens.join(" ").replace(" / 1 ", " ");
    let formula = if factor == "1" { formula } else { format!("{factor} * ( {formula} )") };
    let is_sum = is_rate || of_packages.is_some();
    let across = if pooled || !is_sum { "pool" } else { "sum" };
    let name = grouped(metric);
    Some([pmu, name, unit, across.to_owned(), formula])
}

/// Name and groups of a metric: `NAME` or `NAME:GROUP,GROUP`.
fn grouped(metric: &Value) -> String {
    let (name, groups) = (text(metric, "MetricName"), text(metric, "MetricGroup"));
    let separator = if groups.is_empty() { "" } else { ":" };
    format!("{name}{separator}{}", groups.replace(';', ","))
}

/// The expression with 1 instead of each number of PMUs, and whether there was one.
fn without_source_count(expression: &str) -> (String, bool) {
    let (begin, end) = ("( source_count(", ") * #num_packages )");
    let mut rest = expression;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once(begin) {
        let Some((_, after)) = after.split_once(end) else { break };
        kept.push_str(before);
        kept.push('1');
        rest = after;
    }
    let found = !kept.is_empty();
    (kept + rest, found)
}

/// Factor and unit of `100%`, `1MB/s`; an empty text is a ratio.
fn scale(text: &str) -> (&str, String) {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (factor, unit) = text.split_at(digits);
    let factor = if factor.is_empty() { "1" } else { factor };
    (factor, if unit.is_empty() { "1" } else { unit }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_of_events_of_one_pmu() {
        let key = |pmu: &str, event: &str| ((pmu.to_owned(), event.to_owned()), String::new());
        let events =
            BTreeMap::from([key("cha", "unc_a.b"), key("cha", "unc_ticks"), key("imc", "unc_m")]);
        let made = |expression: &str, scale: &str| {
            let metric = serde_json::json!({
                "MetricName": "m", "MetricExpr": expression, "ScaleUnit": scale
            });
            taken(&metric, &events).map(|[pmu, _, unit, across, formula]| {
                format!("{pmu}: {formula} in {unit} by {across}")
            })
        };
        let ticks = "( UNC_TICKS / ( source_count(UNC_TICKS) * #num_packages ) ) / duration_time";
        assert_eq!(
            made(ticks, "1GHz").unwrap(),
            "cha: ( unc_ticks ) / ( duration_ns / 1000000000 ) in GHz by pool"
        );
        assert_eq!(
            made("( UNC_A.B * 64 / 1000000) / duration_time", "1MB/s").unwrap(),
            "cha: ( unc_a.b * 64 / 1000000 ) / ( duration_ns / 1000000000 ) in MB/s by sum"
        );
        assert_eq!(
            made("UNC_A.B / UNC_TICKS", "100%").unwrap(),
            "cha: 100 * ( unc_a.b / unc_ticks ) in % by pool"
        );
        assert_eq!(
            made("( UNC_A.B / UNC_TICKS ) * #num_packages", "").unwrap(),
            "cha: ( unc_a.b / unc_ticks ) in 1 by sum"
        );
        for left_out in
            ["UNC_A.B / UNC_M", "UNC_A.B / INST", "UNC_A.B if UNC_M else 1", "#x / UNC_M"]
        {
            assert_eq!(made(left_out, ""), None, "{left_out}");
        }
    }
}
