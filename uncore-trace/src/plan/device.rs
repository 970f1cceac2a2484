//! `--device` and `--per port`: finds the PMU and the filter that count a device or a root port.
//! Disks and interfaces are PMUs of their own too.
//!
//! Sysfs says where a device is attached; [`PortPmu::rule`] says what that means for the PMU. A
//! device that no PMU can single out is an error: its traffic is never replaced by the total.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, bail, ensure};

use super::PlanRequest;
use super::pmus::PmuIndex;
use super::port_pmu::PortPmu;
use crate::catalog::group::Group;
use crate::catalog::kernels;
use crate::catalog::pattern::matches_any_event;
use crate::catalog::pmu_words::{PmuWords, WHOLE_WORDS};
use crate::catalog::ports::Locate;
use crate::catalog::spec::{Term, TermValue};
use crate::discover::pci::{PciAddress, PciFunction};
use crate::discover::{Machine, Pmu};
use crate::suggest::{did_you_mean, list_names};
use crate::text::printable;

/// A part of what a PMU counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subset {
    /// The terms that select this part.
    pub terms: Vec<(String, u64)>,
    /// Its die, if one PMU serves several.
    pub die: Option<u32>,
    /// The functions that it counts beside the whole: see [`super::per_device`].
    pub functions: Vec<PciAddress>,
}

impl Subset {
    /// `root_port=0x100`, `die 1`; `all` if it is the whole PMU.
    pub fn describe_subset(&self) -> String {
        let terms = self.terms.iter().map(|(term, value)| format!("{term}={value:#x}"));
        let die = self.die.map(|die| format!("die {die}"));
        let text = [terms.collect::<Vec<_>>().join(","), die.unwrap_or_default()];
        let text: Vec<_> = text.into_iter().filter(|text| !text.is_empty()).collect();
        if text.is_empty() { "all".to_owned() } else { text.join(" on ") }
    }

    /// Its terms, as if the user had typed them at `column`.
    pub fn typed_terms(&self, column: usize) -> impl Iterator<Item = Term> {
        typed(&self.terms, column)
    }
}

/// Terms with values, as if the user had typed them at `column`.
pub fn typed(terms: &[(String, u64)], column: usize) -> impl Iterator<Item = Term> {
    terms.iter().map(move |(name, value)| Term {
        name: name.clone(),
        value: TermValue::Number(*value),
        column,
    })
}

/// How `--device` and `--per port` narrow counters of PCIe, disks and interfaces.
#[derive(Debug)]
pub struct Narrowing<'a> {
    pub(super) machine: &'a Machine,
    /// The requested functions; `None`: all.
    wanted: Option<Vec<&'a PciFunction>>,
    /// The requested disks and interfaces; only used if `wanted` is given.
    named: BTreeSet<&'a str>,
    /// Why no PCIe counter can be narrowed to one of these.
    pub refused: Option<String>,
    per_port: bool,
    /// The functions that are counted on their own beside the whole, if any are.
    pub(super) apart: Option<Vec<&'a PciFunction>>,
    /// Notes for the user, one line each.
    pub notes: BTreeSet<String>,
    /// Whether any counter was narrowed.
    pub used: bool,
}

impl<'a> Narrowing<'a> {
    /// Narrows nothing.
    pub fn whole_machine(machine: &'a Machine) -> Self {
        Self {
            machine,
            wanted: None,
            named: BTreeSet::new(),
            refused: None,
            per_port: false,
            apart: None,
            notes: BTreeSet::new(),
            used: false,
        }
    }

    /// Narrows to the requested devices; none means all.
    ///
    /// # Errors
    ///
    /// No device has this name, or it has no statistics and no PMU can single it out.
    pub(super) fn new(pmus: &PmuIndex<'a>, request: &PlanRequest) -> Result<Self> {
        let (machine, devices) = (pmus.machine, &request.devices);
        let mut narrowing = Self { per_port: request.per_port, ..Self::whole_machine(machine) };
        if let Some(apart) = &request.per_device {
            narrowing.set_apart(devices, apart)?;
            return Ok(narrowing);
        }
        if devices.is_empty() {
            return Ok(narrowing);
        }
        let mut wanted = Vec::new();
        for device in devices {
            let functions = on_ports(pmus, device);
            let Some(device_name) = counted_by_kernel(machine, device) else {
                wanted.extend(functions?);
                continue;
            };
            narrowing.named.insert(device_name);
            match functions {
                Ok(functions) => wanted.extend(functions),
                Err(error) => narrowing.refused = Some(format!("{error:#}")),
            }
        }
        let mut seen = BTreeSet::new();
        wanted.retain(|function| seen.insert(function.address));
        narrowing.wanted = Some(wanted);
        Ok(narrowing)
    }

