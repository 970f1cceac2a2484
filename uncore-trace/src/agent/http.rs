//! What is answered over HTTP: `GET /metrics` and `POST /trigger`.
//!
//! Guarantees: one connection cannot keep others from an answer; a request that is not complete after
//! [`PATIENCE`] is dropped; at most [`MOST`] connections are open; what is sent is made by the thread that
//! sums, so that a request costs no more than a copy.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Asked;
use crate::confine::{self, Needs};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections that are open at once; more wait.
const MOST: usize = 16;

/// What a page of metrics is.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the thread that sums and the one that answers share.
#[derive(Debug)]
pub(super) struct Shared {
    page: Mutex<Bytes>,
    asked: Asked,
}

impl Shared {
    pub(super) fn new(asked: Asked) -> Self {
        Self { page: Mutex::default(), asked }
    }

    /// Replaces what `/metrics` says.
    pub(super) fn show(&self, page: String) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page.into();
    }

    fn page(&self) -> Bytes {
        self.page.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers in a thread of its own, for as long as the process lives.
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
                log::warn!("metrics are not answered any more: {error:#}");
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
            // Too many open files: others may close some.
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
            // Whoever asked has gone, or was too slow.
            timeout(PATIENCE, connection).await.ok();
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let text = |status, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            let mut response = Response::new(Full::new(shared.page()));
            if let Ok(kind) = OPENMETRICS.parse() {
                response.headers_mut().insert(CONTENT_TYPE, kind);
            }
            response
        }
        (&Method::POST, "/trigger") => {
            // A page in a browser can post too, but not with this header and without being asked first.
            if !request.headers().contains_key("x-uncore-trace") {
                return text(StatusCode::FORBIDDEN, "send the header X-Uncore-Trace: 1 with it\n");
            }
            shared.asked.keep.store(true, Ordering::Relaxed);
            text(StatusCode::ACCEPTED, "the last part of the ring will be kept\n")
        }
        (_, "/metrics") => text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
        (_, "/trigger") => text(StatusCode::METHOD_NOT_ALLOWED, "use POST\n"),
        (&Method::GET, "/") => text(StatusCode::OK, "GET /metrics\nPOST /trigger\n"),
        _ => text(StatusCode::NOT_FOUND, "there are /metrics and /trigger\n"),
    }
}
