//! `uncore-trace stat`.

mod args;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::runtime::Runtime;

pub use self::args::Args;
use super::after;
use super::messages::is_broken_pipe;
use super::select::nanos;
use crate::catalog::spec::{self, EventSpec, Item};
use crate::discover::{self, Machine};
use crate::open::{Counting, Unopened};
use crate::plan::{self, Plan};
use crate::record::{default_tick, parse_duration};
use crate::signals::Signals;
use crate::stat::aggregate::{By, Grouping};
use crate::stat::count::Meter;
use crate::stat::output::{Format, Output};
use crate::stat::run::{self, Delay};
use crate::stat::table::{Table, What};
use crate::stat::{attributed, cgroups};
use crate::workload::Workload;

fn millis(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text, Duration::from_millis(1))?;
    let range = Duration::from_millis(1)..=Duration::from_hours(366 * 24);
    if range.contains(&time) { Ok(time) } else { Err("choose 1ms to a year".to_owned()) }
}

fn delay(text: &str) -> Result<Delay, String> {
    match text {
        "-1" => Ok(Delay::Off),
        "0" => Ok(Delay::None),
        text => millis(text).map(Delay::For),
    }
}

/// Plans, counts and prints.
pub fn run(args: &Args) -> Result<u8> {
    if args.repeat.is_some_and(|runs| runs > 1) && args.command.is_empty() {
        ensure!(args.timeout.is_some(), "-r repeats a command: give -- CMD, or --timeout");
    }
    let machine = discover::machine(Path::new("/"))?;
    for problem in &machine.problems {
        log::warn!("{problem}");
    }
    let catalog = args.select.catalog()?;
    let window = attributed::window(args.interval);
    let request = args.select.request(nanos(default_tick(window)), nanos(window));
    let plan = plan::plan(&machine, &catalog, &request)?;
    super::messages::tell(&plan);
    let typed = typed(&request.events);
    let grouping = Grouping {
        by: args.by(),
        apart: args.no_merge || request.per_port,
        named: named(&machine, &typed),
    };
    ensure!(!args.metric_only || !plan.metrics.is_empty(), "--metric-only needs a metric: -M NAME");
    let is_duration = |event: &EventSpec| {
        event.pmu.is_none() && event.terms.iter().any(|term| term.name == "duration_time")
    };
    let what = What {
        scale: !args.no_scale,
        duration: typed.iter().any(is_duration),
        events: !args.metric_only,
    };
    let table = Table::new(&plan, &catalog, &machine.cpus, &grouping, what);
    match &args.for_each_cgroup {
        Some(list) => by_cgroup(args, list, &machine, &table, catalog.outside),
        None => counts(args, &machine, &table),
    }
}

impl Args {
    fn by(&self) -> By {
        match (self.per_socket, self.per_die, self.per_node, self.no_aggr) {
            (true, ..) => By::Socket,
            (_, true, ..) => By::Die,
            (_, _, true, _) => By::Node,
            (.., true) => By::Cpu,
            _ => By::Machine,
        }
    }

    fn signals(&self, runtime: &Runtime) -> Result<Signals> {
        let _entered = runtime.enter();
        run::signals(!self.command.is_empty(), self.interval.is_some() || self.timeout.is_some())
    }

    /// The output file, unless that is standard output.
    fn file(&self) -> Option<PathBuf> {
        self.output.clone().filter(|path| path != Path::new("-"))
    }

    fn output(&self) -> Result<Output> {
        let format = match &self.separator {
            // perf accepts this for a tab, which is hard to type.
            Some(separator) if separator == "\\t" => Format::Csv("\t".to_owned()),
            Some(separator) => {
                ensure!(!separator.is_empty(), "-x needs a separator, e.g. -x,");
                Format::Csv(separator.clone())
            }
            None if self.json => Format::Json,
            None => Format::Text,
        };
        let words = self.command.iter().map(|word| word.to_string_lossy());
        let command = words.collect::<Vec<_>>().join(" ");
        let mode = self.permissions.mode;
        Output::open(self.output.as_deref(), self.append, mode, format, command)
    }
}