    /// Whether devices were requested.
    pub const fn is_by_device(&self) -> bool {
        self.wanted.is_some()
    }

    /// Whether PCIe counters are narrowed to a device.
    pub fn has_functions(&self) -> bool {
        self.apart.is_some() || self.wanted.as_ref().is_some_and(|wanted| !wanted.is_empty())
    }

    /// Whether a group opens a PMU: of the disks and interfaces those that were requested, or else
    /// those that count no byte again.
    pub fn opens_pmu(&self, pmu: &Pmu) -> bool {
        let Some(statistics) = &pmu.statistics else { return true };
        match self.wanted {
            Some(_) => self.named.contains(statistics.device.as_str()),
            None => !statistics.counts_again,
        }
    }

    /// The parts of `event` to count on one PMU. Empty if no requested device is below it; one part
    /// without terms if the whole PMU is meant. `typed` are the terms that the user gave.
    pub fn select_subsets(
        &mut self,
        words: PmuWords<'_>,
        event: &str,
        typed: &[Term],
    ) -> Vec<Subset> {
        let whole = vec![Subset::default()];
        if let Some(statistics) = words.pmu.statistics.as_ref().filter(|_| self.wanted.is_some()) {
            let is_named = self.named.contains(statistics.device.as_str());
            self.used |= is_named;
            return if is_named { whole } else { Vec::new() };
        }
        let Some(ports) = PortPmu::new(self.machine, words) else { return whole };
        let rule = ports.rule;
        // A whole config word includes the field. The first one also has the event in it.
        let field = rule.term.as_ref().and_then(|term| words.term_format(term));
        let in_word = |term: &Term| match (field, &term.value) {
            (Some(field), TermValue::Number(value)) => {
                term.name == WHOLE_WORDS[field.word_index()]
                    && (field.word_index() > 0 || value & field.mask != 0)
            }
            _ => false,
        };
        let chosen = |term: &Term| {
            rule.term.as_ref() == Some(&term.name)
                || in_word(term)
                || rule.requester.as_ref().is_some_and(|id_filter| id_filter.term == term.name)
        };
        if typed.iter().any(chosen) {
            return whole;
        }
        let split = matches_any_event(&rule.events, event);
        if let Some(apart) = self.apart.clone() {
            return self.beside_whole(ports, event, &apart);
        }
        let subsets = match &self.wanted {
            Some(wanted) => {
                let wanted = wanted.clone();
                self.subsets_below(ports, &wanted, split)
            }
            None if self.per_port && split => self.each_port(ports, event),
            None => return whole,
        };
        self.used |= !subsets.is_empty();
        subsets.into_iter().collect()
    }

    /// The parts for the requested functions below the PMU.
    fn subsets_below(
        &mut self,
        ports: PortPmu<'_>,
        wanted: &[&PciFunction],
        split: bool,
    ) -> BTreeSet<Subset> {
        let mut subsets = BTreeSet::new();
        for function in wanted {
            let Some(position) = ports.single_position(function) else { continue };
            if !split {
                subsets.insert(Subset { die: position.die, ..Subset::default() });
                continue;
            }
            let inseparable = ports.counted_with(function, position);
            let subset = ports.select_subset(function, position, &inseparable);
            let pmu = printable(&ports.words.pmu.name);
            let address = function.address;
            let by_requester = ports.rule.picks_device(&subset.terms);
            if by_requester && ports.has_one_register() {
                self.notes.insert(format!(
                    "{pmu}: root port {} has other devices too, so {address} is picked by its \
                     requester id; the PMU has one register for that, so counters of other \
                     traffic take turns with it",
                    function.top
                ));
            } else if !by_requester && !inseparable.is_empty() {
                let names = inseparable.iter().map(PciAddress::to_string);
                self.notes.insert(format!(
                    "{pmu}: the count for {address} includes the traffic of {}, below the same {}",
                    list_names(names),
                    if position.port.is_some() { "root port" } else { "part of the PMU" }
                ));
            }
            subsets.insert(subset);
        }
        subsets
    }

