//! `upload`: what is complete is in the store once, whatever fails, and nothing is removed before that.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Answer, NOBODY, Place};
use crate::full_disk::SmallDisk;
use crate::harness::has_root;
use crate::harness::store::{BUCKET, Fault, Moto, Proxy};

/// What a request or a wait may take before a test has failed.
const PATIENCE: Duration = Duration::from_mins(2);

type Files = BTreeMap<String, Vec<u8>>;

/// A roll-up directory with a configuration, and all files that were ever complete in it.
struct Fleet {
    place: Place,
    made: Files,
}

impl Fleet {
    /// With these lines in `[upload]`.
    fn new(upload: &str) -> Self {
        let place = Place::new();
        fs::create_dir(place.path("rollup")).unwrap();
        let fleet = Self { place, made: Files::new() };
        fleet.configure(upload);
        fleet
    }

    /// To a bucket behind this endpoint.
    fn to_bucket(endpoint: &str, upload: &str) -> Self {
        Self::new(&bucket(endpoint, upload))
    }

    /// To the directory `store`.
    fn to_directory(upload: &str) -> Self {
        let fleet = Self::new("");
        fs::create_dir(fleet.place.path("store")).unwrap();
        let url = format!("file://{}", fleet.place.path("store").display());
        fleet.configure(&format!("url = {url:?}\n{upload}"));
        fleet
    }

    fn configure(&self, upload: &str) {
        let directory = self.rollup();
        let directory = directory.display();
        let text = format!("[rollup]\ndirectory = \"{directory}\"\n[upload]\n{upload}");
        fs::write(self.place.path("agent.toml"), text).unwrap();
    }

    fn rollup(&self) -> PathBuf {
        self.place.path("rollup")
    }

    /// A complete file of this hour.
    fn make(&mut self, hour: u32, size: usize) -> String {
        self.make_named(&format!("cluster=lab/date={}/hour={:02}", date(hour), hour % 24), size)
    }

    fn make_named(&mut self, hour: &str, size: usize) -> String {
        let seed = self.made.len() as u64;
        let bytes: Vec<u8> = (0..size as u64).map(|at| noise(seed << 32 | at)).collect();
        let name = format!("{hour}/host_12345678_{seed}.parquet");
        let path = self.rollup().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path.with_extension("tmp"), &bytes).unwrap();
        fs::rename(path.with_extension("tmp"), path).unwrap();
        self.made.insert(name.clone(), bytes);
        name
    }

    /// The files that are still there, of those that were complete.
    fn local(&self) -> Files {
        let here = |name: &String| fs::read(self.rollup().join(name)).ok();
        self.made.keys().filter_map(|name| Some((name.clone(), here(name)?))).collect()
    }

    /// What is in the store that is a directory.
    fn stored(&self) -> Files {
        let root = self.place.path("store");
        let files = self.place.content().into_iter().filter(|(path, _)| !path.is_dir());
        let name = |path: &Path| Some(path.strip_prefix(&root).ok()?.to_str().unwrap().to_owned());
        files.filter_map(|(path, bytes)| Some((name(&path)?, bytes))).collect()
    }

    fn tool(&self, options: &[&str]) -> Command {
        let mut command = self.place.tool(["upload", "--config", "agent.toml"]);
        environment(&mut command);
        command.args(options);
        command
    }

    fn once(&self) -> Answer {
        Answer::of(self.tool(&["--once"]).output().unwrap())
    }

    fn start(&self) -> Upload {
        let log = self.place.path("log");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = self.tool(&[]);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Upload { child, log }
    }

    /// Waits until the file was removed, which is after it was sent.
    fn wait_gone(&self, name: &str) {
        let path = self.rollup().join(name);
        wait_until(&format!("{name} is there"), || !path.exists());
    }
}

fn date(hour: u32) -> String {
    format!("2026-01-{:02}", 1 + hour / 24)
}

/// A byte that the same seed makes again.
fn noise(seed: u64) -> u8 {
    let mixed = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31) as u8
}

