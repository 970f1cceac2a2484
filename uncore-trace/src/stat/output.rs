//! Writes rows to their destination, in their format.
//!
//! Guarantees: without `-o` all output goes to standard error, as in perf, apart from the command's
//! own output; a file is changed only when there is something to write, and a file that was created
//! but never written is removed.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::OFlags;

use super::repeat::{Repeats, Stats};
use super::row::{RowPeriod, StatRow};
use super::{csv, json, text};
use crate::tables::mode::FileMode;
use crate::text::printable;
use crate::workload::CommandCpuTime;

/// Where rows are written.
#[derive(Clone, Copy, Debug)]
pub enum OutputDestination<'a> {
    /// Standard error.
    Stderr,
    /// Nowhere.
    Nowhere,
    /// An inherited descriptor, which is opened again through `/proc/self/fd` to add to what was
    /// written to it.
    Descriptor(u16),
    /// A file, or with `-` standard output. A new file gets the permissions.
    File(&'a Path, FileMode),
}

/// Output format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// Fields with this separator.
    Csv(String),
    /// One JSON object per line.
    Json,
}

/// Number of intervals after which perf repeats the heading.
const HEADING_EVERY: u32 = 25;

/// A run that takes a hundredth of the mean would have a bar of 2000 characters.
const LONGEST_BAR: usize = 60;

/// Time between the start of the clock and the start of the command that is not worth a line,
/// seconds.
const START: f64 = 0.01;

/// Clears a terminal and moves to its first cell, as `CONSOLE_CLEAR` of perf does.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Debug)]
enum OutputTarget {
    Nowhere,
    Stderr,
    Stdout,
    File { path: PathBuf, file: File, append: bool, was_created: bool, titled: bool },
}

/// How rows are printed.
#[derive(Clone, Debug, Default)]
pub struct OutputStyle {
    /// The format.
    pub format: Format,
    /// Whether a terminal is cleared before each interval.
    pub clear: bool,
    /// Whether events that counted nothing have no row.
    pub hide_zero: bool,
    /// Whether CSV rows of `--summary` begin without that word.
    pub bare: bool,
    /// The command; empty without one.
    pub command: String,
}

/// An open output.
#[derive(Debug)]
pub struct StatOutput {
    style: OutputStyle,
    target: OutputTarget,
    started: bool,
    intervals: u32,
}

impl StatOutput {
    /// Opens the place; `append` adds to a file.
    ///
    /// # Errors
    ///
    /// It cannot be written, or is no terminal that could be cleared.
    pub fn open(
        destination: OutputDestination<'_>,
        append: bool,
        style: OutputStyle,
    ) -> Result<Self> {
        let target = match destination {
            OutputDestination::Nowhere => OutputTarget::Nowhere,
            OutputDestination::Stderr | OutputDestination::Descriptor(2) => OutputTarget::Stderr,
            OutputDestination::Descriptor(1) => OutputTarget::Stdout,
            OutputDestination::Descriptor(number) => {
                let path = PathBuf::from(format!("/proc/self/fd/{number}"));
                let file = File::options().append(true).open(&path);
                let file = file.with_context(|| format!("cannot write to descriptor {number}"))?;
                OutputTarget::File { path, file, append: true, was_created: false, titled: false }
            }
            OutputDestination::File(path, _) if path == Path::new("-") => OutputTarget::Stdout,
            OutputDestination::File(path, mode) => {
                let context = || format!("cannot write {}", path.display());
                let is_new = match mode.create_new(path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                    created => created.map(|_| true).with_context(context)?,
                };
                let file = open_existing(path, append).with_context(context)?;
                OutputTarget::File {
                    path: path.to_owned(),
                    file,
                    append,
                    was_created: is_new,
                    titled: style.format != Format::Json,
                }
            }
        };
        let is_terminal = match &target {
            OutputTarget::Nowhere => false,
            OutputTarget::Stderr => io::stderr().is_terminal(),
            OutputTarget::Stdout => io::stdout().is_terminal(),
            OutputTarget::File { file, .. } => file.is_terminal(),
        };
        ensure!(is_terminal || !style.clear, "--interval-clear needs a terminal to clear");
        Ok(Self { style, target, started: false, intervals: 0 })
    }

    /// Prints the rows of an interval that ended `seconds` after the start.
    pub fn print_interval(&mut self, rows: &[StatRow], seconds: f64) -> Result<()> {
        let clear = self.style.clear;
        let mut shown = String::from(if clear { CLEAR } else { "" });
        let is_text = self.style.format == Format::Text;
        if is_text && (clear || self.intervals.is_multiple_of(HEADING_EVERY)) {
            shown.push_str(&text::interval_heading(rows));
        }
        self.intervals += 1;
        shown.push_str(&self.format_rows(rows, RowPeriod::Until(seconds))?);
        self.write(&shown)
    }

    /// Prints the rows of the whole time, after those of intervals.
    pub fn print_summary(&mut self, rows: &[StatRow]) -> Result<()> {
        let is_csv = matches!(self.style.format, Format::Csv(_));
        let when = if is_csv && self.style.bare { RowPeriod::Whole } else { RowPeriod::Summary };
        self.write(&self.format_rows(rows, when)?)
    }

    /// Prints the rows of a measurement without intervals; the text format adds what was measured,
    /// and for how long.
    pub fn print_whole(&mut self, rows: &[StatRow], repeats: &Repeats) -> Result<()> {
        let rows = self.format_rows(rows, RowPeriod::Whole)?;
        if self.style.format != Format::Text {
            return self.write(&rows);
        }
        // A run without counters has no rows.
        let gap = if rows.is_empty() { "" } else { "\n" };
        let (title, elapsed) = (self.title_line(repeats.runs), elapsed_lines(repeats));
        self.write(&format!("{title}{rows}{gap}{elapsed}\n"))
    }

