//! Keys of the metadata in every file of a recording, and their form in Parquet.
//!
//! Guarantee: only keys with [`PREFIX`] are used, so metadata that other tools add are ignored.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use parquet::file::metadata::KeyValue;
use serde::de::DeserializeOwned;

/// Prefix of every key.
pub const PREFIX: &str = "uncore_trace.";
/// Version of the tables' schema, [`super::SCHEMA_VERSION`].
pub const SCHEMA_VERSION: &str = "uncore_trace.schema_version";
/// Version of the table `rollup`, [`super::ROLLUP_VERSION`]; absent in files of other tables.
pub(crate) const ROLLUP_VERSION: &str = "uncore_trace.rollup_version";
/// Version of the program that recorded.
pub const TOOL_VERSION: &str = "uncore_trace.tool_version";
/// The command line; absent with `--no-cmdline`.
pub const COMMAND_LINE: &str = "uncore_trace.command_line";
/// Host name.
pub const HOST: &str = "uncore_trace.host";
/// Kernel release.
pub const KERNEL: &str = "uncore_trace.kernel";
/// `/proc/sys/kernel/random/boot_id`: monotonic times compare only within one boot.
pub const BOOT_ID: &str = "uncore_trace.boot_id";
/// Cluster of the host; absent if none was given.
pub const CLUSTER: &str = "uncore_trace.cluster";
/// JSON `[{"mono_ns":..,"wall_ns":..}]`: both clocks read together, at least at begin and end.
pub const CLOCKS: &str = "uncore_trace.clocks";
/// Length of a window, ns.
pub const INTERVAL_NS: &str = "uncore_trace.interval_ns";
/// Length of a tick, ns.
pub const TICK_NS: &str = "uncore_trace.tick_ns";
/// The last tick of the recording; absent if it was killed.
pub const STOP_TICK: &str = "uncore_trace.stop_tick";
/// The requested method: the value of `--method`.
pub const METHOD: &str = "uncore_trace.method";
/// The smallest share of a process, as a part of a window's total.
pub const MIN_SHARE: &str = "uncore_trace.min_share";
/// Most rows of `fabric` in a second, or `all`; absent in older recordings, which have all.
pub const ROWS_PER_S: &str = "uncore_trace.rows_per_s";
/// Number of windows in which only the owners with the largest shares have rows of `fabric`; absent
/// if the recording was killed, and in older recordings.
pub const LIMITED_WINDOWS: &str = "uncore_trace.limited_windows";
/// The lag in ns: how long windows of methods that learn wait for later ticks.
pub const LAG_NS: &str = "uncore_trace.lag_ns";
/// `true` if I/O of block and network devices was recorded.
pub const IO: &str = "uncore_trace.io";
/// JSON: every counter with its encoding.
pub const PLAN: &str = "uncore_trace.plan";
/// JSON list: catalog files that are not embedded in the program.
pub const CATALOG: &str = "uncore_trace.catalog";
/// JSON `{cause: count}`: loss totals.
pub const LOSS: &str = "uncore_trace.loss";
/// JSON `{cause: mono_ns}`: when the first loss of each cause began.
pub const LOSS_FIRST: &str = "uncore_trace.loss_first";
/// JSON, see [`super::marks::ListedMarks`]: the first marks; absent if there are none.
pub const MARKS: &str = "uncore_trace.marks";
/// JSON, see [`super::canary::CanarySummary`]: what the canary moved; absent without `--canary`.
pub const CANARY: &str = "uncore_trace.canary";
/// JSON list: what the counts say against the model by which they are divided, in plain words;
/// absent if they say nothing.
pub const MISFITS: &str = "uncore_trace.misfits";
/// JSON, one object per CPU: how its time is divided over the owners.
pub const CPU_TIME: &str = "uncore_trace.cpu_time";
/// JSON: resources that the recorder used, `{"cpu_ns":..,"max_rss_bytes":..}`.
pub const OWN: &str = "uncore_trace.own";
/// `true` if no count was lost and the recording ended normally.
pub const COMPLETE: &str = "uncore_trace.complete";
/// `true` in files that `uncore-trace repair` assembled; absent in others.
pub const REPAIRED: &str = "uncore_trace.repaired";
/// Number of segments that `uncore-trace repair` could not read and left out; absent if none.
pub const LEFT_OUT: &str = "uncore_trace.left_out";

