//! The variables of the environment that users of OpenTelemetry know.
//!
//! Names and meaning are those of the specification 1.55, "Environment Variable Specification" and
//! "OpenTelemetry Protocol Exporter". A variable that is set to nothing is not set.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use percent_encoding::percent_decode_str;

/// Looks variables up.
pub(super) struct Environment<F>(pub(super) F);

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The name and the value of a variable of the exporter: that for metrics goes before that for
    /// all signals.
    pub(super) fn exporter_variable(&self, name: &str) -> Option<(String, String)> {
        ["OTEL_EXPORTER_OTLP_METRICS_", "OTEL_EXPORTER_OTLP_"].iter().find_map(|prefix| {
            let name = format!("{prefix}{name}");
            let value = self.get(&name)?;
            Some((name, value))
        })
    }

    /// Whether pushes are switched off.
    pub(super) fn is_off(&self) -> bool {
        let has_value = |name: &str, wanted: &str| {
            self.get(name).is_some_and(|value| value.eq_ignore_ascii_case(wanted))
        };
        has_value("OTEL_SDK_DISABLED", "true") || has_value("OTEL_METRICS_EXPORTER", "none")
    }
}

/// A number of milliseconds that is not 0.
pub(super) fn parse_milliseconds(name: &str, value: &str) -> Result<Duration> {
    match u64::from_str(value) {
        Ok(ms @ 1..) => Ok(Duration::from_millis(ms)),
        _ => bail!("{name} is not a number of milliseconds: write 10000 for ten seconds"),
    }
}

/// A list `NAME=VALUE,NAME=VALUE` whose values have percent encoding. An error says nothing of
/// what is in it: it may be a secret.
pub(super) fn parse_pairs(name: &str, value: &str) -> Result<Vec<(String, String)>> {
    let items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pair = |(index, item): (usize, &str)| {
        let wrong = || {
            let nth = index + 1;
            anyhow!(
                "part {nth} of {name} is wrong: write NAME=VALUE,NAME=VALUE with %XX for bytes \
                     that a header or a list cannot have"
            )
        };
        let (key, value) = item.split_once('=').ok_or_else(wrong)?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_not_utf8| wrong())?;
        let key = key.trim();
        if key.is_empty() {
            return Err(wrong());
        }
        Ok((key.to_owned(), value.into_owned()))
    };
    items.enumerate().map(pair).collect()
}
