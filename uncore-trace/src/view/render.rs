//! Draws the sums of [`super::report_sums`] as text: a table for each event.
//!
//! Guarantees: text from the machine is escaped; if there is a width, long names do not push
//! numbers out of it.

use std::fmt::Write as _;

use super::answer::{in_cgroup, line_name};
use super::heat::STEPS;
use super::report_columns::{TableShape, report_columns};
use super::report_sums::{ReportEvent, ReportLine, ReportSums};
use super::table_layout::{ReportColumnKind, TableColumn, TableFit};
use crate::clock::TimeSpan;
use crate::terminal::{cells, mark, shorten, wrap_words};
use crate::text::{printable, wrapped};
use crate::units;

/// Drawing options.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextStyle {
    /// Only ASCII characters.
    pub ascii: bool,
    /// Width in cells; `None`: no limit.
    pub width: Option<usize>,
}

/// From the widest to the narrowest.
const SHAPES: [TableShape; 4] = [
    TableShape { bars: STEPS, units: true, owner: true },
    TableShape { bars: STEPS / 2, units: true, owner: true },
    TableShape { bars: STEPS / 2, units: false, owner: true },
    TableShape { bars: STEPS / 2, units: false, owner: false },
];

/// The events as tables, one after the other. Values that are equal in all lines are printed once,
/// above them.
pub fn draw_report(usage: &ReportSums, style: TextStyle) -> String {
    let mut text_drawn = String::new();
    let common_columns = common_values(&shape_columns(usage, style, SHAPES[0], &[]));
    if !common_columns.is_empty() {
        let common_texts: Vec<&str> =
            common_columns.iter().map(|(_, text)| text.as_str()).collect();
        let line = format!("In every line: {}", common_texts.join(", "));
        // Writing to a String cannot fail.
        let width = style.width.unwrap_or(usize::MAX);
        // No line break between a figure and its unit.
        let wrapped = wrap_words(&line.replace(" %", "\u{a0}%"), width).replace('\u{a0}', " ");
        writeln!(text_drawn, "{wrapped}\n").unwrap_or_default();
    }
    let left_out: Vec<ReportColumnKind> =
        common_columns.iter().map(|(column_kind, _)| *column_kind).collect();
    let (tables, fit) = fit_tables(usage, style, &left_out);
    for (event, columns) in usage.events.iter().zip(&tables) {
        if is_nothing(event) {
            continue;
        }
        writeln!(text_drawn, "{}", event_headline(usage, event, style)).unwrap_or_default();
        if sole_owner(usage, event).is_none() {
            text_drawn.push_str(&fit.draw(columns));
        }
        text_drawn.push('\n');
    }
    if usage.events.is_empty() {
        text_drawn.push_str("the recording has no rows\n");
    }
    let nothing = usage.events.iter().filter(|event| is_nothing(event));
    let names: Vec<_> = nothing.map(|event| printable(&event.name)).collect();
    if !names.is_empty() {
        text_drawn.push_str(&wrapped("Nothing was counted of: ", &names.join(", "), style.width));
        text_drawn.push('\n');
    }
    if let (Some(note), Some(width)) = (fit.hidden_note(), style.width) {
        writeln!(text_drawn, "{}", wrap_words(&note, width)).unwrap_or_default();
    }
    text_drawn
}

/// Whether all windows of an event are known and 0.
fn is_nothing(event: &ReportEvent) -> bool {
    event.lines.iter().all(|line| line.sum.missing == 0 && line.sum.value == 0.0)
}

/// Values that are equal in every line of every table, of the columns in which differences matter,
/// and that nothing is uncertain. Empty if there is only one line.
fn common_values(tables: &[Vec<TableColumn>]) -> Vec<(ReportColumnKind, String)> {
    let columns_of = |wanted_kind: ReportColumnKind| {
        tables.iter().flatten().filter(move |column| column.column_kind == wanted_kind)
    };
    let common_text = |text_kind: ReportColumnKind| {
        let mut texts = columns_of(text_kind).flat_map(|column| &column.cells);
        let (first_text, second_text) = (texts.next()?, texts.next()?);
        let unit = columns_of(text_kind).next().map_or("", |column| &column.unit);
        let is_same = first_text == second_text && texts.all(|text| text == first_text);
        let text = format!("{} {first_text} {unit}", text_kind.column_word());
        is_same.then(|| (text_kind, text.trim_end().to_owned()))
    };
    // A confidence or an interval is only left out if nothing is uncertain.
    let is_sure = |sure_kind: ReportColumnKind| {
        let lines: usize = columns_of(sure_kind).map(|column| column.cells.len()).sum();
        lines > 1 && columns_of(sure_kind).all(|column| !column.noted)
    };
    let sure_text = |sure_kind: ReportColumnKind, text: &str| {
        is_sure(sure_kind).then(|| (sure_kind, text.to_owned()))
    };
    let common = [
        common_text(ReportColumnKind::Method),
        sure_text(ReportColumnKind::Confidence, "confidence 1"),
        sure_text(ReportColumnKind::Interval, "the 90 % interval is the value"),
        common_text(ReportColumnKind::Running),
        common_text(ReportColumnKind::Missing),
    ];
    // The begin is only useful with the end.
    let times = common_text(ReportColumnKind::From).zip(common_text(ReportColumnKind::To));
    let times = times.into_iter().flat_map(|(begin, end)| [begin, end]);
    common.into_iter().flatten().chain(times).collect()
}

