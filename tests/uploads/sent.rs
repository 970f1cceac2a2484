//! Tests of `upload`: complete files are in the store once, with the same name and content.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::command::{Answer, NOBODY, Place};
use crate::fleet::{Fleet, HOST, assert_same, bucket, environment, in_bucket, names};
use crate::needs::has_root;
use crate::store::{Fault, Moto, Proxy, Said};

#[test]
fn a_bucket_gets_each_complete_file_once_by_its_name() {
    let moto = Moto::start();
    let mut fleet = Fleet::to_bucket(&format!("http://{}", moto.address()), "");
    fleet.make(7, 300_000);
    fleet.make(8, 0);
    fleet.make_named("cluster=east%20%C3%BC/date=2026-01-31/hour=23", 2_000_000);
    let hour = fleet.rollup().join("cluster=lab/date=2026-01-01/hour=07");
    fs::write(hour.join("12345678_0.parquet"), "no host").unwrap();
    let hour = hour.join(HOST);
    for name in [".1_1.parquet", "1_1.parquet.tmp", "1_1.parquet.partial", "c.txt"] {
        fs::write(hour.join(name), "no").unwrap();
    }
    fs::write(fleet.place.path("secret"), "no").unwrap();
    symlink(fleet.place.path("secret"), hour.join("1_2.parquet")).unwrap();
    let summary = fleet.once().ok();
    assert_eq!(summary, "3 files sent, 2.30 MB\n");
    let objects = moto.objects();
    assert_same(&objects, &in_bucket(&fleet.made));
    // The files are kept locally, and not sent again.
    assert_same(&fleet.local(), &fleet.made);
    assert_eq!(fleet.once().ok(), "0 files sent, 0 B\n");
    fleet.make(9, 10);
    assert_eq!(fleet.once().ok(), "1 file sent, 10 B\n");
    // Without its journal, `upload` sends them again, with the same names.
    fs::remove_file(fleet.rollup().join(".uploaded")).unwrap();
    assert_eq!(fleet.once().ok(), "4 files sent, 2.30 MB\n");
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
}

#[test]
fn a_directory_is_a_store_and_stored_files_are_removed_locally() {
    let mut fleet = Fleet::to_directory("keep-local = false");
    fleet.make(7, 300_000);
    fleet.make_named("cluster=east%20%C3%BC/date=2026-01-31/hour=23", 10);
    // A partial file in the store, as after a kill.
    let staged = fleet.place.path("store/cluster=lab/date=2026-01-01/hour=07/host=one");
    fs::create_dir_all(&staged).unwrap();
    fs::write(staged.join("12345678_0.parquet#1"), "half").unwrap();
    fs::write(staged.join("12345678_0.parquet#2"), "half").unwrap();
    assert_eq!(fleet.once().ok(), "2 files sent, 300 kB\n");
    assert_same(&fleet.stored(), &fleet.made);
    assert_eq!(names(&fleet.local()), [""; 0]);
}