fn bucket(endpoint: &str, upload: &str) -> String {
    format!("url = \"s3://{BUCKET}/fleet/one\"\nendpoint = {endpoint:?}\n{upload}")
}

/// As the objects of a bucket are called.
fn in_bucket(files: &Files) -> Files {
    files.iter().map(|(name, bytes)| (format!("fleet/one/{name}"), bytes.clone())).collect()
}

/// Credentials, and nothing else that leads elsewhere.
fn environment(command: &mut Command) {
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"]
    {
        command.env_remove(name);
    }
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command.env("AWS_ACCESS_KEY_ID", "testing").env("AWS_SECRET_ACCESS_KEY", "testing");
}

fn wait_until(or: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "after {PATIENCE:?}: {or}");
        sleep(Duration::from_millis(10));
    }
}

fn names(files: &Files) -> Vec<&str> {
    files.keys().map(String::as_str).collect()
}

/// Names and bytes; a difference is told by the names.
fn assert_same(found: &Files, wanted: &Files) {
    assert_eq!(names(found), names(wanted));
    for (name, bytes) in wanted {
        assert!(found[name] == *bytes, "{name} has other bytes");
    }
}

/// An upload that runs beside the test.
struct Upload {
    child: Child,
    log: PathBuf,
}

impl Upload {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn wait_says(&self, words: &str) {
        wait_until(&format!("{words:?} is not in the log"), || self.log().contains(words));
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by a signal: within 5 s, with exit code 0.
    fn stop(mut self, signal: Signal) {
        let begin = Instant::now();
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.log());
        assert!(begin.elapsed() < Duration::from_secs(5), "it took {:?}", begin.elapsed());
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_bucket_gets_what_is_complete_by_the_same_names_once() {
    let moto = Moto::start();
    let mut fleet = Fleet::to_bucket(&format!("http://{}", moto.address()), "");
    fleet.make(7, 300_000);
    fleet.make(8, 0);
    fleet.make_named("cluster=east%20%C3%BC/date=2026-01-31/hour=23", 2_000_000);
    let hour = fleet.rollup().join("cluster=lab/date=2026-01-01/hour=07");
    for name in [".hidden.parquet", "a.parquet.tmp", "b.parquet.partial", "c.txt"] {
        fs::write(hour.join(name), "no").unwrap();
    }
    fs::write(fleet.place.path("secret"), "no").unwrap();
    symlink(fleet.place.path("secret"), hour.join("link.parquet")).unwrap();
    let said = fleet.once().ok();
    assert_eq!(said, "3 files sent, 2.30 MB\n");
    let objects = moto.objects();
    assert_same(&objects, &in_bucket(&fleet.made));
    // They stay, and are not sent again.
    assert_same(&fleet.local(), &fleet.made);
    assert_eq!(fleet.once().ok(), "0 files sent, 0 B\n");
    fleet.make(9, 10);
    assert_eq!(fleet.once().ok(), "1 file sent, 10 B\n");
    // Whoever loses the journal sends them again, by the same names.
    fs::remove_file(fleet.rollup().join(".uploaded")).unwrap();
    assert_eq!(fleet.once().ok(), "4 files sent, 2.30 MB\n");
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
}

#[test]
fn a_directory_is_a_store_and_what_is_there_is_removed_here() {
    let mut fleet = Fleet::to_directory("keep-local = false");
    fleet.make(7, 300_000);
    fleet.make_named("cluster=east%20%C3%BC/date=2026-01-31/hour=23", 10);
    // What a kill has left in the store.
    let staged = fleet.place.path("store/cluster=lab/date=2026-01-01/hour=07");
    fs::create_dir_all(&staged).unwrap();
    fs::write(staged.join("host_12345678_0.parquet#1"), "half").unwrap();
    fs::write(staged.join("host_12345678_0.parquet#2"), "half").unwrap();
    assert_eq!(fleet.once().ok(), "2 files sent, 300 kB\n");
    assert_same(&fleet.stored(), &fleet.made);
    assert_eq!(names(&fleet.local()), [""; 0]);
}

/// The agent may make another file of that name in the same hour: it counts those that are there.
#[test]
fn what_is_of_this_hour_stays_until_it_has_passed() {
    let mut fleet = Fleet::to_directory("keep-local = false");
    fleet.make(0, 10);
    // Also when an hour ends while this runs.
    let hour = jiff::Timestamp::now().strftime("cluster=lab/date=%Y-%m-%d/hour=%H").to_string();
    let stays = fleet.make_named(&hour, 10);
    assert_eq!(fleet.once().ok(), "2 files sent, 20 B\n");
    assert_eq!(names(&fleet.local()), [stays.as_str()]);
    assert_eq!(fleet.once().ok(), "0 files sent, 0 B\n");
    assert_same(&fleet.stored(), &fleet.made);
}

#[test]
fn no_object_is_replaced_by_another() {
    let moto = Moto::start();
    let endpoint = format!("http://{}", moto.address());
    for store in ["bucket", "directory"] {
        let mut fleet = match store {
            "bucket" => Fleet::to_bucket(&endpoint, "keep-local = false"),
            _ => Fleet::to_directory("keep-local = false"),
        };
        let name = fleet.make(0, 1000);
        assert_eq!(fleet.once().ok(), "1 file sent, 1.00 kB\n", "{store}");
        // Another one of the same name and size.
        let path = fleet.rollup().join(&name);
        fs::write(&path, vec![7; 1000]).unwrap();
        let answer = fleet.once();
        assert_eq!(answer.code, 1, "{store}: {answer:?}");
        let says = "the store has another object of this name; remove one of them";
        assert!(answer.err.contains(says), "{store}: {answer:?}");
        assert_eq!(fs::read(&path).unwrap(), [7; 1000], "{store}");
        match store {
            "bucket" => assert_same(&moto.objects(), &in_bucket(&fleet.made)),
            _ => assert_same(&fleet.stored(), &fleet.made),
        }
    }
}

/// What a store that is not atomic has of a request that was cut.
#[test]
fn the_begin_of_an_object_is_replaced_by_all_of_it() {
    let mut fleet = Fleet::to_directory("keep-local = false");
    let name = fleet.make(0, 1000);
    let path = fleet.place.path("store").join(&name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, &fleet.made[&name][..400]).unwrap();
    assert_eq!(fleet.once().ok(), "1 file sent, 1.00 kB\n");
    assert_same(&fleet.stored(), &fleet.made);
}

/// What was sent while it was to stay goes when it is not, and is not sent again.
#[test]
fn what_was_kept_is_removed_once_it_is_not_to_be() {
    let mut fleet = Fleet::to_directory("keep-local = true");
    fleet.make(7, 1000);
    assert_eq!(fleet.once().ok(), "1 file sent, 1.00 kB\n");
    let config = fs::read_to_string(fleet.place.path("agent.toml")).unwrap();
    let config = config.replace("keep-local = true", "keep-local = false");
    fs::write(fleet.place.path("agent.toml"), config).unwrap();
    assert_same(&fleet.local(), &fleet.made);
    assert_eq!(fleet.once().ok(), "0 files sent, 0 B\n");
    assert_eq!(names(&fleet.local()), [""; 0]);
    assert_same(&fleet.stored(), &fleet.made);
}

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
        (Fault::Forget, 6, "the store has 0 bytes of 1000000"),
        (Fault::CutRequest, 3, "cannot send"),
        (Fault::CutAnswer, 3, "cannot send"),
        (Fault::Stall, 1, "did not answer within"),
    ];
    for (at, (fault, times, says)) in (1..).zip(faults) {
        proxy.set(fault);
        let name = fleet.make(at, 1_000_000);
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
        for at in 0..4 {
            fleet.make(hour * 4 + at, 400_000);
        }
        sleep(Duration::from_millis(150));
        moto.kill();
        let waits = fleet.make(hour * 4 + 3, 1000);
        running.wait_says(&format!("cannot send cluster=lab/date={}", date(hour * 4 + 3)));
        assert!(fleet.rollup().join(&waits).exists());
        proxy.set(Fault::Status(503));
        moto.restart();
        proxy.set(Fault::Nothing);
        fleet.wait_gone(&waits);
    }
    wait_until("files wait", || fleet.local().is_empty());
    running.stop(Signal::INT);
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
}

