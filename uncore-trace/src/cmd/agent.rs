//! `uncore-trace agent`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::catalog::CatalogArgs;
use super::heading::{FILE, PRINT, TIME};
use super::output::print;
use super::record::{FLUSH, LAG, seconds};
use super::root::RootArg;
use super::select::to_nanos;
use super::witness::WitnessArgs;
use crate::agent::trigger::metric_of;
use crate::agent::{self, ConfigPath};
use crate::catalog::Catalog;
use crate::cli::messages;
use crate::config::CONFIG_PATH;
use crate::config::Config;
use crate::discover::Machine;
use crate::plan::traffic::plan_traffic;
use crate::plan::{Plan, PlanRequest};
use crate::record::{AtSwitch, RecordOptions, buffer_mib};
use crate::schema::row_limit::RowLimit;
use crate::text::count_noun;

/// Record continuously, as a configuration file says
///
/// Has three outputs, each of which can be left out: the newest raw tables on the local disk (the
/// ring), the shares in windows of a second or longer as one Parquet file for each hour (the
/// roll-up), and metrics for Prometheus. A trigger saves a time span of the ring when a rate is
/// above a level. SIGHUP reads the configuration again. So does a symbolic link on its path that
/// leads to another file below the same directory, which is how Kubernetes changes a mounted
/// configuration. SIGUSR1 saves a time span of the ring without a condition. SIGTERM finishes all
/// files and ends the agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uncore-trace agent --config agent.toml --check
  uncore-trace agent --config agent.toml

docs/agent.md explains every key of the configuration.")]
pub struct Args {
    /// The configuration file (TOML)
    #[arg(short, long, value_name = "FILE", default_value = CONFIG_PATH, help_heading = FILE)]
    config: PathBuf,

    #[command(flatten)]
    catalog: CatalogArgs,

    /// End after this time, as with SIGTERM; a bare number is seconds
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = TIME)]
    duration: Option<Duration>,

    /// Check the configuration on this machine, print the result, and exit
    #[arg(long, help_heading = PRINT)]
    check: bool,

    #[command(flatten)]
    root: RootArg,
}

/// Plans and records until a signal comes. Exit code 0, or 1 if something was lost.
pub fn run(args: &Args) -> Result<u8> {
    // Before it is read, so that no change is overlooked.
    let config_path = ConfigPath::new(&args.config);
    let config = Config::read(&args.config)?;
    ensure!(
        args.check || args.root.is_here(),
        "{} is not the running machine: --root is for agent --check",
        args.root.root_dir().display()
    );
    let machine = super::discover_machine(args.root.root_dir())?;
    // Roll-ups, metrics and triggers are by cgroup.
    machine.cgroups.v2_mount()?;
    if let Some(unnamed) = machine.cgroups.unnamed_reason() {
        log::warn!("{unnamed}");
    }
    let catalog = args.catalog.load_catalog()?;
    let plan = plan_config(&config, &machine, &catalog)?;
    agent::parse_conditions(&config, &plan)?;
    for trigger in config.scarce_triggers() {
        log::warn!(
            "trigger {}: the ring may be shorter than before and after together: choose a larger \
             ring.keep",
            trigger.name
        );
    }
    if args.check {
        let links = count_noun(plan.links.len(), "link");
        let counters = count_noun(plan.counters.len(), "counter");
        let triggers = count_noun(config.triggers.len(), "trigger");
        print(&format!("{}: valid; {counters}, {links}, {triggers}\n", args.config.display()))?;
        return Ok(0);
    }
    super::log_plan_notices(&plan);
    messages::log_as_service();
    let mut options = recorder_options(&config, &machine, &plan, catalog.outside);
    options.duration = args.duration;
    let (outcome, lacking) = agent::run(&machine, &plan, &config, &config_path, options)?;
    let is_complete = outcome.losses.is_complete() && lacking.is_none();
    let lists = [outcome.losses.incomplete_text(), outcome.losses.precision_text(), lacking];
    lists.iter().flatten().for_each(|line| messages::print_message(line));
    Ok(u8::from(!is_complete))
}

/// The plan for the configuration (all traffic if it names nothing), with the metrics of triggers.
fn plan_config(config: &Config, machine: &Machine, catalog: &Catalog) -> Result<Plan> {
    let record = &config.record;
    let conditions = config.triggers.iter().filter_map(|trigger| trigger.when.as_deref());
    let watched = conditions.filter_map(|when| metric_of(when, catalog)).map(str::to_owned);
    let request = PlanRequest {
        groups: record.groups.clone(),
        events: record.events.clone(),
        metrics: record.metrics.iter().cloned().chain(watched).collect(),
        allow_missing: true,
        declared_cause: record.cause,
        tick_ns: to_nanos(record.tick_duration()),
        window_ns: to_nanos(record.interval),
        ..PlanRequest::default()
    };
    if [&record.groups, &record.events, &record.metrics].iter().all(|list| list.is_empty()) {
        let (plan, notice) = plan_traffic(machine, catalog, &request)?;
        if let Some(notice) = notice {
            log::warn!("{notice}");
        }
        return Ok(plan);
    }
    WitnessArgs::default().plan_request(machine, catalog, request, record.method)
}

fn recorder_options(
    config: &Config,
    machine: &Machine,
    plan: &Plan,
    catalog: Vec<String>,
) -> RecordOptions {
    let budget = WitnessArgs::default().budget_percent(config.record.method);
    let at_switch = AtSwitch::from_plan(plan, budget.is_some());
    let flush = FLUSH.max(config.record.interval);
    let view = RecordOptions::for_view(machine, plan);
    let ring = config.ring.as_ref();
    RecordOptions {
        output: ring.map_or_else(|| "-".into(), |ring| ring.directory.join("")),
        mode: ring.map(|ring| ring.mode).unwrap_or_default(),
        rotate: ring.map(|ring| ring.part_limit),
        keep: ring.map(|ring| ring.keep),
        cluster: Some(config.cluster.clone()),
        min_gap: Duration::from_micros(100),
        flush,
        method: config.record.method,
        canary: config.record.canary,
        cgroup_depth: config.record.cgroup_depth,
        trusted_cgroups: config.identity.trusted.clone(),
        lag: LAG.min(flush / 2),
        // Roll-ups and metrics are made from `sums`, which has each cgroup, however small.
        row_limit: RowLimit::DEFAULT,
        witness_budget: budget,
        buffer: buffer_mib(machine.cpus.online.len(), false, at_switch) << 20,
        listen: true,
        catalog,
        ..view
    }
}
