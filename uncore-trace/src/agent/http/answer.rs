//! What is answered to a request.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use rustix::process::geteuid;

use super::HttpState;
use super::profile::{PROFILE_PATH, ProfileWait, request_profile};
use super::token::Token;
use crate::otlp;

/// Content type of the page of metrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where a client asks from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum HttpClient {
    /// A process of this host, over a loopback address.
    Local,
    /// A process of any host.
    Remote,
    /// A process with this user id, over a Unix socket.
    Unix(Option<u32>),
}

/// What answers a request.
#[derive(Debug)]
pub(super) enum Answer {
    Ready(Response<Full<Bytes>>),
    /// A profile, which is not there yet.
    Profile(ProfileWait),
}

pub(super) fn answer_request<B>(
    request: &Request<B>,
    client: HttpClient,
    shared: &HttpState,
) -> Answer {
    let is_profile = request.method() == Method::GET && request.uri().path() == PROFILE_PATH;
    match refuse_foreign(request, client) {
        Some(refusal) => Answer::Ready(refusal),
        None if is_profile && is_of_other_site(request) => {
            let message = "a page of another site may not collect profiles\n";
            Answer::Ready(text_response(StatusCode::FORBIDDEN, message))
        }
        None if is_profile => request_profile(request.uri().query(), &shared.requests.profiles),
        None => Answer::Ready(ready_response(request, client, shared)),
    }
}

/// The refusal of a request from a foreign page.
fn refuse_foreign<B>(request: &Request<B>, client: HttpClient) -> Option<Response<Full<Bytes>>> {
    // DNS rebinding: a foreign name that resolves to this address would make a foreign page
    // same-origin. No page reaches a Unix socket.
    let is_foreign = client == HttpClient::Local && !is_loopback(request);
    let message = "send the request to localhost or a loopback address\n";
    is_foreign.then(|| text_response(StatusCode::FORBIDDEN, message))
}

/// Whether a page of another site or port made a browser send the request. Such a page cannot read
/// the answer, but it could hold all profiles that are collected at once. Over plain HTTP, browsers
/// send the header to loopback addresses only; Prometheus, Parca and `go tool pprof` never do.
fn is_of_other_site<B>(request: &Request<B>) -> bool {
    let site = request.headers().get("sec-fetch-site");
    site.is_some_and(|site| site == "cross-site" || site == "same-site")
}

fn ready_response<B>(
    request: &Request<B>,
    client: HttpClient,
    shared: &HttpState,
) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            metrics_response(shared.current_pages().map(|pages| pages.text), OPENMETRICS)
        }
        (&Method::GET, "/otlp") => {
            metrics_response(shared.current_pages().map(|pages| pages.otlp), otlp::MEDIA_TYPE)
        }
        (&Method::POST, "/trigger") => request_keep(request, client, shared),
        (_, "/metrics" | "/otlp" | PROFILE_PATH) => {
            text_response(StatusCode::METHOD_NOT_ALLOWED, "use GET\n")
        }
        (_, "/trigger") => text_response(StatusCode::METHOD_NOT_ALLOWED, "use POST\n"),
        (&Method::GET, "/") => text_response(
            StatusCode::OK,
            "GET /metrics\nGET /otlp\nGET /debug/pprof/fabric?seconds=10\nPOST /trigger\n",
        ),
        _ => {
            let message = "unknown path: use /metrics, /otlp, /debug/pprof/fabric or /trigger\n";
            text_response(StatusCode::NOT_FOUND, message)
        }
    }
}

