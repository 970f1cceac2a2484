//! Privileges of a recorder: with two capabilities it records, as root it keeps few, and its
//! command loses none.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::command::{Answer, NOBODY, Place};
use crate::harness::recorder::Recorder;
use crate::harness::subject::Measurement;
use crate::harness::{assert_checked, has_root, need, root_or_skip, run_ok};
use crate::skip::skip;
use crate::wait::{wait_for, wait_until};

/// Bits of `include/uapi/linux/capability.h`.
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const KILL: u64 = 1 << 5;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// A thread, from its `/proc/PID/task/TID/status`.
#[derive(Debug)]
struct Thread {
    name: String,
    effective: u64,
    permitted: u64,
    /// Inheritable, ambient and bounding.
    others: [u64; 3],
    no_new_privs: bool,
    /// 2: by a filter (proc(5)).
    seccomp: String,
}

/// The threads of a process.
fn threads(pid: u32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread that visits CPUs may end in between.
    let texts =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let thread = |text: String| {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap().trim_start_matches(':').trim().to_owned()
        };
        let set = |key| u64::from_str_radix(&value(key), 16).unwrap();
        Thread {
            name: value("Name"),
            effective: set("CapEff"),
            permitted: set("CapPrm"),
            others: ["CapInh", "CapAmb", "CapBnd"].map(set),
            no_new_privs: value("NoNewPrivs") == "1",
            seccomp: value("Seccomp"),
        }
    };
    texts.map(thread).collect()
}

/// The threads when all of them are confined, which must be soon.
fn confined(pid: u32) -> Vec<Thread> {
    wait_for("a filter in all threads", || {
        let all = threads(pid);
        all.iter().all(|thread| thread.no_new_privs && thread.seccomp == "2").then_some(all)
    })
}

/// Compares the capabilities of the threads by name; there must be no other threads.
fn assert_capabilities(threads: &[Thread], expected: &[(&str, u64)]) {
    let mut thread_lines: Vec<_> = threads
        .iter()
        .map(|thread| (thread.name.as_str(), thread.effective, thread.permitted))
        .collect();
    thread_lines.sort_unstable();
    let mut expected: Vec<_> = expected.iter().map(|(name, set)| (*name, *set, *set)).collect();
    expected.sort_unstable();
    assert_eq!(thread_lines, expected);
}

/// The program with the two capabilities, for a user without any.
fn with_two_capabilities(place: &Place) -> std::path::PathBuf {
    need("setcap");
    let tool = place.tool_for_all();
    let status = Command::new("setcap").arg("cap_bpf,cap_perfmon+ep").arg(&tool).status();
    assert!(status.unwrap().success(), "setcap failed");
    tool
}

fn as_nobody(tool: &Path, dir: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(dir).uid(NOBODY).gid(NOBODY).env_remove("UNCORE_TRACE_LOG");
    command
}

#[test]
fn two_capabilities_are_enough_to_record() {
    let _machine = root_or_skip!();
    let (place, output) = (Place::new(), Place::new());
    let tool = with_two_capabilities(&place);
    chown(output.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    if !as_nobody(&tool, &output.path("")).arg("doctor").output().unwrap().status.success() {
        return skip("file capabilities do not count here: the file system is mounted nosuid");
    }
    for timer in ["pinned", "run-on-cpu"] {
        let record = |name: &str| {
            let line = format!("record -p host --io --timer {timer} --duration 500ms -o {name}/");
            let mut command = as_nobody(&tool, &output.path(""));
            Answer::of(command.args(line.split(' ')).output().unwrap()).recorded()
        };
        // On a busy machine there may be late ticks and losses.
        let complete =
            (0..3).map(|run| format!("{timer}-{run}")).find(|name| record(name).code == 0);
        let recording = output.path(&complete.expect("none of three recordings is complete"));
        assert_checked(&recording);
        assert!(run_ok([Path::new("report"), &recording]).contains("context-switches"));
    }
    let mut command = as_nobody(&tool, &output.path(""));
    command.args(["record", "-p", "host", "-o", "more/"]);
    let recorder = Measurement::start(&mut command);
    let pid = recorder.pid().as_raw_nonzero().get() as u32;
    wait_until("the recording", || output.path("more/fabric.parquet.partial").is_dir());
    let all = confined(pid);
    assert_capabilities(&all, &[("uncore-trace", BPF | PERFMON), ("tables", 0)]);
}

#[test]
fn root_keeps_what_it_needs_and_no_more() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let own_capabilities = BPF | PERFMON | DAC_READ_SEARCH | KILL;
    for (timer, more) in [("pinned", &[][..]), ("run-on-cpu", &[("sampler", BPF | PERFMON)][..])] {
        let run = dir.path().join(timer);
        let options = ["-p", "host", "--slices", "--timer", timer];
        let recorder = Recorder::start(&run.join(""), &options);
        let all = confined(recorder.pid());
        assert_capabilities(
            &all,
            &[&[("uncore-trace", own_capabilities), ("tables", 0)], more].concat(),
        );
        assert!(all.iter().all(|thread| thread.others == [0; 3]), "{all:x?}");
        recorder.stop_and_tell();
        assert_checked(&run);
    }
}

