//! `uncore-trace diff`: what changed between two recordings, or two spans of one.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

use super::heading::{FAIL, LINE, PRINT, SPAN};
use super::host::HostArgs;
use super::output::{path, print};
use super::page::save_page;
use crate::cli::messages::print_message;
use crate::terminal;
use crate::text::printable;
use crate::units;
use crate::view::diff::gate::{ExcessGrowth, Gate, GateResult};
use crate::view::diff::{Diff, DiffQuestion, RequestedSpan, compare_spans, json, page, text};
use crate::view::grouping::GroupBy;
use crate::view::render::TextStyle;
use crate::view::span::TimePoint;

/// Show what changed between two recordings, or between two spans of one
///
/// The first line is a summary: what changed most, and which tenants caused it. Then comes a table
/// for each direction of each link, or for each event if one of the recordings has no links, with
/// the largest difference first: the rates before and after, the difference and its
/// `90 % interval`, the rate after divided by the rate before (`ratio`), and whether the difference
/// is larger than its error. Rates are compared, so the recordings may differ in length.
///
/// `more` and `less` are differences above the error, which follows from the confidences of the
/// shares and the variation of each rate. `new` and `gone` are tenants that are in only one of the
/// two. `-` is not known: there are too few windows or no confidences, or the two count a link
/// differently, which a note says.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "\
Examples: two recordings; two minutes of a recording; two marked spans of it; a
check that fails if a tenant or a link grew by more than a tenth
  uncore-trace diff old.parquet new.parquet
  uncore-trace diff run.parquet --before 0..1m --after 1m..2m --by pod
  uncore-trace diff run.parquet --before 'mark:epoch 1' --after 'mark:epoch 2'
  uncore-trace diff old.parquet new.parquet --fail-above 10%
A page for a browser, which needs no other file and no network:
  uncore-trace diff old.parquet new.parquet --html diff.html

JSON: one object a line, for each link or event the total (key is null), then
the tenants, with what, link, direction, unit, by, key, owner, before and after
(each with total, seconds, rate_per_s, low_per_s and high_per_s (the 90 %
interval of the share), variation_per_s, share (0 to 1), complete),
difference_per_s, difference_low_per_s, difference_high_per_s, ratio, verdict
(more, less, within error, new, gone), beyond_error, same_counters, notes. An
unknown value is null, never 0.

Exit code: 0; 1 with --fail-above if something grew by more; 2 for errors.")]
pub struct Args {
    /// The recording before: a .parquet file, or a directory that `record` wrote; or a roll-up
    #[arg(value_name = "BEFORE")]
    first: PathBuf,
    /// The recording after; without it, two spans of BEFORE are compared, and --before and --after
    /// are needed
    #[arg(value_name = "AFTER")]
    second: Option<PathBuf>,
    /// Only this span of the first recording: FROM..TO. Each is a time after the start of the
    /// recording (2s, 1m30s), a wall time (2026-01-31T12:00:00Z) or a mark (mark:NAME), and can be
    /// left out; mark:NAME alone is the span of that mark
    #[arg(long, value_name = "SPAN", help_heading = SPAN)]
    before: Option<TypedSpan>,
    /// Only this span of the second recording, written as for --before
    #[arg(long, value_name = "SPAN", help_heading = SPAN)]
    after: Option<TypedSpan>,
    /// What a line is; processes, containers and pods of two recordings are compared by their names
    #[arg(long, value_enum, default_value = "cgroup", help_heading = LINE)]
    by: GroupBy,
    #[command(flatten)]
    hosts: HostArgs,
    /// Compare events, even if both recordings have links
    #[arg(long, help_heading = LINE)]
    events: bool,
    /// Count cgroups deeper than N below the root towards their ancestor of depth N
    #[arg(long, value_name = "N", help_heading = LINE)]
    cgroup_depth: Option<usize>,
    /// Exit with 1 if a total or a tenant grew by more than this, and by more than its error, e.g.
    /// 10%
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = FAIL)]
    fail_above: Option<f64>,
    /// With --fail-above: leave out tenants below this percentage of the total, and links below
    /// this percentage of their peak
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%",
          help_heading = FAIL)]
    min_share: f64,
    /// Print JSON lines instead of tables
    #[arg(long, help_heading = PRINT)]
    json: bool,
    /// Draw with ASCII only
    #[arg(long, help_heading = PRINT)]
    ascii: bool,
    /// Show all columns and whole names, also on a terminal
    #[arg(long, help_heading = PRINT)]
    wide: bool,
    /// Write FILE, a page for a browser with a picture of each difference, instead of tables; `-`
    /// is standard output
    #[arg(long, value_name = "FILE", value_parser = path(), allow_hyphen_values = true,
          help_heading = PRINT, conflicts_with_all = ["json", "ascii", "wide"])]
    html: Option<PathBuf>,
    /// Replace the file of --html if it exists
    #[arg(long, requires = "html", help_heading = PRINT)]
    force: bool,
    /// Show the N largest differences of each table [default of --html: 50]
    #[arg(long, value_name = "N", help_heading = LINE)]
    top: Option<usize>,
}

