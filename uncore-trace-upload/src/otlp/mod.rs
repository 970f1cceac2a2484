//! OTLP: pushes the metrics of the agent to a collector of OpenTelemetry.
//!
//! The agent has no network, so it serves its metrics as the body of a request at `/otlp` of its
//! own sockets; this process asks it for them, completes the resource, and sends them.
//!
//! Guarantees:
//! - Nothing is kept: counters are cumulative, so what a failed request lacked is in the next one.
//! - A request is repeated only after an answer or an error for which the specification of OTLP
//!   1.10 allows it, and then with the metrics of that time.
//! - A request ends after the timeout, and of an answer at most [`uncore_trace_recording::bounds::ANSWER`]
//!   bytes are read.
//! - No value of a header is in a message, not even if the collector returns it.

mod agent;
mod collector;
mod environment;
mod resource;
mod settings;

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;
use uncore_trace_recording::cli::repeated_warnings::RepeatedWarnings;
use uncore_trace_recording::config::ListenAddress;

use self::agent::AgentClient;
use self::collector::{Collector, CollectorAnswer};
pub(crate) use self::settings::PushSettings;
use crate::backoff::{Backoff, spread_wait};
use crate::store::install_tls;

/// Number of requests that `--once` tries.
const ATTEMPTS: u32 = 3;

/// The longest pause that `--once` waits for.
const LONGEST: Duration = Duration::from_mins(1);

/// A push of metrics.
#[derive(Debug)]
pub(crate) struct Push {
    settings: PushSettings,
    agent: AgentClient,
    collector: Collector,
    backoff: Backoff,
    /// A collector that is away for a night must not fill the log.
    repeats: RepeatedWarnings,
}

impl Push {
    /// Reads the certificates; makes no request.
    ///
    /// # Errors
    ///
    /// A certificate cannot be used.
    pub(crate) fn new(settings: PushSettings) -> Result<Self> {
        // No client can be made before, not even one without TLS.
        install_tls();
        let agent = AgentClient::new(&settings.agent)?;
        let collector = Collector::new(&settings)?;
        let backoff = Backoff::new(settings.interval);
        Ok(Self { settings, agent, collector, backoff, repeats: RepeatedWarnings::default() })
    }

    /// The address of the collector, for messages.
    pub(crate) fn display_address(&self) -> &str {
        self.collector.display_address()
    }

    /// The TCP ports of the collector and, without a Unix socket, of the agent.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let agent = match &self.settings.agent {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix(_) => None,
        };
        self.settings.endpoint.port_or_known_default().into_iter().chain(agent)
    }

    /// The agent's Unix socket, if it is asked over one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match &self.settings.agent {
            ListenAddress::Unix(path) => Some(path),
            ListenAddress::Tcp(_) => None,
        }
    }

    /// Pushes until the future is dropped.
    async fn run(&mut self) -> Infallible {
        loop {
            let wait = match self.send_metrics().await {
                Ok(()) => {
                    self.backoff.reset_wait();
                    spread_wait(self.settings.interval)
                }
                Err(PushFailure { why, retry }) => {
                    // What is refused for good is not sent again, but other values are later.
                    let wait = match retry {
                        Some(least_wait) => self.backoff.next_wait().max(least_wait),
                        None => spread_wait(self.settings.interval),
                    };
                    self.warn_unless_repeated(&format!(
                        "{why}; the push is repeated, and failures are logged once an hour"
                    ));
                    wait
                }
            };
            sleep(wait).await;
        }
    }

    /// Pushes once, in up to [`ATTEMPTS`] requests. An error is one line.
    pub(crate) async fn push_once(&mut self) -> Result<(), String> {
        let mut attempt = 1;
        loop {
            let Err(PushFailure { why, retry }) = self.send_metrics().await else { return Ok(()) };
            let retry = retry.filter(|least_wait| attempt < ATTEMPTS && *least_wait <= LONGEST);
            let Some(least_wait) = retry else { return Err(why) };
            sleep(self.backoff.next_wait().max(least_wait)).await;
            attempt += 1;
        }
    }

    /// Logs a warning, unless one like it was logged within the hour.
    fn warn_unless_repeated(&mut self, text: &str) {
        if let Some(line) = self.repeats.line_to_print(text, Instant::now()) {
            log::warn!("{line}");
        }
    }

    /// Sends what the agent serves now.
    async fn send_metrics(&mut self) -> Result<(), PushFailure> {
        let agent_address = self.agent.display_address();
        let at_once = Some(Duration::ZERO);
        let request = self.agent.fetch_metrics().await.map_err(|why| PushFailure {
            why: format!("cannot get the metrics of the agent from {agent_address}: {why}"),
            retry: at_once,
        })?;
        let request =
            resource::complete_request(request, &self.settings).map_err(|why| PushFailure {
                why: format!("cannot push the metrics of the agent from {agent_address}: {why}"),
                retry: None,
            })?;
        let collector_address = self.collector.display_address().to_owned();
        let push_failure = |why: String, retry| PushFailure {
            why: format!("cannot push metrics to {collector_address}: {why}"),
            retry,
        };
        match self.collector.send(&request).await {
            CollectorAnswer::Taken(None) => Ok(()),
            CollectorAnswer::Taken(Some(hint)) => {
                self.warn_unless_repeated(&format!(
                    "{collector_address} accepted the metrics, but {hint}"
                ));
                Ok(())
            }
            CollectorAnswer::Refused(why) => Err(push_failure(why, None)),
            CollectorAnswer::Later(why, least_wait) => Err(push_failure(why, Some(least_wait))),
        }
    }
}

/// Does some work, and pushes beside it until that ends.
pub(crate) async fn push_beside<T>(push: Option<&mut Push>, work: impl Future<Output = T>) -> T {
    let Some(push) = push else { return work.await };
    tokio::select! {
        done = work => done,
        never = push.run() => match never {},
    }
}

/// Why metrics were not pushed.
#[derive(Debug)]
struct PushFailure {
    why: String,
    /// The least wait before another attempt; `None` if the metrics are refused for good.
    retry: Option<Duration>,
}
