//! Metrics of perf's tables (`MODEL/metrics/perf`) over the events of one kind of uncore PMU: names
//! and formulas, without descriptions.
//!
//! Metrics with events of the core or of several PMUs, with conditions, or with events that were
//! not imported are left out. A formula counts in events; time is `duration_ns`. Where perf divides
//! by the number of PMUs (`source_count(EVENT) * #num_packages`), inputs and time are pooled here.
//! Where it multiplies a ratio by the number of packages, which have a PMU each, the ratios of the
//! PMUs are added.
//!
//! An event with terms is an input with a name of its own. A `config1` of Skylake-SP's CHA is meant
//! for its second filter, as in the parent module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{PmuEventKey, text_field};

/// PMUs whose events are named in sysfs or by the kernel's header, not in tables.
const NAMED_BY_SYSFS: [&str; 3] = ["amd_iommu", "power", "software"];

/// The metrics of one processor: PMU, name, unit, how instances are combined, and formula.
pub(super) type Metrics = BTreeSet<[String; 5]>;

/// The metrics of a model whose events are known.
pub(super) fn perf_metrics(
    dir: &Path,
    model: &str,
    events: &BTreeMap<PmuEventKey, String>,
) -> Result<Metrics> {
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
            metrics.extend(imported_form(metric, events));
        }
    }
    Ok(metrics)
}

/// A metric in its imported form; `None` if it is left out.
pub(super) fn imported_form(
    metric: &Value,
    events: &BTreeMap<PmuEventKey, String>,
) -> Option<[String; 5]> {
    let (expression, pooled) = without_source_count(text_field(metric, "MetricExpr"));
    let of_packages = expression.strip_suffix(" * #num_packages");
    let mut pmus = BTreeSet::new();
    let mut tokens = Vec::new();
    let mut inputs = BTreeSet::new();
    let mut is_rate = false;
    for token in expression_words(of_packages.unwrap_or(&expression)) {
        let first_char = token.chars().next()?;
        if token == "duration_time" {
            is_rate = true;
            tokens.push("( duration_ns / 1000000000 )".to_owned());
        } else if token == "max" {
            tokens.push(token);
        } else if first_char.is_ascii_alphabetic() {
            let event = FormulaEvent::parse(&token, events)?;
            pmus.insert(event.pmu);
            if !event.terms.is_empty() {
                inputs.insert(format!("{}:{}", event.input, event.terms));
            }
            tokens.push(event.input);
        } else if "()+-*/,".contains(&token) || first_char.is_ascii_digit() {
            tokens.push(token);
        } else {
            return None;
        }
    }
    let pmu = pmus.pop_first().filter(|_| pmus.is_empty())?;
    let (factor, unit) = parse_scale(text_field(metric, "ScaleUnit"));
    let mut formula = tokens.join(" ").replace(" / 1 ", " ");
    if factor != "1" {
        formula = format!("{factor} * ( {formula} )");
    }
    if !inputs.is_empty() {
        formula = format!("{formula} where {}", Vec::from_iter(inputs).join(" "));
    }
    let is_sum = is_rate || of_packages.is_some();
    let across = if pooled || !is_sum { "pool" } else { "sum" };
    let name = name_and_groups(metric);
    Some([pmu, name, unit, across.to_owned(), formula])
}

