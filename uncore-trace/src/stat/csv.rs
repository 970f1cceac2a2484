//! CSV output (`-x`): the fields of `perf stat -x`, in the same order.
//!
//! `[time or "summary"] [place [counters]] value unit event [cgroup] [noise%] running_ns running%
//! metric_value metric_unit [method confidence]` (`tools/perf/util/stat-display.c`, Linux 7.2).
//! Guarantee: a field with the separator, a quote or a newline is quoted (RFC 4180). perf does not
//! quote, but a filter has commas.

use super::row::{Location, RowPeriod, RowValue, StatRow};
use crate::text::{csv_field, printable};

/// One line a row.
pub fn rows(rows: &[StatRow], when: RowPeriod, separator: &str) -> String {
    let mut text = String::new();
    for row in rows {
        let fields = row_fields(row, when);
        let fields: Vec<_> = fields.iter().map(|field| csv_field(field, separator)).collect();
        text.push_str(&fields.join(separator));
        text.push('\n');
    }
    text
}

fn row_fields(row: &StatRow, when: RowPeriod) -> Vec<String> {
    let mut fields = Vec::new();
    match when {
        RowPeriod::Whole => {}
        // Without padding, which would be quoted where blanks separate the fields.
        RowPeriod::Until(seconds) => fields.push(format!("{seconds:.9}")),
        RowPeriod::Summary => fields.push("summary".to_owned()),
    }
    match row.location {
        Location::Machine => {}
        Location::Cpu(_) => fields.push(row.location.to_string()),
        location => fields.extend([location.to_string(), row.members.to_string()]),
    }
    let label = printable(&row.label).into_owned();
    let (value, unit) = match (&row.value, &row.counted) {
        (RowValue::Number(value), Some(counted)) => {
            let decimals = if counted.integral { 0 } else { 2 };
            (format!("{value:.decimals$}"), unit(&row.unit).to_owned())
        }
        (RowValue::Number(_), None) => (String::new(), String::new()),
        (no_number, _) => (no_number.as_words().unwrap_or_default(), unit(&row.unit).to_owned()),
    };
    fields.extend([value, unit, label]);
    if let Some(cgroup_share) = &row.cgroup_share {
        fields.push(printable(&cgroup_share.cgroup).into_owned());
    }
    fields.extend(row.noise.map(|noise| format!("{noise:.2}%")));
    match &row.counted {
        Some(counted) => {
            fields.push(counted.running_ns.to_string());
            fields.push(format!("{:.2}", 100.0 * counted.running));
        }
        None => fields.extend([String::new(), String::new()]),
    }
    fields.extend(metric_fields(row));
    if let Some(cgroup_share) = &row.cgroup_share {
        fields.push(cgroup_share.method.clone());
        fields.push(cgroup_share.confidence.map_or_else(String::new, |sure| format!("{sure:.2}")));
    }
    fields
}

/// The two fields of perf's metric: the metric, the share of the whole, or the rate.
fn metric_fields(row: &StatRow) -> [String; 2] {
    let number = |value: f64, unit: &str| [format!("{value:.6}"), unit.to_owned()];
    match (&row.cgroup_share, &row.rate, &row.value) {
        (_, _, RowValue::Number(value)) if row.counted.is_none() => number(*value, &row.unit),
        (Some(cgroup_share), _, _) => match cgroup_share.share {
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
            rows(&all(), RowPeriod::Whole, ","),
            rows(&by_socket(), RowPeriod::Until(1.000_102_5), ";"),
            rows(&by_socket(), RowPeriod::Summary, ","),
            rows(&by_cgroup(), RowPeriod::Whole, ","),
            rows(&by_socket(), RowPeriod::Until(1.000_102_5), " "),
            rows(&by_socket(), RowPeriod::Summary, " "),
        ];
        insta::assert_snapshot!(shown.join("\n"));
    }
}
