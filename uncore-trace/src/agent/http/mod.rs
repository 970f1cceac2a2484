//! The HTTP server: `GET /metrics`, `GET /otlp`, `GET /debug/pprof/fabric` and `POST /trigger`.
//!
//! Guarantees: no client keeps others from an answer. The head of a request must be there after
//! [`HEAD`], and the answer must be taken after [`PATIENCE`], or if it is a profile, after the
//! longest time in which that is made. At most [`MOST`] connections of a socket are open: a further
//! one ends the oldest of that socket. The pages and profiles are made by the consumer thread, so a request for a page
//! costs no more than a copy of one.

mod answer;
mod listen;
mod profile;
mod token;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use self::answer::{Answer, HttpClient, answer_request};
use self::token::Token;
use super::PendingRequests;
use crate::config::Config;
use crate::confine::{self, ThreadNeeds};

pub(super) use self::listen::{Listener, open_listeners};

/// Time limit for the head of a request. It comes from the same host or network.
const HEAD: Duration = Duration::from_secs(1);

/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of connections of a socket that are open at once.
const MOST: usize = 64;

/// Largest head of a request, bytes.
const HEAD_BYTES: usize = 16 << 10;

/// The metrics, as two paths have them.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    /// `/metrics`: the OpenMetrics format.
    pub(super) text: Bytes,
    /// `/otlp`: the body of a request of OTLP, which `uncore-trace upload` sends.
    pub(super) otlp: Bytes,
}

/// Pages that are good for some time.
#[derive(Debug)]
struct DatedPages {
    pages: Pages,
    /// From this time on they are old: nothing replaced them.
    good_until: Instant,
}

/// State that the consumer thread and the HTTP thread share.
#[derive(Debug)]
pub(super) struct HttpState {
    /// `None` before the first.
    dated_pages: Mutex<Option<DatedPages>>,
    requests: PendingRequests,
    /// Whether there is a ring to save from.
    has_ring: bool,
    /// Requests to save the ring are refused until this time.
    refuse_until: Mutex<Option<Instant>>,
    /// What a request over TCP must show to save the ring.
    token: Option<Token>,
}

impl HttpState {
    /// # Errors
    ///
    /// The token cannot be read.
    pub(super) fn new(asked: PendingRequests, config: &Config) -> Result<Self> {
        let token = config.metrics.as_ref().and_then(|metrics| metrics.token.as_deref());
        Ok(Self {
            dated_pages: Mutex::default(),
            requests: asked,
            has_ring: config.ring.is_some(),
            refuse_until: Mutex::default(),
            token: token.map(Token::read).transpose()?,
        })
    }

    /// Replaces the metrics, which are good for this time.
    pub(super) fn replace_pages(&self, pages: Pages, good_for: Duration) {
        let shown_at = Instant::now();
        let page =
            DatedPages { pages, good_until: shown_at.checked_add(good_for).unwrap_or(shown_at) };
        *self.dated_pages.lock().unwrap_or_else(PoisonError::into_inner) = Some(page);
    }

    /// The metrics; `None` if they are old.
    fn current_pages(&self) -> Option<Pages> {
        let page = self.dated_pages.lock().unwrap_or_else(PoisonError::into_inner);
        let page = page.as_ref().filter(|page| Instant::now() < page.good_until)?;
        Some(page.pages.clone())
    }

    /// Refuses requests to save the ring until this time.
    pub(super) fn pause_until(&self, until: Option<Instant>) {
        *self.refuse_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// How long requests to save the ring are still refused.
    fn refusal_left(&self) -> Duration {
        let until = *self.refuse_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

/// Answers requests in a thread of its own until the process ends.
///
/// # Errors
///
/// The thread cannot be started.
pub(super) fn start_http_thread(listeners: Vec<Listener>, shared: Arc<HttpState>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start the event loop for metrics")?;
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            confine::restrict_thread(&ThreadNeeds::default());
            runtime.block_on(async move {
                let sockets = listeners
                    .into_iter()
                    .map(|listener| tokio::spawn(accept_connections(listener, shared.clone())));
                for socket in sockets.collect::<Vec<_>>() {
                    if let Ok(Err(error)) = socket.await {
                        log::warn!("requests for metrics cannot be answered: {error:#}");
                    }
                }
            });
        })
        .context("cannot start the thread that answers")?;
    Ok(())
}

/// Accepts the connections of a socket.
async fn accept_connections(listener: Listener, shared: Arc<HttpState>) -> Result<()> {
    let mut connections = OpenConnections::default();
    match listener {
        Listener::Tcp(listener, client) => {
            let listener = TcpListener::from_std(listener).context("cannot use the socket")?;
            loop {
                let accepted = listener.accept().await.map(|(stream, _)| (stream, client));
                connections.serve_accepted(accepted, &shared).await;
            }
        }
        Listener::Unix(listener) => {
            let listener = UnixListener::from_std(listener).context("cannot use the socket")?;
            loop {
                let accepted = listener.accept().await.map(|(stream, _)| {
                    let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                    (stream, HttpClient::Unix(uid))
                });
                connections.serve_accepted(accepted, &shared).await;
            }
        }
    }
}

/// The open connections of a socket, oldest first.
#[derive(Debug, Default)]
struct OpenConnections(VecDeque<AbortHandle>);

impl OpenConnections {
    /// Answers a client in a task of its own; ends the oldest connection if there are too many.
    async fn serve_accepted<S>(
        &mut self,
        accepted: io::Result<(S, HttpClient)>,
        shared: &Arc<HttpState>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok((stream, client)) = accepted else {
            // Too many open files: retry when others may have closed some.
            sleep(Duration::from_millis(100)).await;
            return;
        };
        self.0.retain(|connection| !connection.is_finished());
        if self.0.len() >= MOST
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(serve_connection(stream, client, shared.clone(), PATIENCE));
        self.0.push_back(connection.abort_handle());
        // It reads its request before the next client is accepted: many clients at once would end
        // it unanswered.
        tokio::task::yield_now().await;
    }
}

/// Answers a client. Ends the connection after this time, or if the client waits for a profile, after
/// the longest time in which that is made.
async fn serve_connection<S>(
    stream: S,
    client: HttpClient,
    shared: Arc<HttpState>,
    mut patience: Duration,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let waited_seconds = Arc::new(AtomicU64::new(0));
    let profile_seconds = Arc::clone(&waited_seconds);
    let service = service_fn(move |request| {
        let answer = answer_request(&request, client, &shared);
        if let Answer::Profile(profile) = &answer {
            profile_seconds.store(profile.longest_wait().as_secs(), Ordering::Relaxed);
        }
        async {
            Ok::<_, Infallible>(match answer {
                Answer::Ready(response) => response,
                Answer::Profile(profile) => profile.wait_for_response().await,
            })
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    server.max_buf_size(HEAD_BYTES);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    while timeout(patience, connection.as_mut()).await.is_err() {
        match waited_seconds.swap(0, Ordering::Relaxed) {
            // The client was too slow.
            0 => break,
            seconds => patience = Duration::from_secs(seconds),
        }
    }
}

#[cfg(test)]
mod tests;
