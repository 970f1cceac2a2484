//! The key-value metadata of a recording.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::args::RecordOptions;
use super::open_part::OpenPart;
use crate::assemble::Ledger;
use crate::bounds;
use crate::clock::Snapshot;
use crate::open::Timer;
use crate::plan::Plan;
use crate::schema::loss::LossCause;
use crate::schema::{SCHEMA_VERSION, metadata};

/// Resources that the recorder used.
#[derive(Debug, Serialize)]
struct RecorderUse {
    /// User and system time of all threads.
    cpu_ns: i64,
    /// Largest resident set size.
    max_rss_bytes: u64,
    /// What triggered the readings.
    timer: &'static str,
}

/// The metadata that are known before counting begins.
pub(super) fn at_start(
    options: &RecordOptions,
    plan: &Plan,
    clock: Snapshot,
) -> Result<BTreeMap<String, String>> {
    let host = uname();
    let boot_id =
        bounds::system_text(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    let pairs = [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::TOOL_VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        (metadata::HOST, host.nodename().to_string_lossy().into_owned()),
        (metadata::KERNEL, host.release().to_string_lossy().into_owned()),
        (metadata::BOOT_ID, boot_id.trim().to_owned()),
        (metadata::CLOCKS, to_json(&[clock])?),
        (metadata::INTERVAL_NS, options.interval.as_nanos().to_string()),
        (metadata::TICK_NS, options.tick.as_nanos().to_string()),
        (metadata::METHOD, options.method.name().to_owned()),
        (metadata::LAG_NS, options.lag.as_nanos().to_string()),
        (metadata::MIN_SHARE, options.min_share.to_string()),
        (metadata::ROWS_PER_S, options.row_limit.to_string()),
        (metadata::IO, options.io.to_string()),
        (metadata::PLAN, to_json(plan)?),
        (metadata::CATALOG, to_json(&options.catalog)?),
        (metadata::COMPLETE, "false".to_owned()),
    ];
    let mut pairs: BTreeMap<_, _> = pairs.map(|(key, value)| (key.to_owned(), value)).into();
    if let Some(cluster) = &options.cluster {
        pairs.insert(metadata::CLUSTER.to_owned(), cluster.clone());
    }
    if !options.no_cmdline {
        let typed = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
        pairs.insert(metadata::COMMAND_LINE.to_owned(), typed.collect::<Vec<_>>().join(" "));
    }
    Ok(pairs)
}

/// The metadata at the end: those of the start, and what is known now.
pub(super) fn at_end(open_part: &mut OpenPart, timer: Timer) -> Result<()> {
    let OpenPart { timeline, pairs, .. } = open_part;
    note_losses(pairs, &timeline.ledger)?;
    metadata::set_misfits(pairs, &timeline.misfits())?;
    let recorder_use = RecorderUse {
        cpu_ns: own_cpu_ns() - open_part.own_cpu_ns,
        max_rss_bytes: max_rss_bytes(),
        timer: timer.name(),
    };
    let mut set = |key: &str, value: String| pairs.insert(key.to_owned(), value);
    set(metadata::CLOCKS, to_json(&[open_part.clock, Snapshot::read_clocks()])?);
    set(metadata::CPU_TIME, to_json(&timeline.cpu_times())?);
    if let Some(tick) = timeline.stop_tick() {
        set(metadata::STOP_TICK, tick.to_string());
    }
    set(metadata::LIMITED_WINDOWS, timeline.limited_windows().to_string());
    set(metadata::OWN, to_json(&recorder_use)?);
    set(metadata::COMPLETE, timeline.ledger.loss_summary().is_complete().to_string());
    Ok(())
}

/// Adds the losses so far: at the end, and at each seal in case the recorder is killed.
pub(super) fn note_losses(pairs: &mut BTreeMap<String, String>, ledger: &Ledger) -> Result<()> {
    let by_name = |losses: &BTreeMap<LossCause, u64>| {
        let named: BTreeMap<_, _> = losses.iter().map(|(cause, n)| (cause.name(), *n)).collect();
        to_json(&named)
    };
    pairs.insert(metadata::LOSS.to_owned(), by_name(ledger.totals())?);
    pairs.insert(metadata::LOSS_FIRST.to_owned(), by_name(&ledger.first_begin_ns)?);
    Ok(())
}

fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).context("cannot write the recording's metadata as JSON")
}

/// User and system time of this process, ns.
pub fn own_cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Largest resident set size: `VmHWM` of /proc/self/status; 0 if procfs cannot be read.
fn max_rss_bytes() -> u64 {
    procfs::process::Process::myself()
        .and_then(|process| process.status())
        .ok()
        .and_then(|status| status.vmhwm)
        .map_or(0, |kib| kib * 1024)
}