fn counts(args: &Args, machine: &Machine, table: &Table<'_>) -> Result<u8> {
    let mut meter = Meter::open(table.plan, &machine.root)?;
    warn_of_unopened(table.plan, meter.unopened());
    if args.delay == Delay::Off && args.control.is_none() {
        log::warn!("-D -1 without --control counts nothing: the counters are never enabled");
    }
    let options = run::Options {
        interval: args.interval,
        interval_count: args.interval_count,
        summary: args.summary,
        timeout: args.timeout,
        delay: args.delay,
        repeat: args.repeat.unwrap_or(1),
        control: args.control.clone(),
        command: args.command.clone(),
        file: args.file(),
    };
    let mut output = args.output()?;
    let runtime = event_loop()?;
    let (mut workload, mut signals) = (Workload::none(), args.signals(&runtime)?);
    let counted = run::run(&options, &mut meter, table, &mut output, &mut workload, &mut signals);
    let counted = runtime.block_on(counted);
    // Before the wait for the command, which must not be slowed down by counters that nobody reads.
    drop(meter);
    passed_on(counted, &runtime, &mut workload, &mut signals)
}

fn event_loop() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")
}

/// The exit code. After an error, waits for the command, but not if the pipe was closed: perf stat
/// ends by SIGPIPE then and leaves the command running.
fn passed_on(
    counted: Result<u8>,
    runtime: &Runtime,
    workload: &mut Workload,
    signals: &mut Signals,
) -> Result<u8> {
    match counted {
        Err(error) if !is_broken_pipe(&error) => {
            runtime.block_on(after::failed(error, workload, signals))
        }
        counted => counted,
    }
}

fn by_cgroup(
    args: &Args,
    list: &str,
    machine: &Machine,
    table: &Table<'_>,
    catalog: Vec<String>,
) -> Result<u8> {
    let whole = |interval: Duration| interval.subsec_nanos().is_multiple_of(1_000_000);
    ensure!(
        args.interval.is_none_or(whole),
        "--for-each-cgroup adds up windows of whole milliseconds: give -I a whole number of them"
    );
    let mount = machine.cgroups.v2.as_deref();
    let mount = mount.context("no cgroup v2 hierarchy is mounted, and cgroups are named by it")?;
    let named = cgroups::select(mount, list)?;
    let delay = match args.delay {
        Delay::None => Duration::ZERO,
        Delay::For(delay) => delay,
        Delay::Off => bail!("-D -1 needs --control, which --for-each-cgroup does not support"),
    };
    let mut options = attributed::Options {
        interval: args.interval,
        interval_count: args.interval_count,
        timeout: args.timeout,
        delay,
        named,
        unopened: BTreeSet::new(),
        command: args.command.clone(),
        catalog,
        file: args.file(),
    };
    // Opens the counters once to find those that fail: they are left out, because the recorder
    // would report them as losses.
    let counting = Counting::open(&table.plan.counters, &machine.root)?;
    warn_of_unopened(table.plan, counting.unopened());
    options.unopened = counting.unopened().iter().map(|unopened| unopened.counter).collect();
    drop(counting);
    let mut output = args.output()?;
    let runtime = event_loop()?;
    let (mut workload, mut signals) = (Workload::none(), args.signals(&runtime)?);
    let counted = attributed::run(
        machine,
        table,
        &options,
        &mut output,
        &runtime,
        &mut workload,
        &mut signals,
    );
    passed_on(counted, &runtime, &mut workload, &mut signals)
}

/// The events as typed; planning has already accepted all of them.
fn typed(texts: &[String]) -> Vec<EventSpec> {
    let items = texts.iter().filter_map(|text| spec::parse(text).ok()).flatten();
    let events = items.flat_map(|item| match item {
        Item::One(event) => vec![event],
        Item::Group { members, .. } => members,
    });
    events.collect()
}

/// The PMU instances that were given by their full names.
fn named(machine: &Machine, typed: &[EventSpec]) -> BTreeSet<String> {
    let whole = |name: &str| {
        let mut words = typed.iter().filter_map(|event| event.pmu.as_deref());
        words.any(|word| discover::name::is_whole(word, name))
    };
    machine.pmus.iter().map(|pmu| pmu.name.clone()).filter(|name| whole(name)).collect()
}

/// Warns once for each event of a PMU, not for each of its CPUs.
fn warn_of_unopened(plan: &Plan, all: &[Unopened]) {
    let mut events: BTreeMap<(&str, &str, &str), (usize, &str)> = BTreeMap::new();
    for unopened in all {
        if let Some(counter) = plan.counters.get(unopened.counter as usize) {
            let event = (counter.pmu.as_str(), counter.event.as_str(), counter.filter.as_str());
            events.entry(event).or_insert((0, &unopened.reason)).0 += 1;
        }
    }
    for (count, reason) in events.into_values() {
        let others =
            if count > 1 { format!(" (and on {} more CPUs)", count - 1) } else { String::new() };
        log::warn!("{reason}{others}; the other counters are counted");
    }
}
