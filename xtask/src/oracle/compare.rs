//! Whether both programs open and compute the same.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use super::Machine;
use super::corpus::{Case, What};
use super::counts::Opened;
use super::ours::{Ours, Planned};
use super::perf::{Perf, Stat};

/// The relative difference of two values that is rounding.
const TOLERANCE: f64 = 1e-5;

/// perf prints 6 digits after the point: of values above `LEAST` the difference may be half of the last.
const LAST_DIGIT: f64 = 1e-6;
const LEAST: f64 = 1e-3;

/// A unit of perf's metrics, and the one that says the same here.
const RENAMED: (&str, &str) = ("core clocks", "cycles");

/// How the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
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
    Differs { kind: Kind, perf: String, ours: String },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("agrees"),
            Self::BothRefuse => f.write_str("refused by both"),
            Self::Differs { kind, perf, ours } => {
                write!(f, "{kind:?}: perf: {perf}; uncore-trace: {ours}")
            }
        }
    }
}

/// A comparison that was made.
pub(super) struct Found<'a> {
    pub(super) case: &'a Case,
    pub(super) outcome: Outcome,
}

/// Makes one comparison.
pub(super) fn compare(case: &Case, machine: &Machine, perf: &Perf, ours: &Ours) -> Result<Outcome> {
    match case.what {
        What::Event => {
            let stat = perf.stat(machine, &["-e", &case.text])?;
            Ok(match (&stat.refused, ours.plan(machine, &case.text)?) {
                (Some(_), Err(_)) => Outcome::BothRefuse,
                (Some(said), Ok(_)) => differs(Kind::RefusedByPerf, said, "counts it"),
                (None, Err(said)) => differs(Kind::RefusedHere, "counts it", &said),
                (None, Ok(planned)) => opened(&stat, &planned),
            })
        }
        What::Metric => {
            // Most metrics are of the cores: neither program need run for each.
            if !machine.metrics.contains(&case.text) {
                return Ok(differs(Kind::RefusedHere, "lists it", "does not list it"));
            }
            let own = ours.measure(machine, &case.text)?;
            let stat = perf.stat(machine, &["-M", &case.text])?;
            Ok(match (&stat.refused, own) {
                (Some(_), Err(_)) => Outcome::BothRefuse,
                (Some(said), Ok(_)) => differs(Kind::RefusedByPerf, said, "computes it"),
                (None, Err(said)) => differs(Kind::RefusedHere, "computes it", &said),
                (None, Ok(rows)) => value(&case.text, &stat.rows, &rows),
            })
        }
    }
}

fn differs(kind: Kind, perf: &str, ours: &str) -> Outcome {
    Outcome::Differs { kind, perf: perf.to_owned(), ours: ours.to_owned() }
}

/// Compares counters as sets, because perf opens twice what a text names twice, then the sums of counts.
fn opened(stat: &Stat, planned: &[Planned]) -> Outcome {
    let of_perf: BTreeSet<&Opened> = stat.opened.iter().collect();
    let own: BTreeSet<&Opened> = planned.iter().map(|planned| &planned.opened).collect();
    if of_perf != own {
        return differs(Kind::Opens, &shown(&of_perf), &shown(&own));
    }
    let Some(first) = planned.first() else { return Outcome::Same };
    let mut sum = 0.0;
    let mut unit = "";
    for row in &stat.rows {
        let (base, factor) = in_base_unit(row["unit"].as_str().unwrap_or_default());
        sum += number(&row["counter-value"]) * factor;
        unit = base;
    }
    let twice = stat.opened.len() as f64 / own.len() as f64;
    let wanted = |factor: fn(&Planned) -> f64| {
        let value = |planned: &Planned| planned.opened.count() as f64 * factor(planned);
        twice * planned.iter().map(value).sum::<f64>()
    };
    let scaled = wanted(|planned| planned.scale);
    // What has no unit in sysfs may have one here, in the catalog: then counts are compared, unless sysfs
    // has the scale.
    let is_same = match unit {
        "" => is_near(sum, scaled) || is_near(sum, wanted(|_| 1.0)),
        unit => unit == first.unit && is_near(sum, scaled),
    };
    if is_same {
        return Outcome::Same;
    }
    differs(Kind::Value, &format!("{sum} {unit}"), &format!("{scaled} {}", first.unit))
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

fn shown(opened: &BTreeSet<&Opened>) -> String {
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
struct Measured<'a> {
    value: f64,
    unit: &'a str,
    /// The counted time, s. perf prints it where the metric uses it.
    duration: f64,
}

impl<'a> Measured<'a> {
    fn by_perf(rows: &'a [Value], metric: &str) -> Option<Self> {
        // The unit, if it has one, and the name.
        let unit = |row: &'a Value| text(row, "metric-unit").strip_suffix(metric);
        rows.iter().find_map(|row| Some(Self::of(row, unit(row)?.trim(), rows)))
    }

    fn here(rows: &'a [Value]) -> Option<Self> {
        let row = rows.iter().find(|row| row.get("metric").is_some())?;
        Some(Self::of(row, text(row, "metric-unit"), rows))
    }

    fn of(row: &Value, unit: &'a str, rows: &[Value]) -> Self {
        let time = rows.iter().find(|row| text(row, "event") == "duration_time");
        let duration = time.map_or(f64::NAN, |row| number(&row["counter-value"]) / 1e9);
        Self { value: number(&row["metric-value"]), unit, duration }
    }
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(f64::NAN)
}

/// Compares a metric. The times that the two counted differ: the values agree as they are, as amounts (rates
/// times time), or as parts of the time.
fn value(metric: &str, of_perf: &[Value], own: &[Value]) -> Outcome {
    let (Some(of_perf), Some(own)) = (Measured::by_perf(of_perf, metric), Measured::here(own))
    else {
        return differs(Kind::Value, &format!("{of_perf:?}"), &format!("{own:?}"));
    };
    let is_same = is_near(of_perf.value, own.value)
        || of_perf.duration.is_finite()
            && [own.duration / of_perf.duration, of_perf.duration / own.duration]
                .iter()
                .any(|times| is_near(of_perf.value, own.value * times));
    // perf has no unit for many metrics whose descriptions name one.
    let is_same_unit =
        ["", own.unit].contains(&of_perf.unit) || (of_perf.unit, own.unit) == RENAMED;
    if is_same && is_same_unit {
        return Outcome::Same;
    }
    let shown = |measured: &Measured<'_>| {
        let Measured { value, unit, duration } = measured;
        format!("{value} {unit} in {duration} s")
    };
    differs(Kind::Value, &shown(&of_perf), &shown(&own))
}

/// Whether two values are equal but for rounding. A division by 0 is none in both.
fn is_near(left: f64, right: f64) -> bool {
    let most = left.abs().max(right.abs());
    let rounding = if most >= LEAST { LAST_DIGIT / 2.0 } else { 0.0 };
    (left - right).abs() <= (TOLERANCE * most).max(rounding)
        || (!left.is_finite() && !right.is_finite())
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
