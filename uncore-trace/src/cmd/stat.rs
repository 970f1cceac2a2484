//! `uncore-trace stat`.

mod args;
mod events;
pub mod perf;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::runtime::Runtime;

pub use self::args::Args;
use self::events::{event_label, named_pmus, parse_events};
use super::command_end;
use super::select::to_nanos;
use crate::catalog::Catalog;
use crate::choice::default_tick;
use crate::cli::messages::{self, is_broken_pipe};
use crate::discover::{CpuList, Machine, name};
use crate::open::{Counting, Unopened};
use crate::plan::builtin_events::{DURATION, SYSTEM, USER};
use crate::plan::{self, Plan, PlanRequest};
use crate::signals::{Signals, event_loop};
use crate::stat::aggregate::{Grouping, LineSplit};
use crate::stat::attributed;
use crate::stat::cgroups::{self, Selection};
use crate::stat::count::CounterMeter;
use crate::stat::options::{Delay, StatOptions};
use crate::stat::output::{Format, OutputDestination, OutputStyle, StatOutput};
use crate::stat::run;
use crate::stat::table::{RowSelection, StatTable, TimeRows};
use crate::text::list_few;
use crate::units::parse_duration;
use crate::workload::Workload;

/// Number of PMUs in a message.
const FEW: usize = 4;

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
    check_args(args)?;
    messages::set_verbosity(args.verbose);
    if args.quiet {
        messages::errors_only();
    }
    for (option, why) in &args.ignored.given_options {
        log::info!("--{option} has no effect: {why}");
    }
    let machine = super::discover_machine(Path::new("/"))?;
    let catalog = args.select.load_catalog()?;
    let request = args.plan_request(&machine);
    let plan = args.make_plan(&machine, &catalog, &request)?;
    super::log_plan_notices(&plan);
    let typed = parse_events(&request.events);
    let grouping = Grouping {
        split: args.line_grouping(),
        apart: args.no_merge || request.per_port || request.per_device.is_some(),
        named: named_pmus(&machine, &typed),
        labels: typed.iter().filter_map(event_label).collect(),
    };
    ensure!(!args.metric_only || !plan.metrics.is_empty(), "--metric-only needs a metric: -M NAME");
    let has_term = |time: &str| {
        let bare = typed.iter().filter(|event| event.pmu.is_none());
        bare.flat_map(|event| &event.terms).any(|term| term.name == time)
    };
    let times =
        TimeRows { duration: has_term(DURATION), user: has_term(USER), system: has_term(SYSTEM) };
    let content = RowSelection { scale: !args.no_scale, times, events: !args.metric_only };
    let table = StatTable::new(&plan, &catalog, &machine.cpus, &grouping, content);
    match &args.for_each_cgroup {
        Some(list) => count_by_cgroup(args, list, &machine, &table, catalog.outside),
        None => count_machine(args, &machine, &table),
    }
}

/// Checks what the parser cannot.
fn check_args(args: &Args) -> Result<()> {
    let typed = args.command.first().and_then(|word| word.to_str()).unwrap_or_default();
    if let Some(why) = perf::refusal_reason(typed) {
        bail!("there is no stat {typed}: {why}; a command of that name is ./{typed}");
    }
    if args.repeat.is_some_and(|runs| runs != 1) && args.command.is_empty() {
        ensure!(args.timeout.is_some(), "-r repeats a command: give -- CMD, or --timeout");
    }
    ensure!(!args.table || args.repeat.is_some_and(|runs| runs > 1), "--table needs -r 2 or more");
    Ok(())
}

impl Args {
    /// What is asked for; the software events of perf and all traffic if that is nothing. With
    /// `--for-each-cgroup` only the traffic: an event of a CPU is read at every context switch
    /// then.
    fn plan_request(&self, machine: &Machine) -> PlanRequest {
        let window = attributed::choose_window(self.interval);
        let whole = self.for_each_cgroup.is_none();
        let base_request =
            self.select.plan_request(machine, to_nanos(default_tick(window)), to_nanos(window));
        let mut request = PlanRequest { times: whole, ..base_request };
        if whole && !self.select.asks_for_something() {
            request.groups = ["host", "auto"].map(str::to_owned).to_vec();
        }
        request
    }

    fn make_plan(
        &self,
        machine: &Machine,
        catalog: &Catalog,
        request: &PlanRequest,
    ) -> Result<Plan> {
        if self.null {
            let PlanRequest { tick_ns, window_ns, .. } = *request;
            return Ok(Plan { tick_ns, window_ns, ..Plan::default() });
        }
        let mut plan = plan::plan(machine, catalog, request)?;
        if let Some(cpus) = &self.cpus {
            limit_to_cpus(&mut plan, cpus)?;
        }
        Ok(plan)
    }

