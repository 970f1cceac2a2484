//! What is answered to a request.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use rustix::process::geteuid;

use super::Shared;
use super::token::Token;
use crate::otlp;

/// Content type of the page of metrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is known of who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum Client {
    /// A process of this host, over a loopback address.
    Local,
    /// A process of any host.
    Remote,
    /// A process with this user id, over a Unix socket.
    Unix(Option<u32>),
}

pub(super) fn answer<B>(
    request: &Request<B>,
    client: Client,
    shared: &Shared,
) -> Response<Full<Bytes>> {
    // DNS rebinding: a foreign name that resolves to this address would make a foreign page
    // same-origin. No page reaches a Unix socket.
    if client == Client::Local && !is_loopback(request) {
        return text(StatusCode::FORBIDDEN, "ask for localhost or a loopback address\n");
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => page(shared.pages().map(|its| its.text), OPENMETRICS),
        (&Method::GET, "/otlp") => page(shared.pages().map(|its| its.otlp), otlp::MEDIA_TYPE),
        (&Method::POST, "/trigger") => trigger(request, client, shared),
        (_, "/metrics" | "/otlp") => text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
        (_, "/trigger") => text(StatusCode::METHOD_NOT_ALLOWED, "use POST\n"),
        (&Method::GET, "/") => text(StatusCode::OK, "GET /metrics\nGET /otlp\nPOST /trigger\n"),
        _ => text(StatusCode::NOT_FOUND, "there are /metrics, /otlp and /trigger\n"),
    }
}

