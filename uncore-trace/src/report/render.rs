//! How the sums of [`super::usage`] look to people: a table for each event.
//!
//! Guarantee: nothing from the machine reaches the terminal unescaped.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment};

use super::usage::{By, Event, Line, Usage};
use crate::text::{lines, plain_table, printable};
use crate::units;

/// The events as tables, one after the other; `ascii` draws the time line without blocks.
pub fn table(usage: &Usage, ascii: bool) -> String {
    let mut out = String::new();
    for event in &usage.events {
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
        writeln!(out, "{}", event_table(usage, event, ascii)).unwrap_or_default();
    }
    if usage.events.is_empty() {
        out.push_str("the recording has no rows\n");
    }
    out
}

fn event_table(usage: &Usage, event: &Event, ascii: bool) -> String {
    let by = usage.by;
    // A head stands where what is below it does.
    let left = |head: &str| Cell::new(head);
    let right = |head: &str| Cell::new(head).set_alignment(CellAlignment::Right);
    let mut heads = if both(by) { vec![left("owner")] } else { Vec::new() };
    heads.push(left(by.name()));
    heads.extend(["value", "average", "peak", "share", "confidence"].map(right));
    heads.push(left("method"));
    heads.extend(["running", "missing", "from", "to"].map(right));
    heads.push(Cell::new(format!("a mark is {}", units::human(usage.step_ns, "ns"))));
    let mut table = plain_table(heads);
    // A window in which a counter did not move has one row that nobody owns: nothing to show.
    let says_something = |line: &&Line| line.value != 0.0 || line.missing > 0 || line.claims > 0;
    for line in event.lines.iter().filter(says_something) {
        let mut row = cells(event, line, by);
        row.extend(times(usage, line));
        row.push(Cell::new(line.heat.line(ascii)));
        table.add_row(row);
    }
    lines(&table)
}

/// Whether a line has an owner beside its name.
fn both(by: By) -> bool {
    by.has_owner() && by != By::Owner
}

/// When a line was active, seconds after the recording's begin.
fn times(usage: &Usage, line: &Line) -> [Cell; 2] {
    let second = |ns: Option<i64>| {
        let after = ns.map(|ns| ns.saturating_sub(usage.start_ns) as f64 / 1e9);
        let text = after.map_or_else(|| "-".to_owned(), |after| format!("{after:.3} s"));
        Cell::new(text).set_alignment(CellAlignment::Right)
    };
    let (begin, end) = line.active.unzip();
    [second(begin), second(end)]
}

fn cells(event: &Event, line: &Line, by: By) -> Vec<Cell> {
    let unit = printable(&event.unit);
    let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut cells = Vec::new();
    if both(by) {
        cells.push(Cell::new(printable(&line.owner)));
    }
    // The owner's name twice says nothing.
    let key = if both(by) && line.key == line.owner { "" } else { &line.key };
    cells.push(Cell::new(printable(key)));
    // No row with a value: "not known", which is not 0.
    let known = line.rows > 0;
    let or_dash = |text: Option<String>| number(text.unwrap_or_else(|| "-".to_owned()));
    cells.push(or_dash(known.then(|| units::human(line.value, &unit))));
    cells.push(or_dash(known.then(|| units::rate(line.value / event.seconds(), &unit))));
    let peak = line.peak.filter(|_| known).map(|peak| units::rate(peak, &unit));
    cells.push(or_dash(peak));
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

#[cfg(test)]
mod tests {
    use super::super::sample::{Broken, SOUND, Sample};
    use super::super::usage::{Question, top, usage};
    use super::*;

    /// A recording whose second half nobody uses, and of which a part is not known.
    const PHASES: Broken = Broken {
        fabric: |row, number| {
            if row.event == "page-faults" && (800..1600).contains(&number) {
                (row.value, row.total, row.running) = (None, None, 0.0);
            } else if row.pid == Some(200) && number >= 1200 {
                row.value = Some(0.0);
            }
            true
        },
        ..SOUND
    };

    #[test]
    fn tables_show_who_when_and_how_much() {
        let sample = Sample::new(false, &PHASES);
        let recording = sample.open();
        let mut shown: Vec<String> = Vec::new();
        for by in By::ALL {
            shown.push(format!("--by {}\n", by.name()));
            shown.push(table(&usage(&recording, &Question::by(by)).unwrap(), false));
        }
        let mut usage = usage(&recording, &Question::by(By::Pid)).unwrap();
        top(&mut usage.events, 1);
        shown.push(format!("--by pid --top 1 --ascii\n{}", table(&usage, true)));
        insta::assert_snapshot!("tables", shown.concat());
    }

    #[test]
    fn top_hides_no_value_and_no_owner_but_tasks() {
        let sample = Sample::new(false, &SOUND);
        let mut events = usage(&sample.open(), &Question::by(By::Pid)).unwrap().events;
        top(&mut events, 1);
        let keys: Vec<&str> = events[1].lines.iter().map(|line| line.key.as_str()).collect();
        assert_eq!(keys, ["train (100)", "idle", "irq:nvme0q1", "(1 others)"]);
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let sample = Sample::new(false, &SOUND);
        let text = table(&usage(&sample.open(), &Question::by(By::Cgroup)).unwrap(), false);
        println!("{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains("\\u{1b}[2J"), "{text}");
        assert!(text.contains("192 MB"), "{text}");
    }
}
