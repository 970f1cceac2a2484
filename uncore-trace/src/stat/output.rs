//! Writes rows to their destination, in their format.
//!
//! Guarantees: without `-o` all output goes to standard error, as in perf, apart from the command's
//! own output; a file is changed only when there is something to write, and a file that was created
//! but never written is removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::fs::OFlags;

use super::repeat::Stats;
use super::row::{Row, When};
use super::{csv, json, text};
use crate::tables::mode::Mode;
use crate::text::printable;

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

/// Time between the start of the clock and the start of the command that is not worth a line,
/// seconds.
const START: f64 = 0.01;

#[derive(Debug)]
enum Target {
    Stderr,
    Stdout,
    File { path: PathBuf, file: File, append: bool, made: bool },
}

/// Facts of the measurement for the lines around the rows.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Number of runs.
    pub runs: u32,
    /// Length of each run, s.
    pub seconds: Stats,
    /// Time in which the counters were enabled in each run, s.
    pub counted: Stats,
}

/// An open output.
#[derive(Debug)]
pub struct Output {
    format: Format,
    target: Target,
    /// The command; empty without one.
    command: String,
    started: bool,
    intervals: u32,
}

impl Output {
    /// Opens `path` (`-` is standard output), or standard error. A new file gets the permissions
    /// `mode`.
    pub fn open(
        path: Option<&Path>,
        append: bool,
        mode: Mode,
        format: Format,
        command: String,
    ) -> Result<Self> {
        let target = match path {
            None => Target::Stderr,
            Some(path) if path == Path::new("-") => Target::Stdout,
            Some(path) => {
                let context = || format!("cannot write {}", path.display());
                let is_new = match mode.create_new(path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                    created => created.map(|_| true).with_context(context)?,
                };
                let file = opened(path, append).with_context(context)?;
                Target::File { path: path.to_owned(), file, append, made: is_new }
            }
        };
        Ok(Self { format, target, command, started: false, intervals: 0 })
    }

    /// Prints the rows of an interval that ended `seconds` after the start.
    pub fn interval(&mut self, rows: &[Row], seconds: f64) -> Result<()> {
        let mut shown = String::new();
        if self.format == Format::Text && self.intervals.is_multiple_of(HEADING_EVERY) {
            shown.push_str(&text::heading(rows));
        }
        self.intervals += 1;
        shown.push_str(&self.shown(rows, When::Until(seconds))?);
        self.write(&shown)
    }

    /// Prints the rows of the whole time, after those of intervals.
    pub fn summary(&mut self, rows: &[Row]) -> Result<()> {
        let shown = self.shown(rows, When::Summary)?;
        self.write(&shown)
    }

    /// Prints the rows of a measurement without intervals; the text format adds what was measured,
    /// and for how long.
    pub fn whole(&mut self, rows: &[Row], ending: &Ending) -> Result<()> {
        let rows = self.shown(rows, When::Whole)?;
        let shown = match self.format {
            Format::Text => format!("{}{rows}\n{}\n", self.title(ending.runs), times(ending)),
            Format::Csv(_) | Format::Json => rows,
        };
        self.write(&shown)
    }

    fn title(&self, runs: u32) -> String {
        let command = match self.command.as_str() {
            "" => String::new(),
            command => format!(" while '{}' ran", printable(command)),
        };
        let runs = if runs > 1 { format!(" ({runs} runs)") } else { String::new() };
        format!("\n Performance counter stats for 'system wide'{command}{runs}:\n\n")
    }

    fn shown(&self, rows: &[Row], when: When) -> Result<String> {
        match &self.format {
            Format::Text => Ok(text::rows(rows, when)),
            Format::Csv(separator) => Ok(csv::rows(rows, when, separator)),
            Format::Json => json::rows(rows, when).context("cannot write the rows as JSON"),
        }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let first = !std::mem::replace(&mut self.started, true);
        match &mut self.target {
            Target::Stderr => io::stderr().lock().write_all(text.as_bytes()).context("stderr"),
            Target::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("stdout")
            }
            Target::File { path, file, append, made: _ } => {
                let mut put = || {
                    // A FIFO or a device cannot be truncated.
                    if first && !*append && file.metadata()?.is_file() {
                        file.set_len(0)?;
                    }
                    if first && self.format != Format::Json {
                        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
                        write!(file, "# started on {now}\n\n")?;
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
fn opened(path: &Path, append: bool) -> Result<File> {
    let folder = path.parent().and_then(|parent| parent.canonicalize().ok()).unwrap_or_default();
    let is_systems = ["/dev", "/proc"].iter().any(|tree| folder.starts_with(tree));
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    if is_link && !is_systems {
        bail!("it is a symbolic link; name the file that it leads to");
    }
    let flags = if is_systems { OFlags::empty() } else { OFlags::NOFOLLOW };
    let mut options = File::options();
    Ok(options.append(append).write(true).custom_flags(flags.bits() as i32).open(path)?)
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Target::File { path, made: true, .. } = &self.target
            && !self.started
            && let Err(error) = fs::remove_file(path)
        {
            log::warn!("cannot remove {}, which is empty: {error}", path.display());
        }
    }
}

/// The length of the measurement and, if that is shorter, the time in which the counters were
/// enabled.
fn times(ending: &Ending) -> String {
    let time = |stats: &Stats, what: &str| {
        if ending.runs > 1 {
            format!(
                "{:>18.9} +- {:.9} seconds {what}  ( +-{:>6.2}% )\n",
                stats.mean(),
                stats.error(),
                stats.percent()
            )
        } else {
            format!("{:>18.9} seconds {what}\n", stats.mean())
        }
    };
    let mut text = time(&ending.seconds, "time elapsed");
    let (counted, seconds) = (ending.counted.mean(), ending.seconds.mean());
    if counted < 0.95 * seconds && counted < seconds - START {
        text.push_str(&time(&ending.counted, "counted"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::row::sample;

    #[test]
    fn what_was_in_a_file_goes_and_a_device_takes_the_rows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counts");
        fs::write(&file, "older ".repeat(10_000)).unwrap();
        for path in [Path::new("/dev/null"), &file] {
            let format = Format::Csv(",".to_owned());
            let mode = Mode::default();
            let mut output = Output::open(Some(path), false, mode, format, String::new()).unwrap();
            output.summary(&sample::all()).unwrap();
        }
        let written = fs::read_to_string(&file).unwrap();
        assert!(written.starts_with("# started on") && !written.contains("older"), "{written}");
    }
}
