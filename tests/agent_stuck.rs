//! Tests of `agent` when one of its threads hangs: it does not look healthy, and it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::agent::Agent;
use crate::harness::load::Load;
use crate::harness::{python, root_or_skip};
use crate::wait::wait_within;

/// Stops one thread of a process until its standard input ends: `PTRACE_SEIZE` and
/// `PTRACE_INTERRUPT`, ptrace(2).
const STOP: &str = "
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
tid = int(sys.argv[1])
for request in (0x4206, 0x4207):
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(tid), None, None) != 0:
        sys.exit(f'ptrace: {ctypes.get_errno()}')
print('stopped', flush=True)
sys.stdin.read()
";

/// Stops a thread; it runs on when the result is dropped.
fn stop_thread(tid: u32) -> Load {
    let mut stopper = Load::start(python(), &["-c", STOP, &tid.to_string()]);
    assert_eq!(stopper.read_line(), "stopped");
    stopper
}

/// Number of messages in this time that say that the agent is alive.
fn alive(manager: &UnixDatagram, time: Duration) -> usize {
    let (begin, mut count, mut text) = (Instant::now(), 0, [0; 64]);
    while let Some(left) = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        manager.set_read_timeout(Some(left)).unwrap();
        let Ok(length) = manager.recv(&mut text) else { break };
        count += usize::from(&text[..length] == b"WATCHDOG=1");
    }
    count
}

/// Takes the messages that were sent before.
fn forget(manager: &UnixDatagram) {
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 64]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
}

/// Whether it is gone, or only waits to be reaped, 11 s from now at the latest.
fn ends(agent: &Agent) -> bool {
    let is_gone = || TcpStream::connect(("127.0.0.1", agent.port)).is_err().then_some(());
    wait_within(Duration::from_secs(11), is_gone).is_some()
}

#[test]
fn an_agent_whose_recorder_hangs_is_not_alive_and_ends_in_ten_seconds() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    let manager = UnixDatagram::bind(agent.path("notify")).unwrap();
    agent.start();
    // The watchdog's time is 2 s.
    assert!(alive(&manager, Duration::from_secs(5)) >= 2, "{}", agent.log());
    assert!(agent.metric("uncore_trace_last_window_timestamp_seconds") > 1.7e9);
    let stopped = stop_thread(agent.child.as_ref().unwrap().id());
    forget(&manager);
    let report_count = alive(&manager, Duration::from_secs(8));
    // One for what was drained before.
    assert!(report_count <= 1, "{report_count} reports of a recorder that is stopped");
    agent.until("an old page", |agent| agent.get("/metrics").contains("503"));
    agent.signal(Signal::TERM);
    assert!(ends(&agent), "{}", agent.log());
    drop(stopped);
    let code = agent.child.take().unwrap().wait().unwrap().code();
    assert_eq!(code, Some(1), "{}", agent.log());
    assert!(agent.log().contains("the next agent finishes"), "{}", agent.log());
    // Another agent finishes the hour.
    fs::remove_file(agent.path("notify")).unwrap();
    agent.start();
    agent.stop();
}

#[test]
fn an_agent_whose_roll_up_hangs_is_not_alive() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    let manager = UnixDatagram::bind(agent.path("notify")).unwrap();
    agent.start();
    let threads = format!("/proc/{}/task", agent.child.as_ref().unwrap().id());
    let is_rollup = |tid: &u32| {
        let name = fs::read_to_string(format!("{threads}/{tid}/comm")).unwrap_or_default();
        name == "rollup\n"
    };
    let mut tasks = fs::read_dir(&threads).unwrap().flatten();
    let tid = tasks.find_map(|task| task.file_name().to_str()?.parse().ok().filter(is_rollup));
    let tid = tid.unwrap();
    let _stopped = stop_thread(tid);
    forget(&manager);
    let report_count = alive(&manager, Duration::from_secs(8));
    assert!(report_count <= 1, "{report_count} reports of a roll-up that is stopped");
    agent.signal(Signal::TERM);
    assert!(ends(&agent), "{}", agent.log());
}

#[test]
fn a_configuration_that_hangs_stops_nothing() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    agent.start();
    // Nobody writes it.
    assert!(Command::new("mkfifo").arg(agent.path("agent.fifo")).status().unwrap().success());
    fs::rename(agent.path("agent.fifo"), agent.path("agent.toml")).unwrap();
    agent.signal(Signal::HUP);
    agent.until("a word of it", |agent| {
        let log = agent.log();
        log.contains("is still being read") || log.contains("is not applied")
    });
    agent.until_recorded(3.0);
    let begin = Instant::now();
    agent.stop();
    assert!(begin.elapsed() < Duration::from_secs(10), "{}", agent.log());
}
