//! `uncore-trace report`: how full each link was, and each owner's share of each event.

mod latency;
mod marks;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::heading::{LINE, PRINT, SPAN};
use super::host::HostArgs;
use super::output::{path, print};
use super::page::save_page;
use crate::cli::messages;
use crate::schema::{fabric, metadata};
use crate::tables::reader::Recording;
use crate::terminal::{self, cells, wrap_words};
use crate::text::{printable, printable_path, wrapped};
use crate::view::answer;
use crate::view::canary;
use crate::view::grouping::GroupBy;
use crate::view::headroom::{self, headroom};
use crate::view::incomplete::Incomplete;
use crate::view::links::Links;
use crate::view::machine_output;
use crate::view::page;
use crate::view::question::ReportQuestion;
use crate::view::render::{self, TextStyle};
use crate::view::report_sums::{ReportSums, keep_top_lines};
use crate::view::selected::ReportSelection;
use crate::view::span::TimePoint;
use crate::view::tenants::{common_grouping, sum_report_of_tenants};

/// Show how full each link was, and who used how much of each event
///
/// First prints the answer in one sentence: who had most of the traffic of the fullest link. If
/// there was a canary (`record --canary`), another sentence says which part of the canary's bytes
/// its shares have.
///
/// For each link (memory, PCIe, chip-to-chip links, mesh, disks, interfaces), prints the average
/// and the highest rate (also in percent of the peak, if the peak is known), the time above 80 %
/// of the peak, and who filled the link in that time. `!` marks a rate above the peak, and two
/// sources of a peak that differ by more than 20 %.
///
/// For each event, prints the total, and a line for each cgroup (or container, pod, job, process,
/// process name, PMU, port, device, owner). Interrupts, idle time and counts without an owner
/// always have lines of their own. All numbers of a column have the same unit, which is printed
/// below its heading. A value that is the same in every line is printed once, above the tables. If
/// the recording is incomplete, the first line says what is missing. Marks are printed before the
/// tables.
///
/// On a terminal the tables fit the width: long names are shortened in the middle, and columns that
/// do not fit are left out; the last line names these columns.
///
/// If the latency of a link was counted (`record -p mem,latency`), more tables show how long reads
/// took while each tenant used the link: with the other tenants quiet, and with them busy. The
/// difference is a correlation, not a cause.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "\
Examples: the five processes with the largest values, the second from 2 s to
3 s after the start as CSV, and one hour of a day
  uncore-trace report run.parquet --by pid --top 5
  uncore-trace report run.parquet --from 2s --to 3s --csv
  uncore-trace report run.parquet --from 2026-01-31T12:00:00Z \\
    --to 2026-01-31T13:00:00Z

The span `epoch 1` that was marked while recording, and all marks:
  uncore-trace report run.parquet --from 'mark:epoch 1' --to 'mark:epoch 1'
  uncore-trace report run.parquet --marks

One host of a roll-up, in an hour of all hosts:
  uncore-trace report /bucket/cluster=north/date=2026-11-17/hour=10 \\
    --host node-0007

A page for a browser, which needs no other file and no network:
  uncore-trace report run/ --html run.html

Columns:
  value          sum of the counts; <0.01 is above 0, - is not known
  90 % interval  the true value is between these two in nine of ten cases
  average, peak  average rate, and the highest rate of a window
  share          part of the event's total
  confidence     mean by value, and the lowest (min): the expected part of the
                 value in rows that are within 10 % of the truth
  method         how the counts were divided
  running        part of the time in which the counter ran
  missing        rows without a value
  from, to       time of the first and the last value, after the start
  a bar is ...   the value over time: the highest bar is the largest of the
                 line, a blank is 0, ? is not known

