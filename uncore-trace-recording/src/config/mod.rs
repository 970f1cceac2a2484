//! The configuration of the agent, a TOML file: what it records, keeps, publishes and sends. Each
//! section has a file.
//!
//! Guarantees: an unknown key is an error that names the nearest known one; every value is checked
//! before anything is opened, so a file is applied or refused as a whole; every error is one line
//! with the file's name and, if known, the line or key.

mod environment;
mod keys;
mod listen;
mod metrics;
mod otlp;
mod record;
mod ring;
mod rollup;
mod trigger;
mod upload;
mod value;

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;

use self::metrics::MetricsFile;
use self::ring::RingFile;
use self::rollup::RollupFile;
use crate::bounds;
use crate::tables::layout::encode_component;

pub use self::listen::ListenAddress;
pub use self::metrics::MetricsConfig;
pub use self::otlp::OtlpConfig;
pub use self::record::{IdentityConfig, RecordConfig};
pub use self::ring::RingConfig;
pub use self::rollup::{LONGEST_WINDOW, RollupConfig, SHORTEST_WINDOW};
pub use self::trigger::{KeptConfig, SpanAround, TriggerConfig};
pub use self::upload::UploadConfig;

/// Default path of the configuration.
pub const CONFIG_PATH: &str = "/etc/uncore-trace/agent.toml";

/// Longest name of a file or directory on common file systems, bytes.
const NAME_MAX: usize = 255;

/// Checks the name of a cluster, which becomes the name of a directory.
///
/// # Errors
///
/// It is empty, too long, or has a character that is not allowed.
pub fn cluster(name: &str) -> Result<String> {
    ensure!(!name.is_empty(), "cluster is empty: name it, or leave it out");
    ensure!(
        name.len() <= 128 && !name.chars().any(char::is_control),
        "cluster is not a valid name: write at most 128 bytes without control characters"
    );
    ensure!(
        "cluster=".len() + encode_component(name).len() <= NAME_MAX,
        "cluster is too long for the name of a directory, in which each byte beyond A-Z a-z 0-9 . \
         _ - is written as %XX: choose a shorter one"
    );
    Ok(name.to_owned())
}

/// The parsed configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Cluster the host is in.
    pub cluster: String,
    /// The counters, and how they are read and divided.
    pub record: RecordConfig,
    /// Whose names are believed.
    pub identity: IdentityConfig,
    /// Raw tables on the local disk; `None`: not kept.
    pub ring: Option<RingConfig>,
    /// `fabric` in longer windows; `None`: not made.
    pub rollup: Option<RollupConfig>,
    /// Metrics for Prometheus; `None`: not made.
    pub metrics: Option<MetricsConfig>,
    /// Where the files of closed hours are sent; `None`: nowhere.
    pub upload: Option<UploadConfig>,
    /// Where the metrics are pushed; `None`: nowhere, or where the environment says.
    pub otlp: Option<OtlpConfig>,
    /// Conditions for saving a time span of the ring.
    pub triggers: Vec<TriggerConfig>,
    /// Where saved recordings go, and their limit.
    pub kept: KeptConfig,
}

/// The file as written; missing keys have their defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct ConfigFile {
    cluster: Option<String>,
    record: RecordConfig,
    identity: IdentityConfig,
    ring: Option<RingFile>,
    rollup: Option<RollupFile>,
    metrics: Option<MetricsFile>,
    upload: Option<UploadConfig>,
    otlp: Option<OtlpConfig>,
    trigger: Vec<TriggerConfig>,
    kept: KeptConfig,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or a key or value is invalid.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = bounds::read_text(path, bounds::TEXT).map_err(|error| {
            anyhow!("cannot read the configuration {shown}: {error}; name another with --config")
        })?;
        let text = environment::expand_variables(&text, |name| std::env::var(name).ok());
        Self::parse(&text).with_context(|| shown.to_string())
    }

    /// Parses and checks a text.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn parse(text: &str) -> Result<Self> {
        keys::check_keys(text)?;
        let file: ConfigFile =
            toml::from_str(text).map_err(|error| value::describe_toml_error(text, error))?;
        let triggers = file.trigger.into_iter().map(TriggerConfig::into_checked);
        let config = Self {
            cluster: cluster(file.cluster.as_deref().unwrap_or("default"))?,
            ring: file.ring.map(RingFile::into_checked).transpose()?,
            rollup: file.rollup.map(|rollup| rollup.into_checked(&file.record)).transpose()?,
            record: file.record,
            identity: file.identity.into_checked()?,
            metrics: file.metrics.map(MetricsFile::into_checked).transpose()?,
            upload: file.upload.map(UploadConfig::into_checked).transpose()?,
            otlp: file.otlp.map(OtlpConfig::into_checked).transpose()?,
            triggers: triggers.collect::<Result<_>>()?,
            kept: file.kept.into_checked()?,
        };
        config.check_consistency()?;
        Ok(config)
    }

    /// Checks values that depend on each other.
    fn check_consistency(&self) -> Result<()> {
        if self.upload.is_some() {
            ensure!(self.rollup.is_some(), "[upload] sends roll-ups: add [rollup]");
        }
        if self.otlp.is_some() {
            ensure!(
                self.metrics.as_ref().is_some_and(|metrics| !metrics.listen.is_empty()),
                "[otlp] sends what the agent serves: add [metrics] with listen"
            );
        }
        if !self.triggers.is_empty() {
            ensure!(self.ring.is_some(), "[[trigger]] saves a part of the ring: add [ring]");
        }
        self.kept_is_apart()?;
        for (index, trigger) in self.triggers.iter().enumerate() {
            let time = trigger.span_around().length();
            ensure!(
                self.ring
                    .as_ref()
                    .and_then(RingConfig::longest_span)
                    .is_none_or(|longest| time <= longest),
                "trigger {}: before and after are longer than the ring: choose a larger ring.keep \
                 or ring.part",
                trigger.name
            );
            let is_repeated =
                self.triggers[..index].iter().any(|earlier| earlier.name == trigger.name);
            ensure!(!is_repeated, "trigger {}: there are two of this name", trigger.name);
        }
        Ok(())
    }

    /// Checks that saved recordings are not among files that others remove or read.
    fn kept_is_apart(&self) -> Result<()> {
        let Some(kept) = &self.kept.directory else { return Ok(()) };
        if let Some(RollupConfig { directory, .. }) = &self.rollup {
            ensure!(
                !kept.starts_with(directory) && !directory.starts_with(kept),
                "kept.directory and rollup.directory are the same, or one is inside the other: \
                 choose another"
            );
        }
        if let Some(RingConfig { directory, .. }) = &self.ring {
            ensure!(
                !directory.starts_with(kept),
                "kept.directory is the directory of the ring or one above it: choose another, \
                 such as {}",
                directory.join("kept").display()
            );
        }
        Ok(())
    }

    /// Triggers whose span the ring covers only sometimes: only when the current part is long
    /// enough.
    pub fn scarce_triggers(&self) -> impl Iterator<Item = &TriggerConfig> {
        let guaranteed = self.ring.as_ref().and_then(RingConfig::guaranteed_span);
        let is_scarce = move |trigger: &&TriggerConfig| {
            guaranteed
                .is_some_and(|guaranteed_time| trigger.span_around().length() > guaranteed_time)
        };
        self.triggers.iter().filter(is_scarce)
    }
}

#[cfg(test)]
mod tests;
