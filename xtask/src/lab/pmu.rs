//! The lab's description of a PMU: `tests/lab/pmus/NAME.toml`.
//!
//! It is written from the drivers' sources, not from the program's catalog, so that the two are
//! independent: recordings are compared with the numbers here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Deserializer, Serialize};

use super::kernel::Series;

/// Kinds of device models, numbered in `tests/lab/model/abi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeviceModelKind {
    Cspmu = 1,
    Cmem = 2,
    C2c = 3,
    Cmn = 4,
    Dwc = 5,
    Drw = 6,
    Cpu = 7,
    Hisi = 8,
}

/// One PMU, whatever its instance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabPmu {
    /// The name that its driver gives it, with `{socket}`, `{unit}`, `{index}`, `{page}`, `{sbdf}`.
    pub name: String,
    pub kind: DeviceModelKind,
    /// Number of events that it can count at the same time.
    pub at_once: usize,
    /// Events for testing the views after the first; empty: all.
    #[serde(default)]
    pub view_events: Vec<String>,
    /// Events of which it can count only one at a time.
    #[serde(default)]
    pub exclusive: Vec<String>,
    /// How far a reading may be ahead of the true count: a driver that reads two registers one
    /// after the other may count a carry twice until the next reading.
    #[serde(default)]
    pub ahead: u64,
    /// Whether it cannot count an event twice, with any terms.
    #[serde(default)]
    pub distinct: bool,
    #[serde(default)]
    pub define: Define,
    /// Properties of its ACPI device.
    #[serde(default)]
    pub properties: BTreeMap<String, u64>,
    /// Properties that hold the number of its unit.
    #[serde(default)]
    pub unit_properties: Vec<String>,
    pub traffic: Vec<Traffic>,
    pub view: Vec<EventView>,
    pub events: BTreeMap<String, HardwareEvent>,
    /// Formulas of the program's metrics, by name.
    #[serde(default, deserialize_with = "formulas")]
    pub metrics: BTreeMap<String, LabFormula>,
    /// Differences in drivers of earlier kernels.
    #[serde(default)]
    pub earlier: Vec<Earlier>,
}

/// The content of its registers at reset.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Define {
    /// `PMIIDR` of an `arm_cspmu`.
    pub iidr: u64,
    /// Number of counters of an `arm_cspmu`, with the cycle counter.
    pub counters: u64,
    /// Their width in bits.
    pub width: u64,
    /// ACPI HID of the device that the driver binds to or looks up.
    pub hid: String,
    /// Offset of that device's own page of registers from the start of the window.
    pub page: Option<u64>,
    /// Number of instances of a C2C PMU.
    pub instances: u64,
    /// Number of lanes of a root port.
    pub lanes: u64,
    /// Columns, rows and revision of a mesh.
    pub mesh: [u64; 3],
    /// Number of its register layout, among those of its kind.
    pub layout: u64,
    /// Node ids of its CCLA nodes.
    pub ccla: Vec<u64>,
}

/// Traffic of the tests: each of the events from each source to each target. If several entries
/// name an event, the last is used.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traffic {
    /// Names; `PREFIX*` matches all that begin so.
    pub events: Vec<String>,
    #[serde(default = "zero")]
    pub sources: Vec<u64>,
    #[serde(default = "zero")]
    pub targets: Vec<u64>,
}

fn zero() -> Vec<u64> {
    vec![0]
}

/// Format terms, and the traffic that an event counts with them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventView {
    /// The events; absent: all.
    pub events: Option<Vec<String>>,
    pub terms: String,
    /// The sources; absent: all.
    pub sources: Option<Vec<u64>>,
    /// The targets; absent: all.
    pub targets: Option<Vec<u64>>,
    /// Whether nothing else can be counted at the same time.
    #[serde(default)]
    pub alone: bool,
    /// First kernel series whose driver knows the terms; an event without any view does not exist.
    pub since: Option<Series>,
}

/// Formula of a metric.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LabFormula {
    /// In Python: driver's counts by event name, `t` the time counted in ns;
    /// `of(event, source, ...)` is the count from these sources.
    pub value: String,
    /// Whether counts and times of all instances are summed before the formula is applied.
    pub pooled: bool,
}

impl LabFormula {
    /// Whether it uses counts of single sources.
    pub(crate) fn by_source(&self) -> bool {
        self.value.contains("of(")
    }
}

