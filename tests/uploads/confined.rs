//! The privileges of an upload: what it gives up at its start, and what then fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::net::TcpListener;

use rustix::process::Signal;

use crate::fleet::{Fleet, assert_same, in_bucket};
use crate::store::{Moto, Said};

/// Lines of `/proc/PID/task/TID/status`: no capability, no way to get one, a filter.
const CONFINED: [&str; 4] =
    ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"];

/// Checks all threads of a process.
fn assert_confined(pid: u32) {
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        // A thread that looked a name up may have ended.
        let status = fs::read_to_string(task.unwrap().path().join("status"));
        let Ok(status) = status else { continue };
        for line in CONFINED {
            assert!(status.lines().any(|status_line| status_line == line), "{line}: {status}");
        }
    }
}

/// By name, so that a thread of the C library looks it up.
#[test]
fn an_upload_works_when_all_its_threads_are_confined() {
    let moto = Moto::start();
    let endpoint = format!("http://localhost:{}", moto.address().port());
    let upload = "every = \"100ms\"\nkeep-local = false";
    for store in ["bucket", "directory"] {
        let mut fleet = match store {
            "bucket" => Fleet::to_bucket(&endpoint, upload),
            _ => Fleet::to_directory(upload),
        };
        let running = fleet.start();
        for hour in 0..3 {
            let name = fleet.make(hour, 300_000);
            fleet.wait_gone(&name);
            assert_confined(running.pid());
        }
        match store {
            "bucket" => assert_same(&moto.objects(), &in_bucket(&fleet.made)),
            _ => assert_same(&fleet.stored(), &fleet.made),
        }
        running.stop(Signal::TERM);
    }
}

/// A store that sends the upload to another service of the host, which believes whom it hears. This
/// status makes a client ask there with GET.
#[test]
fn a_store_cannot_make_it_connect_to_another_port() {
    let other_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    other_listener.set_nonblocking(true).unwrap();
    let there = other_listener.local_addr().unwrap();
    let location = format!("Location: http://{there}/bucket/x\r\nContent-Length: 0");
    let store = Said::start(
        format!("HTTP/1.1 303 See Other\r\n{location}\r\nConnection: close\r\n\r\n"),
        b"",
    );
    let mut fleet = Fleet::to_bucket(&store.endpoint(), "");
    fleet.make(0, 1000);
    let answer = fleet.once();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.err.contains("Permission denied"), "{answer:?}");
    assert!(other_listener.accept().is_err(), "it has connected to {there}");
}