/// Kills an upload 24 times at random moments while files come; after each every file is here or there.
fn kill_often(fleet: &mut Fleet, stored: &dyn Fn(&Fleet) -> Files) {
    let (mut waited, mut sent) = (0, 0);
    for round in 0..24_u32 {
        for at in 0..4 {
            fleet.make(round, 50_000 + 400_000 * at);
        }
        let running = fleet.start();
        // In the start, in a request, and after some.
        sleep(Duration::from_micros(u64::from(noise(u64::from(round) * 77)) * 1500));
        running.kill();
        let (local, there) = (fleet.local(), stored(fleet));
        for (name, bytes) in &fleet.made {
            let here = local.get(name).is_some_and(|found| found == bytes);
            let is_there = there.get(name).is_some_and(|found| found == bytes);
            assert!(here || is_there, "round {round}: {name} is lost");
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
        // Half a file that a kill has left; the next upload of this file removes it.
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
    // Made in another order than that of their hours.
    let newest = fleet.make(30, 400_000);
    let waits = fleet.make(9, 400_000);
    let dropped = [fleet.make(1, 300_000), fleet.make(2, 300_000)];
    let running = fleet.start();
    running.wait_says("2 files dropped since the start");
    proxy.wait_met(5);
    // What was sent does not wait, however large it is.
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
    wait_until("files wait", || moto.objects().len() == 3);
    running.stop(Signal::TERM);
    for name in &dropped {
        fleet.made.remove(name);
    }
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
}

/// One cannot be read, and one cannot be written where it belongs.
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

/// A backlog that is larger than the limit is sent where the store takes it.
#[test]
fn what_waits_at_the_start_has_its_chance() {
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

#[test]
fn credentials_that_are_wrong_or_missing_are_one_line() {
    let auth = [("INITIAL_NO_AUTH_ACTION_COUNT", "1")];
    let moto = Moto::with_env(&auth);
    let proxy = Proxy::start(moto.address());
    proxy.set(Fault::Status(404));
    let mut fleet = Fleet::to_bucket(&format!("http://{}", moto.address()), "");
    fleet.make(0, 1000);
    let fails = |answer: Answer| {
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.out.contains("0 files sent, 0 B; 1 file waiting, 1.00 kB"), "{answer:?}");
        assert_eq!(answer.err.lines().count(), 1, "{answer:?}");
        assert!(answer.err.contains("cannot send cluster=lab/"), "{answer:?}");
        assert!(answer.err.contains("AWS_ACCESS_KEY_ID"), "{answer:?}");
        answer.err
    };
    let line = fails(fleet.once());
    assert!(line.contains("InvalidAccessKeyId"), "{line}");
    // Without any the instance is asked for some, here a proxy that knows none.
    let mut command = fleet.tool(&["--once"]);
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_METADATA_ENDPOINT", proxy.endpoint());
    let line = fails(Answer::of(command.output().unwrap()));
    assert!(line.contains("no credentials"), "{line}");
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    let moto = Moto::start();
    let mut fleet =
        Fleet::new(&format!("url = \"s3://another\"\nendpoint = \"http://{}\"", moto.address()));
    fleet.make(0, 10);
    let answer = fleet.once();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.err.contains("s3://another at http://127.0.0.1:"), "{answer:?}");
    assert!(answer.err.contains("there is no such bucket; make it first"), "{answer:?}");
}

#[test]
fn a_certificate_is_checked() {
    let mut fleet = Fleet::new("");
    let certificate = fleet.place.path("certificate.pem");
    let moto = Moto::with_tls(&certificate);
    let port = moto.address().port();
    fleet.make(0, 10);
    for (host, trusted, says) in [
        ("127.0.0.1", true, "there is no such bucket"),
        ("127.0.0.1", false, "certificate"),
        ("localhost", true, "not valid for name"),
    ] {
        fleet.configure(&bucket(&format!("https://{host}:{port}"), ""));
        let mut command = fleet.tool(&["--once"]);
        if trusted {
            command.env("SSL_CERT_FILE", &certificate);
        }
        let answer = Answer::of(command.output().unwrap());
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.err.lines().last().unwrap().contains(says), "{host}: {answer:?}");
    }
}

