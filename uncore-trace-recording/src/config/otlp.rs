//! `[otlp]`: where metrics are pushed.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::value;

/// The shortest time between two pushes.
const SHORTEST: Duration = Duration::from_millis(100);

/// `[otlp]`: metrics for a collector of OpenTelemetry. A key that is not written is taken from the
/// environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct OtlpConfig {
    /// `http://HOST:PORT` or `https://HOST:PORT`, maybe with a path.
    pub endpoint: Option<String>,
    /// Time between two pushes.
    #[serde(deserialize_with = "value::deserialize_some_time")]
    pub interval: Option<Duration>,
}

impl OtlpConfig {
    pub(super) fn into_checked(self) -> Result<Self> {
        if let Some(endpoint) = &self.endpoint {
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
        ensure!(
            self.interval.is_none_or(|interval| interval >= SHORTEST),
            "otlp.interval is too short: choose at least 100ms"
        );
        Ok(self)
    }
}
