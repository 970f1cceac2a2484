//! Whether both programs open and compute the same.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use super::OracleMachine;
use super::corpus::{Case, CaseSubject};
use super::counts::Opened;
use super::ours::{OracleCounter, Ours};
use super::perf::{PerfProgram, Stat};

/// The relative difference of two values that is rounding.
const TOLERANCE: f64 = 1e-5;

/// perf prints 6 digits after the point: of values above `LEAST` the difference may be half of the
/// last.
const LAST_DIGIT: f64 = 1e-6;
const LEAST: f64 = 1e-3;

/// A unit of perf's metrics, and the one that says the same here.
const RENAMED: (&str, &str) = ("core clocks", "cycles");

/// How the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DifferenceKind {
    /// Only perf counts it, or lists it as a metric.
    RefusedHere,
    /// Only this program counts it.
    RefusedByPerf,
    /// They open other counters.
    Opens,
    /// They make another value or unit of the same counts.
    Value,
}

/// What came of a comparison.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Same,
    BothRefuse,
    Differs { difference: DifferenceKind, perf: String, ours: String },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("agrees"),
            Self::BothRefuse => f.write_str("refused by both"),
            Self::Differs { difference, perf, ours } => {
                write!(f, "{difference:?}: perf: {perf}; uncore-trace: {ours}")
            }
        }
    }
}

/// A comparison that was made.
pub(super) struct CaseOutcome<'a> {
    pub(super) case: &'a Case,
    pub(super) outcome: Outcome,
}

/// Makes one comparison.
pub(super) fn compare_case(
    case: &Case,
    machine: &OracleMachine,
    perf: &PerfProgram,
    ours: &Ours,
) -> Result<Outcome> {
    match case.subject {
        CaseSubject::Event => {
            let stat = perf.run_stat(machine, &["-e", &case.text])?;
            Ok(match (&stat.refused, ours.plan_event(machine, &case.text)?) {
                (Some(_), Err(_)) => Outcome::BothRefuse,
                (Some(refusal), Ok(_)) => {
                    differing(DifferenceKind::RefusedByPerf, refusal, "counts it")
                }
                (None, Err(refusal)) => {
                    differing(DifferenceKind::RefusedHere, "counts it", &refusal)
                }
                (None, Ok(planned)) => compare_counters(&stat, &planned),
            })
        }
        CaseSubject::Metric => {
            // Most metrics are of the cores: neither program need run for each.
            if !machine.metrics.contains(&case.text) {
                return Ok(differing(DifferenceKind::RefusedHere, "lists it", "does not list it"));
            }
            let our_rows = ours.measure_metric(machine, &case.text)?;
            let stat = perf.run_stat(machine, &["-M", &case.text])?;
            Ok(match (&stat.refused, our_rows) {
                (Some(_), Err(_)) => Outcome::BothRefuse,
                (Some(refusal), Ok(_)) => {
                    differing(DifferenceKind::RefusedByPerf, refusal, "computes it")
                }
                (None, Err(refusal)) => {
                    differing(DifferenceKind::RefusedHere, "computes it", &refusal)
                }
                (None, Ok(rows)) => compare_metric(&case.text, &stat.rows, &rows),
            })
        }
    }
}

fn differing(difference: DifferenceKind, perf: &str, ours: &str) -> Outcome {
    Outcome::Differs { difference, perf: perf.to_owned(), ours: ours.to_owned() }
}

/// Compares counters as sets, because perf opens twice what a text names twice, then the sums of
/// counts.
fn compare_counters(stat: &Stat, planned: &[OracleCounter]) -> Outcome {
    let perf_counters: BTreeSet<&Opened> = stat.opened.iter().collect();
    let our_counters: BTreeSet<&Opened> = planned.iter().map(|planned| &planned.opened).collect();
    if perf_counters != our_counters {
        return differing(
            DifferenceKind::Opens,
            &format_counters(&perf_counters),
            &format_counters(&our_counters),
        );
    }
    let Some(first_planned) = planned.first() else { return Outcome::Same };
    let mut sum = 0.0;
    let mut unit = "";
    for row in &stat.rows {
        let (base, factor) = in_base_unit(row["unit"].as_str().unwrap_or_default());
        sum += parse_number(&row["counter-value"]) * factor;
        unit = base;
    }
    let twice = stat.opened.len() as f64 / our_counters.len() as f64;
    let wanted_sum = |factor: fn(&OracleCounter) -> f64| {
        let value = |planned: &OracleCounter| planned.opened.fixed_count() as f64 * factor(planned);
        twice * planned.iter().map(value).sum::<f64>()
    };
    let scaled_sum = wanted_sum(|planned| planned.scale);
    // What has no unit in sysfs may have one here, in the catalog: then counts are compared, unless
    // sysfs has the scale.
    let is_same = match unit {
        "" => is_near(sum, scaled_sum) || is_near(sum, wanted_sum(|_| 1.0)),
        unit => unit == first_planned.unit && is_near(sum, scaled_sum),
    };
    if is_same {
        return Outcome::Same;
    }
    let ours = format!("{scaled_sum} {}", first_planned.unit);
    differing(DifferenceKind::Value, &format!("{sum} {unit}"), &ours)
}

