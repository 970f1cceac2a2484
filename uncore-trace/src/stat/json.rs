//! JSON output (`-j`): one object per line, with the keys of `perf stat -j`.
//!
//! As in perf, `counter-value` is a string, because it may be `<not counted>`; `metric-value` is a
//! number. Keys that perf does not have: `metric` (name of a metric), `missing` (its missing
//! inputs), `percent-of-peak` (of a bandwidth), `method` and `confidence` of a cgroup's part.
//! Guarantee: a value that is not known is null or absent, never 0.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::csv::unit;
use super::row::{CgroupShare, Counted, Location, Row, Value, When};

/// A row as an object, with the keys in perf's order.
struct JsonRow<'a> {
    row: &'a Row,
    when: When,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.when {
            When::Whole => {}
            When::Until(seconds) => map.serialize_entry("interval", &rounded(seconds, 1e9))?,
            When::Summary => map.serialize_entry("summary", &true)?,
        }
        place(self.row, &mut map)?;
        match &self.row.counted {
            Some(counted) => event(self.row, counted, &mut map)?,
            None => metric(self.row, &mut map)?,
        }
        map.end()
    }
}

fn place<M: SerializeMap>(row: &Row, map: &mut M) -> Result<(), M::Error> {
    let key = row.place.kind();
    match row.place {
        Location::Machine => Ok(()),
        Location::Cpu(cpu) => map.serialize_entry(key, &cpu.to_string()),
        place => {
            map.serialize_entry(key, &place.to_string())?;
            map.serialize_entry("counters", &row.members)
        }
    }
}

fn event<M: SerializeMap>(row: &Row, counted: &Counted, map: &mut M) -> Result<(), M::Error> {
    let value = row.value.number().map(|value| format!("{value:.6}"));
    map.serialize_entry("counter-value", &value.or_else(|| row.value.words()))?;
    map.serialize_entry("unit", unit(&row.unit))?;
    map.serialize_entry("event", &row.label)?;
    if let Some(part) = &row.part {
        map.serialize_entry("cgroup", &part.cgroup)?;
    }
    noise(row, map)?;
    map.serialize_entry("event-runtime", &counted.running_ns)?;
    map.serialize_entry("pcnt-running", &rounded(100.0 * counted.running, 100.0))?;
    if let Some(part) = &row.part {
        let share = part.share.map(|share| rounded(100.0 * share, 1e6));
        map.serialize_entry("metric-value", &share)?;
        map.serialize_entry("metric-unit", "%")?;
        how(part, map)?;
    } else if let Some(rate) = &row.rate {
        map.serialize_entry("metric-value", &rounded(rate.value, 1e6))?;
        map.serialize_entry("metric-unit", rate.unit)?;
    }
    Ok(())
}

fn metric<M: SerializeMap>(row: &Row, map: &mut M) -> Result<(), M::Error> {
    map.serialize_entry("metric", &row.label)?;
    if let Some(part) = &row.part {
        map.serialize_entry("cgroup", &part.cgroup)?;
    }
    if let Value::Missing(inputs) = &row.value {
        map.serialize_entry("missing", inputs)?;
    }
    noise(row, map)?;
    map.serialize_entry("metric-value", &row.value.number())?;
    map.serialize_entry("metric-unit", &row.unit)?;
    if let Some(rate) = &row.rate {
        map.serialize_entry("percent-of-peak", &rounded(rate.value, 1e6))?;
    }
    row.part.as_ref().map_or(Ok(()), |part| how(part, map))
}

/// Method and confidence of a part.
fn how<M: SerializeMap>(part: &CgroupShare, map: &mut M) -> Result<(), M::Error> {
    let method = Some(&part.method).filter(|method| !method.is_empty());
    map.serialize_entry("method", &method)?;
    map.serialize_entry("confidence", &part.confidence)
}

fn noise<M: SerializeMap>(row: &Row, map: &mut M) -> Result<(), M::Error> {
    let Some(noise) = row.noise else { return Ok(()) };
    map.serialize_entry("variance", &rounded(noise, 100.0))
}

/// One line a row.
pub fn rows(rows: &[Row], when: When) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&serde_json::to_string(&JsonRow { row, when })?);
        text.push('\n');
    }
    Ok(text)
}

/// Rounds to the significant digits.
fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::super::row::sample::*;
    use super::*;

    #[test]
    fn keys_are_those_of_perf() {
        let shown = [
            rows(&all(), When::Whole).unwrap(),
            rows(&by_socket(), When::Until(1.000_102_5)).unwrap(),
            rows(&by_socket(), When::Summary).unwrap(),
            rows(&by_cgroup(), When::Whole).unwrap(),
        ];
        insta::assert_snapshot!(shown.join("\n"));
    }
}
