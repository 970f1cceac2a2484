//! The configuration of the agent, a TOML file: what it records, keeps, publishes and sends.
//!
//! Guarantees: an unknown key is an error that names the nearest known one; every value is checked
//! before anything is opened, so a file is applied or refused as a whole; every error is one line
//! with the file's name and, if known, the line or key.

mod environment;
mod keys;
mod listen;
mod otlp;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;

use self::otlp::OtlpFile;
use self::value::{SizeValue, TimeValue};

use crate::bounds;
use crate::choice::{DeclaredCause, MethodChoice, default_tick};
use crate::schema::rollup::LONGEST_WINDOW_NS;
use crate::tables::layout::encode_component;
use crate::tables::mode::FileMode;
use crate::tables::series::{Keep, Rotate};

pub use self::listen::ListenAddress;
pub use self::otlp::OtlpConfig;

/// Default path of the configuration.
pub const CONFIG_PATH: &str = "/etc/uncore-trace/agent.toml";

/// The shortest window of a roll-up.
pub const SHORTEST_WINDOW: Duration = Duration::from_secs(1);

/// The longest window of a roll-up.
pub const LONGEST_WINDOW: Duration = Duration::from_nanos(LONGEST_WINDOW_NS as u64);

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

/// `[record]`: the same as options of `uncore-trace record`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RecordConfig {
    /// Groups of events, as with `-p`. If `events` and `metrics` are empty too: all traffic, or
    /// `host` on a machine without counters of traffic.
    pub groups: Vec<String>,
    /// Events in perf's grammar, as with `-e`.
    pub events: Vec<String>,
    /// Metrics, as with `-M`.
    pub metrics: Vec<String>,
    /// Time between readings; 0: 1 ms, or the interval if that is shorter.
    #[serde(deserialize_with = "value::deserialize_time")]
    tick: Duration,
    /// Length of a window of `fabric`.
    #[serde(deserialize_with = "value::deserialize_time")]
    pub interval: Duration,
    /// Method of attribution, as with `--method`.
    #[serde(deserialize_with = "value::deserialize_choice")]
    pub method: MethodChoice,
    /// Who causes what counters of unknown cause count, as with `--cause`.
    pub cause: Option<DeclaredCause>,
    /// Deeper cgroups count towards their ancestor at this depth, as with `--cgroup-depth`.
    pub cgroup_depth: Option<usize>,
    /// Whether a canary runs, as with `--canary`.
    pub canary: bool,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            events: Vec::new(),
            metrics: Vec::new(),
            tick: Duration::ZERO,
            interval: Duration::from_millis(10),
            method: MethodChoice::Auto,
            cause: None,
            cgroup_depth: None,
            canary: false,
        }
    }
}

impl RecordConfig {
    /// Time between readings.
    pub fn tick_duration(&self) -> Duration {
        if self.tick.is_zero() { default_tick(self.interval) } else { self.tick }
    }
}

/// `[identity]`: whose names of containers, pods, virtual machines and jobs are believed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct IdentityConfig {
    /// Cgroups at and below which all names are believed, as with `--trust-cgroup`.
    pub trusted: Vec<String>,
}

impl IdentityConfig {
    fn into_checked(self) -> Result<Self> {
        for path in &self.trusted {
            ensure!(
                path.starts_with('/') && !path.starts_with("/sys/fs/"),
                "identity.trusted has {path:?}: write the path of a cgroup from the root of the \
                 hierarchy, such as /system.slice/ci.service"
            );
        }
        Ok(self)
    }
}

/// `[ring]`: the newest raw tables, in parts, as with `record --rotate --keep`.
#[derive(Debug, Clone, PartialEq)]
pub struct RingConfig {
    /// Directory of the parts.
    pub directory: PathBuf,
    /// Length or size of a part.
    pub part_limit: Rotate,
    /// Number or total size of the parts that are kept.
    pub keep: Keep,
    /// Bytes that stay free on its disk; `None`: a part of the disk.
    pub reserve: Option<u64>,
    /// Permissions of its files.
    pub mode: FileMode,
}