/// The only line of an event, if it says no more than the headline: everything is known, and
/// certain. Lines of a chosen grouping are always shown.
fn sole_owner<'a>(usage: &ReportSums, event: &'a ReportEvent) -> Option<&'a ReportLine> {
    let mut lines = event.lines.iter().filter(|line| line.says_something());
    let line = lines.next().filter(|_| !usage.is_chosen && lines.next().is_none())?;
    let is_certain = line.sum.missing == 0
        && line.running >= 1.0
        && line.sum.confidence.lowest.is_some_and(|lowest_confidence| lowest_confidence >= 1.0);
    is_certain.then_some(line)
}

/// Event and total, with the owner of all of it or the cgroup of nearly all of it; on two lines if
/// it is too long for one.
fn event_headline(usage: &ReportSums, event: &ReportEvent, style: TextStyle) -> String {
    let unit = printable(&event.unit);
    let name = printable(&event.name);
    let time = event.time.whole;
    let known = units::human(time.known_ns(), "ns");
    let time = match (event.time.time_bounds(), time.unknown_ns() > 0.0) {
        (Some(TimeSpan { begin_ns, end_ns }), true) => {
            let covered = units::human(end_ns.saturating_sub(begin_ns) as f64, "ns");
            format!("{known} known of {covered}")
        }
        _ => known,
    };
    let rate = event
        .mean_rate(event.total)
        .map_or_else(|| "-".to_owned(), |per_second| units::human_rate(per_second, &unit));
    let mut total = format!("  {} in {time}, {rate}", units::human(event.total, &unit));
    if let Some(line) = sole_owner(usage, event) {
        total = format!("{total}, all of {}", line_name(line));
    }
    if let Some(cgroup) = in_cgroup(event) {
        total = format!("{total}, {cgroup}");
    }
    match style.width {
        Some(width) if cells(&name) + cells(&total) > width => {
            let (name, total) = (shorten(&name, width, mark(style.ascii)), total.trim_start());
            format!("{name}\n  {}", wrap_words(total, width.saturating_sub(2)))
        }
        _ => format!("{name}{total}"),
    }
}

/// The columns of each event's table in one shape.
fn shape_columns(
    usage: &ReportSums,
    style: TextStyle,
    shape: TableShape,
    left_out: &[ReportColumnKind],
) -> Vec<Vec<TableColumn>> {
    let columns_of_event = |event| {
        let mut columns = report_columns(usage, event, style.ascii, shape);
        columns.retain(|column| !left_out.contains(&column.column_kind));
        columns
    };
    usage.events.iter().map(columns_of_event).collect()
}

