//! `uncore-trace agent`: a continuous recording, with a ring, roll-ups, metrics and triggers.
//!
//! The recorder runs as it does for `record --rotate --keep`; its parts are the ring. It also sends
//! its rows ([`crate::tables::thread::Tap`]) to a second thread, the consumer. The consumer sums
//! them in longer windows ([`crate::view::rollup`]), writes a file for each hour, updates the
//! metrics, evaluates the triggers and collects profiles. A third thread answers HTTP on a socket
//! that was opened before the process was confined. The configuration is read again in a thread of
//! its own when a signal comes or another thread sees that its links lead elsewhere, and a last one
//! ends the process if it has not ended 10 s after a signal.
//!
//! Guarantees: one agent for each directory; the next agent finishes the files of a killed one; an
//! error of the disk ends neither the recording nor the metrics; memory is bounded by the limits of
//! [`crate::record`], [`crate::view::rollup`], [`metrics`] and [`profiles`].

mod ending;
mod figures;
mod http;
pub mod metrics;
mod notify;
mod pending_spans;
mod profiles;
mod reload;
mod ring_reserve;
#[cfg(test)]
mod sample;
mod saved_span;
mod tap_consumer;
pub mod trigger;
mod watchdog;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use anyhow::{Context as _, Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGUSR1};

use self::http::HttpState;
use self::notify::Notify;
use self::pending_spans::{SpanSaver, kept_directory};
use self::profiles::ProfileRequests;
pub use self::reload::ConfigPath;
use self::reload::Reload;
use self::ring_reserve::RingReserve;
use self::tap_consumer::{ConsumerContext, TapConsumer};
use self::trigger::Condition;
use self::watchdog::Pulse;
use crate::config::Config;
use crate::confine::{self, ThreadNeeds};
use crate::discover::Machine;
use crate::plan::Plan;
use crate::record::{self, RecordingOutcome};
use crate::schema::{TableDef, canary, fabric, readings, sums};
use crate::signals::{Signals, event_loop};
use crate::tables::lock::Lock;
use crate::tables::thread::Tap;
use crate::tables::writer::RecordingTarget;
use crate::tables::{hour_upkeep, hours, lock, output_path, series};
use crate::workload::Workload;

/// Batches of rows that may wait for the consumer. If it is full, the thread that writes tables
/// waits.
const WAITING: usize = 16;

/// Requests by signals and HTTP that are not served yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingRequests {
    /// SIGHUP, or links that lead to another file: read the configuration again.
    reload: Arc<AtomicBool>,
    /// SIGUSR1 or `POST /trigger`: save the newest time span of the ring.
    keep: Arc<AtomicBool>,
    /// `GET /debug/pprof/fabric`: collect the next seconds.
    profiles: ProfileRequests,
}

/// Records `plan` until a signal comes. `options` configure the recorder, `config` the ring, the
/// roll-up, the metrics and the triggers. Also returns what ring and roll-up lack, if that is
/// anything.
///
/// # Errors
///
/// Another agent uses a directory, an address is in use, or an error of [`record::record`].
pub fn run(
    machine: &Machine,
    plan: &Plan,
    config: &Config,
    config_path: &ConfigPath,
    mut options: record::RecordOptions,
) -> Result<(RecordingOutcome, Option<String>)> {
    // First, because the default action of these signals ends the process, and repairs may take
    // long.
    let asked = PendingRequests::default();
    let reload_request = Arc::clone(&asked.reload);
    set_flag_on_signal(SIGHUP, &reload_request)?;
    set_flag_on_signal(SIGUSR1, &asked.keep)?;
    let path = config_path.path.as_path();
    // Before anything is repaired: only the lock shows that no other agent is writing there.
    let _locks = lock_directories(config)?;
    if let Some(ring) = &config.ring {
        series::repair_parts(&ring.directory)?;
        saved_span::remove_unfinished(&ring.directory);
        saved_span::remove_unfinished(&kept_directory(&config.kept, ring));
    }
    if let Some(rollup) = &config.rollup {
        for file in hour_upkeep::repair_hours(&rollup.directory)? {
            log::info!("finished the hour {} that an earlier agent left", file.display());
        }
    }
    let parsed_conditions = parse_conditions(config, plan)?;
    let listeners = http::open_listeners(config)?;
    let shared = Arc::new(HttpState::new(asked.clone(), config)?);
    let (sender, tap_messages) = mpsc::sync_channel(WAITING);
    let mut tables: Vec<&'static TableDef> = vec![&fabric::TABLE, &sums::TABLE];
    if parsed_conditions.iter().any(Option::is_some) {
        tables.push(&readings::TABLE);
    }
    if options.canary {
        tables.push(&canary::TABLE);
    }
    options.tap = Some(Tap::new(sender, tables));
    let target = config
        .ring
        .as_ref()
        .map_or(RecordingTarget::Nowhere, |ring| RecordingTarget::Dataset(ring.directory.clone()));
    let runtime = event_loop()?;
    let control = || options.control.clone();
    let mut consumer = TapConsumer::new(ConsumerContext {
        config: config.clone(),
        reload: Reload::new(path.to_owned()),
        pulse: Pulse::new(control(), options.flush),
        room: config.ring.as_ref().map(|ring| RingReserve::new(ring, control())),
        wishes: SpanSaver::new(config, parsed_conditions, Arc::clone(&shared), control()),
        shared: Arc::clone(&shared),
        requests: asked,
        notify: Notify::from_environment(),
    });
    // Before the server starts, so that its first answer is a complete page.
    consumer.publish_metrics();
    let needs = consumer_needs(config, path);
    std::thread::scope(|scope| {
        // Before the recorder confines the process: a confined process can open no socket.
        if !listeners.is_empty() {
            http::start_http_thread(listeners, Arc::clone(&shared))?;
        }
        config_path.clone().start_watching(reload_request)?;
        let consumer_thread = std::thread::Builder::new()
            .name("rollup".to_owned())
            .spawn_scoped(scope, move || {
                confine::restrict_thread(&needs);
                consumer.run(&tap_messages)
            })
            .context("cannot start the thread that sums")?;
        let recorded = runtime.block_on(async {
            let (mut signals, mut workload) =
                (Signals::without_hangup()?, Workload::without_command());
            ending::within_ten_seconds()?;
            let record =
                record::record(target, machine, plan, &options, &mut workload, &mut signals);
            Box::pin(record).await
        });
        // Drops the sender of the tap, which ends the consumer thread.
        drop(options);
        let consumer_result = consumer_thread
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the thread that sums ended early")));
        // First: if the consumer failed, the recorder's error says only that nobody takes its rows.
        let rollup_gap = consumer_result?;
        Ok((recorded?, rollup_gap))
    })
}

