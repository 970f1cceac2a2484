//! Finds the block and network devices whose traffic a counter counts.
//!
//! Sysfs says where a device is attached; [`crate::catalog::ports::PortsRule`] of the counter's
//! family says which of its root ports that is. If several counters may count a device and it is
//! not known which one does, each has the device, marked as shared.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Counter;
use super::port_pmu::PortPmu;
use crate::catalog::encode::EncodedEvent;
use crate::catalog::exact::ExactBy;
use crate::catalog::pattern::matches_any_event;
use crate::catalog::pmu_words::PmuWords;
use crate::discover::Machine;
use crate::discover::pci::PciFunction;
pub use crate::schema::io::IoDirection;
use crate::schema::link;
use crate::text::{list_few, printable};

/// Number of device names before the rest is given as a number.
const NAMED: usize = 3;

/// Number of PMU names in a note before the rest is given as a number.
const FEW: usize = 3;

/// PCI base class of GPUs (`PCI_BASE_CLASS_DISPLAY`, `include/linux/pci_ids.h`).
const DISPLAY: u32 = 0x03;

/// The bytes that devices move through the root ports of one counter, in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoScope {
    /// The counted direction.
    pub direction: IoDirection,
    /// The disks and interfaces below the root ports, and the devices built on them, by name.
    pub devices: Vec<String>,
    /// The devices below the root ports, as text: for each function the name of its disk or
    /// interface, or its address. The name of the PMU if nothing is known.
    pub label: String,
    /// Whether other counters may count the same devices. Then the bytes of all these counters are
    /// divided as one sum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
}

impl Counter {
    /// Whether it is read from the kernel's statistics of a disk or an interface, and is no perf
    /// event.
    pub fn is_statistic(&self) -> bool {
        self.exact_by == Some(ExactBy::Requests)
    }
}

impl IoScope {
    /// The direction and the devices whose bytes it counts together with others of the same ones:
    /// it is not known which device each counts. `None` if it shares none.
    pub fn shared_devices(&self) -> Option<(IoDirection, &[String])> {
        self.is_shared.then_some((self.direction, self.devices.as_slice()))
    }
}

/// The devices below a counter's root ports.
#[derive(Debug)]
pub(super) struct DevicesBelow<'a> {
    /// The root ports that it counts, one bit each; `None` if it counts the whole PMU.
    pub mask: Option<u64>,
    /// The requester id that it counts alone.
    pub requester: Option<u64>,
    /// The die on which it is read.
    pub die: Option<u32>,
    /// The functions with traffic through these root ports.
    pub functions: Vec<&'a PciFunction>,
    /// Whether it is unknown for one of them which PMU counts it.
    pub is_unsure: bool,
}

impl<'a> DevicesBelow<'a> {
    /// For a counter of `encoded` on `cpu`; `None` if the PMU does not count root ports.
    pub(super) fn for_counter(
        machine: &'a Machine,
        words: PmuWords<'_>,
        encoded: &EncodedEvent,
        cpu: u32,
    ) -> Option<Self> {
        let ports = PortPmu::new(machine, words)?;
        let value = |term: &String| {
            let mut set = encoded.filter.split(',').filter_map(|term| term.split_once("=0x"));
            let (_, hex) = set.find(|(name, _)| name == term)?;
            u64::from_str_radix(hex, 16).ok()
        };
        let mask = ports.rule.term.as_ref().and_then(value);
        let id_filter = ports.rule.requester.as_ref();
        let requester = id_filter.and_then(|id_filter| value(&id_filter.term));
        let die = machine.cpus.die_number(cpu);
        let counted = |function: &&PciFunction| {
            let Some(position) = ports.find_position(function) else { return false };
            !function.is_bridge()
                && (position.die.is_none() || position.die == die)
                && (requester.is_none() || requester == ports.id_of(function))
                && match (position.port, mask) {
                    (Some(port), Some(mask)) if requester.is_none() => mask >> port & 1 == 1,
                    _ => true,
                }
        };
        let functions: Vec<_> = machine.devices.pci.iter().filter(counted).collect();
        let mut positions = functions.iter().filter_map(|function| ports.find_position(function));
        let is_unsure = positions.any(|position| position.any_of_die);
        Some(Self { mask, requester, die, functions, is_unsure })
    }
}

