//! How the sums of [`super::usage`] look: a table for people, JSON lines for programs.
//!
//! Guarantees: nothing from the machine reaches the terminal unescaped; the JSON has the values as
//! recorded, in base units, with `null` where something is not known.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment};
use serde::Serialize;

use super::units;
use super::usage::{By, Event, Line};
use crate::text::{lines, plain_table, printable};

/// The events as tables, one after the other.
pub fn table(events: &[Event], by: By) -> String {
    let mut out = String::new();
    for event in events {
        // Writing to a String cannot fail.
        writeln!(
            out,
            "{}  {} in {}, {}",
            printable(&event.name),
            units::human(event.total, &printable(&event.unit)),
            units::human(event.seconds() * 1e9, "ns"),
            units::rate(event.total / event.seconds(), &printable(&event.unit)),
        )
        .unwrap_or_default();
        writeln!(out, "{}", event_table(event, by)).unwrap_or_default();
    }
    if events.is_empty() {
        out.push_str("the recording has no rows\n");
    }
    out
}

fn event_table(event: &Event, by: By) -> String {
    let heads: &[&str] = match by {
        By::Pmu | By::Owner => &[by.name()],
        By::Cgroup | By::Pid => &["owner", by.name()],
    };
    // A head stands where what is below it does.
    let left = |head: &&str| Cell::new(head);
    let right = |head: &&str| Cell::new(head).set_alignment(CellAlignment::Right);
    let heads = heads.iter().map(left);
    let heads = heads.chain(["value", "rate", "share", "confidence"].iter().map(right));
    let heads = heads.chain(["method"].iter().map(left));
    let mut table = plain_table(heads.chain(["running", "missing"].iter().map(right)));
    // A window in which a counter did not move has one row that nobody owns: nothing to show.
    let says_something = |line: &&Line| line.value != 0.0 || line.missing > 0 || line.claims > 0;
    for line in event.lines.iter().filter(says_something) {
        table.add_row(cells(event, line, by));
    }
    lines(&table)
}

fn cells(event: &Event, line: &Line, by: By) -> Vec<Cell> {
    let unit = printable(&event.unit);
    let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut cells = Vec::new();
    if matches!(by, By::Cgroup | By::Pid) {
        cells.push(Cell::new(printable(&line.owner)));
    }
    // The owner's name twice says nothing.
    let key = if by == By::Cgroup && line.key == line.owner { "" } else { &line.key };
    cells.push(Cell::new(printable(key)));
    // No row with a value: "not known", which is not 0.
    let known = line.rows > 0;
    let or_dash = |text: Option<String>| number(text.unwrap_or_else(|| "-".to_owned()));
    cells.push(or_dash(known.then(|| units::human(line.value, &unit))));
    cells.push(or_dash(known.then(|| units::rate(line.value / event.seconds(), &unit))));
    let share = (known && event.total != 0.0).then(|| line.value / event.total * 100.0);
    cells.push(or_dash(share.map(|share| format!("{share:.1} %"))));
    let confidence = line.confidence_min.zip(line.confidence_avg);
    cells.push(or_dash(confidence.map(|(min, avg)| format!("{avg:.2} (min {min:.2})"))));
    let methods: Vec<&str> = line.methods.iter().map(String::as_str).collect();
    cells.push(Cell::new(printable(&methods.join(", "))));
    cells.push(number(format!("{:.1} %", line.running * 100.0)));
    cells.push(number(line.missing.to_string()));
    cells
}

/// One object of the JSON output; `report --help` lists the keys.
#[derive(Debug, Serialize)]
struct Object<'a> {
    event: &'a str,
    unit: &'a str,
    by: &'a str,
    key: &'a str,
    owner: Option<&'a str>,
    value: Option<f64>,
    rate_per_s: Option<f64>,
    share: Option<f64>,
    confidence_min: Option<f32>,
    confidence_avg: Option<f64>,
    methods: Vec<&'a str>,
    running: f64,
    rows: u64,
    missing_rows: u64,
    begin_ns: i64,
    end_ns: i64,
}

/// The events as JSON, one object a line.
pub fn json(events: &[Event], by: By) -> serde_json::Result<String> {
    let mut out = String::new();
    for event in events {
        for line in &event.lines {
            let value = (line.rows > 0).then_some(line.value);
            let object = Object {
                event: &event.name,
                unit: &event.unit,
                by: by.name(),
                key: &line.key,
                owner: (by != By::Pmu).then_some(&line.owner),
                value,
                rate_per_s: value.map(|value| value / event.seconds()).filter(|r| r.is_finite()),
                share: value.map(|value| value / event.total).filter(|share| share.is_finite()),
                confidence_min: line.confidence_min,
                confidence_avg: line.confidence_avg,
                methods: line.methods.iter().map(String::as_str).collect(),
                running: line.running,
                rows: line.rows,
                missing_rows: line.missing,
                begin_ns: event.begin_ns,
                end_ns: event.end_ns,
            };
            out.push_str(&serde_json::to_string(&object)?);
            out.push('\n');
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{SOUND, Sample, WINDOWS};
    use super::super::usage::{top, usage};
    use super::*;

    #[test]
    fn the_lines_of_an_event_sum_to_its_total_however_they_are_made() {
        let sample = Sample::new(false, &SOUND);
        for by in [By::Cgroup, By::Pid, By::Pmu, By::Owner] {
            let events = usage(&sample.open(), by).unwrap();
            assert_eq!(events.len(), 2);
            assert!((events[1].total - WINDOWS as f64 * 640_000.0).abs() < 1e-6);
            for event in &events {
                let sum: f64 = event.lines.iter().map(|line| line.value).sum();
                assert!((sum - event.total).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn top_hides_no_value_and_no_owner_but_tasks() {
        let sample = Sample::new(false, &SOUND);
        let mut events = usage(&sample.open(), By::Pid).unwrap();
        top(&mut events, 1);
        let keys: Vec<&str> = events[1].lines.iter().map(|line| line.key.as_str()).collect();
        assert_eq!(keys, ["train (100)", "idle", "irq:nvme0q1", "(1 others)"]);
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let sample = Sample::new(false, &SOUND);
        let events = usage(&sample.open(), By::Cgroup).unwrap();
        let text = table(&events, By::Cgroup);
        println!("{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains("\\u{1b}[2J"), "{text}");
        assert!(text.contains("192 MB"), "{text}");
    }

    #[test]
    fn json_lines_parse_and_keep_null_apart_from_zero() {
        let broken = super::super::sample::Broken {
            fabric: |row, _| {
                if row.event == "page-faults" {
                    (row.value, row.total, row.running) = (None, None, 0.0);
                }
                true
            },
            ..SOUND
        };
        let sample = Sample::new(false, &broken);
        let text = json(&usage(&sample.open(), By::Owner).unwrap(), By::Owner).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 6);
        for line in lines {
            assert_eq!(line["value"].is_null(), line["event"] == "page-faults");
            assert_eq!(line["missing_rows"] == 0, line["event"] != "page-faults");
        }
    }
}
