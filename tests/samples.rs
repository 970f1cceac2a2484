//! The recordings in `samples/`: every user can read them, they are small, and they name nothing of
//! the machine on which they were made.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::PROGRAM;
use crate::command::{Answer, NO_CONFIG, NOBODY, Place};
use crate::harness::{has_root, python, python_answers, run_ok};

/// Largest samples, bytes.
const GRACE: u64 = 1_000_000;
const VM: u64 = 250_000;

/// First directories of the paths that samples may hold: those of the lab's guest, and cgroups.
const PATHS: [&str; 6] = ["", "bin", "init", "lab", "out", "sample"];

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples")
}

/// Every file below `samples/` with its size.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut sized_files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sized_files.extend(files(&path));
        } else {
            let bytes = fs::metadata(&path).unwrap().len();
            sized_files.push((path, bytes));
        }
    }
    sized_files
}

#[test]
fn a_user_without_privileges_reads_the_samples() {
    let place = Place::new();
    let tool = place.tool_for_all();
    // The repository may be where others cannot read.
    for (file, _) in files(&samples()) {
        let to = place.path("samples").join(file.strip_prefix(samples()).unwrap());
        let dir = to.parent().unwrap();
        fs::create_dir_all(dir).unwrap();
        fs::copy(&file, &to).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let run = |args: &[&str]| {
        let mut command = Command::new(&tool);
        command.args(args).current_dir(place.path("")).env("XDG_CONFIG_HOME", NO_CONFIG);
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Answer::of(command.output().unwrap()).ok()
    };
    for (sample, says) in [
        ("samples/grace", &["/lab/train", "web restarts", "remote_socket_rd_data"][..]),
        ("samples/vm.parquet", &["/sample/build", "context-switches"]),
    ] {
        assert!(run(&["check", sample]).contains("none failed"));
        let report = run(&["report", sample]);
        assert!(says.iter().all(|words| report.contains(words)), "{report}");
    }
    assert!(run(&["report", "samples/grace", "--links"]).contains("memory of other sockets 0 in"));
}

#[test]
fn a_report_begins_with_the_answer_and_says_once_that_all_is_exact() {
    let report_on = |sample: &str, options: &[&str]| {
        let sample = samples().join(sample);
        run_ok([&["report", sample.to_str().unwrap()], options].concat())
    };
    let first = |sample: &str, options: &[&str]| {
        report_on(sample, options).lines().next().unwrap().to_owned()
    };
    let train = "train had 96 % (85 to 100 %) of what went over memory of other sockets 0 (in): ";
    assert!(first("grace", &[]).starts_with(train));
    assert!(first("grace", &["--by", "pmu", "--top", "1"]).starts_with(train));
    assert!(first("vm.parquet", &["--by", "pid"]).starts_with("dd ("));
    let exact = report_on("vm.parquet", &[]);
    let answer = exact.lines().next().unwrap();
    assert!(answer.starts_with("dd had 100 % of what went over disk vda ("), "{answer}");
    assert!(answer.ends_with("; 100 % in cgroup /sample/backup."), "{answer}");
    let remark = "In every line: method exact, confidence 1, the 90 % interval is the value, ";
    assert!(exact.contains(remark) && !exact.contains("confidence  "), "{exact}");
    assert!(report_on("grace", &[]).contains("In every line: running 100.0 %"));
}

#[test]
fn a_user_who_cannot_record_is_pointed_to_the_samples() {
    if !has_root("recording as another user") {
        return;
    }
    let place = Place::new();
    let mut command = Command::new(place.tool_for_all());
    chown(place.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    command.args(["record", "-p", "host", "-o", "run.parquet"]).uid(NOBODY).gid(NOBODY);
    command.current_dir(place.path("")).env("XDG_CONFIG_HOME", NO_CONFIG);
    let line = Answer::of(command.output().unwrap()).refused();
    assert!(line.contains("`uncore-trace doctor`"), "{line}");
    assert!(line.contains("`uncore-trace report samples/grace`"), "{line}");
}

/// The answer, what holds for every line, and the table of an event.
fn excerpt(report: &str, event: &str) -> String {
    let parts: Vec<&str> = report.split("\n\n").collect();
    let part = |begin: &str| *parts.iter().find(|part| part.starts_with(begin)).unwrap();
    [parts[0], part("In every line: "), part(&format!("{event}  "))].join("\n\n")
}

/// README shows what the program prints. `UPDATE_DOCS=1` writes it; look at the difference.
#[test]
fn readme_shows_reports_of_the_samples() {
    let path = samples().join("../README.md");
    let mut text = fs::read_to_string(&path).unwrap();
    let reported = |sample: &str, options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("report").arg(samples().join(sample)).args(options);
        Answer::of(command.env("COLUMNS", "90").output().unwrap()).ok()
    };
    let grace = reported("grace", &["--from", "1s", "--top", "3"]);
    let grace = grace.split("\n\n").find(|part| part.starts_with("remote_socket_rd_data  "));
    let vm = excerpt(&reported("vm.parquet", &["--top", "2"]), "page-faults");
    for (name, report_text) in [("report", grace.unwrap().to_owned()), ("vm", vm)] {
        let begin = format!("<!-- screen {name} -->\n");
        let (before, after_begin) = text.split_once(&begin).unwrap();
        let (_, after) = after_begin.split_once("<!-- end -->").unwrap();
        let lines: Vec<&str> = report_text.lines().map(str::trim_end).collect();
        let block = format!("```text\n{}\n```\n", lines.join("\n"));
        text = format!("{before}{begin}{block}<!-- end -->{after}");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let stale = "README.md is stale: run UPDATE_DOCS=1 cargo test --test tests readme_shows";
    assert!(fs::read_to_string(&path).unwrap() == text, "{stale}");
}

#[test]
fn samples_are_small() {
    let size = |path: PathBuf| files(&path).iter().map(|(_, bytes)| bytes).sum::<u64>();
    let grace = size(samples().join("grace"));
    assert!(grace <= GRACE, "samples/grace has {grace} bytes");
    let vm = fs::metadata(samples().join("vm.parquet")).unwrap().len();
    assert!(vm <= VM, "samples/vm.parquet has {vm} bytes");
}

#[test]
fn samples_name_nothing_of_the_machine_they_were_made_on() {
    let answers = python_answers(&python(), include_str!("samples.py"), &[samples().as_os_str()]);
    let readme = fs::read_to_string(samples().join("README.md")).unwrap();
    let mut commands = 0;
    for text in answers.as_array().unwrap().iter().map(|text| text.as_str().unwrap()) {
        for path in text.split_whitespace().filter_map(|word| word.strip_prefix('/')) {
            let first = path.split('/').next().unwrap();
            assert!(PATHS.contains(&first), "{text}");
        }
        if text.contains("uncore-trace record") {
            assert!(readme.contains(&format!("| `{text}` |")), "{text}");
            commands += 1;
        }
    }
    assert_eq!(commands, 2, "{answers}");
}