/// At the end, files are renamed in that directory.
#[test]
fn root_records_where_another_user_writes() {
    let _machine = root_or_skip!();
    let place = Place::new();
    chown(place.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let recorder = Recorder::start(&place.path("run.parquet"), &["-p", "host"]);
    let all = confined(recorder.pid());
    let own_capabilities = BPF | PERFMON | DAC_READ_SEARCH | KILL;
    assert_capabilities(&all, &[("uncore-trace", own_capabilities), ("tables", DAC_OVERRIDE)]);
    recorder.stop_and_tell();
    assert_checked(&place.path("run.parquet"));
    place.typed("record -p host -o run/ --duration 100ms").recorded();
    assert_checked(&place.path("run"));
}

/// Lines about the capabilities of a process.
const TOLD: &str = "grep -E ^(CapInh|CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp): /proc/self/status";

#[test]
fn the_command_is_not_confined() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let status_command: Vec<&str> = TOLD.split(' ').collect();
    let expected =
        Command::new(status_command[0]).args(&status_command[1..]).output().unwrap().stdout;
    let expected = String::from_utf8(expected).unwrap();
    assert!(expected.contains("CapEff:") && expected.contains("NoNewPrivs:"), "{expected}");
    let after = |line: &str| {
        let typed: Vec<&str> =
            line.split(' ').chain(["--"]).chain(status_command.iter().copied()).collect();
        place.run(typed)
    };
    assert_eq!(after("record -p host -o a.parquet").recorded().out, expected);
    assert_eq!(after("record -p host -o b.parquet --delay 50ms").recorded().out, expected);
    assert_eq!(after("stat -p host -o stat.txt").ok(), expected);
    assert_eq!(after("stat -p host -o stat.txt -r 3").ok(), expected.repeat(3));
}

/// The command may have changed its user.
#[test]
fn the_command_of_another_user_is_killed() {
    let _machine = root_or_skip!();
    need("setpriv");
    let place = Place::new();
    let user = NOBODY.to_string();
    let line = format!(
        "record -p host -o a.parquet --duration 300ms --kill -- setpriv --reuid {user} \
         --clear-groups sleep 600"
    );
    place.typed(&line).recorded();
    let line = format!(
        "stat -p host -o stat.txt --timeout 300 -- setpriv --reuid {user} --clear-groups sleep 600"
    );
    assert_ne!(place.typed(&line).code, 2);
}

#[test]
fn no_link_is_followed_to_the_output() {
    let _machine = root_or_skip!();
    let place = Place::new();
    fs::create_dir(place.path("there")).unwrap();
    fs::write(place.path("file"), "precious").unwrap();
    symlink("there", place.path("link")).unwrap();
    symlink("file", place.path("link.parquet")).unwrap();
    for output in ["link", "link/", "link/.", "link.parquet"] {
        let line = place.refuses(["record", "-p", "host", "--force", "-o", output, "--", "true"]);
        assert!(line.contains("is a symbolic link"), "{output}: {line}");
    }
    let line = place.refuses(["stat", "-p", "host", "-o", "link.parquet", "--", "true"]);
    assert!(line.contains("is a symbolic link"), "{line}");
    // Nor is a file created through a dangling link.
    symlink("made", place.path("nowhere.parquet")).unwrap();
    for act in ["record --force", "stat"] {
        let line = place.typed(&format!("{act} -p host -o nowhere.parquet -- true")).refused();
        assert!(line.contains("is a symbolic link"), "{act}: {line}");
        assert!(!place.path("made").exists(), "{act}");
    }
    // Links of the system lead to descriptors of this process.
    let answer = place.typed("stat -p host -o /dev/stderr -- true");
    assert!(answer.code == 0 && answer.err.contains("context-switches"), "{answer:?}");
}

#[test]
fn root_is_warned_of_a_directory_of_everybody() {
    let _machine = root_or_skip!();
    let place = Place::new();
    let record = |mode, output: &str| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::create_dir_all(place.path("open")).unwrap();
        fs::set_permissions(place.path("open"), permissions).unwrap();
        let line = format!("record -p host --force --duration 100ms -o {output}");
        place.typed(&line).recorded().err
    };
    for output in ["open/run.parquet", "open/run/", "open/"] {
        let warned = record(0o777, output);
        assert!(warned.contains("every user may write to the directory"), "{output}: {warned}");
        let quiet = record(0o1777, output);
        assert!(!quiet.contains("every user"), "{output}: {quiet}");
    }
}

#[test]
fn doctor_says_what_is_dropped_and_what_other_users_need() {
    if !has_root("what doctor tells root") {
        return;
    }
    let place = Place::new();
    let doctor_text = place.run(["doctor"]).out;
    assert!(doctor_text.contains("sudo setcap cap_bpf,cap_perfmon+ep "), "{doctor_text}");
    let json: serde_json::Value =
        serde_json::from_str(&place.run(["doctor", "--json"]).out).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let finding_of = |name: &str| findings.iter().find(|finding| finding["name"] == name).unwrap();
    let dropped = finding_of("confinement")["what"].as_str().unwrap();
    for word in ["all capabilities but", "CAP_BPF", "CAP_PERFMON", "no_new_privs"] {
        assert!(dropped.contains(word), "{word}: {dropped}");
    }
}