    fn line_grouping(&self) -> LineSplit {
        let splits = [
            (self.per_socket, LineSplit::Socket),
            (self.per_die, LineSplit::Die),
            (self.per_cluster, LineSplit::Cluster),
            (self.per_cache, LineSplit::Cache),
            (self.per_core, LineSplit::Core),
            (self.per_node, LineSplit::Node),
            (self.no_aggr, LineSplit::Cpu),
        ];
        let given = splits.into_iter().find_map(|(is_given, split)| is_given.then_some(split));
        given.unwrap_or_default()
    }

    fn install_signals(&self, runtime: &Runtime) -> Result<Signals> {
        let _entered = runtime.enter();
        run::install_signals(
            !self.command.is_empty(),
            self.interval.is_some() || self.timeout.is_some(),
        )
    }

    fn stat_options(&self) -> StatOptions {
        StatOptions {
            interval: self.interval,
            interval_count: self.interval_count,
            summary: self.summary,
            timeout: self.timeout,
            delay: self.delay,
            repeat: self.repeat.unwrap_or(1),
            table: self.table,
            sync: self.sync,
            pre: self.pre.clone(),
            post: self.post.clone(),
            control: self.control.clone(),
            command: self.command.clone(),
            file: self.output.clone().filter(|path| path != Path::new("-")),
        }
    }

    fn open_output(&self) -> Result<StatOutput> {
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
        let destination = match (&self.output, self.log_fd) {
            _ if self.quiet => OutputDestination::Nowhere,
            (Some(path), _) => OutputDestination::File(path, self.permissions.mode),
            (None, Some(number)) => OutputDestination::Descriptor(number),
            (None, None) => OutputDestination::Stderr,
        };
        let style = OutputStyle {
            format,
            clear: self.interval_clear,
            hide_zero: self.hide_zero_events,
            bare: self.no_csv_summary,
            command,
        };
        StatOutput::open(destination, self.append, style)
    }
}

fn count_machine(args: &Args, machine: &Machine, table: &StatTable<'_>) -> Result<u8> {
    let mut meter = CounterMeter::open(table.plan, &machine.root)?;
    warn_of_unopened(table.plan, meter.unopened());
    if args.delay == Delay::Off && args.control.is_none() {
        log::warn!("-D -1 without --control counts nothing: the counters are never enabled");
    }
    let options = args.stat_options();
    // Has the meter, which is dropped before the wait for the command: counters that nobody reads
    // must not slow the command down.
    count_and_wait(args, move |output, runtime, workload, signals| {
        runtime.block_on(run::run(&options, &mut meter, table, output, workload, signals))
    })
}

/// Counts with `count`, which starts the command. Returns the exit code. After an error, waits for
/// the command, but not if the pipe was closed: perf stat ends by SIGPIPE then and leaves the
/// command running.
fn count_and_wait(
    args: &Args,
    count: impl FnOnce(&mut StatOutput, &Runtime, &mut Workload, &mut Signals) -> Result<u8>,
) -> Result<u8> {
    let mut output = args.open_output()?;
    let runtime = event_loop()?;
    let (mut workload, mut signals) =
        (Workload::without_command(), args.install_signals(&runtime)?);
    match count(&mut output, &runtime, &mut workload, &mut signals) {
        Err(error) if !is_broken_pipe(&error) => {
            let waited = command_end::wait_after_failure(error, &mut workload, &mut signals);
            runtime.block_on(waited)
        }
        counted => counted,
    }
}

fn count_by_cgroup(
    args: &Args,
    list: &str,
    machine: &Machine,
    table: &StatTable<'_>,
    catalog: Vec<String>,
) -> Result<u8> {
    let whole = |interval: Duration| interval.subsec_nanos().is_multiple_of(1_000_000);
    ensure!(
        args.interval.is_none_or(whole),
        "--for-each-cgroup sums windows of whole milliseconds: give -I a whole number of \
         milliseconds"
    );
    let Selection { cgroups: named, missing } =
        cgroups::select_cgroups(machine.cgroups.v2_mount()?, list)?;
    for why in missing {
        log::warn!("{why}");
    }
    let delay = match args.delay {
        Delay::None => Duration::ZERO,
        Delay::For(delay) => delay,
        Delay::Off => bail!("-D -1 needs --control, which --for-each-cgroup does not support"),
    };
    // Opens the counters once to find those that fail: they are left out, because the recorder
    // would report them as losses.
    let counting = Counting::open(&table.plan.counters, &machine.root)?;
    warn_of_unopened(table.plan, counting.unopened());
    let unopened = counting.unopened().iter().map(|unopened| unopened.counter).collect();
    drop(counting);
    let stat_options = args.stat_options();
    let options = attributed::AttributedOptions { stat_options, delay, named, unopened, catalog };
    count_and_wait(args, |output, runtime, workload, signals| {
        attributed::run(machine, table, &options, output, runtime, workload, signals)
    })
}

