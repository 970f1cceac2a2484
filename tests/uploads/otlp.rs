//! Tests of the push of metrics over OTLP.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use uncore_trace::agent::metrics::MetricsPage;
use uncore_trace::schema::rollup;

use crate::PROGRAM;
use crate::collector::{Collector, SCRIPT, Served, tool};
use crate::command::{Answer, NOBODY, Place};
use crate::needs::{has_root, python};
use crate::store::Said;
use crate::wait::{wait_for, wait_until};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";
const UID: &str = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";
/// What a tenant may call a cgroup.
const HOSTILE: &str = "/a\"} 1\nforged{x=\"y\"} 2\\\u{1b}[2J\u{202e}";

/// Metrics of a link with an owner in a pod and one with a hostile name.
fn metrics() -> MetricsPage {
    let scope = format!("/kubepods/burstable/pod{UID}/{ID}");
    let mut metrics = MetricsPage::new(5);
    for window in 1..=5 {
        let mut rows = rollup::Builder::default();
        for (cgroup, container, pod) in [
            (scope.as_str(), Some("db@3f4e5d6c7b8a"), Some(format!("shop/db-0@{UID}"))),
            (HOSTILE, None, None),
        ] {
            rows.append(&rollup::Row {
                ts: 1_800_000_000_000_000_000 + window * 10_000_000_000,
                window_ns: 10_000_000_000,
                link: Some("memory 0"),
                direction: Some("in"),
                unit: "bytes",
                owner: "task",
                cgroup: Some(cgroup),
                container,
                pod: pod.as_deref(),
                value: Some(1e9),
                ..rollup::Row::default()
            });
        }
        metrics.add_window(&rows.finish()).unwrap();
    }
    metrics
}

fn served(more: &str) -> Served {
    Served::new(metrics().encode_request("node-7"), more)
}

/// The number of series, which are the same on the page and in the request.
fn compared(place: &Place, page: &str, request: &Value) -> usize {
    let [of_page, of_request] = ["page", "request"].map(|name| place.path(name));
    fs::write(&of_page, page).unwrap();
    fs::write(&of_request, request.to_string()).unwrap();
    let mut command = Command::new(python());
    command.args(["-c", SCRIPT, "compare"]).args([of_page, of_request]);
    Answer::of(command.output().unwrap()).ok().trim().parse().unwrap()
}

/// The points of a metric.
fn points<'a>(request: &'a Value, name: &str) -> &'a Vec<Value> {
    let metrics = request["metrics"].as_array().unwrap();
    metrics.iter().find(|metric| metric["name"] == name).unwrap()["points"].as_array().unwrap()
}

#[test]
fn the_collector_gets_the_metrics_of_the_page() {
    let collector = Collector::start(&json!([{}]));
    let metrics = metrics();
    let served = Served::new(metrics.encode_request("node-7"), "");
    let endpoint = collector.endpoint();
    let answer = served.once(&[
        (ENDPOINT, &endpoint),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,k8s.cluster.name=a%2Cb"),
        ("OTEL_SERVICE_NAME", "fabric"),
    ]);
    assert_eq!(answer.ok(), format!("metrics pushed to {endpoint}/v1/metrics\n"));
    let request = &collector.wait_for_requests(1)[0];
    assert!(compared(&served.place, &metrics.encode_page().unwrap(), request) > 10, "{request}");
    assert_eq!(
        request["resource"],
        json!({
            "service.name": "fabric",
            "service.version": env!("CARGO_PKG_VERSION"),
            "service.instance.id": request["resource"]["service.instance.id"],
            "host.name": "node-7",
            "deployment.environment.name": "test",
            "k8s.cluster.name": "a,b",
        })
    );
    assert_eq!(request["path"], "/v1/metrics");
    assert_eq!(request["headers"]["content-type"], "application/x-protobuf");
    let owners = points(request, "uncore_trace_owner_bytes");
    let owner_points = |name: &str, value: &str| {
        let mut matching = owners.iter().filter(|point| point["attributes"][name] == value);
        matching.next().unwrap_or_else(|| panic!("no {name} {value}: {owners:?}"))
    };
    let pod = owner_points("k8s.pod.uid", UID);
    for (name, value) in [
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "db-0"),
        ("container.id", ID),
        ("owner_pod", format!("shop/db-0@{UID}").as_str()),
        ("direction", "in"),
    ] {
        assert_eq!(pod["attributes"][name], value, "{pod}");
    }
    // Three windows, then a series of its own, which begins at their end.
    assert_eq!(pod["value"], 2e9);
    assert_eq!(pod["start"], 1_800_000_030_000_000_000_u64);
    assert_eq!(pod["time"], 1_800_000_050_000_000_000_u64);
    let hostile = owner_points("owner_cgroup", HOSTILE);
    assert!(hostile["attributes"]["owner_pod"].is_null(), "{hostile}");
    let units: Vec<_> =
        request["metrics"].as_array().unwrap().iter().map(|metric| &metric["unit"]).collect();
    assert!(units.contains(&&json!("By")) && units.contains(&&json!("{row}")), "{units:?}");
}