/// `[rollup]`: `fabric` in longer windows, one file per hour.
#[derive(Debug, Clone, PartialEq)]
pub struct RollupConfig {
    /// Directory above the partitions.
    pub directory: PathBuf,
    /// Length of a window.
    pub window: Duration,
    /// Cgroups with rows of their own, for each counter and window.
    pub owners: usize,
    /// Age at which the files of an hour are removed; `None`: never.
    pub keep: Option<Duration>,
    /// Permissions of its files.
    pub mode: FileMode,
}

/// `[metrics]`: metrics in the OpenMetrics format.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsConfig {
    /// Addresses of the HTTP server; empty: no server.
    pub listen: Vec<ListenAddress>,
    /// Permissions of Unix sockets.
    pub mode: FileMode,
    /// A file with the token of requests to save the ring; `None`: only the owner of the agent may
    /// ask for that, over a Unix socket.
    pub token: Option<PathBuf>,
    /// A file for the textfile collector of `node_exporter`; `None`: none.
    pub textfile: Option<PathBuf>,
    /// Number of owners of each link with series of their own.
    pub owners: usize,
}

/// `[upload]`: where the files of closed hours are sent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct UploadConfig {
    /// `s3://BUCKET/PREFIX` or `file:///DIR`.
    pub url: String,
    /// Address of a store that is not Amazon's; `None`: Amazon's.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: String,
    /// Most bytes that wait on the disk.
    #[serde(deserialize_with = "value::deserialize_size")]
    pub queue: u64,
    /// Interval between searches for closed hours.
    #[serde(deserialize_with = "value::deserialize_time")]
    pub every: Duration,
    /// Whether a file stays on the disk after the store has confirmed it.
    pub keep_local: bool,
}

/// `[[trigger]]`: a condition, and the time span that is saved when it comes true.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TriggerConfig {
    /// Name, used in names of directories.
    pub name: String,
    /// The condition; `None`: it serves requests by SIGUSR1 and `POST /trigger`.
    pub when: Option<String>,
    /// Time before the trigger that is saved.
    #[serde(rename = "before", default = "default_before")]
    #[serde(deserialize_with = "value::deserialize_time")]
    pub span_before: Duration,
    /// Time after the trigger that is saved.
    #[serde(rename = "after", default = "default_after")]
    #[serde(deserialize_with = "value::deserialize_time")]
    pub span_after: Duration,
}

/// Time around a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanAround {
    /// Before the moment.
    pub before: Duration,
    /// After it.
    pub after: Duration,
}

impl SpanAround {
    /// Both together.
    pub const fn length(self) -> Duration {
        self.before.saturating_add(self.after)
    }
}

/// `[kept]`: the recordings that triggers save.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct KeptConfig {
    /// Their directory; `None`: `kept/` in the directory of the ring.
    pub directory: Option<PathBuf>,
    /// Most bytes of the saved recordings of one trigger; the oldest is removed first.
    #[serde(deserialize_with = "value::deserialize_size")]
    pub quota: u64,
    /// Least time between two recordings of one trigger.
    #[serde(deserialize_with = "value::deserialize_time")]
    pub pause: Duration,
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
    otlp: Option<OtlpFile>,
    trigger: Vec<TriggerConfig>,
    kept: KeptConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct RingFile {
    directory: PathBuf,
    part: String,
    #[serde(deserialize_with = "value::deserialize_word")]
    keep: String,
    reserve: Option<SizeValue>,
    mode: String,
}

