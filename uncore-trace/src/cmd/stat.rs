//! `uncore-trace stat`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::runtime::Runtime;

use super::after;
use super::log::is_broken_pipe;
use super::output::{self, ModeArg};
use super::select::{SelectArgs, nanos};
use crate::catalog::spec::{self, EventSpec, Item};
use crate::discover::{self, Machine};
use crate::open::{Counting, Unopened};
use crate::plan::{self, Plan};
use crate::record::{default_tick, parse_duration};
use crate::signals::Signals;
use crate::stat::aggregate::{By, Grouping};
use crate::stat::control::Address;
use crate::stat::count::Meter;
use crate::stat::output::{Format, Output};
use crate::stat::run::{self, Delay};
use crate::stat::table::{Table, What};
use crate::stat::{attributed, cgroups};
use crate::workload::Workload;

const EXAMPLES: &str = "\
Examples:
  uncore-trace stat -p pcie -- ./train.sh
  uncore-trace stat -p mem,c2c -I 1000 --per-socket
  uncore-trace stat -e nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x100/ -r 5 \\
    -x, -- ./copy
  uncore-trace stat -p pcie --for-each-cgroup '^kubepods' -I 1000

Counts are of the whole machine; the command only sets the time. Output goes to
standard error unless -o is given.

With --for-each-cgroup the lines of an event add up to the whole: (other),
(idle), (irq), (device) and (unattributed) are what is in no named cgroup. A
cgroup that is named below another one has its own line and is not counted
twice. Each line has the method of the share and its lowest confidence. Counters
of a CPU (-p host, -p core) are read at every context switch, which makes every
switch slower; uncore counters are read by the timer only.

CSV: [seconds or 'summary'] [place [counters]] value unit event [cgroup] [+-%]
running_ns running% rate_or_metric its_unit [method confidence]. JSON: one
object a line with perf's keys. A rate is per second of the measurement, bytes
in GB/s; perf's is per second of CPU time, with K, M or G. docs/limits.md lists
every difference from perf.

The command is treated as by perf stat. Ctrl-C goes to the command, and counting
ends when the command ends. A second Ctrl-C prints the counts and leaves the
command running; with -I or --timeout the first one does. SIGTERM and SIGHUP do
the same (perf prints nothing then). --timeout sends the command SIGTERM and
waits for it; --interval-count and `stop` wait for it. If the reader of the
output ends (`stat -I 100 | head`) counting ends and the command runs on. If the
output cannot be written counting ends and stat waits for the command.

Exit code: the command's (of several runs the last that failed; 128 + N if
signal N killed it, 0 if --timeout did), 0 if it was left running or there is
none. 2 if stat failed; a message has the command's. With --for-each-cgroup 1 if
something was lost.";

