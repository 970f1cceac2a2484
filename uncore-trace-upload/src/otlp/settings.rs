//! What is pushed where: the section `[otlp]` of the configuration and the environment.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Url};
use uncore_trace_recording::bounds;
use uncore_trace_recording::config::{Config, ListenAddress, OtlpConfig};

use super::environment::{Environment, parse_milliseconds, parse_pairs};

/// Where collectors listen.
const DEFAULT: &str = "http://localhost:4318";

/// The path of metrics below an endpoint for all signals.
const METRICS: &str = "/v1/metrics";

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two pushes.
const INTERVAL: Duration = Duration::from_mins(1);

/// Headers that belong to the request itself.
const REQUEST_HEADERS: [&str; 5] =
    ["content-encoding", "content-length", "content-type", "host", "transfer-encoding"];

/// The settings of a push.
#[derive(Debug)]
pub(crate) struct PushSettings {
    /// Where the agent serves its metrics.
    pub(super) agent: ListenAddress,
    /// Name of the cluster.
    pub(super) cluster: String,
    /// Address that requests are sent to.
    pub(super) endpoint: Url,
    /// Time between two pushes.
    pub(super) interval: Duration,
    /// Time limit of a request.
    pub(super) timeout: Duration,
    /// Headers of the user, whose values are marked as sensitive.
    pub(super) headers: HeaderMap,
    /// Whether requests are compressed with gzip.
    pub(super) compresses: bool,
    /// Certificates that are trusted; empty: those of the system.
    pub(super) certificates: Vec<Certificate>,
    /// Attributes of the resource.
    pub(super) attributes: Vec<(String, String)>,
}

impl PushSettings {
    /// The settings; `None` if nothing is to be pushed.
    ///
    /// # Errors
    ///
    /// A variable has a value that cannot be used.
    pub(crate) fn from_config(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let environment = Environment(variable);
        let endpoint = environment.exporter_variable("ENDPOINT");
        if environment.is_off() || config.otlp.is_none() && endpoint.is_none() {
            return Ok(None);
        }
        let OtlpConfig { endpoint: written, interval } = config.otlp.clone().unwrap_or_default();
        let listen = config.metrics.iter().flat_map(|metrics| &metrics.listen);
        // Over a Unix socket nobody else can answer.
        let agent = listen.min_by_key(|listen| matches!(listen, ListenAddress::Tcp(_)));
        let agent = agent.context(
            "cannot push metrics, because the agent serves none: add [metrics] with listen to the \
             configuration, or set OTEL_SDK_DISABLED=true",
        )?;
        only_protobuf(environment.exporter_variable("PROTOCOL"))?;
        let interval = match (interval, environment.get("OTEL_METRIC_EXPORT_INTERVAL")) {
            (Some(interval), _) => interval,
            (None, Some(text)) => parse_milliseconds("OTEL_METRIC_EXPORT_INTERVAL", &text)?,
            (None, None) => INTERVAL,
        };
        let timeout = environment.exporter_variable("TIMEOUT");
        let timeout = timeout.map(|(name, text)| parse_milliseconds(&name, &text)).transpose()?;
        let headers = environment.exporter_variable("HEADERS");
        let headers = headers.map(|(name, text)| headers_of(&name, &text)).transpose()?;
        let compresses = match environment.exporter_variable("COMPRESSION") {
            None => false,
            Some((_, text)) if text == "gzip" => true,
            Some((_, text)) if text == "none" => false,
            Some((name, text)) => bail!("{name} is {text:?}: write gzip or none"),
        };
        let certificate = environment.exporter_variable("CERTIFICATE");
        let certificates =
            certificate.map(|(name, path)| read_certificates(&name, Path::new(&path)));
        Ok(Some(Self {
            agent: agent.clone(),
            cluster: config.cluster.clone(),
            endpoint: match (written, endpoint) {
                (Some(text), _) => metrics_url("otlp.endpoint", &text)?,
                (None, Some((name, text))) if name.contains("_METRICS_") => {
                    parse_url(&name, &text)?
                }
                (None, Some((name, text))) => metrics_url(&name, &text)?,
                (None, None) => metrics_url("otlp.endpoint", DEFAULT)?,
            },
            interval,
            timeout: timeout.unwrap_or(TIMEOUT),
            headers: headers.unwrap_or_default(),
            compresses,
            certificates: certificates.transpose()?.unwrap_or_default(),
            attributes: resource_attributes(
                environment.get("OTEL_RESOURCE_ATTRIBUTES"),
                environment.get("OTEL_SERVICE_NAME"),
            ),
        }))
    }
}

fn only_protobuf(protocol: Option<(String, String)>) -> Result<()> {
    if let Some((name, protocol)) = protocol {
        ensure!(
            protocol == "http/protobuf",
            "{name} is {protocol:?}: only http/protobuf is supported, which collectors accept on \
             port 4318"
        );
    }
    Ok(())
}

/// An address of HTTP. An error has no value: it may be a secret.
fn parse_url(name: &str, text: &str) -> Result<Url> {
    let wrong = || anyhow!("{name} is not an address for OTLP over HTTP: write http://HOST:4318");
    let url = Url::parse(text).map_err(|_wrong| wrong())?;
    ensure!(matches!(url.scheme(), "http" | "https") && url.has_host(), wrong());
    ensure!(
        url.username().is_empty() && url.password().is_none(),
        "{name} has a user or a password: set OTEL_EXPORTER_OTLP_HEADERS instead"
    );
    Ok(url)
}

/// The address of metrics below one for all signals.
fn metrics_url(name: &str, text: &str) -> Result<Url> {
    let mut url = parse_url(name, text)?;
    let path = format!("{}{METRICS}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// Headers with values that no message shows.
fn headers_of(name: &str, text: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (index, (key, value)) in parse_pairs(name, text)?.into_iter().enumerate() {
        let nth = index + 1;
        let wrong = || anyhow!("part {nth} of {name} is not an HTTP header: write NAME=VALUE");
        let key: HeaderName = key.parse().map_err(|_wrong| wrong())?;
        ensure!(
            !REQUEST_HEADERS.contains(&key.as_str()),
            "{name} has {key}, which every request already has: leave it out"
        );
        let mut value: HeaderValue = value.parse().map_err(|_wrong| wrong())?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

fn read_certificates(name: &str, path: &Path) -> Result<Vec<Certificate>> {
    let shown = path.display();
    let pem = bounds::read_bytes(path, bounds::TEXT);
    let pem = pem.map_err(|error| anyhow!("cannot read {shown}, the value of {name}: {error}"))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => bail!("there is no certificate in {shown}, the value of {name}: write a PEM file"),
    }
}

/// Attributes of the resource. As the specification says, a list with a fault is left out as a
/// whole.
fn resource_attributes(list: Option<String>, service: Option<String>) -> Vec<(String, String)> {
    let list = list.map(|text| parse_pairs("OTEL_RESOURCE_ATTRIBUTES", &text));
    let list = list.transpose().unwrap_or_else(|error| {
        log::warn!("{error}; it is left out");
        None
    });
    // The last one counts.
    let service = service.map(|name| ("service.name".to_owned(), name));
    list.into_iter().flatten().chain(service).collect()
}

#[cfg(test)]
mod tests;
