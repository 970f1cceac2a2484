//! A recorder that runs beside the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command};

use aya::maps::loaded_maps;
use aya::programs::{loaded_links, loaded_programs};
use rustix::process::{Pid, Signal, kill_process};

use super::subject::Measurement;
use super::{mono_ns, mounts, uncore_trace};
use crate::PROGRAM;
use crate::wait::{wait_or_explain, wait_until};

/// Prints a line when counting has begun, and keeps running.
pub(crate) const WORKLOAD: &str = "echo $$; exec sleep 600";

/// No test whose first tick matters has a longer one, ns.
const LONGEST_TICK_NS: i64 = 5_000_000;

/// A running recorder whose command is [`WORKLOAD`], or another that prints its pid first.
#[derive(Debug)]
pub(crate) struct Recorder {
    program: Measurement,
    /// Open, because its command may write more than the first line.
    _stdout: BufReader<ChildStdout>,
    command: Option<Pid>,
    /// `CLOCK_MONOTONIC` before it was started, ns.
    pub spawned_ns: i64,
    /// `CLOCK_MONOTONIC` at the first line of its command, when counting had begun, ns.
    pub started_ns: i64,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct RecorderEnd {
    /// Exit code.
    pub code: Option<i32>,
    /// What it had to say.
    pub stderr: String,
}

impl Recorder {
    /// Starts it and waits until it counts.
    pub(crate) fn start<A: AsRef<OsStr>>(output: &Path, options: &[A]) -> Self {
        Self::with_command(output, options, WORKLOAD)
    }

    /// The same with another shell script, whose first line must be its pid.
    pub(crate) fn with_command<A: AsRef<OsStr>>(
        output: &Path,
        options: &[A],
        script: &str,
    ) -> Self {
        Self::with_env(output, options, script, &[])
    }

    /// The same with additional environment variables.
    pub(crate) fn with_env<A: AsRef<OsStr>>(
        output: &Path,
        options: &[A],
        script: &str,
        env: &[(&str, &OsStr)],
    ) -> Self {
        let mut command = uncore_trace();
        command.envs(env.iter().copied());
        Self::spawn_recorder(command, output, options, script)
    }

    /// The same as [`Self::start`] where a shell script, such as one that mounts, has changed what
    /// it sees of the machine.
    pub(crate) fn after_script<A: AsRef<OsStr>>(
        change: &str,
        output: &Path,
        options: &[A],
    ) -> Self {
        let mut command = mounts::shell(&format!("{change}; exec \"$0\" \"$@\""));
        command.arg(PROGRAM);
        Self::spawn_recorder(command, output, options, WORKLOAD)
    }

    fn spawn_recorder<A: AsRef<OsStr>>(
        mut command: Command,
        output: &Path,
        options: &[A],
        script: &str,
    ) -> Self {
        let spawned_ns = mono_ns();
        // What its command says is not what it says.
        let script = format!("exec 2>/dev/null; {script}");
        command.arg("record").arg("-o").arg(output).args(options).args(["--", "sh", "-c", &script]);
        let mut program = Measurement::start(&mut command);
        let mut stdout = BufReader::new(program.stdout());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let started_ns = mono_ns();
        let Ok(pid) = line.trim().parse() else {
            program.kill();
            panic!("it did not start: {:?}", program.wait());
        };
        Self { program, _stdout: stdout, command: Pid::from_raw(pid), spawned_ns, started_ns }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends the recorder a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// The next line with `word` on stderr, which must come while it runs.
    pub(crate) fn wait_for_line(&mut self, word: &str) -> String {
        self.program.wait_for_line(word)
    }

    /// Waits until its first window has begun, which it has at most a tick after the first line of
    /// its command.
    pub(crate) fn wait_for_first_window(&self) {
        wait_until("the first window to begin", || mono_ns() > self.started_ns + LONGEST_TICK_NS);
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> RecorderEnd {
        let (code, stderr) = self.program.wait();
        RecorderEnd { code, stderr }
    }

    /// Stops only the recorder; the recording must be complete.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let ended = self.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    /// Stops only the recorder; returns whether the recording is complete.
    pub(crate) fn stop_and_tell(mut self) -> bool {
        self.signal(Signal::TERM);
        let ended = self.wait();
        assert!([Some(0), Some(1)].contains(&ended.code), "{}", ended.stderr);
        ended.code == Some(0)
    }

    /// Kills it but not its command; returns the time of its death.
    pub(crate) fn kill(&mut self) -> i64 {
        let killed_ns = mono_ns();
        self.program.kill();
        killed_ns
    }

    /// A line of its `/proc/PID/status`, in KiB.
    pub(crate) fn status_kib(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The BPF objects it holds.
    pub(crate) fn objects(&self) -> Objects {
        objects_of(self.program.pid())
    }
}

/// The BPF objects that a process holds, from `/proc/PID/fdinfo`; others may record on this machine
/// too.
pub(crate) fn objects_of(pid: Pid) -> Objects {
    let mut objects = Objects::default();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        // Another thread may close a descriptor in between.
        let Ok(info) = fs::read_to_string(entry.unwrap().path()) else { continue };
        for line in info.lines() {
            let Some((key, id)) = line.split_once(':') else { continue };
            let set = match key {
                "prog_id" => &mut objects.programs,
                "map_id" => &mut objects.maps,
                "link_id" => &mut objects.links,
                _ => continue,
            };
            set.insert(id.trim().parse().unwrap());
        }
    }
    objects
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It may have ended already.
        if let Some(command) = self.command {
            kill_process(command, Signal::KILL).ok();
        }
    }
}

/// Ids of BPF objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps.
    pub maps: BTreeSet<u32>,
    /// Links.
    pub links: BTreeSet<u32>,
}

impl Objects {
    /// Those that still exist in the kernel.
    fn still_loaded(&self) -> Self {
        let programs = loaded_programs().filter_map(|program| Some(program.ok()?.id()));
        let maps = loaded_maps().filter_map(|map| Some(map.ok()?.id()));
        let links = loaded_links().filter_map(|link| Some(link.ok()?.id()));
        Self {
            programs: programs.filter(|id| self.programs.contains(id)).collect(),
            maps: maps.filter(|id| self.maps.contains(id)).collect(),
            links: links.filter(|id| self.links.contains(id)).collect(),
        }
    }

    /// Fails if the kernel does not free all of them. It frees them after an RCU grace period,
    /// which takes longer on a loaded machine.
    pub(crate) fn assert_gone(&self) {
        let is_gone = || (self.still_loaded() == Self::default()).then_some(());
        let explain = || format!("left behind: {:?}", self.still_loaded());
        wait_or_explain("the kernel to free BPF objects", is_gone, explain);
    }
}