/// In `fabric` of a dataset, JSON `{table: digest}`: the other tables that belong to the recording,
/// see [`crate::tables::manifest`].
pub const TABLES: &str = "uncore_trace.tables";
/// JSON list: the digest of each row group of the file, see [`crate::tables::digest`].
pub(crate) const ROW_GROUP_DIGESTS: &str = "uncore_trace.row_group_digests";
/// Digest of the file's footer, and thereby of the file, see [`crate::tables::digest`].
pub const DIGEST: &str = "uncore_trace.digest";

/// Checks that the metadata of `path` have the schema version of this program.
///
/// # Errors
///
/// The version differs; the error says which version of the program wrote the file.
pub(crate) fn require_version(path: &Path, pairs: &BTreeMap<String, String>) -> Result<()> {
    let path = path.display();
    let Some(version) = pairs.get(SCHEMA_VERSION) else {
        bail!("{path} is a Parquet file, but not one that uncore-trace recorded");
    };
    if *version != super::SCHEMA_VERSION.to_string() {
        let writer = pairs.get(TOOL_VERSION).map_or("of unknown version", String::as_str);
        bail!(
            "{path} has schema version {}, written by uncore-trace {}; this is uncore-trace {} \
             with schema version {}: record again with this version, or use the version that wrote \
             the file",
            version.escape_debug(),
            writer.escape_debug(),
            env!("CARGO_PKG_VERSION"),
            super::SCHEMA_VERSION
        );
    }
    Ok(())
}

/// The keys that describe one file, not the recording.
const OF_THE_FILE: [&str; 2] = [ROW_GROUP_DIGESTS, DIGEST];

/// The value of a key that is JSON; `None` without the key.
///
/// # Errors
///
/// The value is damaged.
pub fn parse_json<T: DeserializeOwned>(
    pairs: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<T>> {
    let parse = |text: &String| {
        serde_json::from_str(text).with_context(|| format!("the metadata {key} is damaged"))
    };
    pairs.get(key).map(parse).transpose()
}

/// The number of a key that all recordings have, at least `minimum`.
///
/// # Errors
///
/// The key is missing, or its value is no such number.
pub fn number<T: FromStr + PartialOrd + Copy>(
    pairs: &BTreeMap<String, String>,
    key: &str,
    minimum: T,
) -> Result<T> {
    let text = pairs.get(key).with_context(|| format!("the metadata has no {key}"))?;
    let number = text.parse().ok().filter(|number| *number >= minimum);
    number.with_context(|| format!("the metadata has no number for {key}"))
}

/// What the counts say against the model by which they are divided.
///
/// # Errors
///
/// The value is not a JSON list of texts.
pub fn misfits(pairs: &BTreeMap<String, String>) -> Result<Vec<String>> {
    Ok(parse_json(pairs, MISFITS)?.unwrap_or_default())
}

/// Sets what the counts say against the model by which they are divided.
///
/// # Errors
///
/// It cannot be written as JSON.
pub fn set_misfits(pairs: &mut BTreeMap<String, String>, misfits: &[String]) -> Result<()> {
    pairs.remove(MISFITS);
    if !misfits.is_empty() {
        pairs.insert(MISFITS.to_owned(), serde_json::to_string(misfits)?);
    }
    Ok(())
}

/// The pairs in the form of the Parquet writer.
pub(crate) fn to_key_values(pairs: &BTreeMap<String, String>) -> Vec<KeyValue> {
    pairs.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect()
}

/// The pairs with [`PREFIX`] in a file's metadata that describe the recording.
pub(crate) fn from_key_values(pairs: Option<&Vec<KeyValue>>) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .flatten()
        .filter(|pair| pair.key.starts_with(PREFIX) && !OF_THE_FILE.contains(&pair.key.as_str()))
        .map(|pair| (pair.key.clone(), pair.value.clone().unwrap_or_default()))
        .collect()
}