JSON: one object a line, with event, unit, by, key, owner, value, value_low and
value_high (the 90 % interval), rate_per_s, peak_per_s, share (0 to 1),
confidence, confidence_min, methods, running (0 to 1), rows, missing_rows,
begin_ns, end_ns (CLOCK_MONOTONIC), known_ns (time with a value: the divisor of
rates), active_begin_ns, active_end_ns, heat_step_ns, heat (the value of each
step), complete, incomplete. An unknown value is null, never 0. If complete is
false, incomplete has recording (it goes on), killed, left_out, end_ns and
losses, each with cause, count and first_ns; else it is null. canary (null
without `record --canary`) is a list: kind, link, direction, bursts,
moved_bytes, credited_bytes, credited (0 to 1), and why there is no number.
CSV: the same without heat, incomplete and canary; null is empty.
JSON of --links: link, kind, subsystem, socket, devices, direction (in, out,
both), bytes, average_per_s, highest_per_s (of a window), known_ns, unknown_ns
(time without a value), peak_per_s, peak_source, other_peak_per_s and
other_peak_source (where two sources differ by more than 20 %), full_ns (time
above 80 % of the peak), by, fillers (key and bytes in that time).
JSON of --latency: link, metric, unit, by, key (null: everybody), owner, used,
quiet and busy (each with latency, windows, seconds, own_per_s, others_per_s),
difference, unknown_windows, complete.
With both, standard error says what an incomplete recording lacks, and marks are
left out. --marks --json and --marks --csv print the marks: text, kind (instant
or span), begin_s, end_s (seconds after the start of the recording), begin_ns,
end_ns (CLOCK_MONOTONIC), source, pid.")]
pub struct Args {
    /// The recording: a .parquet file, or a directory that `record` wrote; or a roll-up: a file, or
    /// the directory of a host, an hour, a day or a cluster
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    /// What the lines are grouped by [default: cgroup; comm in text and pages where one cgroup has
    /// more than 90 %]
    #[arg(long, value_enum, help_heading = LINE)]
    pub by: Option<GroupBy>,
    /// Count cgroups deeper than N below the root towards their ancestor of depth N
    #[arg(long, value_name = "N", help_heading = LINE)]
    pub cgroup_depth: Option<usize>,
    /// Only events or links with this name; `*` matches any text, e.g. '*_bytes' or 'disk vda *';
    /// may be given several times
    #[arg(long = "event", value_name = "NAME", conflicts_with = "marks", help_heading = LINE)]
    pub events: Vec<String>,
    /// Lines only for this cgroup and those below it; all other tasks are one line, so that shares
    /// are still those of the whole; may be given several times
    #[arg(long = "cgroup", value_name = "PATH", conflicts_with = "marks", help_heading = LINE)]
    pub cgroups: Vec<String>,
    /// Show the N largest lines of tasks, and one line for all others [default of --html: 30]
    #[arg(long, value_name = "N", help_heading = LINE)]
    pub top: Option<usize>,
    /// Only windows that end after this: a time after the start of the recording (2s, 1m30s; a bare
    /// number is seconds), a wall time (2026-01-31T12:00:00Z), or the first mark of a name
    /// (mark:NAME)
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    pub from: Option<TimePoint>,
    /// Only windows that end at this time or earlier; mark:NAME is the end of that span, or the end
    /// of the recording if the span was not ended
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    pub to: Option<TimePoint>,
    #[command(flatten)]
    hosts: HostArgs,
    /// Show only how full each link was (memory, PCIe, chip-to-chip links, mesh), and who filled
    /// the links that were above 80 % of their peak
    #[arg(long, conflicts_with_all = ["csv", "top", "marks"], help_heading = PRINT)]
    pub links: bool,
    /// List only the marks of that time
    #[arg(long, conflicts_with_all = ["by", "cgroup_depth", "top"], help_heading = PRINT)]
    pub marks: bool,
    /// Show only the read latency of the links that each tenant used, with the other tenants quiet
    /// and with them busy
    #[arg(long, conflicts_with_all = ["csv", "links", "marks"], help_heading = PRINT)]
    pub latency: bool,
    /// Print JSON lines instead of tables
    #[arg(long, conflicts_with = "csv", help_heading = PRINT)]
    pub json: bool,
    /// Print CSV instead of tables. A text that begins with =, +, -, @ or ' has a ' before it, so
    /// that no spreadsheet takes it for a formula
    #[arg(long, help_heading = PRINT)]
    pub csv: bool,
    /// Draw with ASCII only
    #[arg(long, help_heading = PRINT)]
    pub ascii: bool,
    /// Show all columns and whole names, also on a terminal
    #[arg(long, help_heading = PRINT)]
    pub wide: bool,
    /// Write FILE, a page for a browser with plots over time, instead of tables; `-` is standard
    /// output
    #[arg(long, value_name = "FILE", value_parser = path(), allow_hyphen_values = true,
          help_heading = PRINT,
          conflicts_with_all = ["json", "csv", "ascii", "wide", "links", "marks", "latency"])]
    pub html: Option<PathBuf>,
    /// Replace the file of --html if it exists
    #[arg(long, requires = "html", help_heading = PRINT)]
    pub force: bool,
}