/// perf's unit in that of this program, and the factor.
fn in_base_unit(unit: &str) -> (&str, f64) {
    match unit {
        "KiB" => ("bytes", 1024.0),
        // Drivers that say MB have a scale of 2^-20.
        "MiB" | "MB" => ("bytes", 1_048_576.0),
        "GiB" => ("bytes", 1_073_741_824.0),
        "Bytes" | "B" => ("bytes", 1.0),
        "msec" => ("ns", 1e6),
        unit => (unit, 1.0),
    }
}

fn format_counters(opened: &BTreeSet<&Opened>) -> String {
    let text = |opened: &&Opened| {
        let [config, config1, config2, config3] = opened.config;
        let Opened { attr_type, cpu, .. } = opened;
        format!("{attr_type}:{config:#x},{config1:#x},{config2:#x},{config3:#x}@{cpu}")
    };
    let mut texts: Vec<_> = opened.iter().take(4).map(text).collect();
    if opened.len() > 4 {
        texts.push(format!("{} more", opened.len() - 4));
    }
    texts.join(" ")
}

/// The value of a metric.
struct MetricReading<'a> {
    value: f64,
    unit: &'a str,
    /// The counted time, s. perf prints it where the metric uses it.
    duration: f64,
}

impl<'a> MetricReading<'a> {
    fn from_perf_rows(rows: &'a [Value], metric: &str) -> Option<Self> {
        // The unit, if it has one, and the name.
        let unit = |row: &'a Value| text_field(row, "metric-unit").strip_suffix(metric);
        rows.iter().find_map(|row| Some(Self::from_row(row, unit(row)?.trim(), rows)))
    }

    fn from_our_rows(rows: &'a [Value]) -> Option<Self> {
        let row = rows.iter().find(|row| row.get("metric").is_some())?;
        Some(Self::from_row(row, text_field(row, "metric-unit"), rows))
    }

    fn from_row(row: &Value, unit: &'a str, rows: &[Value]) -> Self {
        let time = rows.iter().find(|row| text_field(row, "event") == "duration_time");
        let duration = time.map_or(f64::NAN, |row| parse_number(&row["counter-value"]) / 1e9);
        Self { value: parse_number(&row["metric-value"]), unit, duration }
    }
}

fn text_field<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn parse_number(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(f64::NAN)
}

/// Compares a metric. The times that the two counted differ: the values agree as they are, as
/// amounts (rates times time), or as parts of the time.
fn compare_metric(metric: &str, of_perf: &[Value], our_rows: &[Value]) -> Outcome {
    let (Some(of_perf), Some(ours)) =
        (MetricReading::from_perf_rows(of_perf, metric), MetricReading::from_our_rows(our_rows))
    else {
        return differing(DifferenceKind::Value, &format!("{of_perf:?}"), &format!("{our_rows:?}"));
    };
    let is_same = is_near(of_perf.value, ours.value)
        || of_perf.duration.is_finite()
            && [ours.duration / of_perf.duration, of_perf.duration / ours.duration]
                .iter()
                .any(|times| is_near(of_perf.value, ours.value * times));
    // perf has no unit for many metrics whose descriptions name one.
    let is_same_unit =
        ["", ours.unit].contains(&of_perf.unit) || (of_perf.unit, ours.unit) == RENAMED;
    if is_same && is_same_unit {
        return Outcome::Same;
    }
    let shown = |measured: &MetricReading<'_>| {
        let MetricReading { value, unit, duration } = measured;
        format!("{value} {unit} in {duration} s")
    };
    differing(DifferenceKind::Value, &shown(&of_perf), &shown(&ours))
}

/// Whether two values are equal but for rounding. A division by 0 is none in both.
fn is_near(first_value: f64, second_value: f64) -> bool {
    let magnitude = first_value.abs().max(second_value.abs());
    let rounding = if magnitude >= LEAST { LAST_DIGIT / 2.0 } else { 0.0 };
    (first_value - second_value).abs() <= (TOLERANCE * magnitude).max(rounding)
        || (!first_value.is_finite() && !second_value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_that_differ_are_not_near() {
        assert!(!is_near(0.01, 0.01001));
        assert!(!is_near(1e-6, 1.1e-6));
        assert!(!is_near(0.0, 1e-9));
        assert!(is_near(1e9, 1e9 + 1.0));
        assert!(is_near(f64::NAN, f64::INFINITY));
    }
}