#[test]
fn only_what_the_specification_names_is_sent_again_and_not_too_soon() {
    for (status, is_repeated) in [
        (429, true),
        (502, true),
        (503, true),
        (504, true),
        (400, false),
        (500, false),
        (413, false),
    ] {
        let first = json!({"status": status, "message": "no.", "headers": {"Retry-After": "2"}});
        let collector = Collector::start(&json!([first, {}]));
        let answer = served("").once(&[(ENDPOINT, &collector.endpoint())]);
        let requests = collector.wait_for_requests(1 + usize::from(is_repeated));
        assert_eq!(requests.len(), 1 + usize::from(is_repeated), "{status}");
        if is_repeated {
            answer.ok();
            let at = |nth: usize| requests[nth]["at"].as_f64().unwrap();
            assert!(at(1) - at(0) >= 2.0, "{status}: {requests:?}");
        } else {
            assert_eq!(answer.code, 1, "{answer:?}");
            let says =
                format!("cannot push metrics to {}/v1/metrics: {status} ", collector.endpoint());
            assert!(answer.err.contains(&says) && answer.err.ends_with(": no.\n"), "{answer:?}");
        }
    }
}

#[test]
fn a_push_goes_on_after_a_refused_request() {
    let refused = json!({"status": 400, "message": "no"});
    let partly = json!({"rejected": 3, "message": "too\nold"});
    let collector =
        Collector::start(&json!([refused, refused, refused, partly, {"status": 503}, {}]));
    let served = served(&format!(
        "[otlp]\nendpoint = '{}/base'\ninterval = '300ms'\n",
        collector.endpoint()
    ));
    let log = fs::File::create(served.place.path("log")).unwrap();
    let mut command = served.tool(&[], &[(ENDPOINT, "http://127.0.0.1:1")]);
    let mut child = command.stderr(log).spawn().unwrap();
    let requests = collector.wait_for_requests(7);
    let begin = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert!(requests.iter().all(|request| request["path"] == "/base/v1/metrics"), "{requests:?}");
    let log = fs::read_to_string(served.place.path("log")).unwrap();
    for says in ["400 Bad Request: no; the push is repeated", "rejected 3 points: too old", "503 "]
    {
        // Of what repeats there is one line an hour.
        assert_eq!(log.matches(says).count(), 1, "{says}: {log}");
    }
}

#[test]
fn a_collector_that_does_not_answer_is_named() {
    let collector = Collector::start(&json!([{}]));
    let port = collector.port;
    drop(collector);
    let served = served("");
    let endpoint = format!("http://127.0.0.1:{port}");
    let answer = served.once(&[(ENDPOINT, &endpoint)]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.err.contains("Connection refused") && answer.err.lines().count() == 1,
        "{answer:?}"
    );
    // Nobody serves metrics.
    let absent = Served::new(Vec::new(), "");
    fs::write(absent.place.path("agent.toml"), "[metrics]\nlisten = 'unix:/nonexistent/a.sock'\n")
        .unwrap();
    let answer = absent.once(&[(ENDPOINT, &endpoint)]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.err.contains("the agent from unix:/nonexistent/a.sock: No such file"),
        "{answer:?}"
    );
}