fn formulas<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, LabFormula>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct FormulaTables {
        sum: BTreeMap<String, String>,
        pool: BTreeMap<String, String>,
    }
    let FormulaTables { sum, pool } = FormulaTables::deserialize(deserializer)?;
    let sum = sum.into_iter().map(|(name, value)| (name, LabFormula { value, pooled: false }));
    let pool = pool.into_iter().map(|(name, value)| (name, LabFormula { value, pooled: true }));
    Ok(sum.chain(pool).collect())
}

/// Event numbers of drivers up to a kernel series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Earlier {
    pub until: Series,
    pub events: BTreeMap<String, HardwareEvent>,
}

/// The hardware's number for an event.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum HardwareEvent {
    Number(u32),
    Detailed {
        event: u32,
        /// For a mesh: node type and occupancy select.
        #[serde(default)]
        target: Option<u64>,
        /// Targets whose traffic it counts, if not only its own.
        #[serde(default)]
        sees: Option<Vec<u64>>,
        /// Factor by which the driver multiplies the hardware's count.
        #[serde(default = "one")]
        factor: u64,
    },
}

fn one() -> u64 {
    1
}

impl HardwareEvent {
    pub(crate) fn hardware_number(&self) -> u32 {
        match *self {
            Self::Number(event) | Self::Detailed { event, .. } => event,
        }
    }

    pub(crate) fn own_target(&self) -> Option<u64> {
        match *self {
            Self::Number(_) => None,
            Self::Detailed { target, .. } => target,
        }
    }

    /// Targets whose traffic it counts, if the event says so.
    pub(crate) fn seen_targets(&self) -> Option<Vec<u64>> {
        match self {
            Self::Number(_) => None,
            Self::Detailed { target, sees, .. } => {
                sees.clone().or_else(|| target.map(|target| vec![target]))
            }
        }
    }

    pub(crate) fn count_factor(&self) -> u64 {
        match *self {
            Self::Number(_) => 1,
            Self::Detailed { factor, .. } => factor,
        }
    }
}

impl LabPmu {
    /// Whether each CPU has its own counter of an event.
    pub(crate) fn is_per_cpu(&self) -> bool {
        self.kind == DeviceModelKind::Cpu
    }

    /// Reads `NAME.toml` of `dir`.
    pub(crate) fn read(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name).with_extension("toml");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read the PMU {}", path.display()))?;
        let pmu: Self =
            toml::from_str(&text).with_context(|| format!("{} is not a PMU", path.display()))?;
        for name in pmu.view_events.iter().chain(&pmu.exclusive) {
            let known =
                pmu.events.keys().any(|event| matches_pattern(std::slice::from_ref(name), event));
            ensure!(known, "{}: no event {name}", path.display());
        }
        for name in pmu.earlier.iter().flat_map(|earlier| earlier.events.keys()) {
            ensure!(pmu.events.contains_key(name), "{}: no event {name}", path.display());
        }
        for event in pmu.events.keys() {
            let moves = pmu.traffic.iter().any(|traffic| matches_pattern(&traffic.events, event));
            ensure!(moves, "{}: nothing moves {event}", path.display());
            ensure!(pmu.first_view(event).is_some(), "{}: no view of {event}", path.display());
        }
        Ok(pmu)
    }

    /// The description for a kernel.
    #[must_use]
    pub(crate) fn for_series(&self, series: Series) -> Self {
        let mut pmu = self.clone();
        pmu.view.retain(|view| view.since.is_none_or(|since| series >= since));
        for earlier in self.earlier.iter().filter(|earlier| series <= earlier.until) {
            pmu.events.extend(earlier.events.clone());
        }
        let shown = |event: &str| pmu.view.iter().any(|view| view.applies_to(event));
        pmu.events.retain(|event, _| shown(event));
        pmu
    }

    /// Whether it can count this event and similar ones only one at a time.
    pub(crate) fn is_exclusive(&self, event: &str) -> bool {
        matches_pattern(&self.exclusive, event)
    }

    /// The view in which an event counts the most traffic.
    pub(crate) fn first_view(&self, event: &str) -> Option<&EventView> {
        self.view.iter().find(|view| view.applies_to(event))
    }

    /// The traffic of an event.
    pub(crate) fn traffic_of(&self, event: &str) -> Option<&Traffic> {
        self.traffic.iter().rev().find(|traffic| matches_pattern(&traffic.events, event))
    }
}

impl EventView {
    /// Whether the view applies to this event.
    pub(crate) fn applies_to(&self, event: &str) -> bool {
        self.events.as_ref().is_none_or(|events| matches_pattern(events, event))
    }
}

fn matches_pattern(patterns: &[String], event: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => event.starts_with(prefix),
        None => pattern == event,
    })
}
