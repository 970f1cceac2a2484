//! A PMU that counts the traffic of PCIe devices: which of them it counts, and which terms select
//! one.

use super::device::Subset;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::ports::{Locate, PortsRule};
use crate::discover::Machine;
use crate::discover::pci::{PciAddress, PciFunction};

/// A PMU of root ports on its machine.
#[derive(Debug, Clone, Copy)]
pub struct PortPmu<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The PMU and its family.
    pub words: PmuWords<'a>,
    /// How its root ports are distinguished.
    pub rule: &'a PortsRule,
}

/// The position of a function in a PMU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortPosition {
    /// Number of its root port in the PMU.
    pub port: Option<u32>,
    /// Its die, if one PMU serves several.
    pub die: Option<u32>,
    /// Whether any PMU of this family on the die may be the one that counts the function.
    pub any_of_die: bool,
}

impl<'a> PortPmu<'a> {
    /// `None` if the PMU does not count root ports.
    pub fn new(machine: &'a Machine, words: PmuWords<'a>) -> Option<Self> {
        Some(Self { machine, words, rule: words.family?.ports.as_ref()? })
    }

    /// The position of the function in the PMU; `None` if the PMU does not count it.
    pub fn find_position(&self, function: &PciFunction) -> Option<PortPosition> {
        let PciAddress { domain, bus, device, function: number } = function.top;
        let [bus, device, number] = [bus, device, number].map(u64::from);
        let has_suffix = |suffix: String| self.words.pmu.name.ends_with(&suffix);
        // The kernel compares within the domain of the PMU, which is not in its files. All root
        // ports of Kunpeng are in domain 0.
        let is_in_range = |address: PciAddress| {
            let range = self.words.pmu.bdf_range.as_ref();
            address.domain == 0 && range.is_some_and(|ids| ids.contains(&address.requester_id()))
        };
        let (port, is_counted) = match self.rule.by {
            Locate::GraceDomain => (Some(domain & 0xf), has_suffix(format!("_{}", domain >> 4))),
            Locate::Tegra410Dvsec => {
                let tegra = function.tegra?;
                let suffix = format!("_{}_rc_{}", tegra.socket, tegra.root_complex);
                (Some(u32::from(tegra.port)), has_suffix(suffix))
            }
            Locate::DwcName => {
                let sbdf = u64::from(domain) << 16 | bus << 8 | device << 3 | number;
                (None, has_suffix(format!("_{sbdf:x}")))
            }
            Locate::PcieBdfName => {
                let sbdf = u64::from(domain) << 24 | bus << 16 | device << 8 | number;
                (None, has_suffix(format!("_{sbdf:x}")))
            }
            Locate::HisiBdfRange => (None, is_in_range(function.top)),
            // The driver compares the function itself (`hns3_pmu_valid_bdf`,
            // drivers/perf/hisilicon/hns3_pmu.c, Linux 7.2).
            Locate::HnsBdfRange => (None, is_in_range(function.address)),
            Locate::Iort => (None, self.find_stream(function).is_some()),
            // Linux has no die* files of the stacks of Sapphire Rapids and later.
            Locate::IntelDie if self.words.pmu.dies.is_empty() => {
                let die = Some(die_of(self.machine, function)?);
                return Some(PortPosition { die, any_of_die: true, ..PortPosition::default() });
            }
            Locate::IntelDie => {
                let root_bus = |text: &str| {
                    let (domain, bus) = text.split_once(':')?;
                    let bus = u64::from_str_radix(bus, 16).ok()?;
                    Some((u32::from_str_radix(domain, 16).ok()?, bus))
                };
                let mut dies = self.words.pmu.dies.iter();
                let (die, _) = dies.find(|(_, text)| root_bus(text) == Some((domain, bus)))?;
                return Some(PortPosition { die: Some(*die), ..PortPosition::default() });
            }
        };
        let is_counted = is_counted && port.is_none_or(|port| port < self.rule.count);
        is_counted.then(|| PortPosition { port, ..PortPosition::default() })
    }

    /// As [`Self::find_position`]; also `None` if another PMU may be the one that counts it.
    pub fn single_position(&self, function: &PciFunction) -> Option<PortPosition> {
        self.find_position(function).filter(|position| !position.any_of_die)
    }

    /// The id by which the PMU knows a function; `None` if the PMU does not count it.
    pub fn id_of(&self, function: &PciFunction) -> Option<u64> {
        match self.rule.by {
            Locate::Iort => self.find_stream(function),
            _ => Some(u64::from(function.address.requester_id())),
        }
    }

    /// The `StreamID` of a function at the SMMU of the PMU, which is named after the page of its
    /// registers (`smmu_pmu_probe`, `drivers/perf/arm_smmuv3_pmu.c`, Linux 7.2).
    fn find_stream(&self, function: &PciFunction) -> Option<u64> {
        let (_, page) = self.words.pmu.name.rsplit_once('_')?;
        let page = u64::from_str_radix(page, 16).ok()?;
        self.machine.streams.stream_id(page, function.address).map(u64::from)
    }

    /// Whether all counters of the PMU share the register for the id of a device.
    pub fn has_one_register(&self) -> bool {
        let rule = self.words.family.and_then(|family| family.one_value.as_ref());
        rule.zip(self.rule.requester.as_ref())
            .is_some_and(|(one_value, requester)| one_value.terms.contains(&requester.term))
    }

    /// The part of the PMU that counts the function at this position, where it cannot distinguish
    /// these others.
    pub fn select_subset(
        &self,
        function: &PciFunction,
        position: PortPosition,
        inseparable: &[PciAddress],
    ) -> Subset {
        let PortsRule { term, requester, .. } = self.rule;
        // The port is enough if no other device is below it.
        let by_port = term.is_some() && inseparable.is_empty();
        let requester = requester.as_ref().filter(|_| !by_port && !function.is_bridge());
        let terms = if let Some((requester, id)) = requester.zip(self.id_of(function)) {
            requester.selecting_terms(id)
        } else {
            // A kernel without the term counts all ports.
            let term = term.as_ref().filter(|term| self.words.term_format(term).is_some());
            let port_term = term.zip(position.port);
            port_term.map(|(term, port)| (term.clone(), 1_u64 << port)).into_iter().collect()
        };
        Subset { terms, die: position.die, functions: Vec::new() }
    }

    /// The other functions with traffic that the PMU cannot distinguish from this one, except by
    /// their requester id.
    pub fn counted_with(&self, function: &PciFunction, position: PortPosition) -> Vec<PciAddress> {
        let is_below_port = position.port.is_some() || self.rule.term.is_none();
        let is_inseparable = |candidate: &&PciFunction| {
            candidate.address != function.address
                && !candidate.is_bridge()
                && if is_below_port {
                    // Below the same function on the root bus.
                    candidate.top == function.top
                } else {
                    self.find_position(candidate) == Some(position)
                }
        };
        let functions = self.machine.devices.pci.iter().filter(is_inseparable);
        functions.map(|inseparable| inseparable.address).collect()
    }
}

/// The die to which a function is attached: the only one, or that of the CPUs of its NUMA node;
/// `None` if the firmware reports no node.
fn die_of(machine: &Machine, function: &PciFunction) -> Option<u32> {
    let near = || machine.cpus.die_number(machine.cpus.first_of_node(function.numa_node?)?);
    machine.cpus.only_die().or_else(near)
}