/// Count and print, as perf stat does
///
/// Opens the counters of the given groups and events for the whole machine, and prints what they
/// counted while the command ran, or until Ctrl-C. Instances of a PMU are added up.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    select: SelectArgs,

    /// Print the counts of each interval of this length; a bare number is milliseconds
    #[arg(short = 'I', long = "interval-print", value_name = "TIME", value_parser = millis)]
    interval: Option<Duration>,

    /// End after N intervals, and wait for the command
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u32).range(1..))]
    interval_count: Option<u32>,

    /// After the intervals, print the counts of the whole time too
    #[arg(long, requires = "interval")]
    summary: bool,

    /// End after this time and send the command SIGTERM; a bare number is milliseconds
    #[arg(long, value_name = "TIME", value_parser = millis)]
    timeout: Option<Duration>,

    /// Begin to count this time after the command starts, or with -1 when --control enables the
    /// counters; a bare number is milliseconds
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0", hide_default_value = true, allow_hyphen_values = true, value_parser = delay)]
    delay: Delay,

    /// Run the command N times, print the mean and its standard error
    #[arg(short = 'r', long, value_name = "N", conflicts_with = "interval", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// A line for each socket
    #[arg(long, group = "aggregation")]
    per_socket: bool,

    /// A line for each die
    #[arg(long, group = "aggregation")]
    per_die: bool,

    /// A line for each NUMA node
    #[arg(long, group = "aggregation")]
    per_node: bool,

    /// A line for each PMU instance and CPU
    #[arg(short = 'A', long, group = "aggregation")]
    no_aggr: bool,

    /// A line for each PMU instance
    #[arg(long)]
    no_merge: bool,

    /// Do not scale up the counts of multiplexed counters
    #[arg(long)]
    no_scale: bool,

    /// Print the metrics of -M, not the events they are computed from
    #[arg(long)]
    metric_only: bool,

    /// Print fields separated by SEP, in the order of perf
    #[arg(short = 'x', long = "field-separator", value_name = "SEP", conflicts_with = "json")]
    separator: Option<String>,

    /// Print a JSON object for each line, with perf's keys
    #[arg(short = 'j', long = "json-output", visible_alias = "json")]
    json: bool,

    /// Write to FILE instead of standard error; - is standard output
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true, value_parser = output::path())]
    output: Option<PathBuf>,

    #[command(flatten)]
    permissions: ModeArg,

    /// Add to FILE instead of replacing it
    #[arg(long, requires = "output")]
    append: bool,

    /// Take `enable`, `disable`, `ping` and `stop` from a FIFO or an inherited descriptor and
    /// answer `ack`; any other command gets a warning and no answer
    #[arg(long, value_name = "fifo:CTL[,ACK]|fd:CTL[,ACK]")]
    control: Option<Address>,

    /// A line for each of these cgroups: names or regular expressions, separated by commas
    #[arg(long, value_name = "LIST", conflicts_with_all = ["control", "repeat", "no_scale", "summary"])]
    for_each_cgroup: Option<String>,

    /// Count on all CPUs, which is always so: accepted because perf stat has it
    #[arg(short = 'a', long, hide = true)]
    all_cpus: bool,

    /// Command to run; counting ends when it ends; `--` before it is optional
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

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
pub fn run(args: &Args, root: &Path) -> Result<u8> {
    if root != Path::new("/") {
        bail!(
            "{} is not the running machine: --root is for list, doctor and record --dry-run",
            root.display()
        );
    }
    if args.repeat.is_some_and(|runs| runs > 1) && args.command.is_empty() {
        ensure!(args.timeout.is_some(), "-r repeats a command: give -- CMD, or --timeout");
    }
    let machine = discover::machine(root)?;
    for problem in &machine.problems {
        log::warn!("{problem}");
    }
    let catalog = args.select.catalog()?;
    let window = attributed::window(args.interval);
    let request = args.select.request(nanos(default_tick(window)), nanos(window));
    let plan = plan::plan(&machine, &catalog, &request)?;
    for note in &plan.notes {
        log::info!("{note}");
    }
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
        None => counts(args, &table),
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

    fn output(&self) -> Result<Output> {
        let format = match &self.separator {
            // perf takes this for a tabulator, which is hard to type.
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

fn counts(args: &Args, table: &Table<'_>) -> Result<u8> {
    let mut meter = Meter::open(table.plan)?;
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
    };
    let mut output = args.output()?;
    let runtime = event_loop()?;
    let (mut workload, mut signals) = (Workload::none(), args.signals(&runtime)?);
    let counted = run::run(&options, &mut meter, table, &mut output, &mut workload, &mut signals);
    let counted = runtime.block_on(counted);
    // The machine does not pay for counters while the command is waited for.
    drop(meter);
    passed_on(counted, &runtime, &mut workload, &mut signals)
}

fn event_loop() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")
}

/// The exit code; after an error the command is waited for, but not where nobody reads any more:
/// perf stat dies by SIGPIPE then, and leaves it running.
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
    };
    // Opened for a moment, to leave out what the recorder would have to report as a loss.
    let counting = Counting::open(&table.plan.counters)?;
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

/// The events as they were typed; planning has accepted them all.
fn typed(texts: &[String]) -> Vec<EventSpec> {
    let items = texts.iter().filter_map(|text| spec::parse(text).ok()).flatten();
    let events = items.flat_map(|item| match item {
        Item::One(event) => vec![event],
        Item::Group { members, .. } => members,
    });
    events.collect()
}

/// The instances that were asked for by their whole name.
fn named(machine: &Machine, typed: &[EventSpec]) -> BTreeSet<String> {
    let whole = |name: &str| {
        let mut words = typed.iter().filter_map(|event| event.pmu.as_deref());
        words.any(|word| discover::name::is_whole(word, name))
    };
    machine.pmus.iter().map(|pmu| pmu.name.clone()).filter(|name| whole(name)).collect()
}

/// One line for each event of a PMU, however many CPUs it is opened on.
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