/// The columns of each event's table in the widest shape that fits.
fn fit_tables(
    usage: &ReportSums,
    style: TextStyle,
    left_out: &[ReportColumnKind],
) -> (Vec<Vec<TableColumn>>, TableFit) {
    let [widest, narrower @ ..] = SHAPES;
    let try_shape = |shape| {
        let tables = shape_columns(usage, style, shape, left_out);
        let fit = TableFit::new(style, &tables);
        (tables, fit)
    };
    let mut fitted = try_shape(widest);
    for shape in narrower {
        if fitted.1.hidden.is_empty() {
            break;
        }
        fitted = try_shape(shape);
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::super::grouping::GroupBy;
    use super::super::question::ReportQuestion;
    use super::super::report_sums::{keep_top_lines, sum_report};
    use super::super::sample::{Broken, INTACT, SampleRecording};
    use super::*;

    /// In the second half of the recording everything is 0, and a part is not known.
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
    fn tables_show_owners_times_and_values() {
        let sample = SampleRecording::new(false, &PHASES);
        let recording = sample.open();
        let mut shown: Vec<String> = Vec::new();
        for by in GroupBy::ALL {
            shown.push(format!("--by {}\n", by.name()));
            shown.push(draw_report(
                &sum_report(&recording, &ReportQuestion::grouped_by(by)).unwrap(),
                TextStyle::default(),
            ));
        }
        let mut usage = sum_report(&recording, &ReportQuestion::grouped_by(GroupBy::Pid)).unwrap();
        keep_top_lines(&mut usage.events, 1);
        shown.push(format!(
            "--by pid --top 1 --ascii\n{}",
            draw_report(&usage, TextStyle { ascii: true, width: None })
        ));
        insta::assert_snapshot!("tables", shown.concat());
    }

    #[test]
    fn an_event_that_counted_nothing_is_named_and_has_no_table() {
        let idle = |unknown: bool| Broken {
            fabric: if unknown {
                |row, number| {
                    if row.event == "page-faults" {
                        let value = (number > 100).then_some(0.0);
                        (row.value, row.total) = (value, value);
                    }
                    true
                }
            } else {
                |row, _| {
                    if row.event == "page-faults" {
                        (row.value, row.total) = (Some(0.0), Some(0.0));
                    }
                    true
                }
            },
            ..INTACT
        };
        let shown = |broken: &Broken| {
            let sample = SampleRecording::new(false, broken);
            draw_report(
                &sum_report(&sample.open(), &ReportQuestion::grouped_by(GroupBy::Pid)).unwrap(),
                TextStyle::default(),
            )
        };
        let known = shown(&idle(false));
        assert!(known.contains("Nothing was counted of: page-faults\n"), "{known}");
        assert!(!known.contains("\npage-faults  "), "{known}");
        // A partly unknown event does not count as 0.
        let unknown = shown(&idle(true));
        assert!(!unknown.contains("Nothing was counted"), "{unknown}");
        assert!(unknown.contains("\npage-faults  "), "{unknown}");
    }

    /// Names as container managers and users make them, and a hostile one.
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
        let sample = SampleRecording::new(false, &LONG);
        let mut shown: Vec<String> = Vec::new();
        for by in GroupBy::ALL {
            let usage = sum_report(&sample.open(), &ReportQuestion::grouped_by(by)).unwrap();
            for width in (48..250).step_by(7).chain([usize::MAX]) {
                for ascii in [false, true] {
                    let text = draw_report(&usage, TextStyle { ascii, width: Some(width) });
                    assert!(text.lines().all(|line| cells(line) <= width), "{width}:\n{text}");
                    assert!(text.is_ascii() || !ascii || by == GroupBy::Cgroup, "{text}");
                    for event in &usage.events {
                        let total = units::human(event.total, &event.unit);
                        let known =
                            if event.name == "page-faults" { "2.88 s known of " } else { "" };
                        assert!(text.contains(&format!("  {total} in {known}3.00 s,")), "{text}");
                    }
                    for column in ["value", "share", "confidence"] {
                        let heads = text.lines().filter(|line| line.contains(column)).count();
                        assert_eq!(heads, 2, "{text}");
                    }
                    assert_eq!(text.matches("0.50 (min 0.50)").count(), lines_of(&usage), "{text}");
                }
            }
            let wide = draw_report(&usage, TextStyle::default());
            assert_eq!(draw_report(&usage, TextStyle { ascii: false, width: Some(1000) }), wide);
            for width in [80, 132] {
                shown.push(format!("--by {} in {width} columns\n", by.name()));
                shown.push(draw_report(&usage, TextStyle { ascii: false, width: Some(width) }));
            }
        }
        insta::assert_snapshot!("fitted", shown.concat());
    }

    fn lines_of(usage: &ReportSums) -> usize {
        usage.events.iter().map(|event| event.lines.len()).sum()
    }

    #[test]
    fn top_hides_no_value_and_no_owner_but_tasks() {
        let sample = SampleRecording::new(false, &INTACT);
        let mut events =
            sum_report(&sample.open(), &ReportQuestion::grouped_by(GroupBy::Pid)).unwrap().events;
        keep_top_lines(&mut events, 1);
        let keys: Vec<&str> = events[1].lines.iter().map(|line| line.key.as_str()).collect();
        assert_eq!(keys, ["train (100)", "idle", "irq:nvme0q1", "(1 other)"]);
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        let sample = SampleRecording::new(false, &INTACT);
        let text = draw_report(
            &sum_report(&sample.open(), &ReportQuestion::grouped_by(GroupBy::Cgroup)).unwrap(),
            TextStyle::default(),
        );
        println!("{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains("\\u{1b}[2J"), "{text}");
        assert!(text.contains("192 MB"), "{text}");
    }
}