    /// A part for each root port: those with devices, or all if that is not known.
    fn each_port(&mut self, ports: PortPmu<'_>, event: &str) -> BTreeSet<Subset> {
        let PortPmu { words, rule, .. } = ports;
        let term = rule.term.as_ref();
        let Some(term) = term.filter(|term| words.term_format(term).is_some()) else {
            let why = match term {
                Some(term) => {
                    format!(
                        "this kernel has no term {term}, so its root ports cannot be told apart"
                    )
                }
                None if rule.by == Locate::HisiBdfRange => {
                    "it is not known which filter bit is which root port, so its root ports are \
                     counted together"
                        .to_owned()
                }
                None => return BTreeSet::from([Subset::default()]),
            };
            self.notes.insert(format!("{}: {why}", printable(&words.pmu.name)));
            return BTreeSet::from([Subset::default()]);
        };
        let devices = self.machine.devices.pci.iter().filter(|function| !function.is_bridge());
        let with_devices = devices.filter_map(|function| ports.find_position(function)?.port);
        let mut numbers: BTreeSet<u32> = with_devices.filter(|port| *port < rule.count).collect();
        if numbers.is_empty() {
            // Bits that the default filter excludes are not root ports.
            let ports = words.default_value(term, event).unwrap_or(u64::MAX);
            numbers = (0..rule.count).filter(|port| ports >> port & 1 == 1).collect();
        }
        let port_subset =
            |port: u32| Subset { terms: vec![(term.clone(), 1_u64 << port)], ..Subset::default() };
        numbers.into_iter().map(port_subset).collect()
    }
}

/// The name of the disk or interface `device`, if the kernel counts its bytes; a leading `/dev/` is
/// ignored.
fn counted_by_kernel<'a>(machine: &'a Machine, device: &str) -> Option<&'a str> {
    let device = device.strip_prefix("/dev/").unwrap_or(device);
    let mut device_names =
        machine.pmus.iter().filter_map(|pmu| Some(pmu.statistics.as_ref()?.device.as_str()));
    device_names.find(|name| *name == device)
}

/// The functions that a name after `--device` selects, if a PMU singles each of them out.
fn on_ports<'a>(pmus: &PmuIndex<'a>, device: &str) -> Result<Vec<&'a PciFunction>> {
    let functions = selected_functions(pmus.machine, device)?;
    for function in &functions {
        ensure!(pmus.can_single_out(function), "{}", no_pmu(pmus, device, function));
    }
    Ok(functions)
}

/// The functions that a name after `--device` selects.
pub(super) fn selected_functions<'a>(
    machine: &'a Machine,
    device: &str,
) -> Result<Vec<&'a PciFunction>> {
    let devices = &machine.devices;
    let shown = printable(device);
    let listed = "`uncore-trace list devices` shows those of this machine";
    if let Ok(address) = device.parse::<PciAddress>() {
        let function = devices.find_function(address);
        let missing = || anyhow!("there is no PCI device {address}; {listed}");
        return Ok(vec![function.ok_or_else(missing)?]);
    }
    let Some(named) = devices.find_named(device) else {
        let names = devices.block.iter().chain(&devices.net).map(|named| named.name.as_str());
        bail!("there is no device {shown}{}; {listed}", did_you_mean(device, names));
    };
    ensure!(
        !named.functions.is_empty(),
        "{shown} is not on PCI, so no root port is above it; {listed}"
    );
    let known = named.functions.iter().filter_map(|address| devices.find_function(*address));
    let known: Vec<_> = known.collect();
    ensure!(!known.is_empty(), "{shown} is not in /sys/bus/pci/devices; {listed}");
    Ok(known)
}

/// Why no PMU can single out a device.
pub(super) fn no_pmu(pmus: &PmuIndex<'_>, device: &str, function: &PciFunction) -> String {
    let with_ports = pmus
        .all_pmus()
        .iter()
        .filter_map(|words| Some((words.pmu_name(), words.family?.ports.as_ref()?.by)));
    let (names, ways): (Vec<_>, Vec<_>) = with_ports.unzip();
    let address = function.address.to_string();
    let device = printable(device);
    let device =
        if device == address { address } else { format!("{device} ({})", function.address) };
    let below = if function.top == function.address && !function.is_root_port() {
        "on a root bus, below no root port".to_owned()
    } else {
        format!("below root port {}", function.top)
    };
    if names.is_empty() {
        let why = kernels::gap_reason(pmus.gaps(), Group::Pcie)
            .unwrap_or_else(|| "uncore-trace doctor says whether a driver is missing".to_owned());
        return format!(
            "{device} is {below}, and no PMU of this machine tells root ports apart: {why}"
        );
    }
    let why = if ways.contains(&Locate::Tegra410Dvsec) && function.tegra.is_none() {
        "; the configuration space of the root port says which PMU counts it, and only root can \
         read it"
    } else if ways.contains(&Locate::IntelDie) {
        "; the die* files of PMUs say which stack is above a device, but Linux has them only from \
         5.7 on and only for Skylake-SP to Ice Lake-SP"
    } else {
        ""
    };
    format!(
        "{device} is {below}, and no PMU here is known to count that{why} (PMUs: {})",
        list_names(names)
    )
}