impl Args {
    /// The grouping of programs' output, and of text where nothing speaks for another one.
    fn grouping(&self) -> GroupBy {
        self.by.unwrap_or(GroupBy::Cgroup)
    }

    fn text_style(&self) -> TextStyle {
        TextStyle { ascii: self.ascii, width: terminal::width(self.wide) }
    }
}

/// Prints the report; exit code 0.
pub fn run(args: &Args) -> Result<u8> {
    let recording = args.hosts.open(&args.path, args.from.as_ref(), args.to.as_ref())?;
    args.grouping().check_recording(&recording)?;
    if let Some(file) = &args.html {
        return write_page(&recording, args, file);
    }
    // The tables of events say it themselves.
    if let Some(holder) =
        recording.recording_process().filter(|_| args.marks || args.links || args.latency)
    {
        let path = printable_path(&args.path);
        log::warn!("{path} {holder}: this report has the data on the disk so far");
    }
    if args.marks {
        return marks::print_marks(args, &recording);
    }
    if args.links {
        return links_only(&recording, args);
    }
    if args.latency {
        return latency::print_latencies(&recording, args);
    }
    let question = build_question(&recording, args)?;
    let mut usage = sum_report_of_tenants(&recording, &question)?;
    let style = args.text_style();
    let mut answer = String::new();
    if !args.json && !args.csv {
        answer = answer_text(&recording, &question, &usage, style)?;
    }
    if let Some(count) = args.top {
        keep_top_lines(&mut usage.events, count);
    }
    let incomplete = Incomplete::from_recording(&recording)?;
    let incomplete_line = incomplete
        .as_ref()
        .map(|incomplete| describe_incomplete(incomplete, &usage, args, style.width));
    let text = if args.json {
        let canary_credits = canary::read_credits(&recording)?;
        machine_output::usage_as_json(&usage, incomplete.as_ref(), canary_credits.as_deref())
            .context("cannot write the report as JSON")?
    } else if args.csv {
        machine_output::report_as_csv(&usage, incomplete.as_ref())
    } else {
        let marks = marks::before_tables(args, &recording, &usage, style)?;
        let table = render::draw_report(&usage, style);
        let latencies = latency::latency_tables(&recording, args, style)?;
        let incomplete_lines = incomplete_line.iter().map(|line| format!("{line}\n"));
        incomplete_lines.chain([answer, marks, table, latencies]).collect()
    };
    // Standard output is for programs, so this line goes to standard error.
    if let Some(line) = incomplete_line.filter(|_| args.json || args.csv) {
        log::warn!("{line}");
    }
    if let Some(note) = Incomplete::unnamed_cgroups(&recording)? {
        messages::print_message(&note);
    }
    let table = recording.open_table(&fabric::TABLE)?;
    for misfit in metadata::misfits(table.metadata_pairs())? {
        messages::print_message(&printable(&misfit));
    }
    print(&text)?;
    Ok(0)
}

