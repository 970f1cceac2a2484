//! Facts of a recording from its metadata: plan, first and last tick, method.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context as _, Result};
use arrow::array::Int16Array;

use super::{Overrides, recorded_method};
use crate::attribute::{AttributionSettings, CoreSiblings, order_counters};
use crate::clock::Snapshot;
use crate::discover::cpus::CpuLocation;
use crate::plan::{Plan, check_times};
use crate::schema::columns::nullable_value;
use crate::schema::origin::RecordingOrigin;
use crate::schema::row_limit::RowLimit;
use crate::schema::{columns, counters, cpus, fabric, metadata, runtime};
use crate::tables::reader::Recording;

/// The lag of a recording whose metadata do not have it, ns.
const LAG_NS: u64 = 1_000_000_000;

/// Everything except the entries.
#[derive(Debug)]
pub(super) struct RecordedFacts {
    /// The planned counters.
    pub plan: Plan,
    /// The counters that were opened, in the order of their rows.
    pub opened: Vec<u32>,
    /// How counts are divided.
    pub settings: AttributionSettings,
    /// The first tick.
    pub start_tick: u64,
    /// The last tick; `None` if the recorder was killed.
    pub stop_tick: Option<u64>,
    /// The CPUs that share cores.
    pub siblings: CoreSiblings,
    /// Converts times to wall time.
    pub clock: Snapshot,
    /// Host, boot and cluster of the recording.
    pub origin: RecordingOrigin,
    /// The metadata of the new table.
    pub pairs: BTreeMap<String, String>,
}

impl RecordedFacts {
    /// Reads the facts.
    pub(super) fn read_facts(recording: &Recording, overrides: Overrides) -> Result<Self> {
        let mut pairs = recording.open_table(&runtime::TABLE)?.metadata_pairs().clone();
        // The new table gets all columns of the recorded one, so that it can replace it.
        let timeline = recording.open_table(&fabric::TABLE)?;
        if let Some(tables) = timeline.metadata_pairs().get(metadata::TABLES) {
            pairs.insert(metadata::TABLES.to_owned(), tables.clone());
        }
        let mut plan: Plan =
            metadata::parse_json(&pairs, metadata::PLAN)?.context("the metadata has no plan")?;
        let clocks: Vec<Snapshot> =
            metadata::parse_json(&pairs, metadata::CLOCKS)?.unwrap_or_default();
        let clock = *clocks.first().context("the metadata has no clocks")?;
        let tick_ns = metadata::number(&pairs, metadata::TICK_NS, 1)?;
        let method = overrides.method.unwrap_or_else(|| recorded_method(&pairs));
        if let Some(interval_ns) = overrides.interval_ns.filter(|ns| *ns != plan.window_ns) {
            check_times(tick_ns, interval_ns)?;
            plan.window_ns = interval_ns;
            pairs.insert(metadata::INTERVAL_NS.to_owned(), interval_ns.to_string());
            pairs.insert(metadata::PLAN.to_owned(), serde_json::to_string(&plan)?);
        }
        let recorded_lag = optional_number(&pairs, metadata::LAG_NS)?;
        let lag_ns = overrides.lag_ns.or(recorded_lag).unwrap_or(LAG_NS);
        pairs.insert(metadata::LAG_NS.to_owned(), lag_ns.to_string());
        let recorded_share = pairs.get(metadata::MIN_SHARE).map(|text| text.parse());
        let recorded = recorded_share
            .transpose()
            .context("the metadata has a min_share that is not a number")?;
        // Recordings without it have a row for each process.
        let min_share = overrides.min_share.or(recorded).unwrap_or(0.0);
        pairs.insert(metadata::MIN_SHARE.to_owned(), min_share.to_string());
        let row_limit = match overrides.rows {
            Some(limit) => limit,
            None => RowLimit::from_metadata(&pairs)?,
        };
        pairs.insert(metadata::ROWS_PER_S.to_owned(), row_limit.to_string());
        let io = pairs.get(metadata::IO).is_some_and(|io| io == "true");
        pairs.insert(metadata::METHOD.to_owned(), method.name().to_owned());
        let stop_tick = optional_number(&pairs, metadata::STOP_TICK)?;
        Ok(Self {
            opened: opened_counters(recording, &plan)?,
            plan,
            settings: AttributionSettings {
                choice: method,
                io,
                lag_ns,
                effort: overrides.effort,
                min_share,
                row_limit,
            },
            start_tick: recording.first_tick_ns()?.unwrap_or(0) as u64 / tick_ns,
            stop_tick,
            siblings: read_siblings(recording)?,
            clock,
            origin: RecordingOrigin::from_metadata(&pairs),
            pairs,
        })
    }
}

/// The CPUs that share cores, as the recorder knew them when it began: each possible CPU has a row
/// then.
fn read_siblings(recording: &Recording) -> Result<CoreSiblings> {
    let mut locations = BTreeMap::new();
    if let Some(table) = recording.find_table(&cpus::TABLE)? {
        for batch in table.scan_columns(&["cpu", "socket", "node", "core"])? {
            let batch = batch?;
            let cpu = columns::i32_column(&batch, "cpu")?;
            let socket: &Int16Array = columns::typed_column(&batch, "socket")?;
            let node = columns::i32_column(&batch, "node")?;
            let core = columns::i32_column(&batch, "core")?;
            for row in 0..batch.num_rows() {
                let location = CpuLocation {
                    package: nullable_value(socket, row),
                    node: nullable_value(node, row).map(|node| node as u32),
                    core: nullable_value(core, row),
                    ..CpuLocation::default()
                };
                locations.entry(cpu.value(row) as u32).or_insert(location);
            }
        }
    }
    Ok(CoreSiblings::from_locations(&locations))
}

/// A number that older or unfinished recordings lack.
fn optional_number(pairs: &BTreeMap<String, String>, key: &str) -> Result<Option<u64>> {
    pairs.contains_key(key).then(|| metadata::number(pairs, key, 0)).transpose()
}

/// The counters that were opened, in the order of their rows.
fn opened_counters(recording: &Recording, plan: &Plan) -> Result<Vec<u32>> {
    let mut failed = HashSet::new();
    for batch in recording.open_table(&counters::TABLE)?.scan_columns(&["counter", "state"])? {
        let batch = batch?;
        let (counter, state) =
            (columns::i32_column(&batch, "counter")?, columns::word_column(&batch, "state")?);
        let rows = (0..batch.num_rows()).filter(|&row| state.get(row) == Some("failed"));
        failed.extend(rows.map(|row| counter.value(row) as u32));
    }
    Ok(order_counters(plan, |id| failed.contains(&id)))
}
