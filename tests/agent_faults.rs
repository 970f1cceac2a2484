//! Tests of `agent` when a process is killed, a disk is full, or a signal arrives early.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::agent::{Agent, RING, found_below, parts};
use crate::harness::load::Load;
use crate::harness::subject::wait_until_handled;
use crate::harness::{assert_all_checked, root_or_skip};
use crate::needs::SmallDisk;
use crate::wait::hold_for;

#[test]
fn the_next_agent_finishes_the_files_of_a_killed_one() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new(RING);
    agent.start();
    agent.until_sealed();
    agent.end(Signal::KILL);
    assert_eq!(found_below(&agent.path("rollup"), ".partial").len(), 1);
    agent.start();
    assert_eq!(found_below(&agent.path("rollup"), ".parquet").len(), 1, "{}", agent.log());
    agent.stop();
    assert_eq!(found_below(&agent.path("rollup"), ".partial"), Vec::<PathBuf>::new());
    assert!(found_below(&agent.path("rollup"), ".parquet").len() >= 2);
    agent.compared();
    assert_all_checked(&parts(&agent.path("ring")));
}

#[test]
fn a_full_disk_ends_neither_the_recording_nor_the_metrics() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new(
        "[ring]\ndirectory = 'ROOT/small/ring'\npart = '2s'\nkeep = '2'\nreserve = '1B'\n",
    );
    let disk = SmallDisk::mount_at(agent.path("small"), 32);
    disk.fill((32 << 20) - 300_000);
    agent.start();
    agent.until("the full disk", |agent| agent.log().contains("without the files of this part"));
    let before = agent.metric("uncore_trace_event_seconds_total{event=\"cpu-clock\"");
    agent.until("more windows", |agent| {
        agent.metric("uncore_trace_event_seconds_total{event=\"cpu-clock\"") > before
    });
    // There is room for a part again: recording continues.
    fs::remove_file(agent.path("small/filler")).unwrap();
    agent.until("a part", |agent| !parts(&agent.path("small/ring")).is_empty());
    assert_eq!(agent.end(Signal::TERM), Some(1), "{}", agent.log());
    assert!(agent.log().contains("the ring is incomplete: files of "), "{}", agent.log());
    drop(disk);
}

/// Fills the file system.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

#[test]
fn rows_that_a_full_disk_loses_are_counted_and_the_hour_is_finished_when_there_is_room() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    let disk = SmallDisk::mount_at(agent.path("rollup"), 4);
    agent.start();
    agent.until_sealed();
    fill(&agent.path("rollup/filler"));
    agent.until("lost rows", |agent| agent.metric("uncore_trace_unwritten_rows_total") > 0.0);
    fs::remove_file(agent.path("rollup/filler")).unwrap();
    agent.until("the hour", |agent| !found_below(&agent.path("rollup"), ".parquet").is_empty());
    let log = agent.log();
    assert_eq!(log.matches("rows of the roll-up are lost").count(), 1, "{log}");
    assert_eq!(log.matches("the roll-up is written again").count(), 1, "{log}");
    assert_eq!(agent.end(Signal::TERM), Some(1), "{}", agent.log());
    let lost = "the roll-up is incomplete: ";
    assert!(agent.log().contains(lost), "{}", agent.log());
    assert_eq!(found_below(&agent.path("rollup"), ".partial"), Vec::<PathBuf>::new());
    assert!(found_below(&agent.path("rollup"), ".parquet").len() >= 2);
    drop(disk);
}

/// The disk of ring and roll-up is filled by others: parts of the ring go, rows of the roll-up do
/// not.
#[test]
fn old_parts_make_room_before_the_roll_up_loses_a_row() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    let disk = SmallDisk::mount_at(agent.path("small"), 48);
    agent.configure(
        "",
        "[ring]\ndirectory = 'ROOT/small/ring'\npart = '2s'\nkeep = '1000'\nreserve = '8MiB'\n",
    );
    let text = fs::read_to_string(agent.path("agent.toml")).unwrap();
    fs::write(agent.path("agent.toml"), text.replace("/rollup'", "/small/rollup'")).unwrap();
    agent.start();
    agent.until("parts", |agent| parts(&agent.path("small/ring")).len() >= 4);
    let first = parts(&agent.path("small/ring"))[0].clone();
    // As a log that grows, by 5 MiB in each window, until 8 MiB are left for all.
    let others = agent.path("small/others");
    fs::create_dir(&others).unwrap();
    for number in 0..8 {
        if fs::write(others.join(number.to_string()), vec![0; 5 << 20]).is_err() {
            break;
        }
        agent.until_recorded(1.0);
    }
    agent.until("the oldest part to go", |_| !first.exists());
    agent.until_recorded(5.0);
    let unwritten = agent.metric("uncore_trace_unwritten_rows_total");
    assert!(unwritten == 0.0, "{unwritten} rows: {}", agent.log());
    let removals = agent.log().matches("oldest parts were removed").count();
    assert_eq!(removals, 1, "{}", agent.log());
    agent.stop();
    drop(disk);
}

#[test]
fn a_signal_that_comes_before_the_recording_ends_nothing() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new(RING);
    // The ring is repaired first.
    let unfinished = agent.path("ring/00000001/fabric.parquet.partial");
    fs::create_dir_all(&unfinished).unwrap();
    fs::write(unfinished.join("000000-000000.parquet"), "no table").unwrap();
    agent.spawn();
    wait_until_handled(agent.child.as_ref().unwrap().id(), &[Signal::HUP, Signal::USR1]);
    agent.signal(Signal::HUP);
    agent.signal(Signal::USR1);
    agent.until("the configuration", |agent| agent.log().contains("read again and is applied"));
    agent.stop();
}

/// Everything that makes rows late or long, and SIGHUP with an unchanged file, within one agent.
#[test]
fn a_roll_up_is_right_after_a_reload_and_a_recorder_that_was_stopped() {
    let _machine = root_or_skip!();
    let _load = Load::with_pauses(0);
    let mut agent = Agent::new("");
    agent.start();
    agent.signal(Signal::HUP);
    agent.until("the configuration", |agent| agent.log().contains("read again and is applied"));
    agent.signal(Signal::STOP);
    hold_for(Duration::from_secs(8));
    agent.signal(Signal::CONT);
    agent.configure("owners = 7", "");
    let text = fs::read_to_string(agent.path("agent.toml")).unwrap();
    fs::write(agent.path("agent.toml"), text.replace("window = '1s'", "window = '3s'")).unwrap();
    agent.signal(Signal::HUP);
    agent.until("the other one", |agent| agent.log().matches("is applied").count() == 2);
    // Two windows of it.
    agent.until_recorded(6.0);
    agent.stop();
    let files = found_below(&agent.path("rollup"), ".parquet");
    assert_all_checked(&files);
}

#[test]
fn a_service_manager_that_is_gone_ends_nothing() {
    let _machine = root_or_skip!();
    let mut agent = Agent::new("");
    // The file is there, and nobody listens.
    drop(UnixDatagram::bind(agent.path("notify")).unwrap());
    agent.start();
    assert!(agent.log().contains("cannot reach the socket"), "{}", agent.log());
    agent.stop();
}