/// A span as typed.
#[derive(Debug, Clone, PartialEq)]
struct TypedSpan {
    begin: Option<TimePoint>,
    end: Option<TimePoint>,
    typed: String,
}

impl FromStr for TypedSpan {
    type Err = String;

    /// `FROM..TO`, where each may be left out, or a mark, whose span is used.
    fn from_str(text: &str) -> Result<Self, String> {
        let moment = |text: &str| (!text.is_empty()).then(|| text.parse::<TimePoint>()).transpose();
        let typed = text.to_owned();
        let mut wrong = "write it as FROM..TO, e.g. 10s..20s, 10s.. or ..20s".to_owned();
        // The name of a mark may contain two dots: the first split that can be parsed is used.
        for (dots_at, dots) in text.match_indices("..") {
            match (moment(&text[..dots_at]), moment(&text[dots_at + dots.len()..])) {
                (Ok(begin), Ok(end)) => return Ok(Self { begin, end, typed }),
                (Err(error), _) | (_, Err(error)) => wrong = error,
            }
        }
        if text.starts_with("mark:") {
            return Ok(Self { begin: moment(text)?, end: moment(text)?, typed });
        }
        Err(wrong)
    }
}

/// `10%` as a fraction: 0.1.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    // The comparison also refuses NaN.
    let number = number.filter(|number| (0.0..=1e9).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| "write it as a percentage: 10%".to_owned())
}

/// Prints the differences; exit code 0, or 1 if something grew by more than is allowed.
pub fn run(args: &Args) -> Result<u8> {
    if args.second.is_none() && (args.before.is_none() || args.after.is_none()) {
        bail!(
            "one recording needs two spans to compare: give --before FROM..TO and --after \
             FROM..TO, or a second recording"
        );
    }
    let before_recording = args.hosts.open(&args.first, None, None)?;
    let second = args.second.as_deref().map(|second| args.hosts.open(second, None, None));
    let after_recording = second.unwrap_or_else(|| Ok(before_recording.clone()))?;
    args.by
        .check_recording(&before_recording)
        .and_then(|()| args.by.check_recording(&after_recording))?;
    let asked = |recording, span: Option<&TypedSpan>| RequestedSpan {
        recording,
        begin_moment: span.and_then(|span| span.begin.clone()),
        end_moment: span.and_then(|span| span.end.clone()),
    };
    let question =
        DiffQuestion { grouping: args.by, cgroup_depth: args.cgroup_depth, events: args.events };
    let (before_span, after_span) = (args.before.as_ref(), args.after.as_ref());
    let compared = compare_spans(
        &asked(&before_recording, before_span),
        &asked(&after_recording, after_span),
        &question,
    )?;
    let second = args.second.as_ref().unwrap_or(&args.first);
    let labels = [span_label(&args.first, before_span), span_label(second, after_span)];
    let called = labels.each_ref().map(String::as_str);
    if let Some(file) = &args.html {
        warn_of_gaps(&compared);
        let top = args.top.unwrap_or(page::TENANTS);
        save_page(&[&before_recording, &after_recording], file, args.force, |writer| {
            page::write_page(&compared, called, top, writer)
        })?;
    } else if args.json {
        warn_of_gaps(&compared);
        print(&json::write_json_lines(&compared).context("cannot write the comparison as JSON")?)?;
    } else {
        let style = TextStyle { ascii: args.ascii, width: terminal::width(args.wide) };
        print(&text::render_text(&compared, called, args.top, style))?;
    }
    let Some(above) = args.fail_above else { return Ok(0) };
    let gate = Gate { above, min_share: args.min_share };
    Ok(u8::from(report_growth(&gate, &gate.judge_diff(&compared))))
}

