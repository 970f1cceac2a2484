//! CSV output (`-x`): the fields of `perf stat -x`, in the same order.
//!
//! `[time or "summary"] [place [counters]] value unit event [cgroup] [noise%] running_ns running% metric_value metric_unit [method confidence]`
//! (`tools/perf/util/stat-display.c`, Linux 7.2). Guarantee: a field with the separator, a quote or
//! a newline is quoted (RFC 4180). perf does not quote, but a filter has commas.

use super::row::{Location, Row, Value, When};
use crate::text::{csv_field, printable};

/// One line a row.
pub fn rows(rows: &[Row], when: When, separator: &str) -> String {
    let mut text = String::new();
    for row in rows {
        let fields = fields(row, when);
        let fields: Vec<_> = fields.iter().map(|field| csv_field(field, separator)).collect();
        text.push_str(&fields.join(separator));
        text.push('\n');
    }
    text
}

fn fields(row: &Row, when: When) -> Vec<String> {
    let mut fields = Vec::new();
    match when {
        When::Whole => {}
        // Without padding, which would be quoted where blanks separate the fields.
        When::Until(seconds) => fields.push(format!("{seconds:.9}")),
        When::Summary => fields.push("summary".to_owned()),
    }
    match row.place {
        Location::Machine => {}
        Location::Cpu(_) => fields.push(row.place.to_string()),
        place => fields.extend([place.to_string(), row.members.to_string()]),
    }
    let label = printable(&row.label).into_owned();
    let (value, unit) = match (&row.value, &row.counted) {
        (Value::Number(value), Some(counted)) => {
            let decimals = if counted.integral { 0 } else { 2 };
            (format!("{value:.decimals$}"), unit(&row.unit).to_owned())
        }
        (Value::Number(_), None) => (String::new(), String::new()),
        (other, _) => (other.words().unwrap_or_default(), unit(&row.unit).to_owned()),
    };
    fields.extend([value, unit, label]);
    if let Some(part) = &row.part {
        fields.push(printable(&part.cgroup).into_owned());
    }
    fields.extend(row.noise.map(|noise| format!("{noise:.2}%")));
    match &row.counted {
        Some(counted) => {
            fields.push(counted.running_ns.to_string());
            fields.push(format!("{:.2}", 100.0 * counted.running));
        }
        None => fields.extend([String::new(), String::new()]),
    }
    fields.extend(metric(row));
    if let Some(part) = &row.part {
        fields.push(part.method.clone());
        fields.push(part.confidence.map_or_else(String::new, |sure| format!("{sure:.2}")));
    }
    fields
}

/// The two fields of perf's metric: the metric, the share of the whole, or the rate.
fn metric(row: &Row) -> [String; 2] {
    let number = |value: f64, unit: &str| [format!("{value:.6}"), unit.to_owned()];
    match (&row.part, &row.rate, &row.value) {
        (_, _, Value::Number(value)) if row.counted.is_none() => number(*value, &row.unit),
        (Some(part), _, _) => match part.share {
            Some(share) => number(100.0 * share, "%"),
            None => Default::default(),
        },
        (None, Some(rate), _) => number(rate.value, rate.unit),
        _ => Default::default(),
    }
}

/// Units of the catalog that only say what was counted: as in perf, such values have no unit.
const COUNTED: [&str; 4] = ["count", "cycles", "requests", "request_cycles"];

/// The field `unit`: empty if the value is a number of events.
pub fn unit(unit: &str) -> &str {
    if COUNTED.contains(&unit) { "" } else { unit }
}

#[cfg(test)]
mod tests {
    use super::super::row::sample::*;
    use super::*;

    #[test]
    fn fields_are_those_of_perf() {
        let shown = [
            rows(&all(), When::Whole, ","),
            rows(&by_socket(), When::Until(1.000_102_5), ";"),
            rows(&by_socket(), When::Summary, ","),
            rows(&by_cgroup(), When::Whole, ","),
            rows(&by_socket(), When::Until(1.000_102_5), " "),
            rows(&by_socket(), When::Summary, " "),
        ];
        insta::assert_snapshot!(shown.join("\n"));
    }
}
