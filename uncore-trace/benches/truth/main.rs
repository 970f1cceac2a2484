//! The accuracy and cost of attribution on large machines that are drawn at random, whose truth is
//! known.
//!
//! `tenants.rs` draws who runs, `schedule.rs` when and where, `traffic.rs` what they move, and
//! `ticks.rs` what a recorder logs of that: CPU time, readings of counters, and misses;
//! `monitors.rs` what hardware measures; `ground.rs` has machines on which something is true that
//! the model does not know. Each says what is drawn from which distribution. The
//! attributor divides these entries as those of a live recording, with ticks of 1 ms, and
//! `scores.rs` holds its rows against the truth. Its CPU time and memory are those of the
//! attributor and of the file with the rows, without the machine. Prints one line of JSON; `cargo
//! xtask bench truth` runs many cases. Everything is the same in every run of a seed but CPU time
//! and memory.
//!
//! The figures rank methods and show trends. They are no claim about a real machine.
#![expect(clippy::print_stdout, reason = "the line is the result")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use uncore_trace::attribute::{
    AttributionSettings, Attributor, Effort, RecordingFacts, order_counters,
};
use uncore_trace::choice::MethodChoice;
use uncore_trace::clock::Snapshot;
use uncore_trace::entries::{EntryConsumer as _, LogEntry};
use uncore_trace::plan::{CounterRole, Plan};
use uncore_trace::schema::cgroups::CgroupNames;
use uncore_trace::schema::origin::RecordingOrigin;
use uncore_trace::schema::row_limit::RowLimit;
use uncore_trace::schema::{Builders, SCHEMA_VERSION, fabric, metadata};
use uncore_trace::tables::writer::{CreateOptions, RecordingTarget, Writer};

pub(crate) mod floor;
pub(crate) mod ground;
pub(crate) mod ground_name;
pub(crate) mod monitors;
pub(crate) mod random;
pub(crate) mod schedule;
pub(crate) mod scores;
pub(crate) mod tenants;
pub(crate) mod ticks;
pub(crate) mod traffic;

use self::floor::Floor;
use self::ground::Ground;
use self::monitors::Monitors;
use self::random::Random;
use self::scores::{CaseFigures, Scores};
use self::tenants::DrawnMachine;
use self::ticks::Ticks;
use self::traffic::DrawnTraffic;

pub(crate) const SOCKETS: usize = 2;
pub(crate) const TICK_NS: u64 = 1_000_000;
/// Rows of a batch, as of `attribute`.
const ROWS: usize = 8192;
/// The lag of `record`, ns.
const LAG_NS: u64 = 1_000_000_000;

/// A machine, a recording of it, and how that is divided.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrawnCase {
    pub(crate) seed: u64,
    /// CPUs of a socket, and tenants that are at home there.
    pub(crate) cpus: usize,
    pub(crate) tenants: usize,
    pub(crate) seconds: f64,
    /// Of attribution.
    pub(crate) method: String,
    /// Ticks of a window.
    pub(crate) window: usize,
    pub(crate) pauses: Pauses,
    #[serde(default)]
    pub(crate) ground: Ground,
    /// The part of its time that each tenant that never pauses has as its quota.
    #[serde(default)]
    pub(crate) quota: Option<f64>,
    /// CPUs of a counter; without it each socket's memory has one.
    #[serde(default)]
    pub(crate) group: Option<usize>,
    /// CPUs of a port: a counter of what so many CPUs move, by which the others are divided.
    #[serde(default)]
    pub(crate) ports: Option<usize>,
    /// No phases, drift, bursts or cold caches, and little noise.
    #[serde(default)]
    pub(crate) plain: bool,
    /// Capacity of a socket's memory over the mean demand.
    pub(crate) peak: f64,
    /// Misses are counted, with this noise in 50 us.
    #[serde(default)]
    pub(crate) misses: Option<f64>,
    /// Number of tenants whose bytes monitors of the hardware measure.
    #[serde(default)]
    pub(crate) monitors: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pauses {
    /// Tenants of all kinds.
    Usual,
    /// Threads that never sleep.
    Never,
}

