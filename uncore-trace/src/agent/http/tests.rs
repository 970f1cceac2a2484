use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::geteuid;
use rustix::thread::{Uid, set_thread_res_uid};

use super::profile::PROFILE_PATH;
use super::*;
use crate::agent::profiles::{LATEST, ProfileCollector, ProfileRequests};
use crate::agent::sample::{sample_metadata, sample_sums};

/// Somebody who is neither root nor the user of the agent.
const NOBODY: u32 = 65534;

/// A server that listens so, and its sockets' addresses.
fn server(listen: &str) -> Arc<HttpState> {
    let config = Config::parse(&format!("[ring]\n[metrics]\n{listen}")).unwrap();
    let shared = Arc::new(HttpState::new(PendingRequests::default(), &config).unwrap());
    let pages = Pages { text: "# EOF\n".into(), ..Pages::default() };
    shared.replace_pages(pages, Duration::from_hours(1));
    start_http_thread(open_listeners(&config).unwrap(), Arc::clone(&shared)).unwrap();
    shared
}

fn ask(mut stream: impl io::Read + io::Write, request: &str) -> io::Result<String> {
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn half_requests_keep_nobody_from_an_answer() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    server(&format!("listen = '127.0.0.1:{port}'"));
    let half = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: local").unwrap();
        stream
    };
    // Four times as many as may be open, and more while others ask.
    let mut held: Vec<TcpStream> = (0..4 * MOST).map(|_| half()).collect();
    for _ in 0..50 {
        held.extend((0..8).map(|_| half()));
        let begin = Instant::now();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let answer = ask(stream, "GET /metrics").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n"), "{answer}");
        assert!(begin.elapsed() < HEAD, "{:?}", begin.elapsed());
    }
    // Those that are left wait for their head no longer than that.
    let mut last = half();
    last.set_read_timeout(Some(3 * HEAD)).unwrap();
    let ended = last.read_to_end(&mut Vec::new());
    assert!(
        ended.as_ref().map_or_else(|it| it.kind() == io::ErrorKind::ConnectionReset, |_| true),
        "{ended:?}"
    );
}

/// Requests a profile of a second from a server whose time limit is far shorter, and lets the
/// consumer do its part meanwhile. Returns the answer and the time that it took.
fn ask_for_profile(requests: &ProfileRequests, mut consume: impl FnMut()) -> (Vec<u8>, Duration) {
    let config = Config::parse("[metrics]\nlisten = '127.0.0.1:9762'\n").unwrap();
    let asked = PendingRequests { profiles: requests.clone(), ..PendingRequests::default() };
    let shared = Arc::new(HttpState::new(asked, &config).unwrap());
    let (mut client, server) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            server.set_nonblocking(true).unwrap();
            let stream = tokio::net::UnixStream::from_std(server).unwrap();
            let patience = Duration::from_millis(20);
            serve_connection(stream, HttpClient::Unix(None), shared, patience).await;
        });
    });
    let begin = Instant::now();
    write!(client, "GET {PROFILE_PATH}?seconds=1 HTTP/1.1\r\n\r\n").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut answer = Vec::new();
    while let Err(error) = client.read_to_end(&mut answer) {
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        consume();
    }
    (answer, begin.elapsed())
}

fn collector(requests: &ProfileRequests) -> ProfileCollector {
    let mut collector = ProfileCollector::new(requests.clone());
    collector.read_metadata(&sample_metadata()).unwrap();
    collector
}

#[test]
fn a_profile_may_take_longer_than_other_answers() {
    let requests = ProfileRequests::default();
    let mut collector = collector(&requests);
    let mut end_ns = 1_000_000_000;
    collector.add_seconds(0, &sample_sums(&[end_ns]));
    let begin = Instant::now();
    let (answer, time) = ask_for_profile(&requests, || {
        // The rows are there when other answers have long been given up.
        if begin.elapsed() > Duration::from_millis(200) {
            end_ns += 1_000_000_000;
            collector.add_seconds(0, &sample_sums(&[end_ns]));
        }
        collector.serve_requests(false, BTreeMap::new);
    });
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("octet-stream"), "{text}");
    assert!(time > Duration::from_millis(200), "{time:?}");
}

#[test]
fn a_profile_that_cannot_be_collected_is_refused_with_its_reason() {
    let requests = ProfileRequests::default();
    let mut collector = collector(&requests);
    let (answer, _) = ask_for_profile(&requests, || collector.serve_requests(true, BTreeMap::new));
    let text = String::from_utf8(answer).unwrap();
    assert!(text.starts_with("HTTP/1.1 503") && text.ends_with("the agent ends\n"), "{text}");
    // A consumer that hangs answers nothing.
    let (answer, time) = ask_for_profile(&requests, || {});
    let text = String::from_utf8(answer).unwrap();
    assert!(text.starts_with("HTTP/1.1 503") && text.ends_with("a disk hangs\n"), "{text}");
    assert!(time >= Duration::from_secs(1) + LATEST, "{time:?}");
    let others = Duration::from_mins(5);
    let _others: Vec<_> = std::iter::from_fn(|| requests.request_profile(others)).collect();
    let (answer, _) = ask_for_profile(&requests, || {});
    let text = String::from_utf8(answer).unwrap();
    assert!(text.starts_with("HTTP/1.1 429") && text.contains("try again later"), "{text}");
}

/// Asks over a Unix socket as this user, in a thread of its own.
fn ask_as(uid: u32, path: &Path, request: &'static str) -> io::Result<String> {
    let path = path.to_owned();
    let thread = std::thread::spawn(move || {
        let uid = Uid::from_raw(uid);
        set_thread_res_uid(uid, uid, uid)?;
        ask(UnixStream::connect(path)?, request)
    });
    thread.join().unwrap()
}

#[test]
fn a_unix_socket_knows_who_asks() {
    // Only root can be somebody else.
    if !geteuid().is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let (open, closed) = (place.path().join("open"), place.path().join("closed"));
    let listen = |path: &Path, mode: &str| {
        server(&format!("listen = ['unix:{}']\nmode = '{mode}'", path.display()))
    };
    let shared = listen(&open, "0666");
    let status = |uid, path: &Path, request| {
        ask_as(uid, path, request).map(|answer| answer.split(' ').nth(1).map(str::to_owned))
    };
    let is = |status: &str| Some(status.to_owned());
    assert_eq!(status(NOBODY, &open, "GET /metrics").unwrap(), is("200"));
    assert_eq!(status(NOBODY, &open, "POST /trigger").unwrap(), is("403"));
    assert!(!shared.requests.keep.swap(false, Ordering::Relaxed));
    assert_eq!(status(0, &open, "POST /trigger").unwrap(), is("202"));
    // The thread still has the group of root.
    listen(&closed, "0600");
    let refused = status(NOBODY, &closed, "GET /metrics").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
}
