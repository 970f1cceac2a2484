//! Tests of `agent`: what it keeps equals what was recorded, however it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::thread::spawn;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::command::Place;
use crate::harness::load::Load;
use crate::harness::{
    assert_all_checked, assert_checked, python, python_answers, root_or_skip, run, run_ok, text,
    uncore_trace,
};
use crate::wait::{PATIENCE, wait_or_explain};

/// The token of requests to save the ring.
const TOKEN: &str = "0123456789abcdef";

/// A directory with a configuration, and the agent that runs with it.
pub(crate) struct Agent {
    dir: tempfile::TempDir,
    pub(crate) port: u16,
    pub(crate) child: Option<Child>,
}

impl Agent {
    /// A configuration with windows of a second, and these sections.
    pub(crate) fn new(more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // No other program takes the port before it is bound again.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let agent = Self { dir, port, child: None };
        agent.configure("", more);
        agent
    }

    /// Writes the configuration, with these keys of the roll-up, and these sections.
    pub(crate) fn configure(&self, rollup: &str, more: &str) {
        self.configure_at("agent.toml", rollup, more);
    }

    fn configure_at(&self, name: &str, rollup: &str, more: &str) {
        let (root, port) = (self.dir.path().display(), self.port);
        let text = format!(
            "cluster = 'c 1'\n[record]\ngroups = ['host']\n\
             [rollup]\ndirectory = '{root}/rollup'\nwindow = '1s'\n{rollup}\n\
             [metrics]\nlisten = '127.0.0.1:{port}'\ntextfile = '{root}/agent.prom'\n\
             token-file = '{root}/token'\n{}",
            more.replace("ROOT", &root.to_string())
        );
        fs::write(self.path("token"), TOKEN).unwrap();
        // As most tools do: a new file replaces the old one.
        fs::write(self.path("agent.new"), text).unwrap();
        fs::rename(self.path("agent.new"), self.path(name)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn start(&mut self) {
        self.spawn();
        self.until("a window of the roll-up", |agent| {
            let page = agent.get("/metrics");
            // Every answer is a complete page.
            assert!(page.is_empty() || page.ends_with("# EOF\n"), "{page}");
            page.contains("page-faults")
        });
    }

    /// Starts it without waiting until it records.
    pub(crate) fn spawn(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = uncore_trace();
        command.args(["agent", "--config"]).arg(self.path("agent.toml"));
        if self.path("notify").exists() {
            let socket = self.path("notify");
            command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "2000000");
        }
        self.child = Some(command.stdin(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> Output {
        run([OsStr::new("agent"), "--config".as_ref(), self.path("agent.toml").as_os_str()])
    }

    /// Waits until a condition holds.
    #[track_caller]
    pub(crate) fn until(&self, event: &str, mut is_so: impl FnMut(&Self) -> bool) {
        wait_or_explain(event, || is_so(self).then_some(()), || self.log());
    }

    /// Waits until it has recorded for this time from now on, seconds.
    #[track_caller]
    pub(crate) fn until_recorded(&self, seconds: f64) {
        let last_window_s =
            |agent: &Self| agent.metric("uncore_trace_last_window_timestamp_seconds");
        let begin = last_window_s(self);
        assert!(begin > 0.0, "it records nothing: {}", self.log());
        self.until(&format!("{seconds} s more of windows"), |agent| {
            last_window_s(agent) >= begin + seconds
        });
    }

    /// Waits until the roll-up has rows on the disk, which takes at most 10 s.
    #[track_caller]
    pub(crate) fn until_sealed(&self) {
        self.until("sealed rows of the roll-up", |agent| {
            let unfinished = found_below(&agent.path("rollup"), ".partial");
            // The first segment is empty.
            unfinished.iter().any(|dir| dir.join("000001-000001.parquet").exists())
        });
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Ends it; returns the exit code.
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.take().unwrap().wait().unwrap().code()
    }

    /// Ends it with SIGTERM; losses of a busy machine do not matter here.
    pub(crate) fn stop(&mut self) {
        let code = self.end(Signal::TERM);
        assert!(matches!(code, Some(0 | 1)), "{code:?}: {}", self.log());
    }

    pub(crate) fn ask(&self, request: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return String::new();
        };
        let mut answer = String::new();
        let written = stream.write_all(request.as_bytes());
        written.and_then(|()| stream.read_to_string(&mut answer)).unwrap();
        answer
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Asks it to save the ring.
    pub(crate) fn trigger(&self) -> String {
        self.ask(&format!(
            "POST /trigger HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        ))
    }

    /// The value of the first series whose line begins so.
    pub(crate) fn metric(&self, begin: &str) -> f64 {
        let page = self.get("/metrics");
        let line = page.lines().find(|line| line.starts_with(begin));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0.0)
    }

    /// What ring and roll-up both contain.
    pub(crate) fn compared(&self) -> Value {
        let args = [self.path("ring"), self.path("rollup"), "1000000000".into(), "10000000".into()];
        let args: Vec<&OsStr> = args.iter().map(|arg| arg.as_os_str()).collect();
        let all = python_answers(&python(), include_str!("agent.py"), &args);
        for what in ["differ", "outside", "doubled"] {
            assert_eq!(all[what], json!([]), "{what}: {all}");
        }
        assert!(all["compared"].as_u64().unwrap() > 5, "{all}");
        assert_eq!(all["cluster"], json!("c 1"));
        all
    }
}

/// Finished parts of a ring.
pub(crate) fn parts(ring: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(ring).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_part = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"0"))
            && path.join("fabric.parquet").exists()
    };
    let mut parts: Vec<_> = entries.filter(is_part).collect();
    parts.sort();
    parts
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// All paths below a directory with this suffix, except those inside unfinished files.
pub(crate) fn found_below(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.to_string_lossy().ends_with(suffix) {
            paths.push(path);
        } else if path.is_dir() && !path.to_string_lossy().ends_with(".partial") {
            paths.extend(found_below(&path, suffix));
        }
    }
    paths
}

/// Length of a recording, and the migrations around the moment 2 s after its begin.
pub(crate) const KEPT: &str = "
import duckdb, json, sys
fabric = f\"'{sys.argv[1]}/fabric.parquet'\"
begin, end, longest = duckdb.execute(
    f'SELECT min(mono_ns - window_ns), max(mono_ns), max(window_ns) FROM {fabric}').fetchone()
moves = duckdb.execute(
    f\"SELECT sum(value) FROM {fabric} WHERE event = 'cpu-migrations' \"
    f'AND abs(mono_ns - {begin} - 2000000000) <= 30000000').fetchone()[0]
print(json.dumps({'length_ns': end - begin, 'longest_ns': longest, 'moves': moves}))
";

/// Checks that `before = '2s'` and `after = '1s'` are kept, and at each end up to the next end of a
/// window at which all counters were read: where readings are missing, that is a longer window, or
/// a few windows.
fn assert_kept_length(answers: &Value, log: &str) {
    let kept_ns = answers["length_ns"].as_i64().unwrap();
    let longest_ns = answers["longest_ns"].as_i64().unwrap();
    let bounds_ns = 2_900_000_000..=3_100_000_000 + 2 * longest_ns;
    assert!(bounds_ns.contains(&kept_ns), "{answers}: {log}");
}

pub(crate) const RING: &str = "[ring]\ndirectory = 'ROOT/ring'\npart = '4s'\nkeep = '20'\n";

#[test]
fn the_roll_up_is_the_sum_of_the_ring_and_the_metrics_that_of_the_roll_up() {
    let _machine = root_or_skip!();
    let _load = Load::with_pauses(0);
    let mut agent = Agent::new(RING);
    // The messages to the service manager, until the end.
    let manager = UnixDatagram::bind(agent.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let notifications = spawn(move || {
        let mut received: Vec<String> = Vec::new();
        let mut text = [0; 64];
        while !received.iter().any(|notification| notification == "STOPPING=1") {
            let Ok(length) = manager.recv(&mut text) else { break };
            received.push(String::from_utf8_lossy(&text[..length]).into_owned());
        }
        received
    });
    // A link that others could place there must not redirect the agent.
    symlink(agent.path("victim"), agent.path("agent.prom.tmp")).unwrap();
    agent.start();
    let before = agent.metric("uncore_trace_event_total{event=\"context-switches\"");
    agent.until("two parts of the ring", |agent| parts(&agent.path("ring")).len() >= 2);
    // Windows of the third.
    agent.until_recorded(2.0);
    assert!(agent.metric("uncore_trace_event_total{event=\"context-switches\"") > before);
    let page = agent.get("/metrics");
    assert!(page.contains("application/openmetrics-text") && page.ends_with("# EOF\n"), "{page}");
    assert!(agent.metric("uncore_trace_resident_bytes") > 1e6, "{page}");
    assert!(
        fs::read_to_string(agent.path("agent.prom")).unwrap().contains("uncore_trace_cpu_seconds")
    );
    let second = agent.run();
    assert_eq!(second.status.code(), Some(2));
    let holder = format!("(process {})", agent.child.as_ref().unwrap().id());
    assert!(text(&second).contains(&holder), "{}", text(&second));
    agent.stop();
    let messages = notifications.join().unwrap();
    assert!(
        messages.iter().any(|notification| notification.starts_with("READY=1")),
        "{messages:?}"
    );
    assert!(messages.iter().any(|notification| notification == "WATCHDOG=1"), "{messages:?}");
    assert_eq!(messages.last().map(String::as_str), Some("STOPPING=1"), "{messages:?}");
    let all = agent.compared();
    assert!(all["windows"].as_u64().unwrap() >= 8, "{all}");
    assert_eq!(all["missing"], json!(0), "{all}");
    let parts = parts(&agent.path("ring"));
    assert!(parts.len() >= 2, "{parts:?}");
    assert_all_checked(&parts);
    // Files that are made from the recording later have the same rows.
    let later = agent.path("later");
    let args = ["rollup".as_ref(), parts[0].as_os_str(), "-w1s".as_ref(), "-o".as_ref()];
    run_ok(args.into_iter().chain([later.as_os_str()]));
    assert!(later.join("cluster=c%201").is_dir());
    assert!(!agent.path("victim").exists());
    // Parts that are shorter than a window have rows of the same window; none is lost or doubled.
    let long = agent.path("long");
    let args = |part: &Path| -> Vec<OsString> {
        [part.as_os_str(), parts[1].as_os_str(), "-w5min".as_ref(), "-o".as_ref(), long.as_os_str()]
            .map(OsStr::to_owned)
            .into()
    };
    let command = |part: &Path| [vec!["rollup".into()], args(part)].concat();
    run_ok(command(&parts[0]));
    assert!(found_below(&long, ".parquet").len() >= 2);
    let second_cut = run(command(&parts[0]));
    assert!(text(&second_cut).contains("already has these windows"), "{}", text(&second_cut));
}

/// Moves itself between two CPUs for 0.2 s, some 30000 times a second; a busy machine moves all its
/// tasks some hundred times. With its real-time priority, other tasks do not delay it.
const MOVE: &str = "
import os, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
cpus = sorted(os.sched_getaffinity(0))[:2]
end = time.monotonic() + 0.2
while time.monotonic() < end:
    for cpu in cpus:
        os.sched_setaffinity(0, {cpu})
print('{}')
";

#[test]
fn a_trigger_keeps_the_time_before_and_after_its_firing() {
    let _machine = root_or_skip!();
    let trigger = "[[trigger]]\nname = 'moves'\nwhen = 'cpu-migrations > 5000/s for 5ms'\n\
                   before = '2s'\nafter = '1s'\n[kept]\npause = '1h'\n";
    let mut agent = Agent::new(&format!("{}{trigger}", RING.replace("4s", "30s")));
    agent.start();
    // All of the time before the firing.
    agent.until_recorded(3.0);
    python_answers(&python(), MOVE, &[]);
    agent.until("what the trigger keeps", |agent| {
        !found_below(&agent.path("ring/kept"), "moves").is_empty()
    });
    // A second firing within the pause is ignored; a request is served.
    python_answers(&python(), MOVE, &[]);
    let refused = agent.ask("POST /trigger HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(refused.contains("403") && refused.contains("metrics.token-file"), "{refused}");
    let done = agent.trigger();
    assert!(done.contains("202"), "{done}");
    agent.until("what was asked for", |agent| {
        !found_below(&agent.path("ring/kept"), "asked").is_empty()
    });
    agent.stop();
    let kept_parts = found_below(&agent.path("ring/kept"), "moves");
    assert_eq!(kept_parts.len(), 1, "{kept_parts:?}");
    assert_checked(&kept_parts[0]);
    let log = agent.log();
    assert!(!log.contains("separate parts"), "{log}");
    // One recording of the requested time, up to a window longer at each end, with the burst.
    let answers = python_answers(&python(), KEPT, &[kept_parts[0].as_os_str()]);
    assert_kept_length(&answers, &log);
    // 5000 a second for 5 ms.
    assert!(answers["moves"].as_f64().unwrap() >= 25.0, "{answers}");
    let page = agent.path("kept.html");
    run_ok(["report".as_ref(), kept_parts[0].as_os_str(), "--html".as_ref(), page.as_os_str()]);
    let unfinished = |dir: &str| found_below(&agent.path(dir), ".tmp");
    assert_eq!((unfinished("ring"), unfinished("ring/kept")), (Vec::new(), Vec::new()));
}

#[test]
fn a_configuration_is_applied_or_refused_as_a_whole_and_the_recording_goes_on() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    agent.start();
    agent.configure("owners = 7", "");
    agent.signal(Signal::HUP);
    agent.until("the new configuration", |agent| agent.log().contains("read again and is applied"));
    for (rollup, more, says) in [
        ("ownres = 7", "", "did you mean owners?"),
        ("", "[ring]\ndirectory = 'ROOT/ring'\n", "[ring] has changed: restart"),
    ] {
        agent.configure(rollup, more);
        agent.signal(Signal::HUP);
        agent.until("the refusal", |agent| agent.log().contains(says));
    }
    // Without a ring.
    let answer = agent.trigger();
    assert!(answer.contains("409") && answer.contains("add [ring]"), "{answer}");
    agent.signal(Signal::USR1);
    agent.until("the warning", |agent| agent.log().contains("cannot save the ring: there is none"));
    let before = agent.metric("uncore_trace_event_seconds_total{event=\"cpu-clock\"");
    agent.until("more windows", |agent| {
        agent.metric("uncore_trace_event_seconds_total{event=\"cpu-clock\"") > before
    });
    agent.stop();
}

/// The kubelet makes a new directory, and a link to it that replaces `..data`. Nobody sends a signal.
#[test]
fn a_changed_config_map_is_applied_without_a_signal() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    // The file is there at any time, so its content is written elsewhere.
    let publish = |agent: &Agent, directory: &str, rollup: &str, more: &str| {
        agent.configure_at("made.toml", rollup, more);
        fs::create_dir(agent.path(directory)).unwrap();
        fs::rename(agent.path("made.toml"), agent.path(directory).join("agent.toml")).unwrap();
        symlink(directory, agent.path("..data_tmp")).unwrap();
        fs::rename(agent.path("..data_tmp"), agent.path("..data")).unwrap();
    };
    publish(&agent, "..1", "", "");
    fs::remove_file(agent.path("agent.toml")).unwrap();
    symlink("..data/agent.toml", agent.path("agent.toml")).unwrap();
    agent.start();
    publish(&agent, "..2", "owners = 7", "");
    fs::remove_dir_all(agent.path("..1")).unwrap();
    agent.until("the new configuration", |agent| agent.log().contains("read again and is applied"));
    publish(&agent, "..3", "", "[ring]\ndirectory = 'ROOT/ring'\n");
    fs::remove_dir_all(agent.path("..2")).unwrap();
    agent.until("the refusal", |agent| agent.log().contains("[ring] has changed: restart"));
    agent.stop();
    assert_eq!(agent.log().matches("read again and is applied").count(), 1, "{}", agent.log());
}

#[test]
fn a_signal_keeps_the_last_seconds_in_a_directory_that_did_not_exist() {
    let _machine = root_or_skip!();
    let more = "[[trigger]]\nname = 'by-hand'\nbefore = '2s'\nafter = '1s'\n\
                [kept]\ndirectory = 'ROOT/deep/kept'\npause = '1h'\n";
    let mut agent = Agent::new(&format!("{RING}{more}"));
    agent.start();
    // It exists before the process is confined: Landlock permits writing only below existing
    // directories.
    assert!(agent.path("deep/kept").is_dir());
    // All of the time before the signal.
    agent.until_recorded(3.0);
    agent.signal(Signal::USR1);
    let kept_parts = |agent: &Agent| found_below(&agent.path("deep/kept"), "by-hand");
    agent.until("what was asked for", |agent| !kept_parts(agent).is_empty());
    let second_trigger = agent.trigger();
    assert!(
        second_trigger.contains("429") && second_trigger.contains("retry-after: 3"),
        "{second_trigger}"
    );
    agent.stop();
    assert_checked(&kept_parts(&agent)[0]);
    let answers = python_answers(&python(), KEPT, &[kept_parts(&agent)[0].as_os_str()]);
    assert_kept_length(&answers, &agent.log());
}

/// A condition may name a metric that the configuration does not record.
#[test]
fn a_metric_of_a_condition_is_recorded() {
    let place = Place::new();
    let root = place.machine("grace-2s");
    let config = place.path("agent.toml");
    let check = |groups: &str, when: &str| {
        let trigger = format!("[[trigger]]\nname = 'a'\nwhen = '{when}'\n");
        let ring = "[ring]\ndirectory = '/nonexistent/ring'\n";
        fs::write(&config, format!("[record]\ngroups = [{groups}]\n{ring}{trigger}")).unwrap();
        place.run(["agent", "--check", "--root", &root, "--config", config.to_str().unwrap()])
    };
    for groups in ["'mem'", ""] {
        let valid = check(groups, "pcie_read_bandwidth > 5GB/s for 5ms").ok();
        assert!(valid.contains(": valid; ") && valid.ends_with("1 trigger\n"), "{valid}");
    }
    // The captured machine does not show the peaks of its root ports.
    let line = check("'mem'", "pcie_read_bandwidth > 80% for 5ms").refused();
    assert!(line.contains("trigger a: ") && line.contains("the peak of PCIe"), "{line}");
    let line = check("'mem'", "pcie_read_bandwith > 5GB/s").refused();
    assert!(line.contains("trigger a: ") && line.contains("is not a link, metric"), "{line}");
}

#[test]
fn a_trigger_that_cannot_fire_is_refused_before_recording() {
    let agent = Agent::new(
        "[ring]\ndirectory = 'ROOT/ring'\n[[trigger]]\nname = 'a'\nwhen = 'pcie in > 80%'\n",
    );
    let output = agent.run();
    assert_eq!(output.status.code(), Some(2));
    let line = text(&output);
    assert!(line.contains("trigger a: ") && line.contains("pcie in is not a link"), "{line}");
    assert!(!agent.path("ring").exists());
    let none = run(["agent", "--config", "/nonexistent/agent.toml"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none).contains("cannot read the configuration /nonexistent/agent.toml"));
}