/// Names a recording and its span.
fn span_label(path: &Path, span: Option<&TypedSpan>) -> String {
    let path = path.display();
    span.map_or_else(|| path.to_string(), |span| format!("{path} {}", span.typed))
}

/// Standard output is for programs, so notes go to standard error.
fn warn_of_gaps(comparison: &Diff) {
    for (word, about) in [("before", &comparison.before_facts), ("after", &comparison.after_facts)]
    {
        if let Some(incomplete) = &about.incomplete {
            log::warn!("the recording {word} is {}", incomplete.summary_line(about.start_ns));
        }
    }
    comparison.notes.iter().for_each(|note| log::warn!("{note}"));
}

/// Prints what grew by more than is allowed, and what could not be compared. Returns whether the
/// check fails.
fn report_growth(gate: &Gate, judged: &GateResult<'_>) -> bool {
    if judged.unknown > 0 {
        log::warn!(
            "{} lines may have grown by more than {}, and it is not known whether that is more \
             than the error",
            judged.unknown,
            units::human(gate.above * 100.0, "%")
        );
    }
    let Some(largest) = judged.grown.first() else { return false };
    let further_lines = match judged.grown.len() - 1 {
        0 => String::new(),
        1 => "; so did one other".to_owned(),
        count => format!("; so did {count} others"),
    };
    print_message(&printable(&format!("{}{further_lines}", describe_growth(largest, gate.above))));
    true
}

/// `memory 0 in of /tenant-a grew by 54 % (3.10 -> 9.20 GB/s), more than 10 %`
fn describe_growth(grown_line: &ExcessGrowth<'_>, above: f64) -> String {
    let change = grown_line.tenant.map_or(&grown_line.subject.total, |tenant| &tenant.change);
    let rates = text::format_rates(change, &grown_line.subject.unit);
    let tenant_suffix =
        grown_line.tenant.map_or_else(String::new, |tenant| format!(" of {}", tenant.key));
    let name = &grown_line.subject.name;
    let percent = |fraction: f64| units::human(fraction * 100.0, "%");
    match grown_line.growth {
        Some(growth) => {
            format!(
                "{name}{tenant_suffix} grew by {} ({rates}), more than {}",
                percent(growth),
                percent(above)
            )
        }
        None => format!("{name}{tenant_suffix} is new ({rates})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed_from_two_ends() {
        let span = |text: &str| text.parse::<TypedSpan>().map(|it| (it.begin, it.end));
        let after = |seconds: i64| Some(TimePoint::After(seconds * 1_000_000_000));
        assert_eq!(span("1s..1m"), Ok((after(1), after(60))));
        assert_eq!(span("..2"), Ok((None, after(2))));
        assert_eq!(span("2.."), Ok((after(2), None)));
        assert_eq!(span(".."), Ok((None, None)));
        let wall = Some(TimePoint::Wall(1_000_000_000));
        assert_eq!(span("1970-01-01T00:00:01Z..5"), Ok((wall, after(5))));
        let mark = |name: &str| Some(TimePoint::Mark(name.to_owned()));
        assert_eq!(span("mark:epoch 1"), Ok((mark("epoch 1"), mark("epoch 1"))));
        assert_eq!(span("mark:a..mark:b"), Ok((mark("a"), mark("b"))));
        assert_eq!(span("mark:a..b..2s"), Ok((mark("a..b"), after(2))));
        for text in ["", "5s", "1s-2s", "soon..2s", "1s..soon", "mark:"] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_percentage_needs_its_sign() {
        assert_eq!(percent("10%"), Ok(0.1));
        assert_eq!(percent("0 %"), Ok(0.0));
        for text in ["", "%", "10", "-1%", "nan%", "1e99%", "ten%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