/// The agent still uses the directory of the current hour.
#[test]
fn files_of_the_current_hour_stay_until_it_has_passed() {
    let mut fleet = Fleet::to_directory("keep-local = false");
    fleet.make(0, 10);
    // A file stays for ten minutes after its hour, so the test also works at the end of an hour.
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
        // Another file of the same name and size.
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

/// A store that is not atomic has the beginning of an object after a cut request.
#[test]
fn a_truncated_object_is_replaced_by_the_whole_file() {
    let mut fleet = Fleet::to_directory("keep-local = false");
    let name = fleet.make(0, 1000);
    let path = fleet.place.path("store").join(&name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, &fleet.made[&name][..400]).unwrap();
    assert_eq!(fleet.once().ok(), "1 file sent, 1.00 kB\n");
    assert_same(&fleet.stored(), &fleet.made);
}

/// A file that was sent and kept is removed when `keep-local` is switched off, and is not sent
/// again.
#[test]
fn files_that_were_kept_are_removed_once_keep_local_is_off() {
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
    // Without credentials, `upload` asks the instance's metadata service, here a proxy that has
    // none.
    let mut command = fleet.tool(&["--once"]);
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_METADATA_ENDPOINT", proxy.endpoint());
    let line = fails(Answer::of(command.output().unwrap()));
    assert!(line.contains("no credentials"), "{line}");
}

#[test]
fn refused_credentials_are_not_reported_as_missing() {
    for (code, says) in [
        ("AccessDenied", "s3:PutObject and s3:GetObject"),
        ("SignatureDoesNotMatch", "correct AWS_ACCESS_KEY_ID"),
        ("ExpiredToken", "correct AWS_ACCESS_KEY_ID"),
    ] {
        let text = format!("<Error><Code>{code}</Code><Message>No.</Message></Error>");
        let head = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n", text.len());
        let refusing_server = Said::start(head + &text, &[]);
        let mut fleet = Fleet::to_bucket(&refusing_server.endpoint(), "");
        fleet.make(0, 10);
        let answer = fleet.once();
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.err.contains(&format!("({code}: No.)")), "{answer:?}");
        assert!(answer.err.contains(says), "{answer:?}");
        assert!(!answer.err.contains("set AWS"), "{answer:?}");
    }
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
fn the_help_is_that_of_the_subcommand() {
    let place = Place::new();
    let help = place.typed("--help").ok();
    assert!(help.starts_with("Send finished hours of the roll-up to an object store\n"), "{help}");
    assert!(help.contains("\nCredentials come from the environment"), "{help}");
    assert!(place.typed("--version").ok().starts_with("uncore-trace-upload "));
    assert!(place.typed("--onec").refused().contains("'--once'"));
}

#[test]
fn impossible_settings_of_an_upload_are_refused_in_one_line() {
    for (upload, says) in [
        ("url = \"gs://bucket\"", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("url = \"bucket\"", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("url = \"file://store\"", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("", "write s3://BUCKET/PREFIX or file:///DIR"),
        ("url = \"s3:///prefix\"", "names no bucket"),
        ("url = \"s3://bucket/a/../b\"", "the prefix is not a path"),
        ("url = \"s3://bucket/a?b\"", "the prefix is not a path"),
        ("url = \"s3://key:secret@bucket\"", "credentials are taken from the environment"),
        ("url = \"file:///nonexistent/store\"", "there is no directory /nonexistent/store"),
        ("url = \"file:///tmp\"\nendpoint = \"http://a\"", "leave it out"),
        ("url = \"s3://bucket\"\nendpoint = \"127.0.0.1:5000\"", "https://HOST:PORT"),
        (
            "url = \"s3://bucket\"\nendpoint = \"http://a:b@c\"",
            "credentials may not be in the configuration",
        ),
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
    assert!(check.contains("no request was sent"), "{check}");
    fs::remove_dir(fleet.rollup()).unwrap();
    let line = fleet.once().refused();
    assert!(line.contains("there is no such directory") && line.contains("[rollup]"), "{line}");
}

/// Uploads as a user who may only read and write the directory.
#[test]
fn an_upload_needs_no_privileges() {
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
    command.args(["--config"]).arg(fleet.place.path("agent.toml")).arg("--once");
    environment(&mut command);
    command.uid(NOBODY).gid(NOBODY).env("UNCORE_TRACE_LOG", "debug");
    let answer = Answer::of(command.output().unwrap());
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.err.contains("capabilities: none"), "{answer:?}");
    assert_same(&moto.objects(), &in_bucket(&fleet.made));
    assert_eq!(names(&fleet.local()), [""; 0]);
}

/// The metrics of the upload are beside the textfile of the agent.
#[test]
fn the_figures_of_an_upload_are_in_a_textfile() {
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
    // The dashboard and the alerts take the names of the documentation.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/upload.md");
    let page = fs::read_to_string(page).unwrap();
    let documented = page.lines().filter_map(|line| line.strip_prefix("| `uncore_trace_upload_"));
    let documented = documented.filter_map(|line| line.split('`').next());
    let names = text.lines().filter_map(|line| line.strip_prefix("uncore_trace_upload_"));
    let names = names.filter_map(|line| line.split(' ').next());
    assert_eq!(names.collect::<Vec<_>>(), documented.collect::<Vec<_>>());
}
