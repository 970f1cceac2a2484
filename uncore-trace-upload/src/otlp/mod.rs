//! OTLP: pushes the metrics of the agent to a collector of OpenTelemetry.
//!
//! The agent has no network, so it serves its metrics as the body of a request at `/otlp` of its own
//! sockets; this process asks it for them, completes the resource, and sends them.
//!
//! Guarantees:
//! - Nothing is kept: counters are cumulative, so what a failed request lacked is in the next one.
//! - A request is repeated only after an answer or an error for which the specification of OTLP 1.10
//!   allows it, and then with the metrics of that time.
//! - A request ends after the timeout, and of an answer at most [`uncore_trace::bounds::ANSWER`]
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
use uncore_trace::cmd::repeats::Repeats;
use uncore_trace::config::Listen;

use self::agent::Agent;
use self::collector::{Answer, Collector};
pub(crate) use self::settings::Settings;
use crate::backoff::{Backoff, spread};
use crate::store::install_tls;

/// Number of requests that `--once` tries.
const ATTEMPTS: u32 = 3;

/// The longest pause that `--once` waits for.
const LONGEST: Duration = Duration::from_mins(1);

/// A push of metrics.
#[derive(Debug)]
pub(crate) struct Push {
    settings: Settings,
    agent: Agent,
    collector: Collector,
    backoff: Backoff,
    /// A collector that is away for a night must not fill the log.
    repeats: Repeats,
}

impl Push {
    /// Reads the certificates; makes no request.
    ///
    /// # Errors
    ///
    /// A certificate cannot be used.
    pub(crate) fn new(settings: Settings) -> Result<Self> {
        // No client can be made before, not even one without TLS.
        install_tls();
        let agent = Agent::new(&settings.agent)?;
        let collector = Collector::new(&settings)?;
        let backoff = Backoff::new(settings.interval);
        Ok(Self { settings, agent, collector, backoff, repeats: Repeats::default() })
    }

    /// The address of the collector, for messages.
    pub(crate) fn name(&self) -> &str {
        self.collector.name()
    }

    /// The TCP ports of the collector and, without a Unix socket, of the agent.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let agent = match &self.settings.agent {
            Listen::Tcp(address) => Some(address.port()),
            Listen::Unix(_) => None,
        };
        self.settings.endpoint.port_or_known_default().into_iter().chain(agent)
    }

    /// The agent's Unix socket, if it is asked over one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match &self.settings.agent {
            Listen::Unix(path) => Some(path),
            Listen::Tcp(_) => None,
        }
    }

    /// Pushes until the future is dropped.
    async fn run(&mut self) -> Infallible {
        loop {
            let wait = match self.push().await {
                Ok(()) => {
                    self.backoff.succeeded();
                    spread(self.settings.interval)
                }
                Err(Failure { why, retry }) => {
                    // What is refused for good is not sent again, but other values are later.
                    let wait = match retry {
                        Some(least) => self.backoff.failed().max(least),
                        None => spread(self.settings.interval),
                    };
                    self.warn(&format!("{why}; it is tried again, and logged once an hour"));
                    wait
                }
            };
            sleep(wait).await;
        }
    }

    /// Pushes once, in up to [`ATTEMPTS`] requests. An error is one line.
    pub(crate) async fn once(&mut self) -> Result<(), String> {
        let mut attempt = 1;
        loop {
            let Err(Failure { why, retry }) = self.push().await else { return Ok(()) };
            let retry = retry.filter(|least| attempt < ATTEMPTS && *least <= LONGEST);
            let Some(least) = retry else { return Err(why) };
            sleep(self.backoff.failed().max(least)).await;
            attempt += 1;
        }
    }

    /// Logs a warning, unless one like it was logged within the hour.
    fn warn(&mut self, text: &str) {
        if let Some(line) = self.repeats.line(text, Instant::now()) {
            log::warn!("{line}");
        }
    }

    /// Sends what the agent serves now.
    async fn push(&mut self) -> Result<(), Failure> {
        let from = self.agent.name();
        let again = Some(Duration::ZERO);
        let request = self.agent.metrics().await.map_err(|why| Failure {
            why: format!("cannot get the metrics of the agent from {from}: {why}"),
            retry: again,
        })?;
        let request = resource::completed(request, &self.settings).map_err(|why| Failure {
            why: format!("cannot push the metrics of the agent from {from}: {why}"),
            retry: None,
        })?;
        let to = self.collector.name().to_owned();
        let fails = |why: String, retry| Failure {
            why: format!("cannot push metrics to {to}: {why}"),
            retry,
        };
        match self.collector.send(&request).await {
            Answer::Taken(None) => Ok(()),
            Answer::Taken(Some(says)) => {
                self.warn(&format!("{to} took the metrics, but {says}"));
                Ok(())
            }
            Answer::Refused(why) => Err(fails(why, None)),
            Answer::Later(why, least) => Err(fails(why, Some(least))),
        }
    }
}

/// Does some work, and pushes beside it until that ends.
pub(crate) async fn beside<T>(push: Option<&mut Push>, work: impl Future<Output = T>) -> T {
    let Some(push) = push else { return work.await };
    tokio::select! {
        done = work => done,
        never = push.run() => match never {},
    }
}

/// Why metrics were not pushed.
#[derive(Debug)]
struct Failure {
    why: String,
    /// The least wait before another attempt; `None` if the metrics are refused for good.
    retry: Option<Duration>,
}
