//! Probes: they pause cgroups that cannot be told apart, and leave none frozen whatever ends them.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use uncore_trace::discover::machine;
use uncore_trace::schema::fabric;
use uncore_trace::schema::probe::Probe;
use uncore_trace::tables::reader::Recording;

use crate::harness::cgroup::Cgroup;
use crate::harness::recorder::{Recorder, WORKLOAD};
use crate::harness::subject::wait_for;
use crate::harness::{or_skip, root_or_skip, run, run_ok, text};

/// Each tenant has been paused in this time, and so have others beside it.
const PATIENCE: Duration = Duration::from_mins(1);

/// Two tenants that never pause, in cgroups of their own.
struct Tenants(Vec<(Child, Cgroup, PathBuf)>);

impl Tenants {
    fn start(tag: &str) -> Result<Self, String> {
        let mount = machine(Path::new("/")).unwrap().cgroups.v2;
        let mount = mount.ok_or("no cgroup v2 hierarchy is mounted")?;
        let mut tenants = Self(Vec::new());
        for number in 0..2 {
            let cgroup = Cgroup::new(&format!("{tag}{number}"))?;
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            cgroup.add(child.id() as i32);
            let switch = mount.join(cgroup.path.trim_start_matches('/')).join("cgroup.freeze");
            tenants.0.push((child, cgroup, switch));
        }
        Ok(tenants)
    }

    fn are_frozen(&self) -> bool {
        self.0.iter().any(|(_, _, switch)| fs::read_to_string(switch).unwrap().trim() == "1")
    }

    /// Waits until one of them is frozen.
    fn until_frozen(&self) {
        let begin = Instant::now();
        while !self.are_frozen() {
            assert!(begin.elapsed() < PATIENCE, "no tenant was paused");
            sleep(Duration::from_micros(500));
        }
    }

    fn assert_thawed(&self) {
        wait_for("a thaw", || (!self.are_frozen()).then_some(()));
        // None is frozen again.
        sleep(Duration::from_secs(2));
        assert!(!self.are_frozen());
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        for (child, _, switch) in &mut self.0 {
            fs::write(switch, "0").ok();
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn start(output: &Path) -> Recorder {
    // What switches is not known of this event, so it is learnt.
    let options = ["-e", "cgroup-switches", "--method", "regression", "--probe", "5%"];
    Recorder::with_command(output, &options, WORKLOAD)
}

/// The process of a recorder that pauses cgroups.
fn process_of(recorder: u32) -> Pid {
    let list = format!("/proc/{recorder}/task/{recorder}/children");
    let children = fs::read_to_string(list).unwrap();
    let is_its = |pid: &&str| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "uncore-probe"
    };
    let pid = children.split_whitespace().find(is_its).unwrap();
    Pid::from_raw(pid.parse().unwrap()).unwrap()
}

#[test]
fn it_pauses_those_that_cannot_be_told_apart() {
    let _machine = root_or_skip!();
    let tenants = or_skip!(Tenants::start("probe"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let recorder = start(&file);
    tenants.until_frozen();
    recorder.stop();
    tenants.assert_thawed();
    let recording = Recording::open(&file).unwrap();
    let pairs = recording.table(&fabric::TABLE).unwrap().metadata().clone();
    let probe = Probe::of(&pairs).unwrap().unwrap();
    for paused in probe.paused.values() {
        let part = paused.ns as f64 / probe.time_ns as f64;
        assert!(paused.pauses > 0 && part < 0.055, "{probe:?}");
    }
    assert!(tenants.0.iter().any(|(_, its, _)| probe.paused.contains_key(&its.path)));
    let said = run_ok(["report".as_ref(), file.as_os_str()]);
    assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains("Probes paused /"));
}

#[test]
fn any_end_thaws() {
    let _machine = root_or_skip!();
    let tenants = or_skip!(Tenants::start("thaw"));
    let dir = tempfile::tempdir().unwrap();
    let output = |name: &str| dir.path().join(format!("{name}.parquet"));
    // SIGTERM for the recorder.
    let mut recorder = start(&output("term"));
    tenants.until_frozen();
    recorder.signal(Signal::TERM);
    recorder.wait();
    tenants.assert_thawed();
    // SIGKILL for the recorder.
    let mut recorder = start(&output("kill"));
    let process = process_of(recorder.pid());
    tenants.until_frozen();
    recorder.kill();
    tenants.assert_thawed();
    let gone =
        || (!Path::new(&format!("/proc/{}", process.as_raw_nonzero())).exists()).then_some(());
    wait_for("its exit", gone);
    // SIGKILL for the process that pauses: the recorder thaws.
    let mut recorder = start(&output("process"));
    tenants.until_frozen();
    kill_process(process_of(recorder.pid()), Signal::KILL).unwrap();
    tenants.assert_thawed();
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert!(ended.stderr.contains("that pauses cgroups ended early"), "{}", ended.stderr);
    // SIGKILL for both: `repair` thaws.
    let file = output("both");
    let mut recorder = start(&file);
    let process = process_of(recorder.pid());
    tenants.until_frozen();
    // While it is stopped, it cannot thaw.
    kill_process(process, Signal::STOP).unwrap();
    if !tenants.are_frozen() {
        // It was thawed in between: that it is thawed by `repair` is shown with a note.
        let (_, _, switch) = &tenants.0[0];
        fs::write(switch, "1").unwrap();
        let note = format!("/run/uncore-trace-probe-{}", process.as_raw_nonzero());
        fs::write(note, switch.parent().unwrap().to_str().unwrap()).unwrap();
    }
    recorder.kill();
    kill_process(process, Signal::KILL).unwrap();
    let gone =
        || (!Path::new(&format!("/proc/{}", process.as_raw_nonzero())).exists()).then_some(());
    wait_for("its exit", gone);
    assert!(tenants.are_frozen());
    run_ok(["repair".as_ref(), file.as_os_str()]);
    tenants.assert_thawed();
}

#[test]
fn a_budget_out_of_range_names_the_range() {
    for wrong in ["20%", "0.05%", "0", "-1%", "x", "nan"] {
        let output = run(["record", &format!("--probe={wrong}"), "-o", "/dev/null"]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("write 0.1% to 5%"), "{said}");
    }
}