/// The metrics in a format, unless they are old.
fn page(page: Option<Bytes>, kind: &'static str) -> Response<Full<Bytes>> {
    let Some(page) = page else {
        let says = "the last window is old: the recorder, the roll-up or the disk hangs\n";
        return text(StatusCode::SERVICE_UNAVAILABLE, says);
    };
    let mut response = Response::new(Full::new(page));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Requests that the ring is saved, unless the client may not, there is no ring, or `kept.pause` is
/// not over.
fn trigger<B>(request: &Request<B>, client: Client, shared: &Shared) -> Response<Full<Bytes>> {
    // A page of another site can post too, but a browser sends this header only if a preflight
    // request is granted.
    if !(is_owner(client) || has_token(request, shared)) {
        let says = "send Authorization: Bearer TOKEN with the token of metrics.token-file, ask as root over a \
                    Unix socket of metrics.listen, or send SIGUSR1\n";
        return text(StatusCode::FORBIDDEN, says);
    }
    if !shared.has_ring {
        let says = "there is no ring to save: add [ring] to the configuration\n";
        return text(StatusCode::CONFLICT, says);
    }
    let pause = shared.pause();
    if !pause.is_zero() {
        let says = "the ring was saved less than kept.pause ago: ask again later\n";
        let mut response = text(StatusCode::TOO_MANY_REQUESTS, says);
        response.headers_mut().insert(RETRY_AFTER, (pause.as_secs() + 1).into());
        return response;
    }
    shared.asked.keep.store(true, Ordering::Relaxed);
    text(StatusCode::ACCEPTED, "the newest time span of the ring will be saved\n")
}

/// Whether the client is root or the user of the agent, who may send signals to it too.
fn is_owner(client: Client) -> bool {
    matches!(client, Client::Unix(Some(uid)) if uid == 0 || uid == geteuid().as_raw())
}

fn has_token<B>(request: &Request<B>, shared: &Shared) -> bool {
    let sent = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let sent = sent.and_then(|value| value.strip_prefix(b"Bearer ")).map(<[u8]>::trim_ascii);
    shared.token.is_some_and(|token| sent.is_some_and(|sent| Token::of(sent) == token))
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
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
    use crate::agent::Asked;
    use crate::agent::http::Pages;
    use crate::config::Config;

    const TOKEN: &str = "0123456789abcdef";

    fn shared(more: &str) -> Shared {
        let config = format!("[metrics]\nlisten = '127.0.0.1:9762'\n{more}");
        let mut shared = Shared::new(Asked::default(), &Config::parse(&config).unwrap()).unwrap();
        shared.token = Some(Token::of(TOKEN.as_bytes()));
        shared.show(pages(), Duration::from_mins(1));
        shared
    }

    fn pages() -> Pages {
        Pages { text: "page".into(), otlp: "bytes".into() }
    }

    fn status(shared: &Shared, client: Client, ask: &str, headers: &[(&str, &str)]) -> u16 {
        let (method, path) = ask.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(&request.body(()).unwrap(), client, shared).status().as_u16()
    }

    /// The status of an answer to a request with the token.
    fn post(shared: &Shared, client: Client, host: &str) -> u16 {
        let token = format!("Bearer {TOKEN}");
        status(shared, client, "POST /trigger", &[("host", host), ("authorization", &token)])
    }

    fn was_asked(shared: &Shared) -> bool {
        shared.asked.keep.swap(false, Ordering::Relaxed)
    }

    #[test]
    fn what_is_not_there_is_said() {
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
            ("DELETE /", 404),
        ] {
            let found = status(&shared, Client::Local, ask, &[("host", "localhost")]);
            assert_eq!(found, expected, "{ask}");
        }
        assert!(!was_asked(&shared));
    }

    #[test]
    fn a_page_that_nothing_replaces_is_no_answer() {
        let shared = shared("");
        let ask =
            || ["GET /metrics", "GET /otlp"].map(|ask| status(&shared, Client::Remote, ask, &[]));
        assert_eq!(ask(), [200; 2]);
        shared.show(pages(), Duration::ZERO);
        assert_eq!(ask(), [503; 2]);
        shared.show(pages(), Duration::from_mins(1));
        assert_eq!(ask(), [200; 2]);
    }

    #[test]
    fn the_ring_is_promised_only_where_it_will_be_kept() {
        let none = shared("");
        assert_eq!((post(&none, Client::Local, "localhost"), was_asked(&none)), (409, false));
        let shared = shared("[ring]\n");
        let ask = || (post(&shared, Client::Local, "localhost"), was_asked(&shared));
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
            assert_eq!(post(&shared, Client::Local, host), 202, "{host}");
            let page = status(&shared, Client::Local, "GET /metrics", &[("host", host)]);
            assert_eq!(page, 200, "{host}");
        }
        was_asked(&shared);
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:9762", "", "[::2]"] {
            let asked = (post(&shared, Client::Local, host), was_asked(&shared));
            assert_eq!(asked, (403, false), "{host}");
            for ask in ["GET /metrics", "GET /otlp", "GET /"] {
                assert_eq!(status(&shared, Client::Local, ask, &[("host", host)]), 403, "{host}");
            }
        }
        assert_eq!(status(&shared, Client::Local, "GET /metrics", &[]), 403);
        assert_eq!(post(&shared, Client::Remote, "node-1:9762"), 202);
    }

    #[test]
    fn only_who_has_the_token_or_is_the_owner_triggers() {
        let mut shared = shared("[ring]\n");
        let own = geteuid().as_raw();
        for client in [Client::Unix(Some(0)), Client::Unix(Some(own))] {
            assert_eq!(status(&shared, client, "POST /trigger", &[]), 202, "{client:?}");
        }
        was_asked(&shared);
        let local = ("host", "localhost");
        for (client, headers) in [
            (Client::Unix(Some(own + 65534)), &[][..]),
            (Client::Unix(None), &[]),
            (Client::Local, &[local]),
            (Client::Local, &[local, ("x-uncore-trace", "1")]),
            (Client::Remote, &[local, ("authorization", "Bearer 0123456789abcde")]),
            (Client::Remote, &[local, ("authorization", "Bearer ")]),
            (Client::Remote, &[local, ("authorization", TOKEN)]),
        ] {
            let found = status(&shared, client, "POST /trigger", headers);
            assert_eq!((found, was_asked(&shared)), (403, false), "{client:?} {headers:?}");
        }
        // Without a token nobody has it.
        shared.token = None;
        assert_eq!(post(&shared, Client::Local, "localhost"), 403);
    }
}
