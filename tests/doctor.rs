//! The advice of `doctor` for an ordinary user is sufficient; and its findings on captured
//! machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::command::{Answer, NOBODY, Place};
use crate::harness::{has_root, need};
use crate::skip::skip;

/// Runs the tool as a user without privileges, in `dir`.
fn as_nobody(tool: &Path, dir: &Path, typed: &str) -> Answer {
    let mut command = Command::new(tool);
    command.args(typed.split_whitespace()).current_dir(dir).uid(NOBODY).gid(NOBODY);
    Answer::of(command.env_remove("UNCORE_TRACE_LOG").output().unwrap())
}

/// The fix that contains this word.
fn advice<'a>(doctor: &'a str, word: &str) -> &'a str {
    let lines = doctor.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("fix: ").or_else(|| line.strip_prefix("or: "))
    });
    lines.into_iter().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{doctor}"))
}

/// `doctor` used to name settings that do not help, and not the capabilities that do.
#[test]
fn the_advice_of_doctor_lets_an_ordinary_user_record() {
    if !has_root("doctor and record as an ordinary user: it takes another user id") {
        return;
    }
    let (place, output) = (Place::new(), Place::new());
    let tool = place.tool_for_all();
    std::os::unix::fs::chown(output.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    let run = |typed: &str| as_nobody(&tool, &output.path(""), typed);

    let refused = run("doctor");
    assert_eq!(refused.code, 2, "{refused:#?}");
    let failed: Vec<_> = refused.out.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert!(failed.len() == 1 && failed[0].starts_with("FAIL  privileges "), "{refused:#?}");
    assert!(!refused.out.contains("sudo sysctl"), "{refused:#?}");
    assert!(!refused.out.contains("uncore-trace doctor"), "{refused:#?}");
    let path = tool.display();
    let record = advice(&refused.out, "record");
    assert!(record.starts_with(&format!("sudo {path} record -p host -o ")), "{record}");

    let setcap = advice(&refused.out, "setcap");
    if setcap.contains("install") {
        return skip(&format!("{path} is on a file system that is mounted nosuid"));
    }
    need("setcap");
    let mut words = setcap.strip_prefix("sudo ").unwrap().split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{setcap}");
    let ready = run("doctor");
    assert!(ready.code == 0 && ready.out.ends_with("record works here\n"), "{ready:#?}");
    run("record -p host --io -o run/ --duration 200ms").recorded();
    assert!(run("report run/").ok().contains("context-switches"));
}

#[test]
fn doctor_says_what_a_machine_without_bpf_lacks() {
    let place = Place::new();
    let answer = place.run(["doctor", "--root", &place.machine("vm-no-uncore")]);
    assert_eq!(answer.code, 2);
    assert!(answer.out.contains("FAIL  BTF"), "{answer:?}");
    assert!(answer.out.contains("CONFIG_BPF_SYSCALL=y"), "{answer:?}");
}

/// `doctor` and `list` describe in the same words what can be counted.
#[test]
fn doctor_begins_as_list_does() {
    let place = Place::new();
    for name in ["vm-no-uncore", "grace-2s"] {
        let root = place.machine(name);
        let begin = |command| {
            let text = place.run([command, "--root", &root]).out;
            text.lines().take(5).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(begin("doctor"), begin("list"));
        assert!(begin("doctor").concat().contains("-p host"), "{:#?}", begin("doctor"));
    }
    let text = place.run(["doctor", "--root", "."]).out;
    assert!(text.starts_with("cannot list what can be counted here: "), "{text}");
}
