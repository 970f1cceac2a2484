//! `upload` with stores that fail, stall and restart, full disks, and uploads that are killed:
//! every file is in the store in the end, and none is removed before.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fleet::{Files, Fleet, assert_same, date, in_bucket, names, noise};
use crate::needs::{SmallDisk, has_root};
use crate::store::{Fault, Moto, Proxy, Said};
use crate::wait::{pass_until_moment, wait_until};

#[test]
fn a_store_that_fails_cuts_and_stalls_gets_every_file() {
    let moto = Moto::start();
    let proxy = Proxy::start(moto.address());
    let upload = "every = \"200ms\"\nkeep-local = false";
    let mut fleet = Fleet::to_bucket(&proxy.endpoint(), upload);
    let running = fleet.start();
    let first = fleet.make(0, 1000);
    fleet.wait_gone(&first);
    let faults = [
        (Fault::Status(500), 3, "500"),
        (Fault::Status(503), 3, "503"),
        (Fault::Forget, 6, "the store has 0 of 1000000 bytes"),
        (Fault::CutRequest, 3, "cannot send"),
        (Fault::CutAnswer, 3, "cannot send"),
        (Fault::Stall, 1, "did not answer within"),
    ];
    for (round, (fault, times, says)) in (1..).zip(faults) {
        proxy.set(fault);
        let name = fleet.make(round, 1_000_000);
        let before = running.log().len();
        proxy.wait_met(times);
        wait_until(&format!("{fault:?}: {says:?}"), || running.log()[before..].contains(says));
        assert!(fleet.rollup().join(&name).exists(), "{fault:?}: removed before it was sent");
        proxy.set(Fault::Nothing);
        fleet.wait_gone(&name);
        assert_same(&moto.objects(), &in_bucket(&fleet.made));
    }
    for line in running.log().lines() {
        assert!(line.starts_with("uncore-trace: warning: cannot send cluster=lab/"), "{line}");
        assert!(line.contains("next attempt in ") && line.ends_with(" waiting"), "{line}");
    }
    running.stop(Signal::TERM);
}

#[test]
fn a_store_that_restarts_in_between_has_every_file() {
    let mut moto = Moto::start();
    let proxy = Proxy::start(moto.address());
    let upload = "every = \"100ms\"\nkeep-local = false";
    let mut fleet = Fleet::to_bucket(&proxy.endpoint(), upload);
    let running = fleet.start();
    for hour in 0..3 {
        let files = [0, 1, 2, 3].map(|quarter| fleet.make(hour * 4 + quarter, 400_000));
        // Some are sent, and maybe not all.
        fleet.wait_gone(&files[0]);
        moto.kill();
        let waits = fleet.make(hour * 4 + 3, 1000);
        running.wait_says(&format!("cannot send cluster=lab/date={}", date(hour * 4 + 3)));
        assert!(fleet.rollup().join(&waits).exists());
        proxy.set(Fault::Status(503));
        moto.restart();
        proxy.set(Fault::Nothing);
        fleet.wait_gone(&waits);
    }
    wait_until("all files to go", || fleet.local().is_empty());
    running.stop(Signal::INT);
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
}

/// Kills an upload 24 times at random moments while files are added; after each kill every file is
/// on the disk or in the store.
fn kill_often(fleet: &mut Fleet, stored: &dyn Fn(&Fleet) -> Files) {
    let (mut waited, mut sent) = (0, 0);
    for round in 0..24_u32 {
        for size in 0..4 {
            fleet.make(round, 50_000 + 400_000 * size);
        }
        let running = fleet.start();
        // During the start, during a request, and after several.
        let moment_us = u64::from(noise(u64::from(round) * 77)) * 1500;
        pass_until_moment(Duration::from_micros(moment_us));
        running.kill();
        let (local, stored_files) = (fleet.local(), stored(fleet));
        for (name, bytes) in &fleet.made {
            let is_local = local.get(name).is_some_and(|local_bytes| local_bytes == bytes);
            let is_there = stored_files.get(name).is_some_and(|stored_bytes| stored_bytes == bytes);
            assert!(is_local || is_there, "round {round}: {name} is lost");
        }
        waited += u32::from(!local.is_empty());
        sent += u32::from(local.len() < fleet.made.len());
    }
    assert!(waited > 0 && sent > 0, "no kill came in between: {waited}, {sent}");
    fleet.once().ok();
    assert_eq!(names(&fleet.local()), [""; 0]);
    assert_same(&stored(fleet), &fleet.made);
    assert_eq!(fleet.once().ok(), "0 files sent, 0 B\n");
}

#[test]
fn a_kill_at_any_moment_loses_nothing() {
    let moto = Moto::start();
    let upload = "every = \"100ms\"\nkeep-local = false";
    let mut fleet = Fleet::to_bucket(&format!("http://{}", moto.address()), upload);
    kill_often(&mut fleet, &|_| {
        let objects = moto.objects().into_iter();
        let name = |name: String| name.strip_prefix("fleet/one/").unwrap().to_owned();
        objects.map(|(object, bytes)| (name(object), bytes)).collect()
    });
}

#[test]
fn a_kill_at_any_moment_leaves_a_directory_whole() {
    let mut fleet = Fleet::to_directory("every = \"100ms\"\nkeep-local = false");
    kill_often(&mut fleet, &|fleet| {
        let stored = fleet.stored().into_iter();
        // Omits partial files of a killed upload; the next upload of the same file removes them.
        stored.filter(|(name, _)| !name.contains('#')).collect()
    });
}

