//! How the sums of [`super::usage`] look to people: a table for each event.
//!
//! Guarantees: nothing from the machine reaches the terminal unescaped; where a width is given, no
//! name pushes a number out of it.

use std::borrow::Cow;
use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment};

use super::heat::STEPS;
use super::layout::{Column, Fit, Kind};
use super::usage::{By, Event, Line, Usage};
use crate::terminal::{cells, mark, shorten, shorten_all, wrap};
use crate::text::{lines, plain_table, printable};
use crate::units;

/// How to draw.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Without blocks and other characters beyond ASCII.
    pub ascii: bool,
    /// Columns of the terminal; none: as wide as it gets.
    pub width: Option<usize>,
}

/// What is drawn in one of two ways.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Characters of the time line.
    marks: usize,
    /// Whether units that are words are beside each number; else they are above the table only.
    units: bool,
    /// Whether owners have a column; else the owner is the name of a line that has none.
    owner: bool,
}

/// From the widest to the narrowest.
const SHAPES: [Shape; 4] = [
    Shape { marks: STEPS, units: true, owner: true },
    Shape { marks: STEPS / 2, units: true, owner: true },
    Shape { marks: STEPS / 2, units: false, owner: true },
    Shape { marks: STEPS / 2, units: false, owner: false },
];

/// The events as tables, one after the other.
pub fn table(usage: &Usage, style: Style) -> String {
    let mut out = String::new();
    let (tables, fit) = tables(usage, style);
    let mut shortened = false;
    for (event, mut columns) in usage.events.iter().zip(tables) {
        if let Some(fit) = &fit {
            shortened |= fit_names(&mut columns, fit, style);
        }
        // Writing to a String cannot fail.
        writeln!(out, "{}", headline(event, style)).unwrap_or_default();
        writeln!(out, "{}", draw(&columns)).unwrap_or_default();
    }
    if usage.events.is_empty() {
        out.push_str("the recording has no rows\n");
    }
    if let (Some(note), Some(width)) = (fit.and_then(|fit| fit.note(shortened)), style.width) {
        writeln!(out, "{}", wrap(&note, width)).unwrap_or_default();
    }
    out
}

/// What is counted, and how much of it; on two lines if it is too long for one.
fn headline(event: &Event, style: Style) -> String {
    let unit = printable(&event.unit);
    let name = printable(&event.name);
    let total = format!(
        "  {} in {}, {}",
        units::human(event.total, &unit),
        units::human(event.seconds() * 1e9, "ns"),
        units::rate(event.total / event.seconds(), &unit),
    );
    match style.width {
        Some(width) if cells(&name) + cells(&total) > width => {
            let (name, total) = (shorten(&name, width, mark(style.ascii)), total.trim_start());
            format!("{name}\n  {}", wrap(total, width.saturating_sub(2)))
        }
        _ => format!("{name}{total}"),
    }
}

/// The columns of each event's table in the widest shape that fits, and what of them fits.
fn tables(usage: &Usage, style: Style) -> (Vec<Vec<Column>>, Option<Fit>) {
    let of = |shape| -> Vec<Vec<Column>> {
        usage.events.iter().map(|event| columns(usage, event, style, shape)).collect()
    };
    let Some(width) = style.width else {
        return (of(SHAPES[0]), None);
    };
    let mut tried = (Vec::new(), None);
    for shape in SHAPES {
        let tables = of(shape);
        let fit = Fit::new(width, &tables);
        let all = fit.hidden.is_empty();
        tried = (tables, Some(fit));
        if all {
            break;
        }
    }
    tried
}

/// Leaves out what does not fit and shortens names; says whether there were any to shorten.
fn fit_names(columns: &mut Vec<Column>, fit: &Fit, style: Style) -> bool {
    columns.retain(|column| fit.shown.contains(&column.kind));
    let mut shortened = false;
    for column in columns.iter_mut().filter(|column| column.kind == Kind::Name) {
        let names: Vec<&str> = column.cells.iter().map(String::as_str).collect();
        let short = shorten_all(&names, fit.name, mark(style.ascii));
        shortened |= short != column.cells;
        column.cells = short;
    }
    shortened
}

