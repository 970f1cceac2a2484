//! Names of the key-value metadata every file of a recording carries, and their Parquet form.
//!
//! Guarantee: only keys with [`PREFIX`] are read as ours, so metadata other tools add is left out.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use parquet::file::metadata::KeyValue;

/// What every key begins with.
pub const PREFIX: &str = "uncore_trace.";
/// Version of the tables' schema, [`super::SCHEMA_VERSION`].
pub const SCHEMA_VERSION: &str = "uncore_trace.schema_version";
/// Version of the table `rollup`, [`super::ROLLUP_VERSION`]; absent in files of other tables.
pub const ROLLUP_VERSION: &str = "uncore_trace.rollup_version";
/// Version of the tool that recorded.
pub const TOOL_VERSION: &str = "uncore_trace.tool_version";
/// What was typed; absent where `--no-cmdline` was.
pub const COMMAND_LINE: &str = "uncore_trace.command_line";
/// Host name.
pub const HOST: &str = "uncore_trace.host";
/// Kernel release.
pub const KERNEL: &str = "uncore_trace.kernel";
/// `/proc/sys/kernel/random/boot_id`: monotonic times compare only within one boot.
pub const BOOT_ID: &str = "uncore_trace.boot_id";
/// Cluster the host is in; absent where none was named.
pub const CLUSTER: &str = "uncore_trace.cluster";
/// JSON `[{"mono_ns":..,"wall_ns":..}]`: both clocks read together, at least at begin and end.
pub const CLOCKS: &str = "uncore_trace.clocks";
/// Length of a window, ns.
pub const INTERVAL_NS: &str = "uncore_trace.interval_ns";
/// Length of a tick, ns.
pub const TICK_NS: &str = "uncore_trace.tick_ns";
/// The tick with which the recording ended; absent where it was killed.
pub const STOP_TICK: &str = "uncore_trace.stop_tick";
/// How counts were to be divided: what `--method` takes.
pub const METHOD: &str = "uncore_trace.method";
/// How long a window of a counter whose method learns waited for what came after it, ns.
pub const LAG_NS: &str = "uncore_trace.lag_ns";
/// `true` when what block and network devices move was recorded.
pub const IO: &str = "uncore_trace.io";
/// JSON: every counter with its encoding.
pub const PLAN: &str = "uncore_trace.plan";
/// JSON list: the files of the catalog that are not the tool's own.
pub const CATALOG: &str = "uncore_trace.catalog";
/// JSON `{cause: count}`: loss totals.
pub const LOSS: &str = "uncore_trace.loss";
/// JSON `{cause: mono_ns}`: when the first loss of each cause began.
pub const LOSS_FIRST: &str = "uncore_trace.loss_first";
/// JSON, see [`super::marks::Listed`]: the first marks; absent where there are none.
pub const MARKS: &str = "uncore_trace.marks";
/// JSON, one object per CPU: how its time divides over the owners.
pub const CPU_TIME: &str = "uncore_trace.cpu_time";
/// JSON: what the tool itself used, `{"cpu_ns":..,"max_rss_bytes":..}`.
pub const OWN: &str = "uncore_trace.own";
/// `true` when nothing was lost and the recording ended in order.
pub const COMPLETE: &str = "uncore_trace.complete";
/// `true` in files that `uncore-trace repair` assembled; absent in others.
pub const REPAIRED: &str = "uncore_trace.repaired";
/// How many segments `uncore-trace repair` could not read and left out; absent where there were none.
pub const LEFT_OUT: &str = "uncore_trace.left_out";

/// In `fabric` of a dataset, JSON `{table: digest}`: the other tables that belong to the recording,
/// see [`super::manifest`].
pub const TABLES: &str = "uncore_trace.tables";
/// JSON list: the digest of each row group of the file, see [`super::digest`].
pub const ROW_GROUP_DIGESTS: &str = "uncore_trace.row_group_digests";
/// Digest of the file's footer, and thereby of the file, see [`super::digest`].
pub const DIGEST: &str = "uncore_trace.digest";

/// That the metadata of `path` are of the schema that this version of the program has.
///
/// # Errors
///
/// They are of another; says which version of the program wrote it.
pub fn require_version(path: &Path, pairs: &BTreeMap<String, String>) -> Result<()> {
    let path = path.display();
    let Some(version) = pairs.get(SCHEMA_VERSION) else {
        bail!("{path} is a Parquet file, but not one that uncore-trace recorded");
    };
    if *version != super::SCHEMA_VERSION.to_string() {
        let writer = pairs.get(TOOL_VERSION).map_or("of unknown version", String::as_str);
        bail!(
            "{path} has schema version {}, written by uncore-trace {}; this is uncore-trace {} \
             with schema version {}: record again with this version, or use the one that wrote it",
            version.escape_debug(),
            writer.escape_debug(),
            env!("CARGO_PKG_VERSION"),
            super::SCHEMA_VERSION
        );
    }
    Ok(())
}

/// The keys that speak of one file, not of the recording.
const OF_THE_FILE: [&str; 2] = [ROW_GROUP_DIGESTS, DIGEST];

/// The pairs in the form the Parquet writer takes.
pub fn to_key_values(pairs: &BTreeMap<String, String>) -> Vec<KeyValue> {
    pairs.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect()
}

/// The pairs of ours in a file's key-value metadata that speak of the recording.
pub fn from_key_values(pairs: Option<&Vec<KeyValue>>) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .flatten()
        .filter(|pair| pair.key.starts_with(PREFIX) && !OF_THE_FILE.contains(&pair.key.as_str()))
        .map(|pair| (pair.key.clone(), pair.value.clone().unwrap_or_default()))
        .collect()
}
