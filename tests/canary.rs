//! The canary: it is credited what it moved where counts are exact, and nothing of it is left
//! behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use uncore_trace::discover::machine;
use uncore_trace::schema::canary::{self, CanaryKind, CanarySummary};
use uncore_trace::schema::metadata;
use uncore_trace::tables::reader::Recording;
use uncore_trace::units::percent;

use crate::agent::Agent;
use crate::command::Answer;
use crate::harness::disk::find_disk;
use crate::harness::recorder::{Recorder, WORKLOAD};
use crate::harness::{
    assert_checked, mounts, or_skip, root_or_skip, rows, run, run_ok, text, uncore_trace,
};
use crate::wait::wait_until;

/// Each kind is moved in this time: two kinds, and at most 4.5 s and a burst before each.
const LONG_ENOUGH: &str = "14s";

/// Bit of `include/uapi/linux/capability.h`.
const DAC_OVERRIDE: u64 = 1 << 1;

fn mount() -> Result<PathBuf, String> {
    let mount = machine(Path::new("/")).unwrap().cgroups.v2;
    mount.ok_or_else(|| "no cgroup v2 hierarchy is mounted".to_owned())
}

/// The cgroup of the canary of this recorder, which is a child of the recorder's own.
fn cgroup_of(recorder: u32) -> Result<PathBuf, String> {
    let cgroup_file = fs::read_to_string(format!("/proc/{recorder}/cgroup")).unwrap();
    let own_path = cgroup_file.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    let above = mount()?.join(own_path.trim_start_matches('/'));
    let is_of_child = |name: &str| {
        let pid = name.strip_prefix("uncore-trace-canary-")?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
        (parent == recorder.to_string()).then_some(())
    };
    let mut canary_cgroups = fs::read_dir(above).unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        is_of_child(entry.file_name().to_str()?).map(|()| entry.path())
    });
    canary_cgroups.next().ok_or_else(|| "it has no cgroup".to_owned())
}