/// The metrics in a format, unless they are old.
fn metrics_response(page: Option<Bytes>, media_type: &'static str) -> Response<Full<Bytes>> {
    let Some(page) = page else {
        let message = "the last window is old: the recorder, the roll-up or the disk hangs\n";
        return text_response(StatusCode::SERVICE_UNAVAILABLE, message);
    };
    let mut response = Response::new(Full::new(page));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Requests that the ring is saved, unless the client may not, there is no ring, or `kept.pause` is
/// not over.
fn request_keep<B>(
    request: &Request<B>,
    client: HttpClient,
    shared: &HttpState,
) -> Response<Full<Bytes>> {
    // A page of another site can post too, but a browser sends this header only if a preflight
    // request is granted.
    if !(is_owner(client) || has_token(request, shared)) {
        let message = "send Authorization: Bearer TOKEN with the token of metrics.token-file, send \
                       the request as root over a Unix socket of metrics.listen, or send SIGUSR1\n";
        return text_response(StatusCode::FORBIDDEN, message);
    }
    if !shared.has_ring {
        let message = "there is no ring to save: add [ring] to the configuration\n";
        return text_response(StatusCode::CONFLICT, message);
    }
    let pause = shared.refusal_left();
    if !pause.is_zero() {
        let message = "the ring was saved less than kept.pause ago: try again later\n";
        let mut response = text_response(StatusCode::TOO_MANY_REQUESTS, message);
        response.headers_mut().insert(RETRY_AFTER, (pause.as_secs() + 1).into());
        return response;
    }
    shared.requests.keep.store(true, Ordering::Relaxed);
    text_response(StatusCode::ACCEPTED, "the newest time span of the ring will be saved\n")
}

/// Whether the client is root or the user of the agent, who may send signals to it too.
fn is_owner(client: HttpClient) -> bool {
    matches!(client, HttpClient::Unix(Some(uid)) if uid == 0 || uid == geteuid().as_raw())
}

fn has_token<B>(request: &Request<B>, shared: &HttpState) -> bool {
    let sent = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let sent = sent.and_then(|value| value.strip_prefix(b"Bearer ")).map(<[u8]>::trim_ascii);
    shared.token.is_some_and(|token| sent.is_some_and(|sent| Token::from_text(sent) == token))
}

pub(super) fn text_response(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// Whether the header `Host` is `localhost` or a loopback address. Names of other sites are
/// neither.
fn is_loopback<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else { return false };
    let host = host.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::agent::PendingRequests;
    use crate::agent::http::Pages;
    use crate::config::Config;

    const TOKEN: &str = "0123456789abcdef";

    fn shared(more: &str) -> HttpState {
        let config = format!("[metrics]\nlisten = '127.0.0.1:9762'\n{more}");
        let mut shared =
            HttpState::new(PendingRequests::default(), &Config::parse(&config).unwrap()).unwrap();
        shared.token = Some(Token::from_text(TOKEN.as_bytes()));
        shared.replace_pages(pages(), Duration::from_mins(1));
        shared
    }

    fn pages() -> Pages {
        Pages { text: "page".into(), otlp: "bytes".into() }
    }

    fn status(shared: &HttpState, client: HttpClient, ask: &str, headers: &[(&str, &str)]) -> u16 {
        let (method, path) = ask.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match answer_request(&request.body(()).unwrap(), client, shared) {
            Answer::Ready(response) => response.status().as_u16(),
            Answer::Profile(_) => 100,
        }
    }

    /// The status of an answer to a request with the token.
    fn post(shared: &HttpState, client: HttpClient, host: &str) -> u16 {
        let token = format!("Bearer {TOKEN}");
        status(shared, client, "POST /trigger", &[("host", host), ("authorization", &token)])
    }

    fn was_asked(shared: &HttpState) -> bool {
        shared.requests.keep.swap(false, Ordering::Relaxed)
    }

    #[test]
    fn unknown_paths_and_methods_are_refused() {
        let shared = shared("[ring]\n");
        for (ask, expected) in [
            ("GET /", 200),
            ("GET /metrics", 200),
            ("GET /otlp", 200),
            ("POST /metrics", 405),
            ("POST /otlp", 405),
            ("GET /trigger", 405),
            ("POST /trigger", 403),
            ("GET /metrics/x", 404),
            ("POST /debug/pprof/fabric", 405),
            ("GET /debug/pprof/profile", 404),
            ("DELETE /", 404),
        ] {
            let found = status(&shared, HttpClient::Local, ask, &[("host", "localhost")]);
            assert_eq!(found, expected, "{ask}");
        }
        assert!(!was_asked(&shared));
    }

    #[test]
    fn a_page_that_is_no_longer_updated_is_not_served() {
        let shared = shared("");
        let ask = || {
            ["GET /metrics", "GET /otlp"].map(|ask| status(&shared, HttpClient::Remote, ask, &[]))
        };
        assert_eq!(ask(), [200; 2]);
        shared.replace_pages(pages(), Duration::ZERO);
        assert_eq!(ask(), [503; 2]);
        shared.replace_pages(pages(), Duration::from_mins(1));
        assert_eq!(ask(), [200; 2]);
    }

    #[test]
    fn a_profile_has_a_bounded_time() {
        let shared = shared("");
        for (query, expected) in [
            ("", 100),
            ("?seconds=1", 100),
            ("?x=0&seconds=300", 100),
            ("?seconds=0", 400),
            ("?seconds=301", 400),
            ("?seconds=-1", 400),
            ("?seconds=1.5", 400),
            ("?seconds=", 400),
            ("?seconds=99999999999999999999", 400),
        ] {
            let ask = format!("GET /debug/pprof/fabric{query}");
            assert_eq!(status(&shared, HttpClient::Remote, &ask, &[]), expected, "{query}");
        }
        // Those are not collected yet.
        let ask = "GET /debug/pprof/fabric?seconds=1";
        assert_eq!(status(&shared, HttpClient::Remote, ask, &[]), 100);
        assert_eq!(status(&shared, HttpClient::Remote, ask, &[]), 429);
        assert_eq!(status(&shared, HttpClient::Local, ask, &[("host", "evil.example")]), 403);
    }

    #[test]
    fn a_page_of_another_site_starts_no_profile() {
        let shared = shared("");
        let ask = "GET /debug/pprof/fabric";
        for (site, expected) in
            [("cross-site", 403), ("same-site", 403), ("same-origin", 100), ("none", 100)]
        {
            let headers = [("host", "localhost"), ("sec-fetch-site", site)];
            assert_eq!(status(&shared, HttpClient::Local, ask, &headers), expected, "{site}");
        }
    }

    #[test]
    fn the_ring_is_promised_only_where_it_will_be_kept() {
        let none = shared("");
        assert_eq!((post(&none, HttpClient::Local, "localhost"), was_asked(&none)), (409, false));
        let shared = shared("[ring]\n");
        let ask = || (post(&shared, HttpClient::Local, "localhost"), was_asked(&shared));
        assert_eq!(ask(), (202, true));
        shared.pause_until(Some(Instant::now() + Duration::from_mins(1)));
        assert_eq!(ask(), (429, false));
        shared.pause_until(Some(Instant::now()));
        assert_eq!(ask(), (202, true));
    }

    #[test]
    fn a_page_of_another_site_whose_name_leads_here_learns_and_triggers_nothing() {
        let shared = shared("[ring]\n");
        for host in ["localhost:9762", "127.0.0.1", "127.3.2.1:80", "[::1]:9762", "LOCALHOST"] {
            assert_eq!(post(&shared, HttpClient::Local, host), 202, "{host}");
            let page = status(&shared, HttpClient::Local, "GET /metrics", &[("host", host)]);
            assert_eq!(page, 200, "{host}");
        }
        was_asked(&shared);
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:9762", "", "[::2]"] {
            let asked = (post(&shared, HttpClient::Local, host), was_asked(&shared));
            assert_eq!(asked, (403, false), "{host}");
            for ask in ["GET /metrics", "GET /otlp", "GET /"] {
                assert_eq!(
                    status(&shared, HttpClient::Local, ask, &[("host", host)]),
                    403,
                    "{host}"
                );
            }
        }
        assert_eq!(status(&shared, HttpClient::Local, "GET /metrics", &[]), 403);
        assert_eq!(post(&shared, HttpClient::Remote, "node-1:9762"), 202);
    }

    #[test]
    fn only_the_owner_or_a_holder_of_the_token_triggers() {
        let mut shared = shared("[ring]\n");
        let own = geteuid().as_raw();
        for client in [HttpClient::Unix(Some(0)), HttpClient::Unix(Some(own))] {
            assert_eq!(status(&shared, client, "POST /trigger", &[]), 202, "{client:?}");
        }
        was_asked(&shared);
        let local = ("host", "localhost");
        for (client, headers) in [
            (HttpClient::Unix(Some(own + 65534)), &[][..]),
            (HttpClient::Unix(None), &[]),
            (HttpClient::Local, &[local]),
            (HttpClient::Local, &[local, ("x-uncore-trace", "1")]),
            (HttpClient::Remote, &[local, ("authorization", "Bearer 0123456789abcde")]),
            (HttpClient::Remote, &[local, ("authorization", "Bearer ")]),
            (HttpClient::Remote, &[local, ("authorization", TOKEN)]),
        ] {
            let found = status(&shared, client, "POST /trigger", headers);
            assert_eq!((found, was_asked(&shared)), (403, false), "{client:?} {headers:?}");
        }
        // Without a token nobody has it.
        shared.token = None;
        assert_eq!(post(&shared, HttpClient::Local, "localhost"), 403);
    }
}