#[test]
fn headers_are_sent_and_never_shown() {
    let secret = "c2VjcmV0LXZhbHVl";
    let unauthorized = json!({"status": 401, "message": "what is ECHO?"});
    let collector = Collector::start(&json!([{}, unauthorized]));
    let served = served("");
    let headers = format!("Authorization=Bearer%20{secret},X-Tenant=a%3Db");
    let endpoint = format!("{}/custom?api-key={secret}", collector.endpoint());
    let variables = [
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint.as_str()),
        (ENDPOINT, "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("UNCORE_TRACE_LOG", "trace"),
    ];
    let taken = served.once(&variables);
    let refused = served.once(&variables);
    let requests = collector.wait_for_requests(2);
    assert_eq!(requests[0]["headers"]["authorization"], format!("Bearer {secret}"));
    assert_eq!(requests[0]["headers"]["x-tenant"], "a=b");
    assert_eq!(requests[0]["headers"]["content-encoding"], "gzip");
    assert!(
        requests[0]["size"].as_u64().unwrap() < metrics().encode_request("node-7").len() as u64 / 2
    );
    assert_eq!(requests[0]["path"], format!("/custom?api-key={secret}"));
    assert_eq!((taken.code, refused.code), (0, 1), "{taken:?} {refused:?}");
    assert!(
        refused.err.contains("what is Bearer [header]?; correct OTEL_EXPORTER_OTLP_HEADERS"),
        "{refused:?}"
    );
    for answer in [taken, refused] {
        assert!(!answer.err.contains(secret) && !answer.out.contains(secret), "{answer:?}");
    }
}

#[test]
fn no_answer_fills_the_memory_or_leads_elsewhere() {
    let endless: &[u8] = &[b'x'; 4096];
    let endless_server = Said::start("HTTP/1.1 400 Bad\r\n\r\n".to_owned(), endless);
    let answer = served("").once(&[(ENDPOINT, &endless_server.endpoint())]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.err.len() < 1000 && endless_server.sent() < 64 << 20, "{answer:?}");
    // A redirection, and a page of something that is no collector.
    let collector = Collector::start(&json!([{}]));
    let there = format!("HTTP/1.1 307 There\r\nLocation: {}/v1/metrics\r\n", collector.endpoint());
    let redirecting_server = Said::start(format!("{there}Content-Length: 0\r\n\r\n"), &[]);
    let answer = served("").once(&[(ENDPOINT, &redirecting_server.endpoint())]);
    assert!(answer.err.contains("redirections are not followed"), "{answer:?}");
    assert_eq!(collector.wait_for_requests(0).len(), 0);
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
    let page_server = Said::start(page.to_owned(), &[]);
    let answer = served("").once(&[(ENDPOINT, &page_server.endpoint())]);
    assert!(answer.err.contains("answers with text/html") && answer.code == 0, "{answer:?}");
    // It stalls.
    let stalls = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", stalls.local_addr().unwrap());
    let variables = [(ENDPOINT, address.as_str()), ("OTEL_EXPORTER_OTLP_TIMEOUT", "200")];
    let answer = served("").once(&variables);
    assert!(answer.err.contains("there is no answer in time") && answer.code == 1, "{answer:?}");
}

#[test]
fn a_certificate_of_the_environment_is_trusted() {
    let served = served("");
    let (certificate, key) = (served.place.path("certificate.pem"), served.place.path("key.pem"));
    let mut certificate_maker = Command::new(python());
    certificate_maker.args(["-c", include_str!("certificate.py")]).args([&certificate, &key]);
    assert!(certificate_maker.status().unwrap().success());
    let collector = Collector::with_tls(&json!([{}]), &certificate, &key);
    let endpoint = format!("https://127.0.0.1:{}", collector.port);
    let trusts = ("OTEL_EXPORTER_OTLP_CERTIFICATE", certificate.to_str().unwrap());
    served.once(&[(ENDPOINT, &endpoint), trusts]).ok();
    let answer = served.once(&[(ENDPOINT, &endpoint)]);
    assert!(answer.err.contains("certificate") && answer.code == 1, "{answer:?}");
}

