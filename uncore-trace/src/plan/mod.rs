//! Planning: turns the user's request and the machine into the exact list of counters to open.
//!
//! Pure: the same machine, catalog and request give the same plan on any computer. A plan has every
//! perf attribute that matters and can be printed. What is left out of a request is an error, a
//! warning or a note.

pub mod allowance;
mod assembly;
pub mod builtin_events;
pub mod declared_cause;
pub mod device;
mod functions_behind;
mod groups;
mod guests;
pub mod io;
mod left_out_counters;
pub mod links;
pub mod measure;
mod memory;
mod metric_groups;
pub mod misses;
mod per_device;
mod plan_notes;
mod pmu_cpus;
pub mod pmus;
pub mod port_pmu;
pub mod ports;
pub mod render;
pub mod resolve;
mod role;
mod shared_terms;
pub mod traffic;
pub mod uncounted;
mod weights;
mod window_length;

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use self::assembly::Assembly;
use self::device::Narrowing;
pub use self::functions_behind::CountedFunction;
pub use self::io::{IoDirection, IoScope};
use self::pmus::PmuIndex;
use self::render::format_duration;
use self::resolve::{ResolvedEvent, Resolver, error_in_text};
pub use self::role::CounterRole;
pub use self::window_length::SHORTEST_WINDOW_NS;
use crate::catalog::Catalog;
use crate::catalog::exact::ExactBy;
use crate::catalog::group::Group;
use crate::catalog::metric::PlannedMetric;
use crate::catalog::source::TrafficCause;
use crate::catalog::spec::{self, EventItem};
use crate::choice::{DeclaredCause, MethodChoice};
use crate::discover::format::WORDS;
use crate::discover::held_functions::SeparateFunctions;
use crate::discover::pci::PciAddress;
use crate::discover::{CpuList, Machine};
use crate::schema::link::Link;
use crate::suggest::list_names;
use crate::text::printable;

/// Shortest tick, 100 us: at 10 kHz the timer is the largest part of the cost.
pub const MIN_TICK_NS: u64 = 100_000;

/// Longest tick, 1 s: 32-bit hardware counters without an overflow interrupt must be read before
/// they wrap.
pub const MAX_TICK_NS: u64 = 1_000_000_000;

/// Longest window, 1 min: a longer one hardly says when something happened.
pub const MAX_WINDOW_NS: u64 = 60_000_000_000;

/// The request of the user.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
pub struct PlanRequest {
    /// Names after `-p`, split at commas.
    pub groups: Vec<String>,
    /// Texts after `-e`, one per option.
    pub events: Vec<String>,
    /// Names after `-M`, split at commas, with the patterns `*`, `?` and `[]`.
    pub metrics: Vec<String>,
    /// Whether a group that opens nothing is a warning, not an error.
    pub allow_missing: bool,
    /// Names after `--device`: counters of PCIe, disks and interfaces count only these devices.
    pub devices: Vec<String>,
    /// Whether PCIe counters are split by root port.
    pub per_port: bool,
    /// The functions that are counted on their own beside the whole, unless `devices` names them.
    pub per_device: Option<SeparateFunctions>,
    /// What the user says of the counters whose causes nothing else says.
    pub declared_cause: Option<DeclaredCause>,
    /// Whether witnesses are counted.
    pub misses: misses::WitnessDemand,
    /// Whether ports are counted; planning fails if there are none.
    pub ports: bool,
    /// Whether `-e` may name the times of a measurement, which need no counter: see
    /// [`builtin_events::TIMES`].
    pub times: bool,
    /// Length of a tick, ns.
    pub tick_ns: u64,
    /// Length of a window, ns: a whole number of ticks.
    pub window_ns: u64,
}

