//! Processes with a known use of the machine; they and their children are killed on drop.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::wait::wait_until;

/// A process group.
#[derive(Debug)]
pub(crate) struct Load(Child);

impl Load {
    /// Starts a command, its stdin and stdout piped.
    pub(crate) fn start<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: &[A]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.process_group(0).spawn().unwrap())
    }

    /// Uses up one CPU.
    pub(crate) fn spin(cpu: usize) -> Self {
        Self::pinned_script(cpu, "while :; do :; done")
    }

    /// Uses up one CPU with one process after the other.
    pub(crate) fn short_spins(cpu: usize) -> Self {
        Self::pinned_script(cpu, "while :; do timeout 0.06 sh -c 'while :; do :; done'; done")
    }

    /// Runs on one CPU again and again for short times.
    pub(crate) fn with_pauses(cpu: usize) -> Self {
        Self::pinned_script(cpu, "while :; do sleep 0.01; done")
    }

    fn pinned_script(cpu: usize, script: &str) -> Self {
        let load = Self::start("sh", &["-c", script]);
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        sched_setaffinity(Pid::from_raw(load.pid()), &cpus).unwrap();
        load
    }

    /// Many processes that switch all the time.
    pub(crate) fn hackbench() -> Self {
        let script = "while :; do perf bench sched messaging -g 2 -l 500 >/dev/null; done";
        Self::start("sh", &["-c", script])
    }

    /// Starts one short process after the other.
    pub(crate) fn forks() -> Self {
        Self::start("sh", &["-c", "while :; do /bin/true; done"])
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// Sends it a line in one write, because it may end before a second one.
    pub(crate) fn write_line(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Waits for a line of it.
    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        // Each line is requested, so the reader has no further ones in its buffer.
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Waits until it is blocked reading its next line.
    pub(crate) fn wait_until_blocked(&self) {
        let state = || {
            let stat = self.stat();
            (stat[0] == "S", stat[7].clone())
        };
        // Twice in a row, without a page fault in between.
        let mut last_state = None;
        wait_until("a process to block", || {
            let previous = last_state.replace(state());
            previous == last_state && previous.is_some_and(|(is_asleep, _)| is_asleep)
        });
    }

    /// Waits until it has run for this time.
    pub(crate) fn run_for(&self, time: Duration) {
        let ran_before_ns = self.ran_ns();
        wait_until("CPU time of a process", || {
            u128::from(self.ran_ns() - ran_before_ns) >= time.as_nanos()
        });
    }

    /// Time on a CPU so far, ns: the first number of `/proc/PID/schedstat`.
    pub(crate) fn ran_ns(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// `/proc/PID/stat` from field 3 on, proc(5): the name before it may have any content.
    fn stat(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        text[text.rfind(')').unwrap() + 2..].split(' ').map(str::to_owned).collect()
    }

    /// Page faults so far: fields 10 and 12 of `/proc/PID/stat`, minor and major.
    pub(crate) fn page_faults(&self) -> u64 {
        let stat = self.stat();
        stat[7].parse::<u64>().unwrap() + stat[9].parse::<u64>().unwrap()
    }

    /// Context switches of its only thread so far: `/proc/PID/status`, voluntary or not.
    pub(crate) fn context_switches(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let switches = status.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
        switches.map(|(_, number)| number.trim().parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // If it has ended by itself, there is nothing to kill.
        kill_process_group(Pid::from_child(&self.0), Signal::KILL).ok();
        self.0.wait().unwrap();
    }
}
