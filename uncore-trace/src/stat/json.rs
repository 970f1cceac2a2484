//! JSON output (`-j`): one object per line, with the keys of `perf stat -j`.
//!
//! As in perf, `counter-value` is a string, because it may be `<not counted>`; `metric-value` is a
//! number. Keys that perf does not have: `metric` (name of a metric), `missing` (its missing
//! inputs), `percent-of-peak` (of a bandwidth), `method` and `confidence` of a cgroup's part.
//! Guarantee: a value that is not known is null or absent, never 0.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::csv::unit;
use super::row::{CgroupShare, CounterFields, Location, RowPeriod, RowValue, StatRow};

/// A row as an object, with the keys in perf's order.
struct JsonRow<'a> {
    row: &'a StatRow,
    when: RowPeriod,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.when {
            RowPeriod::Whole => {}
            RowPeriod::Until(seconds) => {
                map.serialize_entry("interval", &round_to(seconds, 1e9))?;
            }
            RowPeriod::Summary => map.serialize_entry("summary", &true)?,
        }
        write_location(self.row, &mut map)?;
        match &self.row.counted {
            Some(counted) => write_event(self.row, counted, &mut map)?,
            None => write_metric(self.row, &mut map)?,
        }
        map.end()
    }
}

fn write_location<M: SerializeMap>(row: &StatRow, map: &mut M) -> Result<(), M::Error> {
    let key = row.location.kind_name();
    match row.location {
        Location::Machine => Ok(()),
        Location::Cpu(cpu) => map.serialize_entry(key, &cpu.to_string()),
        location => {
            map.serialize_entry(key, &location.to_string())?;
            map.serialize_entry("counters", &row.members)
        }
    }
}

fn write_event<M: SerializeMap>(
    row: &StatRow,
    counted: &CounterFields,
    map: &mut M,
) -> Result<(), M::Error> {
    let value = row.value.as_number().map(|value| format!("{value:.6}"));
    map.serialize_entry("counter-value", &value.or_else(|| row.value.as_words()))?;
    map.serialize_entry("unit", unit(&row.unit))?;
    map.serialize_entry("event", &row.label)?;
    if let Some(cgroup_share) = &row.cgroup_share {
        map.serialize_entry("cgroup", &cgroup_share.cgroup)?;
    }
    write_noise(row, map)?;
    map.serialize_entry("event-runtime", &counted.running_ns)?;
    map.serialize_entry("pcnt-running", &round_to(100.0 * counted.running, 100.0))?;
    if let Some(cgroup_share) = &row.cgroup_share {
        let share = cgroup_share.share.map(|share| round_to(100.0 * share, 1e6));
        map.serialize_entry("metric-value", &share)?;
        map.serialize_entry("metric-unit", "%")?;
        write_method(cgroup_share, map)?;
    } else if let Some(rate) = &row.rate {
        map.serialize_entry("metric-value", &round_to(rate.value, 1e6))?;
        map.serialize_entry("metric-unit", rate.unit)?;
    }
    Ok(())
}

fn write_metric<M: SerializeMap>(row: &StatRow, map: &mut M) -> Result<(), M::Error> {
    map.serialize_entry("metric", &row.label)?;
    if let Some(cgroup_share) = &row.cgroup_share {
        map.serialize_entry("cgroup", &cgroup_share.cgroup)?;
    }
    if let RowValue::Missing(inputs) = &row.value {
        map.serialize_entry("missing", inputs)?;
    }
    write_noise(row, map)?;
    map.serialize_entry("metric-value", &row.value.as_number())?;
    map.serialize_entry("metric-unit", &row.unit)?;
    if let Some(rate) = &row.rate {
        map.serialize_entry("percent-of-peak", &round_to(rate.value, 1e6))?;
    }
    row.cgroup_share.as_ref().map_or(Ok(()), |cgroup_share| write_method(cgroup_share, map))
}

/// Writes the method and the confidence of a cgroup's share.
fn write_method<M: SerializeMap>(cgroup_share: &CgroupShare, map: &mut M) -> Result<(), M::Error> {
    let method = Some(&cgroup_share.method).filter(|method| !method.is_empty());
    map.serialize_entry("method", &method)?;
    map.serialize_entry("confidence", &cgroup_share.confidence)
}

fn write_noise<M: SerializeMap>(row: &StatRow, map: &mut M) -> Result<(), M::Error> {
    let Some(noise) = row.noise else { return Ok(()) };
    map.serialize_entry("variance", &round_to(noise, 100.0))
}

/// One line a row.
pub fn rows(rows: &[StatRow], when: RowPeriod) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&serde_json::to_string(&JsonRow { row, when })?);
        text.push('\n');
    }
    Ok(text)
}

/// Rounds to the significant digits.
fn round_to(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::super::row::sample::*;
    use super::*;

    #[test]
    fn keys_are_those_of_perf() {
        let shown = [
            rows(&all(), RowPeriod::Whole).unwrap(),
            rows(&by_socket(), RowPeriod::Until(1.000_102_5)).unwrap(),
            rows(&by_socket(), RowPeriod::Summary).unwrap(),
            rows(&by_cgroup(), RowPeriod::Whole).unwrap(),
        ];
        insta::assert_snapshot!(shown.join("\n"));
    }
}
