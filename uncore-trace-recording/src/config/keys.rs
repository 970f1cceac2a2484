//! All keys of the configuration, for errors that name the nearest one.

use anyhow::{Result, bail};
use toml::{Table, Value};

use super::value::describe_toml_error;
use crate::suggest::{did_you_mean, list_names};
use crate::text::printable;

/// The keys of each section; the first section is the top level.
pub(super) const KEYS: [(&str, &[&str]); 10] = [
    (
        "",
        &[
            "cluster", "record", "identity", "ring", "rollup", "metrics", "upload", "otlp",
            "trigger", "kept",
        ],
    ),
    (
        "record",
        &[
            "groups",
            "events",
            "metrics",
            "tick",
            "interval",
            "method",
            "cause",
            "cgroup-depth",
            "canary",
        ],
    ),
    ("identity", &["trusted"]),
    ("ring", &["directory", "part", "keep", "reserve", "mode"]),
    ("rollup", &["directory", "window", "owners", "keep", "mode"]),
    ("metrics", &["listen", "beyond-loopback", "mode", "token-file", "textfile", "owners"]),
    ("upload", &["url", "endpoint", "region", "queue", "every", "keep-local"]),
    ("otlp", &["endpoint", "interval"]),
    ("trigger", &["name", "when", "before", "after"]),
    ("kept", &["directory", "quota", "pause"]),
];

/// Names of keys that would hold credentials.
const SECRETS: [&str; 5] = ["key", "secret", "token", "password", "header"];

/// Checks that all keys of a text are known.
///
/// # Errors
///
/// The text is no TOML, or has an unknown key; the message names the nearest one.
pub(super) fn check_keys(text: &str) -> Result<()> {
    let table: Table = toml::from_str(text).map_err(|error| describe_toml_error(text, error))?;
    check_section("", &table)?;
    for (name, value) in &table {
        match value {
            Value::Table(section) => check_section(name, section)?,
            Value::Array(sections) => {
                sections
                    .iter()
                    .filter_map(Value::as_table)
                    .try_for_each(|entry| check_section(name, entry))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_section(section: &str, table: &Table) -> Result<()> {
    let Some((_, keys)) = KEYS.iter().find(|(name, _)| *name == section) else { return Ok(()) };
    let Some(unknown) = table.keys().find(|key| !keys.contains(&key.as_str())) else {
        return Ok(());
    };
    let lower = unknown.to_lowercase();
    let sources = match section {
        "upload" => Some("the environment or the instance"),
        "otlp" => Some("OTEL_EXPORTER_OTLP_HEADERS"),
        _ => None,
    };
    if let Some(sources) = sources.filter(|_| SECRETS.iter().any(|secret| lower.contains(secret))) {
        bail!(
            "{section}.{} is not a key of this file: credentials are taken from {sources} only",
            printable(unknown)
        );
    }
    let section_suffix =
        if section.is_empty() { String::new() } else { format!(" of [{section}]") };
    let near = did_you_mean(unknown, keys.iter());
    bail!(
        "{} is not a key{section_suffix}{near}; there are: {}",
        printable(unknown),
        list_names(keys.iter())
    )
}