/// One perf event on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Counter {
    /// Its index in the plan.
    pub id: u32,
    /// The PMU instance.
    pub pmu: String,
    /// Family of the PMU.
    pub family: String,
    /// The group under which it is recorded, as in `-p`; `other` for a PMU that is not in the
    /// catalog.
    pub subsystem: String,
    /// The event's name, or the terms that select it.
    pub event: String,
    /// The terms that narrow it, values in hex; empty if there are none.
    pub filter: String,
    /// Unit of the value: `bytes`, `requests`, `cycles`, `request_cycles`, `ns`, `count`, or the
    /// unit in sysfs.
    pub unit: String,
    /// Value in `unit` per raw count.
    pub scale: f64,
    /// `perf_event_attr.type`.
    pub attr_type: u32,
    /// `perf_event_attr.config` to `config4`.
    pub config: [u64; WORDS],
    /// The reader CPU, on which it is opened and read.
    pub cpu: u32,
    /// Package of the reader CPU, if known.
    pub socket: Option<i16>,
    /// The online CPUs whose traffic it can see; empty if only devices cause what it counts, or
    /// nothing says who does.
    pub sees: CpuList,
    /// The CPUs in `sees` that are far from the PMU, if others are near: those of other sockets.
    /// They have a lower weight if nothing else is known.
    #[serde(default, skip_serializing_if = "CpuList::is_empty")]
    pub far: CpuList,
    /// Whether it counts its own CPU only.
    pub per_cpu: bool,
    /// Whether it does not count while its CPU runs a virtual machine: `exclude_guest`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclude_guest: bool,
    /// Whether it is read at every context switch of its CPU, so that each task has its own count.
    pub at_switch: bool,
    /// By what else each task's own count is known; `None` if it is read at every switch, or
    /// estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_by: Option<ExactBy>,
    /// The only cause of what it counts; `None` if there are several, or it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<TrafficCause>,
    /// All causes of what it counts, if there are several; empty if unknown.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub causes: BTreeSet<TrafficCause>,
    /// The devices whose bytes it counts, if it counts bytes of PCIe root ports, of a disk or of an
    /// interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoScope>,
    /// The PCI functions whose traffic it counts, if it counts traffic of devices and they are
    /// known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<CountedFunction>,
    /// The functions that it counts beside a counter of the whole; empty if it is no such counter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<PciAddress>,
    /// The counter that counts all of what it counts, and more; `None` if it is no part of another
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<u32>,
    /// Whether no other counter of its PMU may run while its group does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// The leader of its group; `None` for a leader and for a counter outside groups. A leader
    /// comes before its siblings.
    pub leader: Option<u32>,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "CounterRole::is_counted")]
    pub role: CounterRole,
    /// For a witness, the bytes of traffic per count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness_bytes: Option<f64>,
}

/// The exact list of counters to open.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Length of a tick, ns.
    pub tick_ns: u64,
    /// Length of a window, ns.
    pub window_ns: u64,
    /// The counters; the id of each is its index.
    pub counters: Vec<Counter>,
    /// The metrics that are computed from them.
    pub metrics: Vec<PlannedMetric>,
    /// The links whose bytes they count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Requested items that are left out, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Notes for the user, one line each.
    pub notes: Vec<String>,
}

impl Plan {
    /// Whether the method needs I/O to be recorded for one of its counters.
    pub fn needs_io(&self, method: MethodChoice) -> bool {
        self.counters
            .iter()
            .any(|counter| counter.is_statistic() || method.wants_io() && counter.io.is_some())
    }
}

/// Resolves `request` on `machine`.
///
/// An error is one line that says what is wrong and where, what exists, and what was probably
/// meant.
pub fn plan(machine: &Machine, catalog: &Catalog, request: &PlanRequest) -> Result<Plan> {
    plan_on(&Rc::new(PmuIndex::new(machine, catalog)), request)
}

