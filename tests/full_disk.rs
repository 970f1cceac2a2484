//! Outputs that fail during writing: a full disk keeps flushed data, and a closed pipe is no error.

use std::fs;
use std::process::Stdio;

use uncore_trace::tables::reader::Recording;

use crate::PROGRAM;
use crate::command::{Answer, Place};
use crate::harness::mounts;
use crate::needs::{SmallDisk, has_root};
use crate::small::small_recording;

#[test]
fn a_full_disk_keeps_the_sealed_rows() {
    if !has_root("a full disk: it takes a tmpfs") {
        return;
    }
    let place = Place::new();
    let disk = SmallDisk::mount(place.path("small"));
    disk.fill(700_000);
    let typed = "record -p host -I 1ms --flush 100ms --duration 60s -o small/run.parquet";
    let line = place.typed(typed).refused();
    let way_out = "`uncore-trace repair small/run.parquet`";
    assert!(line.contains("no space left on the disk") && line.contains(way_out), "{line}");
    assert!(!place.path("small/run.parquet").exists());
    let line = place.typed("report small/run.parquet").refused();
    assert!(line.contains(way_out), "{line}");
    fs::remove_file(place.path("small/filler")).unwrap();
    place.typed("repair small/run.parquet").ok();
    assert!(!place.path("small/run.parquet.partial").exists());
    assert!(place.typed("report small/run.parquet").ok().contains("context-switches"));
    Recording::open(&place.path("small/run.parquet")).unwrap();
    // All sealed data are right.
    place.typed("check small/run.parquet").ok();
}

#[test]
fn a_disk_that_is_full_from_the_start_is_left_as_it_was() {
    if !has_root("a full disk: it takes a tmpfs") {
        return;
    }
    let place = Place::new();
    let disk = SmallDisk::mount(place.path("small"));
    disk.fill(1 << 20);
    for output in ["small/run.parquet", "small/run/"] {
        let line = place.refuses(["record", "-p", "host", "-o", output, "--", "true"]);
        assert!(line.contains(output) && line.contains("no space left"), "{line}");
    }
}

/// The reader leaves before the first byte, which `| head -1` does only sometimes.
#[test]
fn a_closed_pipe_is_no_error() {
    let place = Place::new();
    small_recording(&place.path("x.parquet"));
    let root = place.machine("all-drivers-acpi");
    let commands: [&[&str]; 7] = [
        &["report", "x.parquet"],
        &["report", "x.parquet", "--json"],
        &["list", "--root", &root],
        &["record", "--dry-run", "-p", "all", "--root", &root],
        &["record", "--dry-run", "--json", "-p", "all", "--root", &root],
        &["--help"],
        &["record", "--help"],
    ];
    for args in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let answer =
            Answer::of(place.tool(args).stdout(writer).stderr(Stdio::piped()).output().unwrap());
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        assert!(!answer.err.contains("panicked") && !answer.err.contains("ipe"), "{answer:?}");
    }
}

/// `ulimit -f`: SIGXFSZ would end the recorder without a word.
#[test]
fn a_file_over_the_limit_of_its_size_is_an_error_like_a_full_disk() {
    if !has_root("record with a limit of the size of files") {
        return;
    }
    let limited = |place: &Place, kib: u32, typed: &str| {
        let script = format!("ulimit -f {}; exec \"$0\" \"$@\"", 2 * kib);
        let mut command = mounts::shell(&script);
        command.arg(PROGRAM).args(typed.split(' ')).current_dir(place.path(""));
        Answer::of(command.output().unwrap())
    };
    let place = Place::new();
    for output in ["run.parquet", "run/"] {
        let typed = format!("record -p host -o {output} --duration 2s");
        let answer = limited(&place, 4, &typed);
        assert_eq!(answer.code, 2, "{answer:?}");
        assert!(answer.err.contains("limit of this session (see ulimit -f)"), "{answer:?}");
        assert!(answer.err.contains(output.trim_end_matches('/')), "{answer:?}");
        assert!(place.content().is_empty(), "{:?}", place.content().keys());
    }
    // The command keeps the signal's own meaning.
    let script = "head -c 100000 /dev/zero > large";
    let mut command = mounts::shell("ulimit -f 64; exec \"$0\" \"$@\"");
    command.arg(PROGRAM).args(["record", "-q", "-p", "host", "-o", "run.parquet", "--"]);
    command.args(["sh", "-c", script]).current_dir(place.path(""));
    let answer = Answer::of(command.output().unwrap());
    assert_eq!(fs::metadata(place.path("large")).unwrap().len(), 1 << 15, "{answer:?}");
    assert!(place.path("run.parquet").exists(), "{answer:?}");
}

#[test]
fn the_agent_ends_with_an_error_where_files_are_limited() {
    if !has_root("the agent with a limit of the size of files") {
        return;
    }
    let place = Place::new();
    let config = format!(
        "[record]\ngroups = ['host']\ninterval = '100ms'\n[ring]\ndirectory = '{0}/ring'\n\
         [rollup]\ndirectory = '{0}/rollup'\nwindow = '1s'\n",
        place.path("").display()
    );
    fs::write(place.path("agent.toml"), config).unwrap();
    let mut command = mounts::shell("ulimit -f 8; exec \"$0\" \"$@\"");
    command.arg(PROGRAM).args(["agent", "--config", "agent.toml", "--duration", "20s"]);
    let answer = Answer::of(command.current_dir(place.path("")).output().unwrap());
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.err.contains("limit of this session (see ulimit -f)"), "{answer:?}");
}