impl Default for RingFile {
    fn default() -> Self {
        Self {
            directory: "/var/lib/uncore-trace/ring".into(),
            part: "5min".to_owned(),
            keep: "20GiB".to_owned(),
            reserve: None,
            mode: FileMode::default().to_string(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct RollupFile {
    directory: PathBuf,
    window: TimeValue,
    owners: usize,
    keep: Option<TimeValue>,
    mode: String,
}

impl Default for RollupFile {
    fn default() -> Self {
        Self {
            directory: "/var/lib/uncore-trace/rollup".into(),
            window: TimeValue(Duration::from_secs(10)),
            owners: 100,
            keep: Some(TimeValue(Duration::from_hours(7 * 24))),
            mode: FileMode::default().to_string(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct MetricsFile {
    #[serde(deserialize_with = "listen::deserialize_addresses")]
    listen: Vec<ListenAddress>,
    beyond_loopback: bool,
    mode: String,
    token_file: Option<PathBuf>,
    textfile: Option<PathBuf>,
    owners: usize,
}

impl Default for MetricsFile {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            beyond_loopback: false,
            mode: "0660".to_owned(),
            token_file: None,
            textfile: None,
            owners: 20,
        }
    }
}

impl Default for UploadConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            endpoint: None,
            region: "us-east-1".to_owned(),
            queue: 2 << 30,
            every: Duration::from_secs(30),
            keep_local: true,
        }
    }
}

const fn default_before() -> Duration {
    Duration::from_secs(30)
}

const fn default_after() -> Duration {
    Duration::from_secs(5)
}

impl Default for KeptConfig {
    fn default() -> Self {
        Self { directory: None, quota: 5 << 30, pause: Duration::from_mins(10) }
    }
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
        let ConfigFile {
            cluster,
            record,
            identity,
            ring,
            rollup,
            metrics,
            upload,
            otlp,
            trigger,
            kept,
        } = file;
        let config = Self {
            cluster: self::cluster(cluster.as_deref().unwrap_or("default"))?,
            ring: ring.map(RingFile::into_checked).transpose()?,
            rollup: rollup.map(|rollup| rollup.into_checked(&record)).transpose()?,
            record,
            identity: identity.into_checked()?,
            metrics: metrics.map(MetricsFile::into_checked).transpose()?,
            upload: upload.map(UploadConfig::into_checked).transpose()?,
            otlp: otlp.map(OtlpFile::into_checked).transpose()?,
            triggers: trigger
                .into_iter()
                .map(TriggerConfig::into_checked)
                .collect::<Result<_>>()?,
            kept: kept.into_checked()?,
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

impl RingConfig {
    /// The longest time that the ring can cover; `None` if a part or the ring has a limit in bytes.
    fn longest_span(&self) -> Option<Duration> {
        match (self.part_limit, self.keep) {
            (Rotate::After(part_length), Keep::Parts(part_count)) => {
                Some(part_length.saturating_mul(part_count))
            }
            _ => None,
        }
    }

    /// The time that the ring always covers: a trigger ends the newest part, which may have begun
    /// just before. `None` as for [`Self::longest_span`].
    fn guaranteed_span(&self) -> Option<Duration> {
        match (self.part_limit, self.keep) {
            (Rotate::After(part_length), Keep::Parts(part_count)) => {
                Some(part_length.saturating_mul(part_count - 1))
            }
            _ => None,
        }
    }
}

impl RingFile {
    fn into_checked(self) -> Result<RingConfig> {
        let keep: Keep = self.keep.parse().map_err(|error| anyhow!("ring.keep: {error}"))?;
        let part_limit: Rotate =
            self.part.parse().map_err(|error| anyhow!("ring.part: {error}"))?;
        if let (Rotate::Bytes(part_bytes), Keep::Bytes(total_bytes)) = (part_limit, keep) {
            ensure!(
                total_bytes >= 4 * part_bytes,
                "ring.keep is smaller than four parts: choose at least four times ring.part"
            );
        }
        Ok(RingConfig {
            directory: require_absolute("ring.directory", self.directory)?,
            part_limit,
            keep,
            reserve: self.reserve.map(|size| size.0),
            mode: parse_mode("ring.mode", &self.mode)?,
        })
    }
}

impl RollupFile {
    fn into_checked(self, record: &RecordConfig) -> Result<RollupConfig> {
        let window = self.window.0;
        ensure!(
            (SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window),
            "rollup.window is out of range: choose 1s to 5min"
        );
        ensure!(
            window.as_nanos().is_multiple_of(record.interval.as_nanos().max(1)),
            "rollup.window is not a multiple of record.interval: choose a multiple"
        );
        ensure!(
            (1..=10_000).contains(&self.owners),
            "rollup.owners is out of range: choose 1 to 10000"
        );
        Ok(RollupConfig {
            directory: require_absolute("rollup.directory", self.directory)?,
            window,
            owners: self.owners,
            keep: self.keep.map(|keep| keep.0),
            mode: parse_mode("rollup.mode", &self.mode)?,
        })
    }
}

impl MetricsFile {
    fn into_checked(self) -> Result<MetricsConfig> {
        let Self { listen, beyond_loopback, textfile, owners, mode, token_file } = self;
        ensure!(
            !listen.is_empty() || textfile.is_some(),
            "[metrics] has neither listen nor textfile: add one of them"
        );
        ensure!(
            beyond_loopback || listen.iter().all(ListenAddress::is_local),
            "metrics.listen is not a loopback address: others could read the names of all \
             tenants; add beyond-loopback = true if they may"
        );
        ensure!((1..=1000).contains(&owners), "metrics.owners is out of range: choose 1 to 1000");
        let textfile =
            textfile.map(|path| require_absolute("metrics.textfile", path)).transpose()?;
        if let Some(path) = &textfile {
            let is_prom = path.extension().is_some_and(|extension| extension == "prom");
            ensure!(
                is_prom,
                "metrics.textfile must end with .prom: node_exporter reads no other \
                              files"
            );
        }
        Ok(MetricsConfig {
            listen,
            mode: parse_mode("metrics.mode", &mode)?,
            token: token_file
                .map(|path| require_absolute("metrics.token-file", path))
                .transpose()?,
            textfile,
            owners,
        })
    }
}

impl UploadConfig {
    fn into_checked(self) -> Result<Self> {
        let url = &self.url;
        ensure!(
            url.starts_with("s3://") || url.starts_with("file:///"),
            "upload.url is {url:?}: write s3://BUCKET/PREFIX or file:///DIRECTORY"
        );
        ensure!(
            !url.contains('@'),
            "upload.url holds a user or a key: credentials are taken from the environment or the \
             instance only"
        );
        ensure!(
            self.every >= Duration::from_millis(100),
            "upload.every is too short: choose at least 100ms"
        );
        Ok(self)
    }
}

impl TriggerConfig {
    /// How much time around the moment is saved.
    pub const fn span_around(&self) -> SpanAround {
        SpanAround { before: self.span_before, after: self.span_after }
    }

    fn into_checked(self) -> Result<Self> {
        let name = &self.name;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !name.is_empty()
                && name.len() <= 64
                && name.chars().all(is_name)
                && !name.starts_with('.'),
            "trigger name {name:?} is not a file name: use letters, digits, - and _"
        );
        for (key, time) in [("before", self.span_before), ("after", self.span_after)] {
            ensure!(
                time <= Duration::from_hours(1),
                "trigger {name}: {key} is too long: choose at most 1h"
            );
        }
        Ok(self)
    }
}

impl KeptConfig {
    fn into_checked(self) -> Result<Self> {
        let directory =
            self.directory.map(|path| require_absolute("kept.directory", path)).transpose()?;
        Ok(Self { directory, ..self })
    }
}

fn require_absolute(key: &str, path: PathBuf) -> Result<PathBuf> {
    ensure!(
        path.is_absolute(),
        "{key} is {}: write the path from /, because the agent has no working directory",
        path.display()
    );
    Ok(path)
}

fn parse_mode(key: &str, text: &str) -> Result<FileMode> {
    text.parse().map_err(|error| anyhow!("{key}: {error}"))
}

#[cfg(test)]
mod tests;
