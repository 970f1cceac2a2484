//! A command that logs its signals, and a measurement that runs beside the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest wait: without optimization, on a shared machine with 2 CPUs, a recording takes seconds
/// to begin and to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for something that must happen.
pub(crate) fn wait_for<T>(event: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(result) = check() {
            return result;
        }
        assert!(begin.elapsed() < PATIENCE, "in vain: {event}");
        sleep(Duration::from_millis(5));
    }
}

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

/// A measuring program; killed on drop.
#[derive(Debug)]
pub(crate) struct Measurement {
    child: Child,
    lines: Receiver<String>,
    stderr_text: String,
}

impl Measurement {
    /// Starts it; its stdout is piped.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        // Ends when the last process with stderr open ends.
        spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines, stderr_text: String::new() }
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

    /// The next line with `word` on stderr, which must come while it runs.
    pub(crate) fn wait_for_line(&mut self, word: &str) -> String {
        let begin = Instant::now();
        while let Some(remaining) = PATIENCE.checked_sub(begin.elapsed()) {
            let Ok(line) = self.lines.recv_timeout(remaining) else { break };
            self.stderr_text.push_str(&line);
            self.stderr_text.push('\n');
            if line.contains(word) {
                assert!(self.is_running(), "it has ended: {}", self.stderr_text);
                return line;
            }
        }
        panic!("it does not say {word:?}: {}", self.stderr_text);
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end. Returns the exit code (`None` after death by a signal) and all of stderr.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let status = wait_for("its end", || self.child.try_wait().unwrap());
        // The thread may still pass on lines from before the end.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(200)) {
            self.stderr_text.push_str(&line);
            self.stderr_text.push('\n');
        }
        (status.code(), std::mem::take(&mut self.stderr_text))
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