/// A directory on a disk whose bytes are counted.
fn on_disk() -> Result<tempfile::TempDir, String> {
    let dir = tempfile::tempdir().unwrap();
    let plan = run_ok(["record", "-p", "io", "--dry-run", "--json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let disk = find_disk(dir.path())?;
    let disk_name = disk.file_name().unwrap().to_str().unwrap();
    let links = plan["links"].as_array().unwrap();
    let is_counted =
        links.iter().any(|link| link["kind"] == "disk" && link["devices"] == disk_name);
    if is_counted { Ok(dir) } else { Err(format!("no counter counts the disk {disk_name}")) }
}

/// What `report --json` says of the canary.
fn credits(recording: &Path) -> Vec<Value> {
    let lines = run_ok(["report".as_ref(), recording.as_os_str(), "--json".as_ref()]);
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    line["canary"].as_array().unwrap().clone()
}

/// Bytes of requests that no program saw, as the recording says.
fn unseen_bytes(recording: &Path) -> f64 {
    let losses = rows::read_losses(recording);
    let unseen = losses.iter().filter(|loss| loss.cause == "unseen_request");
    let details = unseen.filter_map(|loss| loss.detail.as_deref());
    details.map(|detail| detail.split(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Checks that it was credited all that it moved on this link in a recording, but for what the
/// recording says was not seen. Returns credited over moved.
fn assert_credited(recording: &Path, credits: &[Value], link: &str, direction: &str) -> f64 {
    let is_of_link = |credit: &&Value| {
        let name = credit["link"].as_str().unwrap_or_default();
        name.starts_with(link) && credit["direction"] == direction
    };
    let credit = credits.iter().find(is_of_link).unwrap_or_else(|| panic!("{link}: {credits:?}"));
    let credited = credit["credited"].as_f64().unwrap();
    assert!(credit["bursts"].as_u64().unwrap() > 0 && credit["moved_bytes"].as_u64().unwrap() > 0);
    let unseen = unseen_bytes(recording) / credit["moved_bytes"].as_f64().unwrap();
    assert!(
        (0.97 - unseen..1.03).contains(&credited),
        "{credit}; losses: {:?}",
        rows::read_losses(recording)
    );
    credited
}

#[test]
fn a_canary_is_credited_the_bytes_it_moved() {
    let _machine = root_or_skip!();
    let dir = match on_disk() {
        Ok(dir) => dir,
        Err(reason) => return crate::skip::show(&reason),
    };
    or_skip!(mount());
    let recording = dir.path().join("run");
    let mut options = vec!["record", "-p", "io", "--canary", "--duration", LONG_ENOUGH];
    let slashed = format!("{}/", recording.display());
    options.extend(["-o", &slashed]);
    Answer::of(run(&options)).recorded();
    assert_checked(&recording);
    let canary_credits = credits(&recording);
    let credited = percent(assert_credited(&recording, &canary_credits, "disk", "in"));
    assert_credited(&recording, &canary_credits, "net lo", "in");
    assert_credited(&recording, &canary_credits, "net lo", "out");
    let memory = canary_credits.iter().find(|credit| credit["kind"] == "memory").unwrap();
    assert!(memory["credited"].is_null(), "{memory}");
    assert_eq!(memory["why"], "no counter of this recording counts it");
    let report_text = run_ok(["report".as_ref(), recording.as_os_str()]);
    let flat_text = report_text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat_text.contains(&format!("The canary was credited {credited} of its bytes of disk (")),
        "{flat_text}"
    );
    assert!(flat_text.contains("no number for memory (no counter of this recording counts it)"));
    // The table has each burst.
    let table = Recording::open(&recording).unwrap().open_table(&canary::TABLE).unwrap();
    let bursts = |credit: &&Value| credit["direction"] != "out";
    let bursts =
        canary_credits.iter().filter(bursts).map(|credit| credit["bursts"].as_i64().unwrap());
    assert_eq!(table.row_count(), bursts.sum::<i64>());
    // A part has the sums of its own bursts.
    let part = dir.path().join("part");
    run_ok(["cut", &slashed, "--to", "7s", "-o", &format!("{}/", part.display())]);
    let bytes = |credit_rows: &[Value]| {
        credit_rows.iter().map(|credit| credit["moved_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    assert!(bytes(&credits(&part)) < bytes(&canary_credits));
}

/// Waits until a recording that goes on has a burst of the canary over the loopback interface.
fn wait_for_packets(recording: &Path) {
    // Its sums are in the metadata of what is on the disk.
    let read_kinds = |path: &Path| {
        let summary = rows::metadata_value(path, metadata::CANARY).unwrap();
        let summary: CanarySummary = serde_json::from_str(&summary).unwrap();
        summary.moved.into_iter().map(|moved| moved.kind).collect()
    };
    rows::wait_for_row(recording, "a burst over the loopback interface", read_kinds, |kind| {
        *kind == CanaryKind::Network
    });
}

/// Its rows are its own also if only some cgroups have rows, and a single file has the sums.
#[test]
fn a_file_of_another_cgroup_has_the_sums_of_the_canary() {
    let _machine = root_or_skip!();
    or_skip!(mount());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let options = ["-p", "io", "--canary", "--cgroup", "/none-of-this-name"];
    let recorder = Recorder::start(&file, &options);
    let cgroup = cgroup_of(recorder.pid()).unwrap();
    wait_for_packets(&file);
    recorder.stop_and_tell();
    assert!(!cgroup.exists());
    assert_credited(&file, &credits(&file), "net lo", "in");
}

#[test]
fn a_canary_leaves_no_process_and_no_cgroup() {
    let _machine = root_or_skip!();
    or_skip!(mount());
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let start = |name: &str| {
        let output = format!("{}/", dir.path().join(name).display());
        Recorder::with_command(Path::new(&output), &["-p", "io", "--canary"], WORKLOAD)
    };
    // It ends when the recorder is killed, and removes its cgroup.
    let mut recorder = start("killed");
    let cgroup = cgroup_of(recorder.pid()).unwrap();
    let canary_pid: i32 =
        fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().trim().parse().unwrap();
    recorder.kill();
    wait_until("the end of the canary's cgroup", || !cgroup.exists());
    let canary_process = PathBuf::from(format!("/proc/{canary_pid}"));
    wait_until("the exit of the canary", || !canary_process.exists());
    // The recorder goes on without it; a cgroup that it could not remove is removed by `repair`.
    let mut recorder = start("run");
    let cgroup = cgroup_of(recorder.pid()).unwrap();
    let canary_pid: i32 =
        fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(canary_pid).unwrap(), Signal::KILL).unwrap();
    recorder.wait_for_line("the canary ended early");
    recorder.signal(Signal::TERM);
    recorder.wait();
    assert!(cgroup.exists());
    run_ok(["repair".as_ref(), run.as_os_str()]);
    assert!(!cgroup.exists());
}

/// Also where its cgroup is removed with a capability, in the root of the hierarchy: that is the
/// work of another process.
#[test]
fn a_canary_keeps_no_capability() {
    let _machine = root_or_skip!();
    or_skip!(mount());
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(&dir.path().join("run.parquet"), &["-p", "io", "--canary"]);
    let cgroup = cgroup_of(recorder.pid()).unwrap();
    let canary_pid: i32 =
        fs::read_to_string(cgroup.join("cgroup.procs")).unwrap().trim().parse().unwrap();
    let tasks = |pid: i32| fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(Result::unwrap);
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).unwrap();
    // All five sets: CapInh, CapPrm, CapEff, CapBnd and CapAmb.
    let sets = |pid: i32| -> Vec<(String, u64)> {
        let all: Vec<String> = tasks(pid).map(status).collect();
        let set = |line: &str| {
            let (name, bits) = line.strip_prefix("Cap")?.split_once(":\t")?;
            Some((name.to_owned(), u64::from_str_radix(bits, 16).unwrap()))
        };
        all.iter().flat_map(|text| text.lines().filter_map(set)).collect()
    };
    let canary = sets(canary_pid);
    assert!(canary.len() >= 5 && canary.iter().all(|(_, bits)| *bits == 0), "{canary:x?}");
    let children =
        fs::read_to_string(format!("/proc/{canary_pid}/task/{canary_pid}/children")).unwrap();
    let keeper = sets(children.trim().parse().unwrap());
    let is_allowed = |(name, bits): &(String, u64)| match name.as_str() {
        "Eff" | "Prm" => *bits & !DAC_OVERRIDE == 0,
        _ => *bits == 0,
    };
    assert!(keeper.len() == 5 && keeper.iter().all(is_allowed), "{keeper:x?}");
    recorder.stop_and_tell();
    assert!(!cgroup.exists());
}

#[test]
fn an_impossible_canary_is_refused_with_the_reason() {
    let _machine = root_or_skip!();
    let mount = or_skip!(mount());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.parquet");
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        let message = text(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(!file.exists(), "{message}");
        message
    };
    let record = |options: &[&str]| {
        let mut command = uncore_trace();
        command.args(["record", "--canary", "--duration", "1s", "-o"]).arg(&file).args(options);
        command
    };
    let message = refused(&mut record(&["-p", "host"]));
    assert!(message.contains("the canary has nothing to move"), "{message}");
    let message = refused(&mut record(&["-p", "io", "--cgroup-depth", "1"]));
    assert!(message.contains("--cgroup-depth"), "{message}");
    // A hierarchy that cannot be written, as in most containers.
    let script = format!(
        "mount -o bind,remount,ro {0} && exec {1} record -p io --canary --duration 1s -o {2}",
        mount.display(),
        crate::PROGRAM,
        file.display()
    );
    let message = refused(&mut mounts::shell(&script));
    assert!(message.contains("cannot make a cgroup for the canary in "), "{message}");
    assert!(message.contains("or leave out the canary"), "{message}");
    // Output that is on no disk.
    let output = run(["record", "-p", "io", "--canary", "--duration", "1s", "-o", "-"]);
    assert!(output.status.code() < Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_agent_has_a_ratio_for_each_link() {
    let _machine = root_or_skip!();
    or_skip!(mount());
    let mut agent = Agent::new("");
    let config = fs::read_to_string(agent.path("agent.toml")).unwrap();
    let config = config.replace("['host']", "['host', 'io']\ncanary = true");
    fs::write(agent.path("agent.toml"), config).unwrap();
    agent.start();
    let begin = "uncore_trace_canary_credited_ratio{link=\"net lo\",direction=\"in\"}";
    agent.until("a ratio", |agent| agent.get("/metrics").contains(begin));
    let ratio = agent.metric(begin);
    assert!((0.9..1.1).contains(&ratio), "{}", agent.get("/metrics"));
    agent.stop();
}
