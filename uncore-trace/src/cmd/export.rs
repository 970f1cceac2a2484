//! `uncore-trace export`: a recording for other programs.

use std::io;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::ArgGroup;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::heading::{FORMAT, LINE, SPAN, WRITE};
use super::host::HostArgs;
use super::output::{self, ModeArg, print};
use crate::cli::messages::{is_broken_pipe, print_message};
use crate::schema::{ALL, TableDef, fabric};
use crate::tables::output::{CommandOutput, Content};
use crate::tables::reader::{OpenTable, Recording};
use crate::text::printable_path;
use crate::units;
use crate::view::export::{SelectedRows, csv, ipc, perfetto, pprof};
use crate::view::grouping::GroupBy;
use crate::view::incomplete::Incomplete;
use crate::view::selected::ReportSelection;
use crate::view::span::{SelectedTime, TimePoint};

/// Write a recording in the formats of other programs
///
/// --perfetto writes a trace for ui.perfetto.dev: rates by link and tenant, who ran on each CPU (if
/// recorded with --slices), marks, CPUs that went offline, losses. --pprof writes a profile, which
/// `go tool pprof`, speedscope, Parca and Pyroscope show as a flame graph of who used which link.
/// --csv and --arrow write the rows of a table. Several formats may be written at once; FILE may be
/// - for standard output. A file appears when it is complete.
///
/// Tenants are cgroups, or as --by says. An unknown value is left out, or empty in CSV, and
/// never 0. If the recording is incomplete, standard error says what is missing.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("formats").required(true).multiple(true)
        .args(["perfetto", "pprof", "csv", "arrow"]),
    group = ArgGroup::new("rows").multiple(true).args(["csv", "arrow"]),
    after_help = "\
Example: ten seconds for ui.perfetto.dev
  uncore-trace record -p mem,pcie --slices -o run/ -- ./train.sh
  uncore-trace export run/ --perfetto run.pftrace --from 20s --to 30s

A flame graph in a browser:
  uncore-trace export run/ --pprof run.pb.gz
  go tool pprof -http :8080 run.pb.gz

All rows as CSV:
  uncore-trace export run/ --csv run.csv"
)]
pub struct Args {
    /// The recording: a .parquet file, or a directory that `record` wrote; or a roll-up: a file, or
    /// the directory of a host, an hour, a day or a cluster
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,

    /// Write a trace for Perfetto
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = output::path(),
          help_heading = FORMAT)]
    perfetto: Option<PathBuf>,

    /// Write a profile in the format of pprof, gzipped. Each event is a sample type with its unit.
    /// The stack is a link (or an event that is on no link), the path of the cgroup, and the
    /// process; labels have owner, method, confidence, pod, container, job and socket
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = output::path(),
          help_heading = FORMAT)]
    pprof: Option<PathBuf>,

    /// Write the rows of a table as CSV. A text that begins with =, +, -, @ or ' has a ' before it,
    /// so that no spreadsheet takes it for a formula
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = output::path(),
          help_heading = FORMAT)]
    csv: Option<PathBuf>,

    /// Write the rows of a table as an Arrow IPC file, with the metadata of the recording
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = output::path(),
          help_heading = FORMAT)]
    arrow: Option<PathBuf>,

    /// The table that --csv and --arrow write; a single file has the table fabric only
    #[arg(long, value_name = "NAME", requires = "rows", default_value = fabric::TABLE.name,
          value_parser = table(), help_heading = FORMAT)]
    table: &'static TableDef,

    /// Only rows that end after this: a time after the start of the recording (2s, 1m30s; a bare
    /// number is seconds), or a wall time (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    from: Option<TimePoint>,

    /// Only rows that end at this time or earlier
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    to: Option<TimePoint>,

    #[command(flatten)]
    hosts: HostArgs,

    /// With --pprof: only events or links with this name; `*` matches any text, e.g. '*_bytes' or
    /// 'disk vda *'; may be given several times
    #[arg(long = "event", value_name = "NAME", requires = "pprof", help_heading = LINE)]
    events: Vec<String>,

    /// With --perfetto: show the N largest tenants of each quantity separately
    #[arg(long, value_name = "N", requires = "perfetto", default_value_t = 10, help_heading = LINE)]
    top: usize,

    /// With --perfetto: what a tenant is
    #[arg(long, value_enum, requires = "perfetto", default_value = "cgroup", help_heading = LINE)]
    by: GroupBy,

    /// Replace files that exist
    #[arg(long, help_heading = WRITE)]
    force: bool,

    #[command(flatten)]
    permissions: ModeArg,
}

/// Parses the name of a table.
fn table() -> impl TypedValueParser<Value = &'static TableDef> {
    let names = PossibleValuesParser::new(ALL.iter().map(|table| table.name));
    names.try_map(|name| TableDef::by_name(&name).ok_or("there is no such table"))
}

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Perfetto,
    Pprof,
    Csv,
    Arrow,
}

/// The recording, and the options of the export.
struct ExportJob<'a> {
    args: &'a Args,
    recording: &'a Recording,
    fabric: &'a OpenTable,
    span: &'a SelectedTime,
    /// The events of --pprof.
    selected: &'a ReportSelection,
}