/// The names of these functions: each one's disk or interface, or its address; `None` if there are
/// none.
pub(super) fn device_label(machine: &Machine, functions: &[&PciFunction]) -> Option<String> {
    // Of all devices built on a disk, the disk has the shortest name, except for dm-N and mdN.
    let label = |function: &&PciFunction| {
        let is_stacked = |name: &&str| name.starts_with("dm-") || name.starts_with("md");
        let names = machine.devices.names_of(function.address);
        let name = names.min_by_key(|name| (is_stacked(name), name.len()));
        let address = || match function.class >> 16 {
            DISPLAY => format!("GPU {}", function.address),
            _ => function.address.to_string(),
        };
        name.map_or_else(address, |name| printable(name).into_owned())
    };
    let mut labels: Vec<String> = functions.iter().take(NAMED).map(label).collect();
    if functions.len() > NAMED {
        labels.push(format!("{} more", functions.len() - NAMED));
    }
    (!labels.is_empty()).then(|| labels.join(", "))
}

/// The devices whose bytes `encoded` counts, `below` its root ports; `None` if its device or root
/// ports, or its direction, are unknown.
pub(super) fn io_scope(
    machine: &Machine,
    words: PmuWords<'_>,
    encoded: &EncodedEvent,
    below: Option<&DevicesBelow<'_>>,
) -> Option<IoScope> {
    if let Some(statistics) = &words.pmu.statistics {
        return device_scope(words, encoded, &statistics.device);
    }
    let ports = PortPmu::new(machine, words)?;
    let counts = |globs: &[String]| matches_any_event(globs, &encoded.event);
    let direction = match (counts(&ports.rule.writes), counts(&ports.rule.reads)) {
        (true, false) => IoDirection::Read,
        (false, true) => IoDirection::Write,
        _ => return None,
    };
    let DevicesBelow { mask, functions, .. } = below?;
    let names = |function: &PciFunction| machine.devices.names_of(function.address);
    let devices = functions.iter().flat_map(|function| names(function)).map(str::to_owned);
    let label = device_label(machine, functions);
    let label = label.unwrap_or_else(|| printable(&words.pmu.name).into_owned());
    let mut positions = functions.iter().filter_map(|function| ports.find_position(function));
    let is_shared = positions.any(|position| {
        let term = ports.rule.term.as_ref();
        let whole = term.and_then(|term| words.default_value(term, &encoded.event));
        position.any_of_die || position.port.is_none() && mask.is_some() && *mask != whole
    });
    Some(IoScope { direction, devices: devices.collect(), label, is_shared })
}

/// The bytes of a disk or an interface.
fn device_scope(words: PmuWords<'_>, encoded: &EncodedEvent, device: &str) -> Option<IoScope> {
    let direction =
        words.family?.links.iter().find_map(|link| link.counted_direction(&encoded.event))?;
    Some(IoScope {
        direction: match direction {
            link::Direction::In => IoDirection::Read,
            link::Direction::Out => IoDirection::Write,
            link::Direction::Both => return None,
        },
        devices: vec![device.to_owned()],
        label: printable(device).into_owned(),
        is_shared: false,
    })
}

/// Notes on how the bytes of root ports are divided, one line each.
pub(super) fn io_notes(counters: &[Counter]) -> Vec<String> {
    let mut notes = Vec::new();
    let scopes = || counters.iter().filter_map(|counter| Some((counter, counter.io.as_ref()?)));
    let labels_where = |is: &dyn Fn(&IoScope) -> bool| -> BTreeSet<String> {
        let other_pmus: BTreeSet<&str> =
            scopes().filter(|(_, io)| !is(io)).map(|(counter, _)| counter.pmu.as_str()).collect();
        let name = |counter: &Counter| {
            // On some of its CPUs only.
            let is_part = other_pmus.contains(counter.pmu.as_str());
            let cpu_suffix = is_part.then(|| format!(" on CPU {}", counter.cpu));
            counter.pmu.clone() + &cpu_suffix.unwrap_or_default()
        };
        scopes().filter(|(_, io)| is(io)).map(|(counter, _)| name(counter)).collect()
    };
    let shared = labels_where(&|io| io.is_shared && !io.devices.is_empty());
    if !shared.is_empty() {
        notes.push(format!(
            "{}: it is not known which of these counters counts which device: their sum is divided \
             among the disks and interfaces of the socket, and each counter gets its part",
            list_few(&shared, FEW)
        ));
    }
    let without_devices = labels_where(&|io| io.devices.is_empty());
    if !without_devices.is_empty() {
        notes.push(format!(
            "{}: no disk or network interface is known below: the counts go to the owner device",
            list_few(&without_devices, FEW)
        ));
    }
    notes
}