#[test]
fn impossible_settings_of_a_push_are_refused_in_one_line() {
    for (more, variable, value, says) in [
        ("", ENDPOINT, "127.0.0.1:4318", "write http://HOST:4318"),
        ("[otlp]\n", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf is supported"),
        ("[otlp]\nheaders = 'a=b'\n", "X", "", "taken from OTEL_EXPORTER_OTLP_HEADERS only"),
        ("", "OTEL_SDK_DISABLED", "true", "has no [upload]"),
    ] {
        for option in ["--once", "--check"] {
            let served = served(more);
            let mut command = served.tool(&[option], &[(variable, value)]);
            let line = Answer::of(command.output().unwrap()).refused();
            assert!(line.contains(says), "{more} {value}: {line}");
        }
    }
    let collector = Collector::start(&json!([{}]));
    let served = served("");
    let mut check = served.tool(&["--check"], &[(ENDPOINT, &collector.endpoint())]);
    assert!(Answer::of(check.output().unwrap()).ok().contains("no request was sent"));
    assert_eq!(collector.wait_for_requests(0).len(), 0);
}

/// An agent that records, until it is dropped.
struct Agent(Child);

impl Agent {
    fn start(place: &Place) -> Self {
        let program = Path::new(PROGRAM).with_file_name("uncore-trace");
        assert!(program.exists(), "run `cargo build -p uncore-trace` first");
        let mut command = Command::new(program);
        command.arg("agent").arg("--config").arg(place.path("agent.toml"));
        let log = fs::File::options().create(true).append(true).open(place.path("log")).unwrap();
        let agent = Self(command.stdin(Stdio::null()).stderr(log).spawn().unwrap());
        wait_until("a window", || page(place).contains("page-faults"));
        agent
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).ok();
        self.0.wait().ok();
    }
}

/// The page of the agent.
fn page(place: &Place) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = UnixStream::connect(place.path("run/agent.sock")) {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.read_to_string(&mut answer).unwrap();
    }
    answer.split_once("\r\n\r\n").map(|(_, page)| page.to_owned()).unwrap_or_default()
}

#[test]
fn a_collector_gets_the_metrics_of_an_agent_that_records() {
    if !has_root("the agent") {
        return;
    }
    let collector = Collector::start(&json!([{}]));
    let place = Place::new();
    let root = place.path("").display().to_string();
    let text = format!(
        "cluster = 'lab'\n[record]\ngroups = ['host']\n[rollup]\ndirectory = '{root}rollup'\nwindow = '1s'\n\
         [metrics]\nlisten = 'unix:{root}run/agent.sock'\n[otlp]\nendpoint = '{}'\n",
        collector.endpoint()
    );
    fs::write(place.path("agent.toml"), text).unwrap();
    // Only with a capability root connects to a socket in a directory of another user.
    fs::create_dir(place.path("run")).unwrap();
    fs::set_permissions(place.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
    chown(place.path("run"), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut starts = Vec::new();
    for _ in 0..2 {
        let _agent = Agent::start(&place);
        // The page is made again after each window: between two equal ones the request is the same.
        let (page, request) = wait_for("a page that stays the same during a push", || {
            let before = page(&place);
            let earlier_requests = collector.wait_for_requests(0).len();
            Answer::of(tool(&place, &["--once"], &[]).output().unwrap()).ok();
            (page(&place) == before).then(|| {
                let requests = collector.wait_for_requests(earlier_requests + 1);
                (before, requests.last().unwrap().clone())
            })
        });
        assert!(compared(&place, &page, &request) > 20, "{page}");
        let events = points(&request, "uncore_trace_event");
        let faults =
            events.iter().find(|point| point["attributes"]["event"] == "page-faults").unwrap();
        starts.push(faults["start"].as_u64().unwrap());
    }
    // The second agent counts from 0.
    assert!(starts[0] < starts[1], "{starts:?}");
}
