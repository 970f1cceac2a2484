//! `[otlp]`: where metrics are pushed.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::value::TimeValue;

/// The shortest time between two pushes.
const SHORTEST: Duration = Duration::from_millis(100);

/// `[otlp]`: metrics for a collector of OpenTelemetry. A key that is not written is taken from the
/// environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpConfig {
    /// `http://HOST:PORT` or `https://HOST:PORT`, maybe with a path.
    pub endpoint: Option<String>,
    /// Time between two pushes.
    pub interval: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct OtlpFile {
    endpoint: Option<String>,
    interval: Option<TimeValue>,
}

impl OtlpFile {
    pub(super) fn into_checked(self) -> Result<OtlpConfig> {
        let Self { endpoint, interval } = self;
        if let Some(endpoint) = &endpoint {
            ensure!(
                endpoint.starts_with("http://") || endpoint.starts_with("https://"),
                "otlp.endpoint is not an address for OTLP over HTTP: write http://HOST:4318 or \
                 https://HOST:4318"
            );
            ensure!(
                !endpoint.contains(['@', '?', '#']),
                "otlp.endpoint holds more than an address: credentials are taken from \
                 OTEL_EXPORTER_OTLP_HEADERS only"
            );
        }
        let interval = interval.map(|time| time.0);
        ensure!(
            interval.is_none_or(|interval| interval >= SHORTEST),
            "otlp.interval is too short: choose at least 100ms"
        );
        Ok(OtlpConfig { endpoint, interval })
    }
}