fn draw(columns: &[Column]) -> String {
    // A head stands where what is below it does.
    let cell = |kind: Kind, text: &str| match kind {
        Kind::Owner | Kind::Name | Kind::Method | Kind::Time => Cell::new(text),
        _ => Cell::new(text).set_alignment(CellAlignment::Right),
    };
    let mut table = plain_table(columns.iter().map(|column| cell(column.kind, &column.head)));
    let rows = columns.first().map_or(0, |column| column.cells.len());
    for row in 0..rows {
        table.add_row(columns.iter().map(|column| cell(column.kind, &column.cells[row])));
    }
    lines(&table)
}

/// The columns of an event's table.
fn columns(usage: &Usage, event: &Event, style: Style, shape: Shape) -> Vec<Column> {
    let by = usage.by;
    // A window in which a counter did not move has one row that nobody owns: nothing to show.
    let says_something = |line: &&Line| line.value != 0.0 || line.missing > 0 || line.claims > 0;
    let lines: Vec<&Line> = event.lines.iter().filter(says_something).collect();
    let column = |kind, head: &str, cell: &dyn Fn(&Line) -> String| Column {
        kind,
        head: head.to_owned(),
        cells: lines.iter().map(|line| cell(line)).collect(),
        noted: false,
    };
    let word = !units::has_symbol(&event.unit) && !shape.units;
    let unit = if word { Cow::Borrowed("") } else { printable(&event.unit) };
    let mark_ns = usage.step_ns * STEPS as f64 / shape.marks as f64;
    let dash = if style.ascii { "-" } else { "–" };
    let mut columns = Vec::new();
    if both(by) && shape.owner {
        columns.push(column(Kind::Owner, "owner", &|line| printable(&line.owner).into_owned()));
    }
    columns.extend([
        column(Kind::Name, by.name(), &|line| name(line, by, shape)),
        column(Kind::Value, "value", &|line| or_dash(value(line).map(|v| units::human(v, &unit)))),
        column(Kind::Interval, Kind::Interval.word(), &|line| {
            let interval = line.interval(event);
            or_dash(interval.map(|it| units::range(it.low, it.high, &unit, dash)))
        }),
        column(Kind::Average, "average", &|line| {
            or_dash(value(line).map(|value| units::rate(value / event.seconds(), &unit)))
        }),
        column(Kind::Peak, "peak", &|line| {
            or_dash(value(line).and(line.peak).map(|peak| units::rate(peak, &unit)))
        }),
        column(Kind::Share, "share", &|line| {
            let part = value(line).filter(|_| event.total != 0.0).map(|value| value / event.total);
            or_dash(part.map(|part| format!("{:.1} %", part * 100.0)))
        }),
        column(Kind::Confidence, "confidence", &|line| {
            let confidence = line.confidence_min.zip(line.confidence_avg);
            or_dash(confidence.map(|(min, avg)| format!("{avg:.2} (min {min:.2})")))
        }),
        column(Kind::Method, "method", &|line| {
            let methods: Vec<&str> = line.methods.iter().map(String::as_str).collect();
            printable(&methods.join(", ")).into_owned()
        }),
        Column {
            noted: lines.iter().any(|line| percent(line.running) != percent(1.0)),
            ..column(Kind::Running, "running", &|line| percent(line.running))
        },
        Column {
            noted: lines.iter().any(|line| line.missing > 0),
            ..column(Kind::Missing, "missing", &|line| line.missing.to_string())
        },
        column(Kind::From, "from", &|line| second(usage, line.active.map(|active| active.0))),
        column(Kind::To, "to", &|line| second(usage, line.active.map(|active| active.1))),
        column(Kind::Time, &format!("a mark is {}", units::human(mark_ns, "ns")), &|line| {
            line.heat.line(shape.marks, style.ascii)
        }),
    ]);
    // What all owners have was not divided.
    columns.retain(|column| column.kind != Kind::Interval || by.has_owner());
    columns
}

/// Whether a line has an owner beside its name.
fn both(by: By) -> bool {
    by.has_owner() && by != By::Owner
}

/// What a line is called. The owner's name twice says nothing.
fn name(line: &Line, by: By, shape: Shape) -> String {
    match (both(by) && line.key == line.owner, shape.owner) {
        (false, _) => printable(&line.key).into_owned(),
        (true, true) => String::new(),
        (true, false) => format!("({})", printable(&line.owner)),
    }
}