/// Leaves only the counters that are read on `cpus`. As perf does, which opens an event on the CPUs
/// that are in `-C` and in the PMU's `cpumask` (`__perf_evlist__propagate_maps`,
/// tools/lib/perf/evlist.c, Linux 7.2).
fn limit_to_cpus(plan: &mut Plan, cpus: &CpuList) -> Result<()> {
    let mut pmus: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for counter in &plan.counters {
        pmus.entry(name::stem(&counter.pmu).to_owned()).or_default().insert(counter.cpu);
    }
    let left_out = |(pmu, readers): (String, BTreeSet<u32>)| {
        let readers: CpuList = readers.into_iter().collect();
        let is_left_out = readers.intersection(cpus).is_empty();
        is_left_out.then(|| format!("{pmu} is read on CPU {readers}"))
    };
    let left_out: Vec<_> = pmus.into_iter().filter_map(left_out).collect();
    let had_counters = !plan.counters.is_empty();
    plan.retain_counters(|counter| cpus.contains(counter.cpu));
    ensure!(
        !had_counters || !plan.counters.is_empty(),
        "-C {cpus} leaves nothing to count: {}",
        list_few(&left_out, FEW)
    );
    if !left_out.is_empty() {
        log::warn!("not counted with -C {cpus}: {}", list_few(&left_out, FEW));
    }
    Ok(())
}

/// Warns once for each event of a PMU, not for each of its CPUs.
fn warn_of_unopened(plan: &Plan, unopened_counters: &[Unopened]) {
    let mut events: BTreeMap<(&str, &str, &str), (usize, &str)> = BTreeMap::new();
    for unopened in unopened_counters {
        if let Some(counter) = plan.counters.get(unopened.counter as usize) {
            let event = (counter.pmu.as_str(), counter.event.as_str(), counter.filter.as_str());
            events.entry(event).or_insert((0, &unopened.reason)).0 += 1;
        }
    }
    for (count, reason) in events.into_values() {
        let others_text =
            if count > 1 { format!(" (and on {} more CPUs)", count - 1) } else { String::new() };
        log::warn!("{reason}{others_text}; the other counters are counted");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cmd::{Cli, Command};
    use crate::discover::captured_machine;

    /// The plan for what was typed on a captured machine.
    fn planned(machine: &str, typed: &str) -> Result<Plan> {
        let cli = Cli::try_parse_from(["uncore-trace", "stat"].into_iter().chain(typed.split(' ')));
        let Command::Stat(args) = cli.unwrap().command else { panic!("{typed}") };
        let machine = captured_machine(machine);
        args.make_plan(&machine, &args.select.load_catalog().unwrap(), &args.plan_request(&machine))
    }

    fn readers(plan: &Plan) -> BTreeSet<u32> {
        plan.counters.iter().map(|counter| counter.cpu).collect()
    }

    /// The machine has a CPU of each socket in the `cpumask` of its memory controllers.
    #[test]
    fn an_uncore_counter_counts_if_its_reader_is_given() {
        let whole = planned("icelake-2s", "-p mem").unwrap();
        let all: Vec<_> = readers(&whole).into_iter().collect();
        let [first, second] = all[..] else { panic!("{all:?}") };
        for cpu in [first, second] {
            let part = planned("icelake-2s", &format!("-p mem -C {cpu}")).unwrap();
            assert_eq!(readers(&part), BTreeSet::from([cpu]));
            assert_eq!(2 * part.counters.len(), whole.counters.len());
        }
        assert_eq!(planned("icelake-2s", &format!("-p mem -C {first},{second}")).unwrap(), whole);
        let none = planned("icelake-2s", &format!("-p mem -C {}", first + 1)).unwrap_err();
        let reason = format!("uncore_imc is read on CPU {first},{second}");
        assert!(none.to_string().contains(&reason), "{none}");
    }

    #[test]
    fn by_default_the_events_of_perf_and_the_traffic_are_counted() {
        let groups = |typed: &str| -> BTreeSet<String> {
            let plan = planned("icelake-2s", typed).unwrap();
            plan.counters.iter().map(|counter| counter.subsystem.clone()).collect()
        };
        let default = groups("true");
        assert!(default.contains("host") && default.contains("mem"), "{default:?}");
        assert!(!default.contains("core"), "{default:?}");
        assert!(!groups("--for-each-cgroup / true").contains("host"));
        assert!(groups("-n true").is_empty());
    }
}
