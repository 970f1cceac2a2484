//! Options that select counters, shared by all commands that open counters.

use std::time::Duration;

use anyhow::Result;

use super::catalog::CatalogArgs;
use super::heading::COUNT;
use crate::catalog::Catalog;
use crate::choice::DeclaredCause;
use crate::discover::Machine;
use crate::discover::held_functions::SeparateFunctions;
use crate::plan::PlanRequest;

// Not a doc comment: clap would make it the description of the command that has these options.
#[derive(Debug, Default, clap::Args)]
#[expect(missing_docs, reason = "clap takes a command's description from the doc")]
pub struct SelectArgs {
    /// Groups of events, separated by commas: mem, cache, pcie, c2c, mesh, latency, energy, core,
    /// host, io, all or auto. auto is all traffic that this machine can count, counted once; or
    /// host and io on a machine without counters of traffic [default: auto, in `stat` also host, if
    /// -e, -M and --device are not given either]
    #[arg(short = 'p', long = "groups", value_name = "GROUPS", value_delimiter = ',',
          value_parser = group, help_heading = COUNT)]
    groups: Vec<String>,

    /// An event in perf's grammar, e.g. `PMU/event=0x1,term=0x2/`; may be given several times
    #[arg(short = 'e', long = "event", value_name = "EVENT", help_heading = COUNT)]
    events: Vec<String>,

    /// Metrics, separated by commas; `*` matches any text; `list metrics` shows them
    #[arg(short = 'M', long = "metrics", value_name = "METRICS", value_delimiter = ',',
          help_heading = COUNT)]
    metrics: Vec<String>,

    /// Count only this device: a PCI address DDDD:BB:DD.F, a disk or a network interface; with -p
    /// io also a layered device such as loop0 or eth0.5; may be given several times
    #[arg(long = "device", value_name = "DEVICE", help_heading = COUNT)]
    devices: Vec<String>,

    /// Count PCIe traffic by root port; or also by single functions, where the PMU can select them
    #[arg(long, value_name = "WHAT", help_heading = COUNT)]
    per: Option<Per>,

    /// Who causes the counts whose cause the catalog does not know (`unknown` in `list events`),
    /// such as those of an unknown PMU [default: these counts stay unattributed]
    #[arg(long, value_name = "CAUSE", help_heading = COUNT)]
    cause: Option<DeclaredCause>,

    /// Count the groups of `-p` that this machine has, and warn about the others
    #[arg(long, help_heading = COUNT)]
    allow_missing: bool,

    #[command(flatten)]
    catalog: CatalogArgs,
}

/// Why the processes that perf takes cannot be given, and what to do instead.
pub const NO_PROCESS: &str = "fabric counters count for all processes: use `record` and then \
                              `report --by pid`, or `top --by pid`; `stat --for-each-cgroup` has a \
                              line for each cgroup";

/// A name after -p. A number is a pid, typed by somebody who is used to perf.
fn group(typed: &str) -> Result<String, String> {
    if !typed.is_empty() && typed.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("-p takes groups of counters, not a process: {NO_PROCESS}"));
    }
    Ok(typed.to_owned())
}

/// How counters can be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Per {
    /// A counter for each root port that has devices, or for every root port if the devices are not
    /// known.
    Port,
    /// Beside the counter of all functions, a counter for each PCI function whose device file a
    /// process has open at the start, or that --device names.
    Device,
}

impl SelectArgs {
    /// Whether any counter was selected.
    pub fn asks_for_something(&self) -> bool {
        let lists = [&self.groups, &self.events, &self.metrics, &self.devices];
        lists.into_iter().any(|list| !list.is_empty()) || self.per.is_some()
    }

    /// The request for the planner on `machine`, with ticks of `tick_ns` and windows of
    /// `window_ns`.
    pub fn plan_request(&self, machine: &Machine, tick_ns: u64, window_ns: u64) -> PlanRequest {
        PlanRequest {
            groups: self.groups.clone(),
            events: self.events.clone(),
            metrics: self.metrics.clone(),
            allow_missing: self.allow_missing,
            devices: self.devices.clone(),
            per_port: self.per == Some(Per::Port),
            per_device: (self.per == Some(Per::Device))
                .then(|| SeparateFunctions::find_functions(&machine.root)),
            declared_cause: self.cause,
            tick_ns,
            window_ns,
            ..PlanRequest::default()
        }
    }

    /// The selected catalog.
    ///
    /// # Errors
    ///
    /// As [`CatalogArgs::load_catalog`].
    pub fn load_catalog(&self) -> Result<Catalog> {
        self.catalog.load_catalog()
    }
}

/// Nanoseconds; times above 584 years become `u64::MAX`, which every range check refuses.
pub fn to_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