#[test]
fn what_cannot_be_uploaded_is_refused_in_one_line() {
    for (upload, says) in [
        ("url = \"gs://bucket\"", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("url = \"bucket\"", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("url = \"file://store\"", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("url = \"s3:///prefix\"", "names no bucket"),
        ("url = \"s3://bucket/a/../b\"", "the prefix is no path"),
        ("url = \"s3://bucket/a?b\"", "the prefix is no path"),
        ("url = \"s3://key:secret@bucket\"", "credentials are taken from the environment"),
        ("url = \"file:///nonexistent/store\"", "there is no directory /nonexistent/store"),
        ("url = \"file:///tmp\"\nendpoint = \"http://a\"", "leave it out"),
        ("url = \"s3://bucket\"\nendpoint = \"127.0.0.1:5000\"", "https://HOST:PORT"),
        ("url = \"s3://bucket\"\nendpoint = \"http://a:b@c\"", "credentials are not written"),
        ("url = \"s3://bucket\"\naccess-key-id = \"A\"", "credentials are taken from the environ"),
        ("url = \"s3://bucket\"\nevry = \"1s\"", "did you mean every"),
    ] {
        let fleet = Fleet::new(upload);
        for option in ["--once", "--check"] {
            let line = Answer::of(fleet.tool(&[option]).output().unwrap()).refused();
            assert!(line.contains(says), "{upload}: {line}");
        }
        assert_eq!(fs::read_dir(fleet.rollup()).unwrap().count(), 0, "{upload}");
    }
    let fleet = Fleet::to_directory("");
    let check = Answer::of(fleet.tool(&["--check"]).output().unwrap()).ok();
    assert!(check.contains("no request was made"), "{check}");
    fs::remove_dir(fleet.rollup()).unwrap();
    let line = fleet.once().refused();
    assert!(line.contains("there is no such directory") && line.contains("[rollup]"), "{line}");
}

/// The store takes what there is, and that makes room.
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

/// As a user who may only read and write the directory.
#[test]
fn it_needs_no_privileges() {
    if !has_root("another user") {
        return;
    }
    let moto = Moto::start();
    let mut fleet = Fleet::to_bucket(&format!("http://{}", moto.address()), "keep-local = false");
    let name = fleet.make(0, 10);
    let mut path = fleet.rollup().join(&name);
    while path.starts_with(fleet.rollup()) {
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        assert!(path.pop());
    }
    fs::set_permissions(fleet.place.path("agent.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = Command::new(fleet.place.tool_for_all());
    command.args(["upload", "--config"]).arg(fleet.place.path("agent.toml")).arg("--once");
    environment(&mut command);
    command.uid(NOBODY).gid(NOBODY).env("UNCORE_TRACE_LOG", "debug");
    let answer = Answer::of(command.output().unwrap());
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.err.contains("capabilities: none"), "{answer:?}");
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
    assert_eq!(names(&fleet.local()), [""; 0]);
}

/// The figures are beside the textfile of the agent.
#[test]
fn figures_are_there_for_prometheus() {
    let mut fleet = Fleet::to_directory("");
    let config = fs::read_to_string(fleet.place.path("agent.toml")).unwrap();
    let textfile = fleet.place.path("agent.prom");
    let config = format!("{config}\n[metrics]\ntextfile = {textfile:?}\n");
    fs::write(fleet.place.path("agent.toml"), config).unwrap();
    fleet.make(0, 10);
    fleet.once().ok();
    let mut text = String::new();
    let path = fleet.place.path("agent_upload.prom");
    File::open(path).unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("\nuncore_trace_upload_sent_files_total 1\n"), "{text}");
    assert!(text.contains("\nuncore_trace_upload_waiting_files 0\n"), "{text}");
}