/// The line's value. A line without a row that has one is "not known", which is not 0.
fn value(line: &Line) -> Option<f64> {
    (line.rows > 0).then_some(line.value)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A time as seconds after the recording's begin.
fn second(usage: &Usage, ns: Option<i64>) -> String {
    let after = ns.map(|ns| ns.saturating_sub(usage.start_ns) as f64 / 1e9);
    or_dash(after.map(|after| format!("{after:.3} s")))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Broken, INTACT, Sample};
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
        ..INTACT
    };

    #[test]
    fn tables_show_who_when_and_how_much() {
        let sample = Sample::new(false, &PHASES);
        let recording = sample.open();
        let mut shown: Vec<String> = Vec::new();
        for by in By::ALL {
            shown.push(format!("--by {}\n", by.name()));
            shown.push(table(&usage(&recording, &Question::by(by)).unwrap(), Style::default()));
        }
        let mut usage = usage(&recording, &Question::by(By::Pid)).unwrap();
        top(&mut usage.events, 1);
        shown.push(format!(
            "--by pid --top 1 --ascii\n{}",
            table(&usage, Style { ascii: true, width: None })
        ));
        insta::assert_snapshot!("tables", shown.concat());
    }

    /// Names as container managers and users make them, and one that is hostile.
    const LONG: Broken = Broken {
        fabric: |row, number| {
            row.cgroup = match row.pid {
                Some(100) => Some(concat!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0123.slice/",
                    "cri-containerd-0123456789abcdef0123456789abcdef.scope"
                )),
                Some(200) => {
                    Some("/租户甲乙丙丁租户甲乙丙丁租户甲乙丙丁租户甲乙丙丁\n\u{1b}[2J\u{202e}/job")
                }
                _ => None,
            };
            if row.event == "page-faults" && number < 100 {
                (row.value, row.total, row.running) = (None, None, 0.0);
            }
            if row.event == "read_bytes" {
                row.unit = "request_cycles";
                row.filter = "root_port=0x0123456789abcdef,src_rp_mask=0xffffffff,dst_loc=0x1";
            }
            true
        },
        ..INTACT
    };

    #[test]
    fn numbers_stay_on_a_narrow_terminal() {
        let sample = Sample::new(false, &LONG);
        let mut shown: Vec<String> = Vec::new();
        for by in By::ALL {
            let usage = usage(&sample.open(), &Question::by(by)).unwrap();
            for width in (48..250).step_by(7).chain([usize::MAX]) {
                for ascii in [false, true] {
                    let text = table(&usage, Style { ascii, width: Some(width) });
                    assert!(text.lines().all(|line| cells(line) <= width), "{width}:\n{text}");
                    assert!(text.is_ascii() || !ascii || by == By::Cgroup, "{text}");
                    for event in &usage.events {
                        let total = units::human(event.total, &event.unit);
                        assert!(text.contains(&format!("  {total} in 3.00 s,")), "{text}");
                    }
                    for column in ["value", "share", "confidence"] {
                        let heads = text.lines().filter(|line| line.contains(column)).count();
                        assert_eq!(heads, 2, "{text}");
                    }
                    assert_eq!(text.matches("0.50 (min 0.50)").count(), lines_of(&usage), "{text}");
                }
            }
            let wide = table(&usage, Style::default());
            assert_eq!(table(&usage, Style { ascii: false, width: Some(1000) }), wide);
            for width in [80, 132] {
                shown.push(format!("--by {} in {width} columns\n", by.name()));
                shown.push(table(&usage, Style { ascii: false, width: Some(width) }));
            }
        }
        insta::assert_snapshot!("fitted", shown.concat());
    }

    fn lines_of(usage: &Usage) -> usize {
        usage.events.iter().map(|event| event.lines.len()).sum()
    }

    #[test]
    fn top_hides_no_value_and_no_owner_but_tasks() {
        let sample = Sample::new(false, &INTACT);
        let mut events = usage(&sample.open(), &Question::by(By::Pid)).unwrap().events;
        top(&mut events, 1);
        let keys: Vec<&str> = events[1].lines.iter().map(|line| line.key.as_str()).collect();
        assert_eq!(keys, ["train (100)", "idle", "irq:nvme0q1", "(1 others)"]);
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let sample = Sample::new(false, &INTACT);
        let text =
            table(&usage(&sample.open(), &Question::by(By::Cgroup)).unwrap(), Style::default());
        println!("{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains("\\u{1b}[2J"), "{text}");
        assert!(text.contains("192 MB"), "{text}");
    }
}
