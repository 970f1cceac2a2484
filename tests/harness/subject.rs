//! A command that logs its signals, and a measurement that runs beside the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{wait_for, wait_or_explain, wait_until};

/// The signals that end a measurement and leave its command running: SIGTERM and, unless it is
/// ignored here, as under nohup, SIGHUP.
pub(crate) fn ending_signals() -> Vec<Signal> {
    let mut signals = vec![Signal::TERM];
    signals.extend(hangup_signal().ok());
    signals
}

/// SIGHUP; an error if processes that are started here ignore it.
pub(crate) fn hangup_signal() -> Result<Signal, String> {
    if signal_set("self", "SigIgn") & signal_bit(Signal::HUP) == 0 {
        Ok(Signal::HUP)
    } else {
        Err("SIGHUP is ignored here".to_owned())
    }
}

/// A set of signals of `/proc/PROCESS/status`.
pub(crate) fn signal_set(process: &str, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

/// Waits until a process handles these signals: before that they end it.
pub(crate) fn wait_until_handled(pid: u32, signals: &[Signal]) {
    let awaited = signals.iter().fold(0, |bits, signal| bits | signal_bit(*signal));
    wait_until(&format!("process {pid} to handle {signals:?}"), || {
        signal_set(&pid.to_string(), "SigCgt") & awaited == awaited
    });
}

/// The bit of a signal in such a set.
pub(crate) const fn signal_bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// A shell script in its own directory. It logs its signals, and ends after SIGTERM with exit code
/// 5, or with 7 when the test lets it.
#[derive(Debug)]
pub(crate) struct Subject {
    dir: tempfile::TempDir,
}

impl Subject {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file_path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command line; its output may be closed.
    pub(crate) fn command(&self) -> [String; 3] {
        self.with_traps("trap 'echo TERM >>heard; exit 5' TERM")
    }

    /// The same, but it logs a SIGTERM and continues.
    pub(crate) fn stubborn(&self) -> [String; 3] {
        self.with_traps("trap 'echo TERM >>heard' TERM")
    }

    fn with_traps(&self, term: &str) -> [String; 3] {
        let script = format!(
            "exec >/dev/null 2>&1; cd {}; {term}; trap 'echo INT >>heard' INT; \
             trap 'echo HUP >>heard' HUP; echo $$ >new; mv new pid; \
             while [ ! -e go ]; do sleep 0.02; done; exit 7",
            self.dir.path().display()
        );
        ["sh".to_owned(), "-c".to_owned(), script]
    }

    /// Its pid, when it has started.
    pub(crate) fn pid(&self) -> Pid {
        let text =
            wait_for("the command's start", || fs::read_to_string(self.file_path("pid")).ok());
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    /// Whether it runs; a zombie does not.
    pub(crate) fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    }

    /// Its signals, one per line.
    pub(crate) fn heard_signals(&self) -> String {
        fs::read_to_string(self.file_path("heard")).unwrap_or_default()
    }

    /// Lets it end.
    pub(crate) fn let_it_end(&self) {
        fs::write(self.file_path("go"), "").unwrap();
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It may have ended, or never started.
        let text = fs::read_to_string(self.file_path("pid")).unwrap_or_default();
        if let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw)
            && self.is_running()
        {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

fn read_text(file: &tempfile::NamedTempFile) -> String {
    String::from_utf8_lossy(&fs::read(file.path()).unwrap()).into_owned()
}

/// A program that runs beside the test; killed on drop.
#[derive(Debug)]
pub(crate) struct Measurement {
    child: Child,
    /// What it writes to stderr: unlike a pipe, a file is complete when the program has ended, also
    /// if its command runs on with stderr open.
    stderr: tempfile::NamedTempFile,
    /// Length of the lines of stderr that [`Self::wait_for_line`] has taken.
    taken_bytes: usize,
}

impl Measurement {
    /// Starts it; its stdout is piped.
    pub(crate) fn start(command: &mut Command) -> Self {
        let stderr = tempfile::NamedTempFile::new().unwrap();
        let writer = stderr.as_file().try_clone().unwrap();
        let child = command.stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
        Self { child, stderr, taken_bytes: 0 }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal only to it.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Its stdout.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// What it has written to stderr so far.
    pub(crate) fn stderr_text(&self) -> String {
        read_text(&self.stderr)
    }

    /// The next line with `word` on stderr, which must come while it runs.
    pub(crate) fn wait_for_line(&mut self, word: &str) -> String {
        let Self { child, stderr, taken_bytes } = self;
        let next_line = || {
            let has_ended = child.try_wait().unwrap().is_some();
            let text = read_text(stderr);
            let mut end = *taken_bytes;
            let mut new_lines = text[end..].split_inclusive('\n');
            let line = new_lines.find(|line| {
                end += line.len();
                line.ends_with('\n') && line.contains(word)
            });
            assert!(!has_ended, "it has ended before a line with {word:?}: {text}");
            *taken_bytes = line.map_or(*taken_bytes, |_| end);
            line.map(|line| line.trim_end().to_owned())
        };
        wait_or_explain(&format!("a line with {word:?}"), next_line, || read_text(stderr))
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end. Returns the exit code (`None` after death by a signal) and all of stderr.
    pub(crate) fn wait(&mut self) -> (Option<i32>, String) {
        let status = wait_for("its end", || self.child.try_wait().unwrap());
        (status.code(), self.stderr_text())
    }

    /// Kills it but not its command.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