/// Writes the files and prints a summary; exit code 0.
pub fn run(args: &Args) -> Result<u8> {
    let recording = args.hosts.open(&args.path, args.from.as_ref(), args.to.as_ref())?;
    args.by.check_recording(&recording)?;
    if !args.by.has_owner() {
        bail!(
            "--perfetto has a track for each owner, and lines of --by {} have no owner: use --by \
               cgroup",
            args.by.name()
        );
    }
    let fabric = recording.open_table(&fabric::TABLE)?;
    let shown = printable_path(&args.path);
    let Some(span) =
        SelectedTime::between_moments(&recording, &fabric, args.from.as_ref(), args.to.as_ref())?
    else {
        bail!("{shown} has no rows: nothing was recorded");
    };
    let selected = ReportSelection::from_patterns(&recording, &args.events, &[])?;
    let mut outputs = open_outputs(args, &recording)?;
    if let Some(incomplete) = Incomplete::from_recording(&recording)? {
        let hint = incomplete.check_command(&shown).map(|command| format!("; see `{command}`"));
        log::warn!("{}{}", incomplete.summary_line(span.start_ns), hint.unwrap_or_default());
    }
    let (recording, fabric, span, selected) = (&recording, &fabric, &span, &selected);
    let job = ExportJob { args, recording, fabric, span, selected };
    let mut lines = Vec::new();
    for (format, output) in &mut outputs {
        let written = job.write(*format, output).and_then(|summary| {
            output.finish_writing()?;
            Ok(summary)
        });
        match written.map_err(|error| output.explain_error(error)) {
            Ok(summary) => lines.push(summary),
            // The reader of standard output has left; the other files are still written.
            Err(error) if is_broken_pipe(&error) => lines.push(String::new()),
            Err(error) => return Err(error),
        }
    }
    let piped = outputs.iter().any(|(_, output)| output.is_stdout());
    for ((_, output), summary) in outputs.iter_mut().zip(lines) {
        output.publish()?;
        if output.is_stdout() {
            continue;
        }
        let named = printable_path(output.output_path());
        let size = units::human(output.written_bytes() as f64, "bytes");
        let line = format!("{named}: {summary}, {size}");
        if piped {
            print_message(&line);
        } else {
            print(&format!("{line}\n"))?;
        }
    }
    Ok(0)
}

/// Opens the outputs.
fn open_outputs(args: &Args, recording: &Recording) -> Result<Vec<(ExportFormat, CommandOutput)>> {
    let table = args.table.name;
    if !recording.has_table(args.table) {
        let path = printable_path(&args.path);
        if recording.is_rollup() {
            bail!("{path} is a roll-up, which has no table {table}: it has fabric only");
        }
        bail!(
            "{path} has no table {table}: one file has fabric only; record into a directory, e.g. \
             -o run/"
        );
    }
    let requested = [
        (ExportFormat::Perfetto, Content::Binary, &args.perfetto),
        (ExportFormat::Pprof, Content::Binary, &args.pprof),
        (ExportFormat::Csv, Content::Text, &args.csv),
        (ExportFormat::Arrow, Content::Binary, &args.arrow),
    ];
    let mut outputs: Vec<(ExportFormat, CommandOutput)> = Vec::new();
    for (format, content, path) in requested {
        let Some(path) = path else { continue };
        if outputs.iter().any(|(_, earlier)| earlier.output_path() == path) {
            let path = printable_path(path);
            bail!("{path} is given for two formats: give each format a FILE of its own");
        }
        let mode = args.permissions.mode;
        outputs.push((
            format,
            CommandOutput::create(path, content, &[recording.recording_path()], args.force, mode)?,
        ));
    }
    Ok(outputs)
}

impl ExportJob<'_> {
    /// Writes one format. Returns a summary of it.
    fn write(&self, format: ExportFormat, writer: &mut impl io::Write) -> Result<String> {
        let Self { args, recording, fabric, span, selected } = *self;
        match format {
            ExportFormat::Perfetto => {
                let written = perfetto::write_perfetto(
                    recording,
                    fabric,
                    span,
                    args.by,
                    args.top,
                    &mut *writer,
                )?;
                // Nothing is said of a trace that could not be written.
                writer.flush()?;
                if !written.has_slices {
                    log::warn!(
                        "the trace does not show who ran on the CPUs, because the recording has no \
                         slices: record them with `record -o DIR/ --slices`"
                    );
                }
                Ok(format!("{} tracks, {} events", written.tracks, written.events))
            }
            ExportFormat::Pprof => pprof::write_pprof(recording, span, selected, writer),
            ExportFormat::Csv | ExportFormat::Arrow => {
                let table = recording.open_table(args.table)?;
                let selection = SelectedRows::new(&table, span);
                let rows = match format {
                    ExportFormat::Csv => csv::write_csv(&selection, writer)?,
                    _ => ipc::write_ipc(&selection, writer)?,
                };
                Ok(format!("{rows} rows"))
            }
        }
    }
}
