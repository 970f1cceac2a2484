//! Processes and programs beside a measured workload; they are removed however the measurement
//! ends.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf};
use rustix::process::{Pid, Signal, kill_process};

/// How long a recorder may take to finish its file after SIGTERM, before it is killed.
const STOP: Duration = Duration::from_secs(30);

/// Something that runs until it is stopped; dropping it stops it too, without checking how it
/// ended.
pub(super) trait Running {
    /// Stops it normally; fails if it had ended before.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Nothing at all.
pub(super) struct Nothing;

impl Running for Nothing {
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A BPF program on typed tracepoints, detached and unloaded on drop.
pub(super) struct Attached {
    _programs: Vec<Ebpf>,
}

impl Attached {
    /// Loads the object once for each of these tracepoints, and attaches its program `name` there.
    pub(super) fn new(object: &Path, name: &str, tracepoints: &[&str]) -> Result<Self> {
        let btf = Btf::from_sys_fs().context("cannot read /sys/kernel/btf/vmlinux")?;
        let mut attached = Vec::new();
        for tracepoint in tracepoints {
            let mut programs = Ebpf::load_file(object)
                .with_context(|| format!("cannot load {}", object.display()))?;
            let program: &mut BtfTracePoint = programs
                .program_mut(name)
                .with_context(|| format!("{} has no program {name}", object.display()))?
                .try_into()
                .with_context(|| format!("{name} is not a typed tracepoint program"))?;
            program
                .load(tracepoint, &btf)
                .with_context(|| format!("the kernel refused {name} on {tracepoint}"))?;
            program.attach().with_context(|| format!("cannot attach {name} to {tracepoint}"))?;
            attached.push(programs);
        }
        Ok(Self { _programs: attached })
    }
}

impl Running for Attached {
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A recorder in a process of its own.
pub(super) struct RecorderProcess {
    name: String,
    child: Child,
    /// Standard error goes to a file, because a pipe that nobody reads would block the recorder.
    log: PathBuf,
}

impl RecorderProcess {
    /// Starts the command and gives it `settle` to attach; fails if it ends before that.
    pub(super) fn start(mut command: Command, log: &Path, settle: Duration) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let file =
            fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let mut recorder = Self { name, child, log: log.to_owned() };
        thread::sleep(settle);
        if let Some(status) = recorder.child.try_wait().context("cannot wait for a recorder")? {
            bail!("{command:?} ended at once with {status}: {}", recorder.last_error_line());
        }
        Ok(recorder)
    }

    /// Its process id.
    pub(super) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of its standard error.
    fn last_error_line(&self) -> String {
        let mut text = Vec::new();
        if let Ok(file) = fs::File::open(&self.log) {
            let _read = file.take(64 << 10).read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(nothing)").to_owned()
    }

    fn kill_child(&mut self) {
        // Both fail only if the process has already ended, which is intended.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Running for RecorderProcess {
    fn stop(mut self: Box<Self>) -> Result<()> {
        let early = self.child.try_wait().context("cannot wait for a recorder")?;
        if let Some(status) = early {
            bail!("{} ended with {status} while measured: {}", self.name, self.last_error_line());
        }
        let pid = Pid::from_child(&self.child);
        // Not SIGINT, which background processes of a shell, and their children, ignore.
        kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop {}", self.name))?;
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for a recorder")? {
                // perf ends with the signal that it was sent; 1 means a recording with losses.
                let fine = status.code().is_none_or(|code| code < 2);
                ensure!(fine, "{} failed with {status}: {}", self.name, self.last_error_line());
                return Ok(());
            }
            ensure!(since.elapsed() < STOP, "{} did not stop within {STOP:?}", self.name);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for RecorderProcess {
    fn drop(&mut self) {
        self.kill_child();
    }
}

/// A script for [`PythonLoad`]: computes for about 0.3 ms, then sleeps for 1 ms, in a loop.
pub(super) const RUN_AND_SLEEP: &str =
    "import time\nwhile True:\n    sum(range(20000)); time.sleep(0.001)";

/// Processes that run a Python script; dropping it ends them.
pub(super) struct PythonLoad(Vec<Child>);

impl PythonLoad {
    /// Starts `count` of them.
    pub(super) fn start(count: usize, python: &Path, script: &str) -> Result<Self> {
        let mut load = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(python);
            command.args(["-c", script]).stdin(Stdio::null());
            load.0.push(command.spawn().with_context(|| format!("cannot run {command:?}"))?);
        }
        Ok(load)
    }
}

impl Drop for PythonLoad {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only if the process has already ended, which is intended.
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> Result<(tempfile::TempDir, RecorderProcess)> {
        let dir = tempfile::tempdir()?;
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let log = dir.path().join("log");
        Ok((dir, RecorderProcess::start(command, &log, Duration::from_millis(300))?))
    }

    #[test]
    fn one_that_ends_at_once_is_an_error_with_its_last_words() {
        let error = start("echo no such PMU >&2; exit 2").err().unwrap();
        assert!(format!("{error:#}").ends_with("no such PMU"), "{error:#}");
    }

    #[test]
    fn stopped_by_a_signal() {
        let (_dir, recorder) = start("exec sleep 60").unwrap();
        Box::new(recorder).stop().unwrap();
    }

    #[test]
    fn one_that_fails_when_stopped_is_an_error() {
        let (_dir, recorder) =
            start("trap 'echo disk full >&2; exit 2' TERM; while :; do sleep 0.05; done").unwrap();
        let error = Box::new(recorder).stop().unwrap_err();
        assert!(format!("{error:#}").contains("disk full"), "{error:#}");
    }

    #[test]
    fn dropping_kills_it() {
        let (_dir, recorder) = start("trap '' TERM; exec sleep 60").unwrap();
        let pid = recorder.child.id();
        drop(recorder);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