/// Writes the page for a browser; exit code 0.
fn write_page(recording: &Recording, args: &Args, file: &Path) -> Result<u8> {
    let path = args.path.display().to_string();
    let tenants = args.top.unwrap_or(page::TENANTS);
    let page_request =
        page::PageOptions { question: build_question(recording, args)?, tenants, path: &path };
    save_page(&[recording], file, args.force, |writer| {
        page::write_page(recording, &page_request, writer)
    })?;
    Ok(0)
}

/// The answer, and the table of links if the recording has any: printed before the tables of
/// events.
fn answer_text(
    recording: &Recording,
    question: &ReportQuestion<'_>,
    usage: &ReportSums,
    style: TextStyle,
) -> Result<String> {
    let links = Links::from_recording(recording)?;
    let grouping = common_grouping(question, &usage.events);
    let link_directions =
        headroom(recording, &links, &ReportQuestion { grouping, ..question.clone() })?;
    let (answer, full) =
        answer::answer_of_report(recording, question, usage, (&links, &link_directions))?;
    let mut text = String::new();
    // Of the whole recording, whatever its time that is shown.
    let credited = canary::read_credits(recording)?;
    let credited = credited
        .map(|canary_credits| canary::credits_sentence(&canary_credits))
        .unwrap_or_default();
    for sentence in [answer, full, credited].iter().filter(|sentence| !sentence.is_empty()) {
        text.push_str(&wrapped("", sentence, style.width));
    }
    text.push('\n');
    let table = headroom::draw::render_table(&link_directions, &links, style);
    if !table.is_empty() {
        text.push_str(&table);
        text.push('\n');
    }
    Ok(text)
}

/// The question that the options ask.
fn build_question(recording: &Recording, args: &Args) -> Result<ReportQuestion<'static>> {
    ensure!(
        args.cgroups.is_empty() || args.grouping().has_owner(),
        "--cgroup selects owners, and lines of --by {} have no owner: use --by cgroup",
        args.grouping().name()
    );
    Ok(ReportQuestion {
        begin: args.from.clone(),
        end: args.to.clone(),
        cgroup_depth: args.cgroup_depth,
        selected: ReportSelection::from_patterns(recording, &args.events, &args.cgroups)?,
        is_chosen: args.by.is_some()
            || args.cgroup_depth.is_some()
            || !args.cgroups.is_empty()
            || args.json
            || args.csv,
        ..ReportQuestion::grouped_by(args.grouping())
    })
}

/// Prints only the table of links.
fn links_only(recording: &Recording, args: &Args) -> Result<u8> {
    let links = Links::from_recording(recording)?;
    ensure!(
        !links.links.is_empty(),
        "{} has no links: no counter of it counts bytes of memory, PCIe, chip-to-chip links or \
         mesh",
        printable_path(recording.recording_path())
    );
    let link_directions = headroom(recording, &links, &build_question(recording, args)?)?;
    print(&if args.json {
        headroom::draw::write_json_lines(&link_directions, &links, args.grouping().name())
            .context("cannot write JSON")?
    } else {
        headroom::draw::render_table(&link_directions, &links, args.text_style())
    })?;
    Ok(0)
}

/// What the recording lacks, and the command that says more. The command is on a line of its own if
/// one line is too long for the terminal.
fn describe_incomplete(
    incomplete: &Incomplete,
    usage: &ReportSums,
    args: &Args,
    width: Option<usize>,
) -> String {
    let loss_text = printable(&incomplete.summary_line(usage.start_ns)).into_owned();
    let command = incomplete.check_command(&printable_path(&args.path));
    let see = command
        .as_ref()
        .map(|shown_command| format!("; see `{shown_command}`"))
        .unwrap_or_default();
    let line = format!("{loss_text}{see}");
    match width {
        Some(width) if !args.json && !args.csv && cells(&line) > width => {
            let command_line =
                command.map(|shown_command| format!("\n  {shown_command}")).unwrap_or_default();
            format!("{}{command_line}", wrap_words(&loss_text, width))
        }
        _ => line,
    }
}