impl DrawnCase {
    pub(crate) const fn tick_count(&self) -> usize {
        (self.seconds * 1e9) as usize / TICK_NS as usize
    }

    /// The tick at which the recording begins, where a window does.
    pub(crate) const fn start_tick(&self) -> u64 {
        100_000 * self.window as u64
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct CaseLine {
    #[serde(flatten)]
    pub(crate) figures: CaseFigures,
    pub(crate) floor: CaseFigures,
    /// What the recording says of the model.
    pub(crate) misfits: Vec<String>,
    cpu_s: f64,
    peak_mib: f64,
}

fn main() -> Result<()> {
    let arg = std::env::args().skip(1).find(|arg| arg != "--bench");
    let Some(arg) = arg else {
        // `cargo bench` runs it without arguments.
        println!("usage: truth JSON; see `cargo xtask bench truth`");
        return Ok(());
    };
    let case: DrawnCase = serde_json::from_str(&arg).context("cannot read the case")?;
    println!("{}", serde_json::to_string(&run_case(&case)?)?);
    Ok(())
}

pub(crate) fn run_case(case: &DrawnCase) -> Result<CaseLine> {
    ensure!(case.cpus > 0 && case.tenants > 0, "a machine has CPUs and tenants");
    ensure!(
        case.window > 0 && case.tick_count() >= case.window,
        "the recording is shorter than a window"
    );
    ensure!(case.group != Some(0) && case.ports != Some(0), "a group and a port have CPUs");
    ensure!(
        case.group.is_none() || !case.ground.has_bytes_without_time(),
        "groups of CPUs have no counters of late bytes and of devices"
    );
    let stream = |purpose| Random::for_place(case.seed, purpose, 0);
    let machine = DrawnMachine::draw(case, &mut stream(1));
    let schedule = schedule::simulate(&machine, case.tick_count() as u64 * TICK_NS, stream(2));
    let traffic = DrawnTraffic::draw(case, &machine, &schedule, &mut stream(3));
    let plan = ticks::recording_plan(case);
    let counters =
        plan.counters.iter().filter(|counter| counter.role == CounterRole::Counted).count();
    // Both see the same recording.
    let ticks = || Ticks::new(case, &traffic, case.start_tick(), counters, stream(4));
    let tenant_of = &schedule.tenant_of;
    let scores = || Scores::new(tenant_of.clone(), counters, case.window, case.start_tick());
    let monitors = case.monitors.map(|limit| Monitors::new(limit, tenant_of, stream(5)));
    let line = score_method(case, &plan, machine.tenants.len(), ticks(), (scores(), monitors))?;
    Ok(CaseLine { floor: score_floor(ticks(), scores())?, ..line })
}

fn score_floor(mut ticks: Ticks<'_>, mut scores: Scores) -> Result<CaseFigures> {
    let mut floor = Floor::default();
    let mut number = 0;
    while let Some(tick) = ticks.advance_tick() {
        scores.add_tick(number, &tick.moved_parts, &tick.device);
        floor.add_tick(tick, &mut scores);
        number += 1;
    }
    floor.divide_rest(&mut scores);
    scores.into_figures(None)
}

/// Divides the recording.
fn score_method(
    case: &DrawnCase,
    plan: &Plan,
    tenants: usize,
    mut ticks: Ticks<'_>,
    (mut scores, mut monitors): (Scores, Option<Monitors<'_>>),
) -> Result<CaseLine> {
    let choice = MethodChoice::from_name(&case.method)
        .with_context(|| format!("there is no method {}", case.method))?;
    let clock = Snapshot { mono_ns: 0, wall_ns: 0 };
    let pairs = [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::PLAN, serde_json::to_string(plan)?),
        (metadata::CLOCKS, serde_json::to_string(&[clock])?),
        (metadata::TICK_NS, plan.tick_ns.to_string()),
        (metadata::INTERVAL_NS, plan.window_ns.to_string()),
    ];
    let pairs: BTreeMap<_, _> = pairs.map(|(key, value)| (key.to_owned(), value)).into();
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let path = dir.path().join("fabric.parquet");
    let mut writer =
        Writer::create(RecordingTarget::File(path.clone()), CreateOptions::default(), &pairs)?;
    // The peak begins where the machine has been drawn (Documentation/filesystems/proc.rst).
    fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak of memory")?;
    let memory_before = read_memory_kib("VmRSS:")?;
    let mut tables = Builders::default();
    let start = case.start_tick();
    let mut attributor = Attributor::new(&RecordingFacts {
        plan,
        counters: &order_counters(plan, |_| false),
        settings: AttributionSettings {
            choice,
            io: false,
            lag_ns: LAG_NS,
            effort: Effort::Live,
            min_share: 0.0,
            row_limit: RowLimit::All,
        },
        start_tick: start,
        clock,
        origin: &RecordingOrigin::from_metadata(&pairs),
        siblings: &case.ground.core_siblings(case),
        threads: 1,
        sums: false,
    });
    for tenant in 0..tenants {
        let path = if tenant + 1 == tenants { "/".to_owned() } else { scores::cgroup_path(tenant) };
        let names = Arc::new(CgroupNames { path: path.into(), ..CgroupNames::default() });
        let id = ticks::cgroup_id(tenant, tenants);
        attributor.take_entry(LogEntry::Cgroup { id, names: &names }, &mut tables)?;
    }
    for reading in ticks.first_readings() {
        attributor.take_entry(LogEntry::Reading(reading), &mut tables)?;
    }
    let mut spent = 0.0;
    for number in 0..case.tick_count() {
        let tick = ticks.advance_tick().context("the recording is too short")?;
        scores.add_tick(number, &tick.moved_parts, &tick.device);
        let is_last = number + 1 == case.tick_count();
        let mut measured = Vec::new();
        if let Some(monitors) = &mut monitors {
            monitors.count_tick(&tick);
            if is_last || (number + 1).is_multiple_of(case.window) {
                measured = monitors.end_window();
                monitors.choose_tenants(number + 1, &mut attributor);
            }
        }
        let begin = cpu_s();
        for reading in &tick.readings {
            attributor.take_entry(LogEntry::Reading(*reading), &mut tables)?;
        }
        for (cpu, cpu_usage) in tick.usage.iter().enumerate() {
            attributor
                .take_entry(LogEntry::Usage { cpu: cpu as u32, usage: cpu_usage }, &mut tables)?;
        }
        for monitored in &measured {
            attributor.take_entry(LogEntry::Monitored(monitored), &mut tables)?;
        }
        let end = LogEntry::EndOfTick { tick: start + number as u64 + 1, is_last };
        attributor.take_entry(end, &mut tables)?;
        let mut batches = Vec::new();
        loop {
            let is_over = attributor.make_rows(&mut tables);
            if tables.fabric.len() >= ROWS || is_over && is_last {
                batches.push(tables.fabric.finish());
            }
            if is_over {
                break;
            }
        }
        spent += cpu_s() - begin;
        for batch in batches {
            scores.add_rows(&batch)?;
            writer.write(&fabric::TABLE, &batch)?;
        }
    }
    let peak_mib = read_memory_kib("VmHWM:")?.saturating_sub(memory_before) as f64 / 1024.0;
    writer.finish(&pairs)?;
    let figures = scores.into_figures(Some(&path))?;
    let (floor, misfits) = (CaseFigures::default(), attributor.misfits());
    Ok(CaseLine { figures, floor, misfits, cpu_s: spent, peak_mib })
}

/// CPU time of this process, s.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Memory of this process, KiB.
fn read_memory_kib(field: &str) -> Result<u64> {
    let status = fs::read_to_string(Path::new("/proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {field} in /proc/self/status"))
}
