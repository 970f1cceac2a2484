//! The HTTP server: `GET /metrics` and `POST /trigger`.
//!
//! Guarantees: a connection cannot block the answers to others. A request that is not complete
//! after [`PATIENCE`] is dropped. At most [`MOST`] connections are open. The page is made by the
//! consumer thread, so a request costs no more than a copy of it.

use std::convert::Infallible;
use std::net::{IpAddr, TcpListener as StdListener};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Asked;
use crate::config::Config;
use crate::confine::{self, Needs};

/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of connections that are open at once; further ones wait.
const MOST: usize = 16;

/// Content type of the page of metrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// State that the consumer thread and the HTTP thread share.
#[derive(Debug)]
pub(super) struct Shared {
    page: Mutex<Bytes>,
    asked: Asked,
    /// Whether there is a ring to save from.
    has_ring: bool,
    /// Requests to save the ring are refused until this time.
    pause: Mutex<Option<Instant>>,
    /// Whether the socket is on a loopback address.
    is_local: bool,
}

impl Shared {
    pub(super) fn new(asked: Asked, config: &Config) -> Self {
        let listen = config.metrics.as_ref().and_then(|metrics| metrics.listen);
        Self {
            page: Mutex::default(),
            asked,
            has_ring: config.ring.is_some(),
            pause: Mutex::default(),
            is_local: listen.is_some_and(|address| address.ip().is_loopback()),
        }
    }

    /// Replaces the page of `/metrics`.
    pub(super) fn show(&self, page: String) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page.into();
    }

    fn page(&self) -> Bytes {
        self.page.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses requests to save the ring until this time.
    pub(super) fn pause_until(&self, until: Option<Instant>) {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// How long requests to save the ring are still refused.
    fn pause(&self) -> Duration {
        let until = *self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

/// Answers requests in a thread of its own until the process ends.
///
/// # Errors
///
/// The thread cannot be started.
pub(super) fn serve(listener: StdListener, shared: Arc<Shared>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start the event loop for metrics")?;
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            confine::thread(&Needs::default());
            if let Err(error) = runtime.block_on(accept(listener, shared)) {
                log::warn!("requests for metrics cannot be answered: {error:#}");
            }
        })
        .context("cannot start the thread that answers")?;
    Ok(())
}

async fn accept(listener: StdListener, shared: Arc<Shared>) -> Result<()> {
    let listener = TcpListener::from_std(listener).context("cannot use the socket")?;
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await.context("no room for a connection")?;
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files: retry when others may have closed some.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &shared);
                async { Ok::<_, Infallible>(answer) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
            let connection = server.serve_connection(TokioIo::new(stream), service);
            // The client has gone or was too slow.
            timeout(PATIENCE, connection).await.ok();
            drop(permit);
        });
    }
}

fn answer<B>(request: &Request<B>, shared: &Shared) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            let mut response = Response::new(Full::new(shared.page()));
            if let Ok(kind) = OPENMETRICS.parse() {
                response.headers_mut().insert(CONTENT_TYPE, kind);
            }
            response
        }
        (&Method::POST, "/trigger") => trigger(request, shared),
        (_, "/metrics") => text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
        (_, "/trigger") => text(StatusCode::METHOD_NOT_ALLOWED, "use POST\n"),
        (&Method::GET, "/") => text(StatusCode::OK, "GET /metrics\nPOST /trigger\n"),
        _ => text(StatusCode::NOT_FOUND, "there are /metrics and /trigger\n"),
    }
}

/// Requests that the ring is saved, unless there is no ring or `kept.pause` is not over.
fn trigger<B>(request: &Request<B>, shared: &Shared) -> Response<Full<Bytes>> {
    // CSRF: a page of another site can post too, but a browser sends this header only after a
    // preflight request.
    if !request.headers().contains_key("x-uncore-trace") {
        return text(StatusCode::FORBIDDEN, "send the header X-Uncore-Trace: 1 with it\n");
    }
    // DNS rebinding: a foreign name that resolves to this address would make a foreign page
    // same-origin.
    if shared.is_local && !is_loopback(request) {
        return text(StatusCode::FORBIDDEN, "ask for localhost or a loopback address\n");
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
    use super::*;

    const LISTEN: &str = "[metrics]\nlisten = '127.0.0.1:9762'\n";

    fn shared(more: &str) -> Shared {
        let config = Config::parse(&format!("{LISTEN}{more}")).unwrap();
        Shared::new(Asked::default(), &config)
    }

    /// The status of an answer to a POST with the header.
    fn post(shared: &Shared, host: &str) -> u16 {
        let request = Request::post("/trigger").header("x-uncore-trace", "1").header(HOST, host);
        answer(&request.body(()).unwrap(), shared).status().as_u16()
    }

    fn was_asked(shared: &Shared) -> bool {
        shared.asked.keep.swap(false, Ordering::Relaxed)
    }

    #[test]
    fn what_is_not_there_is_said() {
        let shared = shared("[ring]\n");
        for (method, path, status) in [
            ("GET", "/", 200),
            ("GET", "/metrics", 200),
            ("POST", "/metrics", 405),
            ("GET", "/trigger", 405),
            ("POST", "/trigger", 403),
            ("GET", "/metrics/x", 404),
            ("DELETE", "/", 404),
        ] {
            let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
            let found = answer(&request.body(()).unwrap(), &shared);
            assert_eq!(found.status().as_u16(), status, "{method} {path}");
        }
        assert!(!was_asked(&shared));
    }

    #[test]
    fn the_ring_is_promised_only_where_it_will_be_kept() {
        let none = shared("");
        assert_eq!((post(&none, "localhost"), was_asked(&none)), (409, false));
        let shared = shared("[ring]\n");
        assert_eq!((post(&shared, "localhost"), was_asked(&shared)), (202, true));
        shared.pause_until(Some(Instant::now() + Duration::from_mins(1)));
        assert_eq!((post(&shared, "localhost"), was_asked(&shared)), (429, false));
        shared.pause_until(Some(Instant::now()));
        assert_eq!((post(&shared, "localhost"), was_asked(&shared)), (202, true));
    }

    #[test]
    fn a_page_of_another_site_whose_name_leads_here_triggers_nothing() {
        let local = shared("[ring]\n");
        for host in ["localhost:9762", "127.0.0.1", "127.3.2.1:80", "[::1]:9762", "LOCALHOST"] {
            assert_eq!(post(&local, host), 202, "{host}");
        }
        was_asked(&local);
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:9762", "", "[::2]"] {
            assert_eq!((post(&local, host), was_asked(&local)), (403, false), "{host}");
        }
        let wide = "[metrics]\nlisten = '0.0.0.0:9762'\nbeyond-loopback = true\n[ring]\n";
        let wide = Shared::new(Asked::default(), &Config::parse(wide).unwrap());
        assert_eq!(post(&wide, "node-1:9762"), 202);
    }
}