/// The words of an expression: names, numbers, operators, parentheses and commas.
pub(super) fn expression_words(expression: &str) -> Vec<String> {
    // A comma of terms has a backslash before it.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace("\\,", "\0");
    let spaced = spaced.replace(',', " , ").replace('\0', "\\,");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// The PMU of an event in an expression, if it is an uncore PMU's; a code of one PMU
/// (`cha_0@event\=0x0@`) is of that.
pub(super) fn pmu_of(word: &str, events: &BTreeMap<PmuEventKey, String>) -> Option<String> {
    let pmu_of_code = || {
        let (pmu, code) = word.split_once('@')?;
        let is_code = code.starts_with("event\\=") && pmu.ends_with("_0");
        is_code.then(|| name_of_first(pmu).trim_end_matches("_0").to_owned())
    };
    FormulaEvent::parse(word, events).map(|event| event.pmu).or_else(pmu_of_code)
}

/// The kernel's name of a first PMU: `uncore_cha_0` of `cha_0`.
pub(super) fn name_of_first(pmu: &str) -> String {
    format!("uncore_{}", pmu.trim_start_matches("uncore_"))
}

/// An event in an expression.
struct FormulaEvent {
    pmu: String,
    /// Its name in the formula.
    input: String,
    /// The event with its terms, as between slashes; empty if it has none.
    terms: String,
}

impl FormulaEvent {
    /// Reads `NAME`, `NAME@TERM\=VALUE@`, or `PMU@NAME\,TERM\=VALUE@`; `None` if it is not
    /// imported, or several PMUs have the name. Events of [`NAMED_BY_SYSFS`] are in no table.
    fn parse(token: &str, events: &BTreeMap<PmuEventKey, String>) -> Option<Self> {
        let (begin, terms) = match token.strip_suffix('@').and_then(|token| token.split_once('@')) {
            Some((begin, terms)) => (begin, terms.split("\\,").collect()),
            None => (token, Vec::new()),
        };
        let plain = |text: &str| text.replace('\\', "");
        let known = |name: &str| {
            let matching: Vec<_> = events.keys().filter(|(_, event)| event == name).collect();
            let [(pmu, _)] = matching[..] else { return None };
            Some(pmu.clone())
        };
        let name = plain(begin).to_ascii_lowercase();
        let (pmu, name, terms) = if let Some(pmu) = known(&name) {
            (pmu, name, terms.as_slice())
        } else {
            let (first_term, terms) = terms.split_first()?;
            let event = plain(first_term).to_ascii_lowercase();
            let pmu = NAMED_BY_SYSFS.contains(&name.as_str()).then(|| name.clone());
            (pmu.or_else(|| known(&event))?, event, terms)
        };
        let mut input = name.clone();
        let mut event_words = vec![name];
        for term in terms.iter().map(|term| plain(term)) {
            match term.split_once('=') {
                Some(("name", label)) => input = label.to_ascii_lowercase(),
                Some(("config1", value)) if pmu == "uncore_cha" => {
                    let value = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
                    event_words.push(format!("config1={:#x}", value << 32));
                }
                _ => event_words.push(term),
            }
        }
        if event_words.len() == 1 {
            return Some(Self { pmu, input, terms: String::new() });
        }
        if input == event_words[0] {
            input = event_words.join(".").replace('=', "_");
        }
        Some(Self { pmu, input, terms: event_words.join(",") })
    }
}

/// Name and groups of a metric: `NAME` or `NAME:GROUP,GROUP`.
fn name_and_groups(metric: &Value) -> String {
    let (name, groups) = (text_field(metric, "MetricName"), text_field(metric, "MetricGroup"));
    let separator = if groups.is_empty() { "" } else { ":" };
    format!("{name}{separator}{}", groups.replace(';', ","))
}

/// The expression with 1 instead of each number of PMUs, or of counters (`aggr_nr`), and whether
/// there was one.
fn without_source_count(expression: &str) -> (String, bool) {
    if let Some((prefix, counted)) = expression.split_once("aggr_nr(") {
        let suffix = counted.split_once(')').map_or(counted, |(_, behind_call)| behind_call);
        return (without_source_count(&format!("{prefix}1{suffix}")).0, true);
    }
    let (begin, end) = ("( source_count(", ") * #num_packages )");
    let mut remaining = expression;
    let mut kept = String::new();
    while let Some((prefix, counted)) = remaining.split_once(begin) {
        let Some((_, suffix)) = counted.split_once(end) else { break };
        kept.push_str(prefix);
        kept.push('1');
        remaining = suffix;
    }
    let has_count = !kept.is_empty();
    (kept + remaining, has_count)
}

/// Factor and unit of `100%`, `6.4e-05MB/s`; an empty text is a ratio.
fn parse_scale(text: &str) -> (String, String) {
    let factor = |end: &usize| text[..*end].parse::<f64>().ok();
    let end = (1..=text.len()).rev().find(|end| factor(end).is_some()).unwrap_or(0);
    let unit = match &text[end..] {
        "" => "1",
        "core clocks" => "cycles",
        "accesses per sec" => "accesses/s",
        unit => unit,
    };
    (factor(&end).unwrap_or(1.0).to_string(), unit.to_owned())
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
            imported_form(&metric, &events).map(|[pmu, _, unit, across, formula]| {
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
