//! Values of keys: times and sizes with units; errors of one line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, ensure};
use serde::{Deserialize, Deserializer, de};

use crate::choice::MethodChoice;
use crate::suggest::list_names;
use crate::tables::mode::FileMode;
use crate::tables::series;
use crate::text::toml_error;
use crate::units::parse_duration;

/// Reads a time with its unit, e.g. `"10ms"`.
pub(super) fn deserialize_time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    if text.parse::<f64>().is_ok() {
        return Err(de::Error::custom(format!("write {text:?} with its unit: \"{text}s\"")));
    }
    parse_duration(&text, Duration::from_secs(1)).map_err(de::Error::custom)
}

/// As [`deserialize_time`], for a key that may be missing.
pub(super) fn deserialize_some_time<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    deserialize_time(from).map(Some)
}

/// Reads a size with its unit, e.g. `"2GiB"`, in bytes.
pub(super) fn deserialize_size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    series::parse_size(&String::deserialize(from)?).map_err(de::Error::custom)
}

/// As [`deserialize_size`], for a key that may be missing.
pub(super) fn deserialize_some_size<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    deserialize_size(from).map(Some)
}

/// A text, or a number without a unit as one: how many.
pub(super) fn deserialize_word<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "it is neither a number of parts nor a size such as \"20GiB\"")]
    enum TextOrNumber {
        Text(String),
        Number(u32),
    }
    Ok(match TextOrNumber::deserialize(deserializer)? {
        TextOrNumber::Text(text) => text,
        TextOrNumber::Number(number) => number.to_string(),
    })
}

/// Parses the name of a method.
pub(super) fn deserialize_choice<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<MethodChoice, D::Error> {
    let text = String::deserialize(deserializer)?;
    MethodChoice::from_name(&text).ok_or_else(|| {
        let names = MethodChoice::ALL.iter().map(|choice| choice.name());
        de::Error::custom(format!("{text:?} is not a method: choose {}", list_names(names)))
    })
}

/// The parser's error for `text`, with the number of the line.
pub(super) fn describe_toml_error(text: &str, error: toml::de::Error) -> Error {
    let (line, wrong) = toml_error(text, error);
    line.map_or_else(|| anyhow!("{wrong}"), |line| anyhow!("line {line}: {wrong}"))
}

/// Checks that a path is absolute.
pub(super) fn require_absolute(key: &str, path: PathBuf) -> Result<PathBuf> {
    ensure!(
        path.is_absolute(),
        "{key} is {}: write the path from /, because the agent has no working directory",
        path.display()
    );
    Ok(path)
}

/// Parses permissions.
pub(super) fn parse_mode(key: &str, text: &str) -> Result<FileMode> {
    text.parse().map_err(|error| anyhow!("{key}: {error}"))
}
