//! Recordings as root with the real binary: what they replace, print and pass on, and that names of
//! hostile processes and cgroups are escaped.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use uncore_trace::discover;

use crate::command::Place;
use crate::harness::has_root;
use crate::skip::skip;

#[test]
fn an_existing_file_is_replaced_with_force_and_only_by_a_recording() {
    if !has_root("record --force") {
        return;
    }
    let place = Place::new();
    fs::write(place.path("x.parquet"), "kept").unwrap();
    let record = "record -p host -o x.parquet --force --";
    let line = place.refuses(format!("{record} /nonexistent/command").split(' '));
    assert!(line.contains("cannot run /nonexistent/command"), "{line}");
    let line = place.refuses(["record", "-p", "host", "-o", "run/", "--", "/nonexistent/command"]);
    assert!(line.contains("cannot run /nonexistent/command"), "{line}");
    place.typed(&format!("{record} sleep 0.2")).recorded();
    let names: Vec<_> = place.content().into_keys().collect();
    assert_eq!(names, [place.path("x.parquet")]);
    place.typed("check x.parquet").ok();
}

/// An ordinary recording has late ticks and unseen switches, which must not look like a failure.
#[test]
fn a_complete_recording_is_marked_and_lost_precision_is_a_note() {
    if !has_root("record: its last words") {
        return;
    }
    let place = Place::new();
    let answer = place.typed("record -p host -o x.parquet --duration 500ms").recorded();
    let begins = |line: &str, words: &[&str]| words.iter().any(|word| line.starts_with(word));
    let mut lines = answer.err.lines().filter_map(|line| line.strip_prefix("uncore-trace: "));
    let first = lines.next().unwrap();
    let verdict = if answer.code == 0 { "; complete" } else { "; incomplete (exit code 1)" };
    assert!(first.starts_with("x.parquet: ") && first.ends_with(verdict), "{answer:#?}");
    let missing = lines.clone().any(|line| begins(line, &["incomplete: "]));
    assert_eq!(missing, answer.code == 1, "{answer:#?}");
    assert!(lines.all(|line| begins(line, &["incomplete: ", "note: "])), "{answer:#?}");
    assert!(!answer.err.contains("losses"), "{answer:#?}");

    let checked = place.typed("check x.parquet").ok();
    let line = checked.lines().find(|line| line.contains("  losses are recorded  ")).unwrap();
    let verdict = if answer.code == 0 { "  complete" } else { "  incomplete: " };
    assert!(line.starts_with("ok ") && line.contains(verdict), "{line}");
}

#[test]
fn the_commands_exit_code_is_passed_on() {
    if !has_root("record -- CMD") {
        return;
    }
    let place = Place::new();
    let command = ["record", "-p", "host", "-o", "x.parquet", "--", "sh", "-c", "exit 7"];
    let answer = place.run(command);
    // On a machine that is too busy for a complete recording, 1 has priority.
    assert!(answer.code == 7 || answer.recorded_in_part(), "{answer:?}");
    assert!(answer.err.starts_with("uncore-trace: x.parquet: "), "{answer:?}");
    assert!(answer.err.lines().count() <= 4, "{answer:?}");
    assert_eq!(place.typed("record -q -p host -o y.parquet -- true").err, "");
}

#[test]
fn the_stream_is_nothing_but_arrow() {
    if !has_root("record -o -") {
        return;
    }
    let place = Place::new();
    let output = place.tool("record -p host -o - --duration 300ms".split(' ')).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}", output.status);
    assert!(output.stderr.starts_with(b"uncore-trace: stdout: "), "{output:?}");
    let batches = arrow::ipc::reader::StreamReader::try_new(output.stdout.as_slice(), None);
    let rows: usize = batches.unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert!(rows > 0);
    assert!(place.content().is_empty());
}

/// A mistyped `--cgroup` is a warning, not an error: the cgroup may be created later.
#[test]
fn a_missing_cgroup_is_reported() {
    if !has_root("record --cgroup") {
        return;
    }
    let place = Place::new();
    let typed = "record -p host -o x.parquet --cgroup /no/such/cgroup -- sleep 0.2";
    let answer = place.typed(typed).recorded();
    if cgroup_mount().is_some() {
        assert!(answer.err.contains("warning: there is no cgroup /no/such/cgroup"), "{answer:?}");
    }
    assert!(place.typed("report x.parquet").ok().contains("other_tasks"));
}

/// The mount of the v2 hierarchy.
fn cgroup_mount() -> Option<PathBuf> {
    discover::machine(Path::new("/")).unwrap().cgroups.v2
}

/// A cgroup, removed on drop.
struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Fails only if a process is still in it, which cannot be helped.
        fs::remove_dir(&self.0).ok();
    }
}

/// dash and bash write /proc/PID/comm themselves, so the name is that of the shell.
const HOSTILE: &str = r#"echo $$ > "$0/cgroup.procs"; printf 'e\033[2Jv\n\377' > /proc/$$/comm
i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"#;

#[test]
fn names_of_the_machine_cannot_steer_the_terminal() {
    if !has_root("a process and a cgroup with escapes in their names") {
        return;
    }
    let Some(mount) = cgroup_mount() else {
        return skip("there is no cgroup v2 hierarchy");
    };
    let place = Place::new();
    let name = format!("uncore-trace-{}\u{1b}[31m\u{202e}", std::process::id());
    let cgroup = Cgroup(mount.join(name));
    fs::create_dir(&cgroup.0).unwrap();
    let record = ["record", "-p", "host", "-o", "x.parquet", "--", "sh", "-c", HOSTILE];
    place.run(record.iter().map(AsRef::as_ref).chain([cgroup.0.as_os_str()])).recorded();
    let by_cgroup = place.typed("report x.parquet").ok();
    let by_pid = place.typed("report x.parquet --by pid").ok();
    for text in [&by_cgroup, &by_pid] {
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(steers), "{text:?}");
    }
    let shown = format!("/uncore-trace-{}\\u{{1b}}[31m\\u{{202e}} ", std::process::id());
    assert!(by_cgroup.contains(&shown), "no {shown} in:\n{by_cgroup}");
    assert!(by_pid.contains("e\\u{1b}[2Jv\\n\u{fffd} ("), "{by_pid}");
}
