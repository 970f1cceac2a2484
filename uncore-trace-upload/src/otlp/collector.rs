//! Requests to the collector, and what its answers mean.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use prost::Message as _;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use uncore_trace_recording::bounds;
use uncore_trace_recording::otlp::{self, PartialSuccess, Status};

use super::agent::{innermost_cause, read_bounded};
use super::settings::PushSettings;
use crate::store::one_line;

/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest pause that a collector may ask for.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// What became of a request.
#[derive(Debug)]
pub(super) enum CollectorAnswer {
    /// It was taken; what the collector says about it.
    Taken(Option<String>),
    /// It was refused, and must not be repeated.
    Refused(String),
    /// It may be repeated after this time.
    Later(String, Duration),
}

/// A collector.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    url: Url,
    name: String,
    headers: HeaderMap,
    compresses: bool,
}

impl Collector {
    pub(super) fn new(settings: &PushSettings) -> Result<Self> {
        let mut builder = Client::builder()
            // A header with a secret must not reach another host.
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT.min(settings.timeout))
            .timeout(settings.timeout);
        if !settings.certificates.is_empty() {
            builder = builder.tls_certs_only(settings.certificates.clone());
        }
        let client = builder.build().context("cannot make an HTTP client")?;
        let mut headers = settings.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(otlp::MEDIA_TYPE));
        let agent = concat!("uncore-trace/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        if settings.compresses {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(Self {
            client,
            name: redacted_url(&settings.endpoint),
            url: settings.endpoint.clone(),
            headers,
            compresses: settings.compresses,
        })
    }

    /// The address, for messages.
    pub(super) fn display_address(&self) -> &str {
        &self.name
    }

    /// Sends a request.
    pub(super) async fn send(&self, request: &[u8]) -> CollectorAnswer {
        let body = match self.encode_body(request) {
            Ok(body) => body,
            Err(error) => {
                return CollectorAnswer::Refused(format!("cannot compress them: {error}"));
            }
        };
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        match request.send().await {
            Ok(answer) => self.interpret_answer(answer).await,
            Err(error) => CollectorAnswer::Later(innermost_cause(error), Duration::ZERO),
        }
    }

    fn encode_body(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        if !self.compresses {
            return Ok(request.to_owned());
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(request)?;
        encoder.finish()
    }

    async fn interpret_answer(&self, answer: Response) -> CollectorAnswer {
        let status = answer.status();
        let media_type = header_text(&answer, CONTENT_TYPE.as_str());
        let is_otlp =
            media_type.as_deref().is_some_and(|type_text| type_text.starts_with(otlp::MEDIA_TYPE));
        let pause = header_text(&answer, RETRY_AFTER.as_str());
        let pause = pause.and_then(|text| pause_of(&text, Timestamp::now())).unwrap_or_default();
        let body = match read_bounded(answer, bounds::ANSWER).await {
            Ok((body, _)) => body,
            // It has read the request, or it has not.
            Err(why) => return CollectorAnswer::Later(why, pause),
        };
        if status.is_success() {
            // Some collectors answer nothing.
            if body.is_empty() {
                return CollectorAnswer::Taken(None);
            }
            return match otlp::Response::decode(body.as_slice()) {
                Ok(response) if is_otlp => CollectorAnswer::Taken(
                    response.partial_success.and_then(|partial| self.describe_partial(&partial)),
                ),
                _ => {
                    let safe_type =
                        self.redact_headers(media_type.as_deref().unwrap_or("no media type"));
                    CollectorAnswer::Taken(Some(format!(
                        "answers with {safe_type}, which no collector does; check the endpoint"
                    )))
                }
            };
        }
        let text = match Status::decode(body.as_slice()) {
            Ok(status) if is_otlp => status.message,
            _ => String::from_utf8_lossy(&body).into_owned(),
        };
        let text = self.redact_headers(&text);
        let why = if text.is_empty() { status.to_string() } else { format!("{status}: {text}") };
        match status {
            // Specification of OTLP 1.10, "Retryable Response Codes".
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => CollectorAnswer::Later(why, pause),
            StatusCode::NOT_FOUND => CollectorAnswer::Refused(format!(
                "{why}; OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is used as it is, and /v1/metrics is \
                 added to other endpoints"
            )),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                CollectorAnswer::Refused(format!("{why}; correct OTEL_EXPORTER_OTLP_HEADERS"))
            }
            status if status.is_redirection() => CollectorAnswer::Refused(format!(
                "{why}; redirections are not followed, so correct the endpoint"
            )),
            _ => CollectorAnswer::Refused(why),
        }
    }

    /// What a collector says that has rejected points, or has a hint.
    fn describe_partial(&self, partial: &PartialSuccess) -> Option<String> {
        let PartialSuccess { rejected_data_points: rejected, error_message } = partial;
        let text = self.redact_headers(error_message);
        let detail = if text.is_empty() { String::new() } else { format!(": {text}") };
        match rejected {
            0 if text.is_empty() => None,
            0 => Some(format!("says{detail}")),
            rejected => Some(format!("rejected {rejected} points{detail}")),
        }
    }

    /// A text of the collector: one short line in which no value of a header is left.
    fn redact_headers(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in self.headers.values().filter(|value| value.is_sensitive()) {
            let Ok(value) = value.to_str() else { continue };
            // What follows `Bearer`, or else all of it.
            let credentials = value.split_once(' ').map(|(_, credentials)| credentials);
            let secrets = credentials.into_iter().chain([value]);
            for secret in secrets.filter(|candidate| candidate.len() >= 4) {
                text = text.replace(secret, "[header]");
            }
        }
        one_line(&text)
    }
}

/// The address without what may be a secret in it.
fn redacted_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn header_text(answer: &Response, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?;
    value.to_str().ok().map(|text| text.trim().to_owned())
}

/// A pause as `Retry-After` has it: seconds, or a date (RFC 9110, 10.2.3).
fn pause_of(text: &str, current_time: Timestamp) -> Option<Duration> {
    let pause = if let Ok(seconds) = text.parse() {
        Duration::from_secs(seconds)
    } else {
        let until = rfc2822::parse(text).ok()?.timestamp();
        Duration::try_from(until.duration_since(current_time)).unwrap_or_default()
    };
    Some(pause.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_a_date_and_never_long() {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        for (text, seconds) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("99999999999", Some(3600)),
            ("Sat, 28 Nov 2026 12:01:00 GMT", Some(60)),
            ("Sat, 28 Nov 2026 11:00:00 GMT", Some(0)),
            ("Sat, 28 Nov 2099 11:00:00 GMT", Some(3600)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(pause_of(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn the_address_of_a_collector_is_shown_without_secrets() {
        let url = Url::parse("https://collector:4318/v1/metrics?api-key=secret#x").unwrap();
        assert_eq!(redacted_url(&url), "https://collector:4318/v1/metrics");
    }
}