#[test]
fn more_than_may_wait_is_dropped_the_oldest_first() {
    let moto = Moto::start();
    let proxy = Proxy::start(moto.address());
    let upload = "every = \"100ms\"\nqueue = \"1MB\"";
    let mut fleet = Fleet::to_bucket(&proxy.endpoint(), upload);
    let sent = fleet.make(0, 900_000);
    fleet.once().ok();
    proxy.set(Fault::Status(503));
    // Created in another order than that of their hours.
    let newest = fleet.make(30, 400_000);
    let waits = fleet.make(9, 400_000);
    let dropped = [fleet.make(1, 300_000), fleet.make(2, 300_000)];
    let running = fleet.start();
    running.wait_says("2 files dropped since the start");
    proxy.wait_met(5);
    // Files that were sent do not count as waiting, however large they are.
    assert_eq!(names(&fleet.local()), [&sent, &waits, &newest].map(String::as_str));
    let log = running.log();
    for name in &dropped {
        let line = log.lines().find(|line| {
            line.contains(&format!("dropped {}", fleet.rollup().join(name).display()))
        });
        assert!(line.is_some_and(|line| line.contains("[upload] queue is 1.00 MB")), "{log}");
    }
    assert_eq!(log.matches("since the start").count(), 2, "{log}");
    proxy.set(Fault::Nothing);
    wait_until("all files in the store", || moto.objects().len() == 3);
    running.stop(Signal::TERM);
    for name in &dropped {
        fleet.made.remove(name);
    }
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
}

/// One file cannot be read, and one cannot be written at its destination.
#[test]
fn a_file_that_cannot_be_sent_holds_up_no_other() {
    let mut fleet = Fleet::to_directory("keep-local = false");
    let refused = fleet.make(0, 10);
    fs::create_dir_all(fleet.place.path("store").join(&refused).join("occupied")).unwrap();
    let unread = fleet.make(1, 10);
    let path = fleet.rollup().join(&unread);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let good = [fleet.make(2, 10), fleet.make(3, 10)];
    let answer = fleet.once();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert_eq!(answer.out, "2 files sent, 20 B; 2 files waiting, 20 B\n");
    assert_eq!(answer.err.lines().count(), 1, "{answer:?}");
    for name in &good {
        assert!(!fleet.rollup().join(name).exists(), "{name} waits");
    }
    assert_eq!(fs::read(fleet.rollup().join(&refused)).unwrap(), fleet.made[&refused]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fleet.once().out, "1 file sent, 10 B; 1 file waiting, 10 B\n");
}

/// A backlog that is larger than the limit is sent if the store accepts it.
#[test]
fn a_backlog_larger_than_the_limit_is_sent_at_the_start() {
    let mut fleet = Fleet::to_directory("queue = \"1MB\"");
    for hour in 0..5 {
        fleet.make(hour, 500_000);
    }
    assert_eq!(fleet.once().ok(), "5 files sent, 2.50 MB\n");
}

#[test]
fn the_second_upload_of_a_directory_is_refused() {
    let mut fleet = Fleet::to_directory("every = \"100ms\"\nkeep-local = false");
    let running = fleet.start();
    let name = fleet.make(0, 10);
    fleet.wait_gone(&name);
    let line = fleet.once().refused();
    let says = format!("is being uploaded now (process {})", running.child.id());
    assert!(line.contains(&says) && line.ends_with("end that process first"), "{line}");
    running.kill();
    fleet.once().ok();
}

#[test]
fn a_signal_ends_an_upload_whose_request_stalls() {
    let moto = Moto::start();
    let proxy = Proxy::start(moto.address());
    for signal in [Signal::TERM, Signal::INT] {
        let mut fleet = Fleet::to_bucket(&proxy.endpoint(), "keep-local = false");
        let name = fleet.make(0, 1000);
        proxy.set(Fault::Stall);
        let running = fleet.start();
        proxy.wait_met(1);
        running.stop(signal);
        assert!(fleet.rollup().join(&name).exists());
    }
}

/// Sent files are removed, which frees space.
#[test]
fn a_full_disk_is_emptied() {
    if !has_root("a full disk: it takes a tmpfs") {
        return;
    }
    let mut fleet = Fleet::to_directory("keep-local = false");
    fs::remove_dir(fleet.rollup()).unwrap();
    let _disk = SmallDisk::mount(fleet.rollup());
    fleet.make(0, 400_000);
    fleet.make(1, 300_000);
    fs::write(fleet.rollup().join("filler"), vec![0; 1 << 20]).unwrap_err();
    let answer = fleet.once();
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.err.contains(".uploaded: No space left on device"), "{answer:?}");
    assert_same(&fleet.stored(), &fleet.made);
    assert_eq!(names(&fleet.local()), [""; 0]);
    assert!(fleet.rollup().join(".uploaded").exists());
}

#[test]
fn an_answer_without_end_is_not_read_to_its_end() {
    for head in [
        "HTTP/1.1 403 Forbidden\r\n\r\n",
        "HTTP/1.1 500 Internal Server Error\r\n\r\n",
        "HTTP/1.1 200 OK\r\nETag: \"x\"\r\n\r\n",
    ] {
        let server = Said::start(head.to_owned(), &[b' '; 8 << 10]);
        let mut fleet = Fleet::to_bucket(&server.endpoint(), "");
        fleet.make(0, 10);
        let begin = Instant::now();
        let answer = fleet.once();
        assert_eq!(answer.code, 1, "{answer:?}");
        assert_eq!(answer.err.lines().count(), 1, "{answer:?}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        // What the sockets hold comes on top of what is read, for each of its few requests.
        let sent = server.sent();
        assert!(sent < 64 << 20, "{head}: {sent} bytes");
        println!("{head:?}: {sent} bytes: {}", answer.err);
    }
}