/// Sets `flag` when the signal arrives.
fn set_flag_on_signal(signal: i32, flag: &Arc<AtomicBool>) -> Result<()> {
    signal_hook::flag::register(signal, Arc::clone(flag)).context("cannot handle signals")?;
    Ok(())
}

/// Creates each directory that is written, because Landlock permits writing only below existing
/// directories. Locks those that only one agent may use.
fn lock_directories(config: &Config) -> Result<Vec<Lock>> {
    let ring = config.ring.as_ref().map(|ring| (&ring.directory, ring.mode));
    let rollup = config.rollup.as_ref().map(|rollup| (&rollup.directory, rollup.mode));
    let mut locks = Vec::new();
    for (dir, mode) in ring.into_iter().chain(rollup) {
        output_path::refuse_link(dir)?;
        hours::make_directories(dir, mode)?;
        locks.push(lock::lock_directory(dir, mode)?);
    }
    if let Some(ring) = &config.ring {
        let kept = kept_directory(&config.kept, ring);
        output_path::refuse_link(&kept)?;
        hours::make_directories(&kept, ring.mode)?;
    }
    Ok(locks)
}

/// The conditions of the triggers, in their order; `None` for a trigger without one.
///
/// # Errors
///
/// A condition cannot be evaluated on this machine.
pub fn parse_conditions(config: &Config, plan: &Plan) -> Result<Vec<Option<Condition>>> {
    let parse_condition = |trigger: &crate::config::TriggerConfig| {
        let when = trigger.when.as_deref();
        when.map(|when| Condition::new(when, plan))
            .transpose()
            .with_context(|| format!("trigger {}", trigger.name))
    };
    config.triggers.iter().map(parse_condition).collect()
}

/// Files and directories that the consumer thread needs.
fn consumer_needs(config: &Config, path: &Path) -> ThreadNeeds {
    // `/proc/self` for its own memory and CPU time. The directory of the configuration, because the
    // file may be replaced before it is read again.
    let mut reads = vec![path.to_owned(), "/proc/self".into()];
    let config_paths = [std::path::absolute(path), fs::canonicalize(path)];
    reads.extend(
        config_paths.into_iter().flatten().filter_map(|file| Some(file.parent()?.to_owned())),
    );
    let mut needs = ThreadNeeds { reads, ..ThreadNeeds::default() };
    needs.writes.extend(config.ring.as_ref().map(|ring| ring.directory.clone()));
    needs.writes.extend(config.rollup.as_ref().map(|rollup| rollup.directory.clone()));
    needs.writes.extend(config.kept.directory.clone());
    let textfile = config.metrics.as_ref().and_then(|metrics| metrics.textfile.as_deref());
    textfile.map_or(needs.clone(), |file| needs.merged_with(ThreadNeeds::to_write(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_can_write_its_outputs_and_read_replaced_files() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        let shown = root.display();
        let text =
            format!("[ring]\ndirectory = '{shown}/a/ring'\n[kept]\ndirectory = '{shown}/b/kept'\n");
        let config = Config::parse(&text).unwrap();
        let _locks = lock_directories(&config).unwrap();
        // As Kubernetes mounts a ConfigMap: the file is a link into a directory that is replaced.
        fs::create_dir(root.join("data")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("data/agent.toml"), text).unwrap();
        let path = root.join("etc/agent.toml");
        std::os::unix::fs::symlink(root.join("data/agent.toml"), &path).unwrap();
        let ThreadNeeds { reads, writes, .. } = consumer_needs(&config, &path);
        assert!(writes.contains(&root.join("b/kept")) && writes.iter().all(|dir| dir.is_dir()));
        for dir in ["etc", "data"] {
            assert!(reads.contains(&root.join(dir)), "{reads:?}");
        }
    }
}