/// The same for several requests on one machine, whose PMUs are then looked at once.
///
/// # Errors
///
/// As [`plan`].
pub fn plan_on(pmus: &Rc<PmuIndex<'_>>, request: &PlanRequest) -> Result<Plan> {
    check_times(request.tick_ns, request.window_ns)?;
    let narrowing = Narrowing::new(pmus, request)?;
    let groups = requested_groups(request, &narrowing);
    let narrowing_is_by_device = narrowing.is_by_device();
    let mut resolver = Resolver::new(Rc::clone(pmus), narrowing);
    resolver.times = request.times;
    let mut assembly = Assembly::new(pmus, request);
    assembly.add_events(&resolver.resolve_groups(&groups, request.allow_missing)?)?;
    if !narrowing_is_by_device {
        assembly.warn_of_sockets();
    }
    for text in &request.events {
        for item in spec::parse(text).map_err(|error| error_in_text(text, &error))? {
            let with_text = |error| error_in_text(text, &error);
            match item {
                EventItem::One(event) => {
                    let events = resolver.resolve_event(&event, &[]).map_err(with_text)?;
                    assembly.add_events(&events)?;
                }
                EventItem::Group { members, weak } => {
                    let leader = members.first().map_or(&[][..], |leading| &leading.terms).to_vec();
                    let mut events = Vec::new();
                    for (index, member) in members.iter().enumerate() {
                        let leader = if index == 0 { &[] } else { leader.as_slice() };
                        let member_events =
                            resolver.resolve_event(member, leader).map_err(with_text)?;
                        check_unsplit(text, &member_events)?;
                        events.extend(member_events);
                    }
                    assembly.add_group(text, weak, &events)?;
                }
            }
        }
    }
    assembly.add_metrics(&resolver.resolve_metrics(&request.metrics)?)?;
    assembly.add_misses(&resolver, request.misses)?;
    if request.ports {
        assembly.add_ports(&resolver)?;
    }
    assembly.add_notes(resolver.take_notes(request)?);
    let mut plan = assembly.finish_plan(&resolver, request)?;
    plan.warnings.append(&mut resolver.warnings);
    if plan.counters.is_empty() && !resolver.has_time {
        bail!(
            "nothing to count: give -p GROUP, -e EVENT or -M METRIC; the groups here are {}",
            list_names(resolver.groups_here())
        );
    }
    Ok(plan)
}

/// The requested groups; without a request `auto`, or `pcie` or `io` if only devices are given.
fn requested_groups(request: &PlanRequest, narrowing: &Narrowing<'_>) -> Vec<String> {
    let nothing =
        request.groups.is_empty() && request.events.is_empty() && request.metrics.is_empty();
    match (nothing, request.devices.is_empty()) {
        (true, true) => vec![traffic::AUTO.to_owned()],
        (true, false) if narrowing.has_functions() => vec![Group::Pcie.name().to_owned()],
        (true, false) => vec![Group::Io.name().to_owned()],
        (false, _) => request.groups.clone(),
    }
}

/// A brace group is counted together, so it cannot be split by port.
fn check_unsplit(text: &str, events: &[ResolvedEvent<'_>]) -> Result<()> {
    let mut pmus = HashSet::new();
    let repeated = events.iter().find(|event| !pmus.insert(event.words.pmu_name()));
    ensure!(
        repeated.is_none(),
        "{}: a group cannot be split by root port or device: leave out the braces, or name the \
         port in it",
        printable(text)
    );
    Ok(())
}

/// Checks that ticks of `tick_ns` can form windows of `window_ns`.
///
/// # Errors
///
/// One of them is out of range, or the window is not a whole number of ticks.
pub fn check_times(tick_ns: u64, window_ns: u64) -> Result<()> {
    let ranges = [("an interval", window_ns, MAX_WINDOW_NS), ("a tick", tick_ns, MAX_TICK_NS)];
    for (name, ns, max_ns) in ranges {
        ensure!(
            (MIN_TICK_NS..=max_ns).contains(&ns),
            "{name} of {} is out of range: choose {} to {}",
            format_duration(ns),
            format_duration(MIN_TICK_NS),
            format_duration(max_ns)
        );
    }
    ensure!(
        window_ns.is_multiple_of(tick_ns),
        "an interval of {} is not a whole number of ticks of {}: choose a multiple of the tick, or \
         record with another --tick",
        format_duration(window_ns),
        format_duration(tick_ns)
    );
    Ok(())
}
