//! What a recording says of itself: its plan, its CPUs, its losses, the names of its cgroups.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use anyhow::{Context as _, Result};

use super::{Again, json, number, recorded};
use crate::{
    align::{cgroups::Cgroups, clock::Snapshot, names::Names},
    attribute::Methods,
    plan::{Plan, check_times},
    tables::{cgroups, columns, counters, loss, metadata, reader::Recording, runtime},
    timeline::{CpuTime, Told},
};

/// A CPU's time offline, ns.
pub type Spans = HashMap<u32, Vec<(u64, u64)>>;

/// Everything but readings and time.
#[derive(Debug)]
pub struct Facts {
    /// For the replay.
    pub told: Told,
    /// When CPUs were offline.
    pub offline: Spans,
    /// From when until when each CPU's time was accounted, ns.
    pub spans: Vec<(u32, u64, u64)>,
    /// The metadata of the new table.
    pub pairs: BTreeMap<String, String>,
}

impl Facts {
    /// Reads them.
    pub fn read(recording: &Recording, again: Again) -> Result<Self> {
        let table = recording.table(&runtime::TABLE)?;
        let mut pairs = table.metadata().clone();
        let mut plan: Plan = json(&pairs, metadata::PLAN)?.context("the metadata has no plan")?;
        let clocks: Vec<Snapshot> = json(&pairs, metadata::CLOCKS)?.unwrap_or_default();
        let clock = *clocks.first().context("the metadata has no clocks")?;
        let tick_ns = number(&pairs, metadata::TICK_NS)?;
        let method = again.method.unwrap_or_else(|| recorded(&pairs));
        if let Some(interval_ns) = again.interval_ns.filter(|ns| *ns != plan.window_ns) {
            check_times(tick_ns, interval_ns)?;
            plan.window_ns = interval_ns;
            pairs.insert(metadata::INTERVAL_NS.to_owned(), interval_ns.to_string());
            pairs.insert(metadata::PLAN.to_owned(), serde_json::to_string(&plan)?);
        }
        let io = pairs.get(metadata::IO).is_some_and(|io| io == "true");
        pairs.insert(metadata::METHOD.to_owned(), method.name().to_owned());
        let begin = first_tick(recording)?.unwrap_or(0);
        let times: Option<Vec<CpuTime>> = json(&pairs, metadata::CPU_TIME)?;
        let stop = times.as_ref().and_then(|times| times.iter().map(|time| time.end_ns).max());
        let span = |time: &CpuTime| (time.cpu, time.begin_ns, time.end_ns);
        let spans = match &times {
            Some(times) => times.iter().map(span).collect(),
            None => plan_cpus(&plan).into_iter().map(|cpu| (cpu, begin, u64::MAX)).collect(),
        };
        let spans: Vec<(u32, u64, u64)> = spans;
        let start = spans.iter().map(|(_, begin, _)| *begin).min().unwrap_or(begin);
        let losses = Losses::read(recording, tick_ns)?;
        let told = Told {
            opened: opened(recording, &plan)?,
            plan,
            methods: Methods { choice: method, io },
            start_tick: start / tick_ns,
            stop_tick: stop.map(|stop| stop / tick_ns),
            clock,
            cpus: spans.iter().map(|(cpu, ..)| *cpu).collect(),
            no_boundary: losses.no_boundary,
            again: losses.again,
            names: names(recording)?,
        };
        Ok(Self { told, offline: losses.offline, spans, pairs })
    }
}

/// Begin of the first tick, ns.
fn first_tick(recording: &Recording) -> Result<Option<u64>> {
    let mut scan = recording.table(&runtime::TABLE)?.scan(&["mono_ns", "tick_ns"])?;
    let Some(batch) = scan.next().transpose()?.filter(|batch| batch.num_rows() > 0) else {
        return Ok(None);
    };
    let (end, len) = (columns::i64s(&batch, "mono_ns")?, columns::i64s(&batch, "tick_ns")?);
    Ok(Some((end.value(0) - len.value(0)) as u64))
}

/// The CPUs that counters see.
fn plan_cpus(plan: &Plan) -> Vec<u32> {
    let mut cpus: Vec<u32> = plan.counters.iter().flat_map(|counter| counter.sees.iter()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// The counters that were opened, in the order in which each CPU reads them: those that are read
/// at every switch come first.
fn opened(recording: &Recording, plan: &Plan) -> Result<Vec<u32>> {
    let mut failed = HashSet::new();
    for batch in recording.table(&counters::TABLE)?.scan(&["counter", "state"])? {
        let batch = batch?;
        let (counter, state) =
            (columns::i32s(&batch, "counter")?, columns::words(&batch, "state")?);
        let rows = (0..batch.num_rows()).filter(|&row| state.get(row) == Some("failed"));
        failed.extend(rows.map(|row| counter.value(row) as u32));
    }
    let mut opened: Vec<_> =
        plan.counters.iter().filter(|counter| !failed.contains(&counter.id)).collect();
    opened.sort_by_key(|counter| (counter.cpu, !counter.at_switch));
    Ok(opened.into_iter().map(|counter| counter.id).collect())
}

fn names(recording: &Recording) -> Result<Names> {
    let mut paths = Cgroups::new(None, Path::new("/"));
    for batch in recording.table(&cgroups::TABLE)?.scan(&["id", "path", "container", "pod"])? {
        let batch = batch?;
        let (id, path) = (columns::u64s(&batch, "id")?, columns::texts(&batch, "path")?);
        let (container, pod) =
            (columns::words(&batch, "container")?, columns::words(&batch, "pod")?);
        for row in 0..batch.num_rows() {
            let [container, pod] = [&container, &pod].map(|of| of.get(row).map(str::to_owned));
            paths.recall(id.value(row), path.value(row).to_owned(), container, pod);
        }
    }
    // Who is in the cgroups that were asked for is in the rows.
    Ok(Names::new(Path::new(""), paths, Vec::new()))
}

/// What the losses say of readings and time.
#[derive(Debug, Default)]
struct Losses {
    no_boundary: HashSet<(u32, u64)>,
    again: Vec<(u32, u64)>,
    offline: Spans,
}

impl Losses {
    fn read(recording: &Recording, tick_ns: u64) -> Result<Self> {
        let mut losses = Self::default();
        let wanted = ["mono_ns", "span_ns", "cause", "cpu", "counter", "count"];
        for batch in recording.table(&loss::TABLE)?.scan(&wanted)? {
            let batch = batch?;
            let (time, span) =
                (columns::i64s(&batch, "mono_ns")?, columns::i64s(&batch, "span_ns")?);
            let cause = columns::words(&batch, "cause")?;
            let (cpu, counter) = (columns::i32s(&batch, "cpu")?, columns::i32s(&batch, "counter")?);
            for row in 0..batch.num_rows() {
                let (time, span) = (time.value(row) as u64, span.value(row) as u64);
                let counter = columns::get(counter, row).map(|counter| counter as u32);
                let cpu = columns::get(cpu, row).map(|cpu| cpu as u32);
                match (cause.get(row), counter, cpu) {
                    (Some(loss::NO_BOUNDARY), Some(counter), _) => {
                        losses.no_boundary.insert((counter, time / tick_ns));
                    }
                    (Some(loss::COUNTER_STOPPED), Some(counter), _) if span > 0 => {
                        losses.again.push((counter, time));
                    }
                    (Some(loss::CPU_OFFLINE), _, Some(cpu)) => {
                        let spans = losses.offline.entry(cpu).or_default();
                        spans.push((time.saturating_sub(span), time));
                    }
                    _ => {}
                }
            }
        }
        Ok(losses)
    }
}