    fn title_line(&self, runs: u32) -> String {
        let command = match self.style.command.as_str() {
            "" => String::new(),
            command => format!(" while '{}' ran", printable(command)),
        };
        let runs = if runs > 1 { format!(" ({runs} runs)") } else { String::new() };
        format!("\n Performance counter stats for 'system wide'{command}{runs}:\n\n")
    }

    fn format_rows(&self, rows: &[StatRow], when: RowPeriod) -> Result<String> {
        let shown = rows.iter().filter(|row| !(self.style.hide_zero && row.is_zero()));
        let rows: Vec<StatRow> = shown.cloned().collect();
        match &self.style.format {
            Format::Text => Ok(text::rows(&rows, when)),
            Format::Csv(separator) => Ok(csv::rows(&rows, when, separator)),
            Format::Json => json::rows(&rows, when).context("cannot write the rows as JSON"),
        }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let is_first = !std::mem::replace(&mut self.started, true);
        match &mut self.target {
            OutputTarget::Nowhere => Ok(()),
            OutputTarget::Stderr => {
                io::stderr().lock().write_all(text.as_bytes()).context("stderr")
            }
            OutputTarget::Stdout => {
                let mut handle = io::stdout().lock();
                handle.write_all(text.as_bytes()).and_then(|()| handle.flush()).context("stdout")
            }
            OutputTarget::File { path, file, append, was_created: _, titled } => {
                let mut put = || {
                    // A FIFO or a device cannot be truncated.
                    if is_first && !*append && file.metadata()?.is_file() {
                        file.set_len(0)?;
                    }
                    if is_first && *titled {
                        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
                        write!(file, "# started on {time}\n\n")?;
                    }
                    file.write_all(text.as_bytes())
                };
                put().with_context(|| path.display().to_string())
            }
        }
        .context("cannot write the counts")
    }
}

/// Opens an existing file. A symbolic link is not followed, because its owner would choose which
/// file is overwritten. Links of the system, such as `/dev/stderr`, are followed.
fn open_existing(path: &Path, append: bool) -> Result<File> {
    let folder = path.parent().and_then(|parent| parent.canonicalize().ok()).unwrap_or_default();
    let is_systems = ["/dev", "/proc"].iter().any(|tree| folder.starts_with(tree));
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    if is_link && !is_systems {
        bail!("it is a symbolic link; name the file that it leads to");
    }
    let flags = if is_systems { OFlags::empty() } else { OFlags::NOFOLLOW };
    let mut options = File::options();
    Ok(options.append(append).write(true).custom_flags(flags.bits() as i32).open(path)?)
}

impl Drop for StatOutput {
    fn drop(&mut self) {
        if let OutputTarget::File { path, was_created: true, .. } = &self.target
            && !self.started
            && let Err(error) = fs::remove_file(path)
        {
            log::warn!("cannot remove {}, which is empty: {error}", path.display());
        }
    }
}

/// The length of the measurement and, if that is shorter, the time in which the counters were
/// enabled.
fn elapsed_lines(repeats: &Repeats) -> String {
    let time = |stats: &Stats, label: &str| {
        if repeats.runs > 1 {
            format!(
                "{:>18.9} +- {:.9} seconds {label}  ( +-{:>6.2}% )\n",
                stats.mean,
                stats.standard_error(),
                stats.percent_error()
            )
        } else {
            format!("{:>18.9} seconds {label}\n", stats.mean)
        }
    };
    let mut text = time(&repeats.seconds, "time elapsed");
    let (counted, seconds) = (repeats.counted.mean, repeats.seconds.mean);
    if counted < 0.95 * seconds && counted < seconds - START {
        text.push_str(&time(&repeats.counted, "counted"));
    }
    // That of several runs is not one command's.
    if let Some(CommandCpuTime { user, system }) = repeats.used.filter(|_| repeats.runs == 1) {
        let line =
            |time: Duration, label: &str| format!("{:>18.9} seconds {label}\n", time.as_secs_f64());
        text = format!("{text}\n{}{}", line(user, "user"), line(system, "sys"));
    }
    format!("{}{text}", run_table(repeats))
}

/// The length of each run, its difference from the mean, and a bar: one `#`, and one more for each
/// 5 % of difference (`print_table`, `tools/perf/util/stat-display.c`, Linux 7.2).
fn run_table(repeats: &Repeats) -> String {
    let mean = repeats.seconds.mean;
    let line = |&run: &f64| {
        let off = run - mean;
        let bar = if run > 0.0 { (100.0 * (off / run).abs() / 5.0) as usize } else { 0 };
        format!("{run:>18.9} ({off:+.9}) {}\n", "#".repeat(1 + bar.min(LONGEST_BAR)))
    };
    match repeats.run_seconds.as_slice() {
        // One run has nothing to be compared with.
        [] | [_] => String::new(),
        runs => format!(
            "{0}# Table of individual measurements:\n{1}\n{0}# Final result:\n",
            " ".repeat(7),
            runs.iter().map(line).collect::<String>()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::row::sample;

    #[test]
    fn an_output_file_is_truncated_and_a_device_takes_the_rows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counts");
        fs::write(&file, "older ".repeat(10_000)).unwrap();
        for path in [Path::new("/dev/null"), &file] {
            let format = Format::Csv(",".to_owned());
            let mode = FileMode::default();
            let style = OutputStyle { format, ..OutputStyle::default() };
            let mut output =
                StatOutput::open(OutputDestination::File(path, mode), false, style).unwrap();
            output.print_summary(&sample::all()).unwrap();
        }
        let written = fs::read_to_string(&file).unwrap();
        assert!(written.starts_with("# started on") && !written.contains("older"), "{written}");
    }
}
